"""A peer's saved state: replaced as a whole, read when it is started again.

What is saved may be older than what the peer did before it was killed; its journal tells what came after. An update
that waited when the state was saved and has been sent since must not be sent again, nor one that was held in a window
be applied again: they are left out. Every start has a new epoch, so numbers that are used again are told apart.
"""

from __future__ import annotations

import dataclasses
import json
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from pydantic import TypeAdapter, ValidationError

from dracofl.clock import multiple
from dracofl.errors import RunFolderError
from dracofl.protocol.commands import Happening
from dracofl.protocol.node import NONE, NodeState
from dracofl.protocol.peer import PeerCore, PeerState, periods_over
from dracofl.protocol.vectors import VectorsState
from dracofl.runtime.journal import START, Line
from dracofl.telemetry.storage import write_atomically

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Saved:
    """As it was at `lines` lines of the journal."""

    identity: str  # of the configuration: another one cannot go on from here
    starts_at: float
    lines: int
    node: NodeState
    peer: PeerState
    vectors: dict[int, np.ndarray]  # the model under the user's name, and what waited


def prepare_save(
    path: Path, core: PeerCore, vectors: dict[int, np.ndarray], identity: str, starts_at: float, lines: int
) -> Callable[[], None]:
    """Takes the state as it is now. What it returns writes that, later and on any thread: disks can be slow."""
    node = core.node.state
    kept = {core.user, node.unsent, *(message.vector for message in node.window)} - {NONE}
    header = {
        "format": FORMAT,
        "identity": identity,
        "starts_at": starts_at,
        "lines": lines,
        "node": dataclasses.asdict(node),
        "peer": dataclasses.asdict(core.state),
    }
    names = np.array(sorted(kept), dtype=np.int64)
    matrix = np.stack([vectors[name] for name in names.tolist()])
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)

    def write(file: BinaryIO) -> None:
        np.savez(file, header=text, names=names, vectors=matrix)

    return lambda: write_atomically(path, write)


def load(path: Path, identity: str) -> Saved | None:
    """None if there is nothing yet."""
    if not path.exists():
        return None
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            header = json.loads(arrays["header"].tobytes())
            names, matrix = arrays["names"].tolist(), arrays["vectors"]
        if header["format"] != FORMAT:
            raise ValueError(f"it has format {header['format']}, and this version writes {FORMAT}")
        found = Saved(
            header["identity"],
            header["starts_at"],
            header["lines"],
            TypeAdapter(NodeState).validate_python(header["node"]),
            TypeAdapter(PeerState).validate_python(header["peer"]),
            dict(zip(names, matrix, strict=True)),
        )
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
        ValidationError,
    ) as error:
        raise RunFolderError(f"{path} is damaged: {error}; remove it to begin again from a neighbour's model") from None
    if found.identity != identity:
        raise RunFolderError(
            f"{path} belongs to another configuration: put that back, or name another folder (node.folder)"
        )
    return found


def new_epoch(before: int) -> int:
    """Higher than any before it, even if the folder of an earlier life is lost: by the clock, in milliseconds."""
    return max(before + 1, int(time.time() * 1000))


def resume(core: PeerCore, saved: Saved, epoch: int, since: Iterable[Line]) -> dict[int, np.ndarray]:
    """Put a core where it was, as far as that is safe; returns its vectors. `since` are the journal's later lines."""
    node, peer, vectors = saved.node, saved.peer, dict(saved.vectors)
    # What was being computed is computed anew.
    node.started, node.training = node.finished, NONE
    sent = False
    for kind, now_s, *rest in since:
        sent = sent or kind == "sent"
        if kind == "timer" and rest[0] == Happening.PERIOD_ENDED.name:
            peer.period, node.accepted = peer.period + 1, 0
        elif kind == "timer" and rest[0] == START and core.rules.period_s is not None:
            over = periods_over(now_s - peer.period_shift_s, core.rules.period_s)
            if over > peer.period:
                peer.period, node.accepted = over, 0
        elif kind == "update":
            node.accepted += 1
        elif kind == "model" or (kind == "given" and rest[2] is not None):
            period = rest[0][4] if kind == "model" else rest[2]
            if period > peer.period and core.rules.period_s is not None:
                peer.period, node.accepted = period, 0
                peer.period_shift_s = now_s - multiple(period, core.rules.period_s)
    if core.node.rules.psi is not None:  # those over the budget were counted too
        node.accepted = min(node.accepted, core.node.rules.psi)
    if sent:
        vectors.pop(node.unsent, None)
        node.unsent, node.unsent_updates, node.unsent_finished_sum_s = NONE, 0, 0.0
    for message in node.window:  # a peer that is stopped closes its window before; this one was killed
        vectors.pop(message.vector, None)
    node.window = ()
    peer.epoch, peer.is_up_to_date = epoch, False
    peer.members.clear()
    core.node.state, core.state = node, peer
    core.vectors.state.next_name = max(*vectors, core.vectors.state.next_name - 1) + 1
    core.vectors.state.references = {name: 1 for name in vectors if name != core.user}
    return vectors


def control_state(core: PeerCore) -> dict[str, Any]:
    """What a replay begins from."""
    return {
        "user": core.user,
        "epoch": core.state.epoch,
        "payload_bytes": core.node.rules.payload_bytes,
        "node": dataclasses.asdict(core.node.state),
        "peer": dataclasses.asdict(core.state),
        "vectors": dataclasses.asdict(core.vectors.state),
    }


def restore_control(core: PeerCore, state: dict[str, Any]) -> None:
    core.node.rules = dataclasses.replace(core.node.rules, payload_bytes=state["payload_bytes"])
    core.node.state = TypeAdapter(NodeState).validate_python(state["node"])
    core.state = TypeAdapter(PeerState).validate_python(state["peer"])
    core.vectors.state = TypeAdapter(VectorsState).validate_python(state["vectors"])
