"""Ready-made configurations, each a few differences from the defaults."""

from __future__ import annotations

from typing import Any, NamedTuple


class Preset(NamedTuple):
    summary: str
    differences: dict[str, Any]


_IMAGES: dict[str, Any] = {
    "duration_s": 2000.0,
    "model": {"kind": "cnn"},
    "train": {"step": 0.1},
    "topology": {"kind": "cycle"},
    "evaluate": {"samples": 1000},
}
_PAPER_CHOICES: dict[str, Any] = {
    "compute": {"snapshot": "finish"},
    "transmit": {"when": "on-update"},
    "method": {"weights": "delivered", "own_weight": 0.0, "hub": "random", "unification": "reliable"},
    "evaluate": {"every_s": "none", "every_events": 500},
}

PRESETS: dict[str, Preset] = {
    "poker": Preset("25 users name poker hands on the complete graph: the default", {}),
    "poker-cycle": Preset("the same on a ring, where each user has two neighbours", {"topology": {"kind": "cycle"}}),
    "paper-poker": Preset(
        "the paper's Poker hand experiment, its text taken word for word",
        {
            **_PAPER_CHOICES,
            "channel": {"kind": "wireless", "interference": "nearby", "message_bytes": 51_640},
        },
    ),
    "emnist": Preset(
        "25 users read handwriting on a ring, with a CNN; needs the EMNIST files",
        {**_IMAGES, "task": {"kind": "emnist"}},
    ),
    "paper-emnist": Preset(
        "the paper's EMNIST experiment, its text taken word for word; needs the EMNIST files",
        {
            **_IMAGES,
            **_PAPER_CHOICES,
            "task": {"kind": "emnist"},
            "evaluate": {"every_s": "none", "every_events": 500, "samples": 1000},
            "channel": {"kind": "wireless", "interference": "nearby", "message_bytes": 596_776},
        },
    ),
    "glyphs": Preset(
        "the preset emnist on synthetic characters that need no files",
        {**_IMAGES, "task": {"kind": "glyphs"}},
    ),
    "tiny": Preset(
        "eight users, a small network, a second or two: for tests and for trying things",
        {
            "users": 8,
            "duration_s": 400.0,
            "data": {"samples_per_user": 200},
            "model": {"kind": "mlp", "hidden": [32]},
            "train": {"batch": 32, "local_steps": 5},
            "method": {"psi": 40},
            "evaluate": {"every_s": 50.0, "samples": 500},
            "checkpoint": {"every_s": 100.0},
        },
    ),
}
