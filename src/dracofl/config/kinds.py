"""Which kinds each section knows, and which keys each kind has, read off the schema."""

from __future__ import annotations

import typing

from dracofl.config.schema import Config, Section


def sections() -> dict[str, dict[str, type[Section]]]:
    """For every section of a configuration its classes by kind; a section without kinds has one class, named ""."""
    found: dict[str, dict[str, type[Section]]] = {}
    for name, field in Config.model_fields.items():
        annotation = field.annotation
        classes = typing.get_args(annotation) or (annotation,)
        members = [one for one in classes if isinstance(one, type) and issubclass(one, Section)]
        if members:
            found[name] = {kind_of(member): member for member in members}
    return found


def kind_of(section: type[Section]) -> str:
    field = section.model_fields.get("kind")
    return "" if field is None else str(field.default)


def choices(section: type[Section], name: str) -> list[str]:
    """The words that a key may be set to, if it is a choice between words."""
    if name not in section.model_fields:
        return []
    annotation = section.model_fields[name].annotation
    return list(typing.get_args(annotation)) if typing.get_origin(annotation) is typing.Literal else []


def summary(section: type[Section]) -> str:
    """The one line that introduces a kind."""
    return (section.__doc__ or "").strip().splitlines()[0]


def all_keys() -> dict[str, set[str]]:
    """Every dotted key there is, with the kinds that have it ({""} where kinds do not matter)."""
    keys: dict[str, set[str]] = {name: {""} for name in Config.model_fields if name not in sections()}
    for section, classes in sections().items():
        for kind, member in classes.items():
            for name in member.model_fields:
                keys.setdefault(f"{section}.{name}", set()).add("" if name == "kind" else kind)
    return keys
