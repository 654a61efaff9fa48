"""`draco data fetch`: where the data went, or what to do by hand."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from cli.draco_command import draco

from dracofl.datasets import fetch, poker

TRAINING, TESTING = "poker-hand-training-true.data", "poker-hand-testing.data"


@pytest.fixture(autouse=True)
def _nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    source = fetch.Source("http://127.0.0.1:9/poker+hand.zip", "poker+hand.zip", {TRAINING: None, TESTING: None})
    monkeypatch.setitem(fetch.SOURCES, "poker", source)


def test_without_a_network_it_says_what_to_fetch_and_where_to_put_it(tmp_path: Path) -> None:
    done = draco("data", "fetch", "poker", "--folder", tmp_path / "uci")
    assert (done.code, done.out) == (2, "")
    sentence = done.err.splitlines()[-1]
    assert sentence.startswith("draco: http://127.0.0.1:9/poker+hand.zip cannot be fetched: ")
    assert f"put the file at {tmp_path}/uci/poker+hand.zip" in sentence
    assert "Traceback" not in done.err


def test_brought_by_hand_it_is_put_where_runs_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRACOFL_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "poker"
    folder.mkdir(parents=True)
    hands = poker.deal(np.random.default_rng(1), 100)
    rows = np.column_stack([hands, poker.label_hands(hands)]).tolist()
    with zipfile.ZipFile(folder / "poker+hand.zip", "w") as archive:
        for name in (TRAINING, TESTING):
            archive.writestr(name, "".join(",".join(map(str, row)) + "\n" for row in rows))
    done = draco("data", "fetch", "poker")
    assert (done.code, done.out) == (0, f"{folder}\n")
    assert len(poker.read(folder).train) == 100


def test_a_set_that_does_not_exist() -> None:
    done = draco("data", "fetch", "cifar")
    assert (done.code, done.out) == (2, "")
    assert "'emnist', 'poker'" in done.err
