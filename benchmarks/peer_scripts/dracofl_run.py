"""SGD steps a second of dracofl itself, for `benchmarks/peers.py`, with the project's own Python.

    python dracofl_run.py '{"model": "mlp", "quick": true}'

Prints one line of JSON: {"complete": {"steps_per_s": ..., "with_set_up": ...}, "ring": ...}.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import dracofl
from dracofl.experiments.run import run_config
from dracofl.experiments.watch import Silent

USERS = 25
WORK = {  # preset, overrides, simulated seconds, parameters
    "mlp": ("poker", ["train.local_steps=10"], 5000, 12_910),
    "cnn": ("glyphs", ["train.local_steps=5"], 500, 149_194),
}
SAME_WORK = [f"users={USERS}", "data.samples_per_user=1000", "train.batch=64"]
NOTHING_ELSE = ["evaluate.users=0", "checkpoint.every_s=none"]  # the peers neither evaluate nor save


class Began(Silent):
    """Notes when the set-up is over; what is compiled then is known from the summary."""

    def began(self, folder: str, duration_s: float, now_s: float) -> None:
        self.at_s = time.perf_counter()


def main(order: dict) -> dict[str, dict[str, float]]:
    preset, overrides, duration_s, parameters = WORK[order["model"]]
    found = {}
    for name, topology in (("complete", "complete"), ("ring", "cycle")):
        only = [f"topology.kind={topology}", f"duration_s={duration_s / 25 if order['quick'] else duration_s}"]
        config = dracofl.configure(preset, [*overrides, *SAME_WORK, *NOTHING_ELSE, *only])
        with tempfile.TemporaryDirectory() as folder:
            watcher, called_s = Began(), time.perf_counter()
            summary = run_config(config, out=Path(folder) / "run", watcher=watcher).summary
        assert summary["users"] == USERS
        assert summary["parameters"] == parameters
        assert summary["evaluations"] == 0
        playing_s = summary["wall_s"] - summary["compile_s"]
        found[name] = {
            "steps_per_s": summary["sgd_steps"] / (playing_s - (watcher.at_s - called_s)),
            "with_set_up": summary["sgd_steps"] / playing_s,
        }
    return found


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
