"""The file of one real peer: a configuration like a simulation's, and a section about this device.

What needs knowledge of the whole network cannot be done between peers: it is refused by name, with what to use instead.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from dracofl.config import problems
from dracofl.config.load import load_config, read_source
from dracofl.config.schema import Config, Optional, Section, Text, key
from dracofl.errors import ConfigError

NO_RADIO = "none"
"""As the name of a channel: no radio in software, the network as it is. In a simulation that is "ideal"."""


class Node(Section):
    """One device."""

    user: int = Field(ge=0, description="which user this is, from 0", json_schema_extra={"unit": ""})
    network: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")] = key(
        "draco", "peers of another network are strangers"
    )
    listen: tuple[Text, ...] = key(("tcp/127.0.0.1:7447",), "addresses to listen at, as in tcp/0.0.0.0:7447 or tls/...")
    connect: tuple[Text, ...] = key((), "addresses of neighbours, or of any peers if these are to be discovered")
    discovery: bool = key(False, "whether to connect to everybody that the others know of, not to the listed alone")
    folder: Text = key("peer", "where its journal, its saved state and its results go")
    learner: Optional[Text] = key(None, "module:function that makes a learner; none: the task's samples of this user")
    certificates: Optional[Text] = key(None, "folder with authority.pem, peer-N.pem and peer-N.key; none: no TLS")
    insecure: bool = key(False, "whether to talk to other machines without certificates")
    pace: Literal["drawn", "free"] = key(
        "drawn", "a local update takes its drawn time at least (compute.rate), or as long as the computing takes"
    )
    time_scale: float = key(1.0, "seconds of the configuration in a real second", gt=0, le=1000)
    starts_at: Optional[float] = key(None, "Unix time of second 0; none: when it is first started", "s")
    deadline_s: Optional[Annotated[float, Field(gt=0)]] = key(
        None, "an update that waited longer is not sent; none: channel.deadline_s, if there is one", "s"
    )
    answer_timeout_s: float = key(2.0, "how long to wait for an answer, in real seconds", "s", gt=0)
    lease_s: float = key(2.0, "a silent neighbour is taken for gone after this time, in real seconds", "s", ge=1.5)
    waiting: int = key(4, "updates that may wait for one neighbour; more are summed up", "updates", ge=1)
    norm_limit: float = key(1e4, "a vector that is longer is refused", gt=0)


def load_node(source: str | Path, overrides: Sequence[str] = ()) -> tuple[Config, Node]:
    """From a TOML file with a section [node]. Every problem of both parts is told."""
    if not Path(source).exists():
        raise ConfigError(f'there is no file "{source}"; `draco node --help` shows what is in one')
    raw = read_source(source)
    if not isinstance(raw.get("node"), Mapping):
        raise ConfigError(f'"{source}" has no section [node], which says who this peer is and where it listens')
    return make_node(raw, overrides)


def make_node(raw: dict[str, Any], overrides: Sequence[str] = ()) -> tuple[Config, Node]:
    """`raw` may name a `preset` that its keys change."""
    body = dict(raw)
    for_node, for_run = split_overrides(overrides)
    section = {**body.pop("node", {}), **for_node}
    found: list[str] = []
    config = None
    try:
        config = load_config(shared_keys(body), for_run)
        found += refusals(config)
    except ConfigError as error:
        found += error.problems
    node = _check_section(section, config, found)
    if found or config is None or node is None:
        raise ConfigError(found)
    return config, node


def shared_keys(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says of everybody: its preset with its own keys in their places, and `channel` as a word."""
    rest = dict(body)
    preset = rest.pop("preset", None)
    if preset is not None and not isinstance(preset, str):
        raise ConfigError(f"preset = {preset!r} must be a text: the name of a preset or of a file")
    return _merged({} if preset is None else _with_channel(read_source(preset)), _with_channel(rest))


def split_overrides(overrides: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Those of the section [node], parsed, and the others. `time_scale` and `channel` need no section."""
    ours: dict[str, Any] = {}
    others = []
    for text in overrides:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            others.append(text)  # where it is refused
        elif name == "time_scale" or name.startswith("node."):
            ours[name.removeprefix("node.")] = _parsed(value.strip())
        elif name in ("channel", "channel.kind"):
            others.append(f"channel.kind={'ideal' if value.strip() == NO_RADIO else value.strip()}")
        else:
            others.append(text)
    return ours, others


def refusals(config: Config) -> list[str]:
    """What peers cannot do, and what they can do instead."""
    found = []
    method = config.method
    if method.kind != "draco":
        return [
            f'method.kind = "{method.kind}" cannot run between real peers, as it needs rounds or knowledge of '
            'everybody: use method.kind = "draco"'
        ]
    if method.hub == "best-heard":
        found.append(
            'method.hub = "best-heard" needs to know what everybody heard, which no peer does: use "round-robin" or '
            '"random", which follow from the period and the members'
        )
    if method.weights == "delivered":
        found.append('method.weights = "delivered" needs to know beforehand whom a message will reach: use "uniform"')
    if config.channel.kind == "wireless" and config.channel.interference == "concurrent":
        found.append('channel.interference = "concurrent" needs to know who else is sending: use "nearby" or "none"')
    if config.compute.snapshot == "finish":
        found.append('compute.snapshot = "finish" needs training that takes no time: use "start", as devices do')
    if config.evaluate.every_events is not None:
        found.append("evaluate.every_events counts the events of everybody: use evaluate.every_s")
    return found


def fit_for_peers(config: Config) -> tuple[Config, list[str]]:
    """The nearest configuration that peers can run, and what was changed; what has none is left to `refusals`."""
    said: list[str] = []
    changes: dict[str, Section] = {}
    if config.method.kind == "draco" and config.method.hub == "best-heard":
        changes["method"] = config.method.model_copy(update={"hub": "round-robin"})
        said.append('method.hub = "round-robin" in the place of "best-heard", which needs to know what everybody heard')
    if config.compute.snapshot == "finish":
        changes["compute"] = config.compute.model_copy(update={"snapshot": "start"})
        said.append('compute.snapshot = "start" in the place of "finish", as training takes time here')
    return config.model_copy(update=changes), said


def _check_section(section: dict[str, Any], config: Config | None, found: list[str]) -> Node | None:
    try:
        node = Node.model_validate_json(json.dumps(section, default=str))
    except ValidationError as error:
        found += [_sentence(details) for details in error.errors()]
        return None
    if config is not None and node.user >= config.users:
        found.append(f"node.user = {node.user} is not one of {config.users} users: they are counted from 0")
    return node


def _sentence(details: ErrorDetails) -> str:
    name, *places = [str(part) for part in details["loc"]] or [""]
    known, kind, value = Node.model_fields.get(name), details["type"], details["input"]
    if known is None:
        close = difflib.get_close_matches(name, Node.model_fields, n=1)
        hint = f"did you mean node.{close[0]}?" if close else f"there are {', '.join(Node.model_fields)}"
        return f"unknown key node.{name}; {hint}"
    if kind == "missing":
        return f"node.{name} is missing: {known.description}"
    if kind == "literal_error":
        return f"node.{name} = {value!r} is not one of {', '.join(get_args(known.annotation))}"
    if kind == "tuple_type":
        return f'node.{name} = {value!r}: must be a list, as in ["tcp/10.0.0.3:7447"]; meaning: {known.description}'
    place = "".join(f"[{part}]" for part in places if part.isdigit())
    return f"node.{name}{place} = {value!r}: {problems.requirement(details)}; meaning: {known.description}"


def _with_channel(body: Mapping[str, Any]) -> dict[str, Any]:
    channel = body.get("channel")
    kind = channel.get("kind") if isinstance(channel, Mapping) else channel
    if kind == NO_RADIO:
        rest = dict(channel) if isinstance(channel, Mapping) else {}
        return {**body, "channel": {**rest, "kind": "ideal"}}
    return {**body, "channel": {"kind": channel}} if isinstance(channel, str) else dict(body)


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for name, value in over.items():
        below = merged.get(name)
        if not isinstance(value, Mapping) or not isinstance(below, Mapping):
            merged[name] = value
        elif "kind" in value and value["kind"] != below.get("kind", _default_kind(name)):
            merged[name] = dict(value)  # another kind has other keys
        else:
            merged[name] = {**below, **value}
    return merged


def _default_kind(section: str) -> str | None:
    field = Config.model_fields.get(section)
    return None if field is None else getattr(field.default, "kind", None)


def _parsed(value: str) -> Any:
    """As TOML; a bare word is a text."""
    try:
        document = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return value
    return document["value"] if len(document) == 1 else value
