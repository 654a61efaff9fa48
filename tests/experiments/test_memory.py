"""What is told to Python's collector."""

from __future__ import annotations

import gc

import pytest

from dracofl.experiments.memory import few_collections


def test_what_is_there_is_passed_over_and_afterwards_everything_is_as_it_was() -> None:
    usual, frozen = gc.get_threshold(), gc.get_freeze_count()
    kept = [[number] for number in range(10_000)]
    with few_collections():
        assert gc.get_freeze_count() > frozen + len(kept)
        assert gc.get_threshold()[0] > usual[0]
        assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == usual


def test_so_it_is_after_an_error() -> None:
    usual = gc.get_threshold()
    with pytest.raises(ValueError, match="no"), few_collections():
        raise ValueError("no")
    assert gc.get_threshold() == usual
    assert gc.get_freeze_count() == 0
