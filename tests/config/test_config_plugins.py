"""The schema and the plug-ins say the same: same kinds, same fields, same line about themselves."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dracofl.build import CHANNELS, METHODS, TOPOLOGIES
from dracofl.config import kinds

REGISTRIES: dict[str, dict[str, Any]] = {"method": METHODS, "topology": TOPOLOGIES, "channel": CHANNELS}
PLUG_INS = [
    pytest.param(section, kind, plug_in, id=f"{section}.{kind}")
    for section, registry in REGISTRIES.items()
    for kind, plug_in in registry.items()
]


@pytest.mark.parametrize("section", REGISTRIES)
def test_the_schema_and_the_registry_know_the_same_kinds(section: str) -> None:
    assert list(kinds.sections()[section]) == list(REGISTRIES[section])


@pytest.mark.parametrize(("section", "kind", "plug_in"), PLUG_INS)
def test_the_fields_of_a_plug_in_are_its_keys(section: str, kind: str, plug_in: Any) -> None:
    keys = set(kinds.sections()[section][kind].model_fields) - {"kind", "message_bytes"}
    assert {field.name for field in dataclasses.fields(plug_in)} == keys
    assert plug_in.__dataclass_params__.frozen


@pytest.mark.parametrize(("section", "kind", "plug_in"), PLUG_INS)
def test_a_plug_in_is_introduced_with_the_first_line_of_its_docstring(section: str, kind: str, plug_in: Any) -> None:
    assert kinds.summary(kinds.sections()[section][kind]) == plug_in.__doc__.strip().splitlines()[0]


def test_every_topology_named_in_the_specification_is_there() -> None:
    named = "cycle directed-cycle complete star grid torus exponential k-out erdos-renyi geometric file"
    assert sorted(TOPOLOGIES) == sorted(named.split())
    assert sorted(CHANNELS) == sorted(["wireless", "ideal", "exponential", "lossy"])
