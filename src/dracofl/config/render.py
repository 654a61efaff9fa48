"""A complete configuration as TOML: every key, with its unit and meaning beside it if asked."""

from __future__ import annotations

import json
from typing import Any

from dracofl.config import kinds
from dracofl.config.schema import NONE, Config, Section

_COMMENT_COLUMN = 34


def to_toml(config: Config, comments: bool) -> str:
    """`draco run` of this text repeats the run."""
    top = [name for name in Config.model_fields if not isinstance(getattr(config, name), Section)]
    blocks = [_keys(config, top, comments)]
    for name in Config.model_fields:
        section = getattr(config, name)
        if isinstance(section, Section):
            blocks.append(f"[{name}]\n" + _keys(section, list(type(section).model_fields), comments))
    return "\n\n".join(blocks) + "\n"


def _keys(section: Section, names: list[str], comments: bool) -> str:
    names = sorted(names, key=lambda name: name != "kind")  # the kind first, the rest as declared
    lines = []
    for name in names:
        line = f"{name} = {_value(getattr(section, name))}"
        meaning = _meaning(section, name) if comments else ""
        lines.append(f"{line:<{_COMMENT_COLUMN}}  # {meaning}" if meaning else line)
    return "\n".join(lines)


def _meaning(section: Section, name: str) -> str:
    field = type(section).model_fields[name]
    if name == "kind":
        return kinds.summary(type(section))
    unit = field.json_schema_extra.get("unit") if isinstance(field.json_schema_extra, dict) else ""
    words = kinds.choices(type(section), name)
    listed = f" ({', '.join(words)})" if len(words) > 1 else ""
    return (f"[{unit}] " if unit else "") + (field.description or "") + listed


def _value(value: Any) -> str:
    if value is None:
        return f'"{NONE}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML escapes as JSON, and DEL too
    if isinstance(value, tuple):
        return "[" + ", ".join(_value(part) for part in value) + "]"
    return repr(value)
