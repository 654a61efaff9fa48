"""A checkpoint: the state of both planes in one file, replaced as a whole.

The control plane's state is plain data in dataclasses, written as JSON (floats survive it exactly). The data plane's
is its vectors, those in flight included. Random streams need nothing: a draw is a function of its index, and the
indices are in the state.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any, BinaryIO

import jax
import numpy as np
from pydantic import TypeAdapter, ValidationError

import dracofl
from dracofl.errors import RunFolderError
from dracofl.sim.simulator import Simulator, SimulatorState
from dracofl.telemetry.folder import RunFolder
from dracofl.telemetry.storage import write_atomically
from dracofl.trace import TraceState

FORMAT = 3
# Of a damaged file zipfile may also say that it needs a password or an unknown compression: RuntimeErrors.
_SIGNS_OF_DAMAGE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    ValidationError,
)


@dataclass(frozen=True, slots=True)
class Progress:
    """What is neither plane's: how far the records are saved, and the time spent."""

    parts: int
    wall_s: float
    setup_s: float
    compile_s: float
    next_checkpoint_s: float


def save(
    folder: RunFolder,
    config_toml: str,
    progress: Progress,
    simulator: Simulator,
    vectors: dict[int, np.ndarray],
) -> None:
    header = {
        "format": FORMAT,
        "dracofl": dracofl.__version__,
        "jax": jax.__version__,
        "config": _digest(config_toml),
        "progress": dataclasses.asdict(progress),
    }
    control = {
        "simulator": dataclasses.asdict(simulator.state),
        "trace": dataclasses.asdict(simulator.trace.state),
        "network": dataclasses.asdict(simulator.network.state),
        "medium": dataclasses.asdict(simulator.medium.state),
    }
    names, matrix = np.fromiter(vectors, dtype=np.int64), np.stack(list(vectors.values()))

    def write(file: BinaryIO) -> None:
        np.savez(file, header=_text(header), control=_text(control), names=names, vectors=matrix)

    write_atomically(folder.state_file, write)


def load(
    folder: RunFolder, config_toml: str, simulator: Simulator
) -> tuple[Progress, dict[int, np.ndarray], list[str]]:
    """Put the simulator where it was; returns the rest, and doubts worth telling."""
    if not zipfile.is_zipfile(folder.state_file):
        raise RunFolderError(_damaged(folder, "it is not a checkpoint, or half of one"))
    try:
        # Opened here, as NumPy leaves the file open when it finds it damaged.
        with open(folder.state_file, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            header = json.loads(arrays["header"].tobytes())
            _check_header(folder, header, config_toml)
            control = json.loads(arrays["control"].tobytes())
            names, vectors = arrays["names"].tolist(), arrays["vectors"]
        simulator.state = _restore(SimulatorState, control["simulator"])
        simulator.trace.state = _restore(TraceState, control["trace"])
        simulator.network.restore(_restore(type(simulator.network.state), control["network"]))
        simulator.medium.state = _restore(type(simulator.medium.state), control["medium"])
        progress = Progress(**header["progress"])
    except _SIGNS_OF_DAMAGE as error:
        raise RunFolderError(_damaged(folder, str(error))) from None
    doubts = []
    if header["jax"] != jax.__version__:
        doubts.append(
            f"the run was begun with jax {header['jax']} and goes on with {jax.__version__}: "
            "its last bits may differ from an uninterrupted run's"
        )
    return progress, dict(zip(names, vectors, strict=True)), doubts


def _damaged(folder: RunFolder, why: str) -> str:
    return f"{folder.state_file} is damaged: {why}; start again with draco run {folder.config_file} --out NEW_FOLDER"


def _check_header(folder: RunFolder, header: dict[str, Any], config_toml: str) -> None:
    if (header["format"], header["dracofl"]) != (FORMAT, dracofl.__version__):
        raise RunFolderError(
            f"{folder.state_file} was written by dracofl {header['dracofl']} (format {header['format']}), and this is "
            f"{dracofl.__version__} (format {FORMAT}): continue it with that version, or start again with "
            f"draco run {folder.config_file} --out NEW_FOLDER"
        )
    if header["config"] != _digest(config_toml):
        raise RunFolderError(
            f"{folder.config_file} is not the configuration the run was begun with; put it back, or start a new run "
            f"with draco run {folder.config_file} --out NEW_FOLDER"
        )


def _restore(kind: type[Any], data: Any) -> Any:
    return TypeAdapter(kind).validate_python(data)


def _text(data: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(data).encode(), dtype=np.uint8)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
