"""From a preset, a TOML file or a plain dictionary, with overrides, to a checked configuration."""

from __future__ import annotations

import copy
import datetime
import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dracofl.config import kinds, problems
from dracofl.config.consistency import contradictions
from dracofl.config.presets import PRESETS
from dracofl.config.schema import Config
from dracofl.errors import ConfigError

_PASSES = 3  # wrong keys, then what is wrong within sections without them, then what is wrong without those


def load_config(source: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Config:
    """`source` is a preset's name, the path of a TOML file, or nested keys; overrides look like `method.psi=20`."""
    raw = read_source(source)
    found: list[str] = []
    changes = [_parse_override(override, found) for override in overrides]
    _apply([change for change in changes if change is not None], raw, found)
    config, wrong = _validate(raw)
    found += wrong
    if config is not None:
        found += contradictions(config)
    if found or config is None:
        raise ConfigError(list(dict.fromkeys(found)))
    return _with_absolute_paths(config)


def _with_absolute_paths(config: Config) -> Config:
    """So that a saved run can be continued from anywhere. Relative paths start at the working directory."""
    changes: dict[str, Any] = {}
    if config.data.dir is not None:
        changes["data"] = config.data.model_copy(update={"dir": str(Path(config.data.dir).absolute())})
    if config.topology.kind == "file":
        changes["topology"] = config.topology.model_copy(update={"path": str(Path(config.topology.path).absolute())})
    if config.method.kind == "draco" and config.method.weights not in ("uniform", "delivered"):
        changes["method"] = config.method.model_copy(update={"weights": str(Path(config.method.weights).absolute())})
    return config.model_copy(update=changes)


def read_source(source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """The keys as they are written, unchecked."""
    if isinstance(source, Mapping):
        return copy.deepcopy(dict(source))
    if str(source) in PRESETS:
        return copy.deepcopy(PRESETS[str(source)].differences)
    path = Path(source)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        names = [*PRESETS]
        close = difflib.get_close_matches(str(source), names, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ConfigError(
            f'"{source}" is neither a preset ({", ".join(names)}) nor a file nor a run folder{hint}'
        ) from None
    except OSError as error:
        raise ConfigError(f'"{source}" cannot be read: {error.strerror or error}') from None
    except UnicodeDecodeError as error:
        raise ConfigError(f'"{source}" is not valid TOML: it is not text in UTF-8 ({error.reason})') from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f'"{source}" is not valid TOML: {error}') from None


def _parse_override(text: str, found: list[str]) -> tuple[str, Any] | None:
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not equals or not all(key.split(".")):
        found.append(f'"{text}" must look like key=value, as in method.psi=20')
        return None
    try:
        document = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return key, value  # a bare word is a text
    # So is a day, which could only be the name of a folder, and what turns out to be several lines of TOML.
    is_text = len(document) > 1 or isinstance(document["value"], datetime.date | datetime.time)
    return key, value if is_text else document["value"]


def _apply(changes: list[tuple[str, Any]], raw: dict[str, Any], found: list[str]) -> None:
    sections = kinds.sections()
    # Another kind has other keys: those of the old one go, but for those that all kinds share.
    for key, value in changes:
        section, _, name = key.partition(".")
        body = raw.get(section, {})
        if name == "kind" and section in sections and isinstance(body, dict):
            before = body.get("kind", _default_kind(section))
            if before is not None and before != value:
                shared = set.intersection(*(set(member.model_fields) for member in sections[section].values()))
                raw[section] = {name: kept for name, kept in body.items() if name in shared}
    for key, value in changes:
        section, _, name = key.partition(".")
        if not name:
            raw[section] = value
            continue
        if "." in name:
            found.append(problems.unknown_key(key, raw))
        elif isinstance(body := raw.setdefault(section, {}), dict):  # if not, the check of the whole will say so
            body[name] = value


def _validate(raw: dict[str, Any]) -> tuple[Config | None, list[str]]:
    """The configuration, or the sentences. With some keys wrong, the rest is still checked with defaults for those."""
    complete = _with_kinds(raw)
    wrong: dict[str, str] = {}
    for _ in range(_PASSES):
        try:
            config = _parse(complete)
        except ValidationError as error:
            found = problems.sentences(error, complete)
            wrong |= {key: sentence for key, sentence in found.items() if not _mentions(sentence, wrong)}
            complete = _with_kinds(_without(complete, found))
            continue
        if not wrong:
            return config, []
        return None, [*wrong.values(), *(said for said in contradictions(config) if not _mentions(said, wrong))]
    return None, [*wrong.values()]


def _mentions(sentence: str, wrong: Mapping[str, str]) -> bool:
    """A default that stands in for a wrong key contradicts nothing that the user wrote."""
    return any(key in sentence for key in wrong)


def _without(raw: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    rest = copy.deepcopy(raw)
    for key in keys:
        section, _, name = key.partition(".")
        body = rest.get(section)
        if name and isinstance(body, dict) and name in body:
            del body[name]
        else:
            rest.pop(section, None)
    return rest


def _parse(raw: dict[str, Any]) -> Config:
    # Through JSON, where a list may be a tuple though types are strict otherwise.
    return Config.model_validate_json(json.dumps(raw, default=str))


def _with_kinds(raw: dict[str, Any]) -> dict[str, Any]:
    """A section that names no kind has the default one."""
    complete = copy.deepcopy(raw)
    for section in kinds.sections():
        body, kind = complete.get(section), _default_kind(section)
        if kind is not None and isinstance(body, dict):
            body.setdefault("kind", kind)
    return complete


def _default_kind(section: str) -> str | None:
    """None if the section has no kinds."""
    return getattr(Config.model_fields[section].default, "kind", None)
