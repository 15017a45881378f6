"""Which classes may be written down and read again (`lake.state`), by which names, and with which fields."""

from __future__ import annotations

import dataclasses
import re
from enum import Enum
from importlib import import_module

PACKAGES = ("net", "mqtt", "session", "dissect", "lint", "lake", "events")
"""Packages of this program whose dataclasses and enumerations may be written down."""
LEFT_OUT = {("net.inflate.Inflater", "zlib_object"), ("session.subscriptions.Subscriptions", "index")}
"""Fields that are made anew from the others."""


_ROOT = "mqttscope."
_NAME = re.compile(r"[a-z0-9_]+(?:\.[a-z0-9_]+)*\.[A-Za-z_][A-Za-z0-9_]*")
PLAIN = {"mqtt.properties.Properties": ("items",)}
"""Classes with slots that are no dataclasses."""


class StateError(ValueError):
    """State that cannot be read: damaged, of another version, or not of this program."""


class Unwritable(TypeError):  # noqa: N818 - it says what the value is
    """A value that is no plain data."""


_extra: dict[str, type] = {}


def allow(cls: type) -> type:
    """Let a dataclass of other code be written down too: the memory of a rule that comes from elsewhere."""
    _extra[f"{cls.__module__}.{cls.__qualname__}"] = cls
    return cls


def class_name(cls: type) -> str:
    """The name a class is written by; `Unwritable` when it may not be."""
    full = f"{cls.__module__}.{cls.__qualname__}"
    if full in _extra:
        return full
    name = full.removeprefix(_ROOT)
    if name != full and name.split(".")[0] in PACKAGES and _NAME.fullmatch(name):
        return name
    raise Unwritable(f"{full} is not among the classes that may be written down")


def find_class(name: str) -> type:
    """The class of a name; `StateError` when there is none that may be read."""
    if name in _extra:
        return _extra[name]
    if name.split(".")[0] not in PACKAGES or not _NAME.fullmatch(name):
        raise StateError(f"{name} is not among the classes that may be read")
    module, _, own = name.rpartition(".")
    try:
        found = getattr(import_module(_ROOT + module), own)
    except (ImportError, AttributeError):
        raise StateError(f"there is no {name} in this version") from None
    if not isinstance(found, type) or found.__module__ != _ROOT + module or not may_be_read(found, name):
        raise StateError(f"{name} is not among the classes that may be read")
    return found


def may_be_read(cls: type, name: str) -> bool:
    """Whether a class of that name is one of plain data."""
    return dataclasses.is_dataclass(cls) or issubclass(cls, Enum) or name in PLAIN


def field_names(cls: type, name: str) -> tuple[str, ...]:
    """The fields of a class that are written."""
    if name in PLAIN:
        return PLAIN[name]
    return tuple(one.name for one in dataclasses.fields(cls) if (name, one.name) not in LEFT_OUT)
