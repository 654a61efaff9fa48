"""Turns what pydantic found wrong into sentences: the key, the value, and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dracofl.config import kinds
from dracofl.config.schema import Config, Section


def sentences(error: ValidationError, raw: Mapping[str, Any]) -> dict[str, str]:
    """One sentence for each key that is wrong."""
    found: dict[str, ErrorDetails] = {}
    for details in error.errors():
        key = dotted_key(details, raw)
        # Of "a number or a list" the branch that got further is the one that was meant.
        if key not in found or len(details["loc"]) > len(found[key]["loc"]):
            found[key] = details
    return {key: _sentence(key, details, raw) for key, details in found.items()}


def dotted_key(details: ErrorDetails, raw: Mapping[str, Any]) -> str:
    """pydantic names the branch of a union in the path; a user never wrote it."""
    section, *rest = [str(part) for part in details["loc"]] or [""]
    body = raw.get(section)
    if rest and isinstance(body, Mapping) and rest[0] in kinds.sections().get(section, {}):
        rest = rest[1:]
    # Below a key stand positions in a list and branches of "a number or none": the user knows the key alone.
    return ".".join([section, *rest[:1]])


def _sentence(key: str, details: ErrorDetails, raw: Mapping[str, Any]) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "json_invalid":  # bytes from the shell that are no text; everything else was TOML or Python before
        return "the configuration holds a text that is not Unicode; rename the file or folder it means"
    if kind == "extra_forbidden":
        return unknown_key(key, raw)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        known = kinds.sections()[key]
        return _not_one_of(f"{key}.kind = {context.get('tag', 'none')!r}", context.get("tag", ""), list(known))
    if kind == "value_error":
        return str(context["error"])
    if kind == "missing":
        return f"{key} is missing: {_meaning(key, raw)}"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"{key} = {value!r}: this is a section; set its keys, as in {_example_key(key)}"
    if kind == "literal_error" and (choices := _choices(key, raw)):
        return _not_one_of(f"{key} = {value!r}", value, choices)
    place = "".join(f"[{part}]" for part in details["loc"] if isinstance(part, int))
    return f"{key}{place} = {value!r}: {requirement(details)}; meaning: {_meaning(key, raw)}"


def unknown_key(key: str, raw: Mapping[str, Any]) -> str:
    """The nearest right key, or the kind that has this one."""
    known = kinds.all_keys()
    if key in known:
        section = key.split(".")[0]
        body = raw.get(section)
        here = body.get("kind", "") if isinstance(body, Mapping) else ""
        owners = " or ".join(f'"{kind}"' for kind in sorted(known[key]))
        return f'{key} belongs to {section}.kind = {owners}, not to "{here}"' if here else f"{key} belongs to {owners}"
    if isinstance(raw.get(key), Mapping):
        return _not_one_of(f"section {key}", key, list(kinds.sections()))
    section, _, name = key.partition(".")
    beside = {other.split(".")[1]: other for other in known if other.startswith(f"{section}.")}
    anywhere = {other.split(".")[-1]: other for other in reversed(known)}  # of several with one name, the first
    for others, cutoff in ((beside, 0.6), (anywhere, 0.75)):
        if close := difflib.get_close_matches(name or section, others, n=1, cutoff=cutoff):
            return f"unknown key {key}; did you mean {others[close[0]]}?"
    hint = f"{section} has {', '.join(beside)}" if beside else "`draco show poker` lists all keys"
    return f"unknown key {key}; {hint}"


def _not_one_of(said: str, value: object, choices: list[str]) -> str:
    close = difflib.get_close_matches(str(value), choices, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{said} is not one of {', '.join(choices)}{hint}"


def _choices(key: str, raw: Mapping[str, Any]) -> list[str]:
    section, _, name = key.partition(".")
    if name == "kind":
        return list(kinds.sections()[section])
    owner = _section_class(section, raw) if name else Config
    return kinds.choices(owner, name or section) if owner else []


def requirement(details: ErrorDetails) -> str:
    kind, context = details["type"], details.get("ctx", {})
    words = {
        "greater_than": "must be greater than {gt}",
        "greater_than_equal": "must be at least {ge}",
        "less_than": "must be less than {lt}",
        "less_than_equal": "must be at most {le}",
        "int_type": "must be a whole number",
        "float_type": "must be a number, without a unit",
        "string_type": "must be a text",
        "string_too_short": "must not be empty",
        "tuple_type": "must be a list, as in [75, 75]",
        "finite_number": "must be finite",
    }
    return words[kind].format(**context) if kind in words else details["msg"].lower()


def _meaning(key: str, raw: Mapping[str, Any]) -> str:
    section, _, name = key.partition(".")
    owner = _section_class(section, raw) if name else Config
    field = owner.model_fields.get(name or section) if owner else None
    if field is None or field.description is None:
        return "a key of the configuration"
    unit = field.json_schema_extra.get("unit") if isinstance(field.json_schema_extra, dict) else ""
    return f"{field.description} [{unit}]" if unit else field.description


def _section_class(section: str, raw: Mapping[str, Any]) -> type[Section] | None:
    classes = kinds.sections().get(section)
    if classes is None:
        return None
    body = raw.get(section)
    kind = body.get("kind", "") if isinstance(body, Mapping) else ""
    return classes.get(kind) or next(iter(classes.values()))


def _example_key(section: str) -> str:
    member = _section_class(section, {})
    return f"{section}.{next(iter(member.model_fields))}=..." if member else section
