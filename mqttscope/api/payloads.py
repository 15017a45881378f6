"""Decoders of payloads as a program names them: a configuration file, or its ``[[payload]]`` tables as dictionaries."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqttscope.payloads.settings import KEY, PayloadConfigError, payload_tables

if TYPE_CHECKING:
    from mqttscope.payloads.decoders import Decoders, Function, PayloadTable

GROUP = "mqttscope.payloads"
"""Entry points that decode payloads."""
SHARED = "pyproject.toml"
MAX_SHOWN = 60
"""Characters of a wrong argument that a message shows."""
Payloads = str | os.PathLike[str] | Iterable[Mapping[str, Any]]
"""The path of a configuration file, or tables."""


def read_payloads(payloads: Payloads) -> tuple[PayloadTable, ...]:
    """The tables, checked; `PayloadConfigError` for what is wrong with them or with the file.

    Descriptor files are relative to the configuration file; of tables to the working directory.
    """
    if isinstance(payloads, str | os.PathLike):
        path = Path(payloads)
        try:
            return payload_tables(_document(path), lambda name: (path.parent / name).read_bytes())
        except PayloadConfigError as error:
            raise PayloadConfigError(f"{path}: {error}") from None
    if isinstance(payloads, bytes | Mapping) or not isinstance(payloads, Iterable):
        raise PayloadConfigError(_taken(payloads))
    payloads = list(payloads)
    if not all(isinstance(one, Mapping) for one in payloads):
        raise PayloadConfigError(_taken(payloads))
    tables = [dict(one) for one in payloads]
    return payload_tables({KEY: tables}, lambda name: Path(name).read_bytes())


def _taken(payloads: object) -> str:
    told = repr(payloads)
    told = told if len(told) <= MAX_SHOWN else f"{told[:MAX_SHOWN]}..."
    return (
        f"payloads is {told}: it takes the path of a configuration file, or a list of tables such as"
        ' {"topic": "plant/#", "format": "json"}'
    )


def decoders_of(tables: tuple[PayloadTable, ...]) -> Decoders | None:
    """Decoders for one reading; ``None`` where there are no tables."""
    from mqttscope.payloads.decoders import Decoders

    return Decoders(tables, functions=payload_function) if tables else None


def _document(path: Path) -> Mapping[str, Any]:
    """What a configuration file holds."""
    try:
        document: Any = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise PayloadConfigError(error.strerror or str(error)) from None
    except (ValueError, RecursionError) as error:
        raise PayloadConfigError(f"not TOML: {error}") from None
    if path.name == SHARED:
        for name in ("tool", "mqttscope"):
            document = document.get(name, {}) if isinstance(document, dict) else {}
    if not isinstance(document, dict):
        raise PayloadConfigError("tool.mqttscope is not a table")
    return document


def payload_function(name: str) -> Function:
    """The decoder of an installed package by the name of its entry point; `UndecodableError` where there is none."""
    from importlib import metadata

    from mqttscope.payloads.values import UndecodableError

    points = [one for one in metadata.entry_points(group=GROUP) if one.name == name]
    if not points:
        raise UndecodableError(f"no installed package has a decoder {name} (entry points of the group {GROUP})")
    where = f"entry point {name} = {points[0].value}"
    try:
        loaded: Function = points[0].load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a decoder does not end the program
        raise UndecodableError(f"{where}: {type(error).__name__}: {error}") from None
    if not callable(loaded):
        raise UndecodableError(f"{where}: it is no function of a topic and a payload")
    return loaded
