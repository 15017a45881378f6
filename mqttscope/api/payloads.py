"""Payload decoders for programs: from a configuration file, or from ``[[payload]]`` tables as dictionaries."""

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
"""Entry point group of payload decoders."""
SHARED = "pyproject.toml"
MAX_SHOWN = 60
"""Maximum characters of a wrong argument in a message."""
Payloads = str | os.PathLike[str] | Iterable[Mapping[str, Any]]
"""Path of a configuration file, or tables."""


def read_payloads(payloads: Payloads) -> tuple[PayloadTable, ...]:
    """Read and check tables; `PayloadConfigError` for errors in them or in the file.

    Paths of descriptor files are relative to the configuration file, or for tables to the working directory.
    """
    if isinstance(payloads, str | os.PathLike):
        path = Path(payloads)
        try:
            return payload_tables(_document(path), lambda name: (path.parent / name).read_bytes())
        except PayloadConfigError as error:
            raise PayloadConfigError(f"{path}: {error}") from None
    if isinstance(payloads, bytes | Mapping) or not isinstance(payloads, Iterable):
        raise PayloadConfigError(_usage(payloads))
    payloads = list(payloads)
    if not all(isinstance(table, Mapping) for table in payloads):
        raise PayloadConfigError(_usage(payloads))
    tables = [dict(table) for table in payloads]
    return payload_tables({KEY: tables}, lambda name: Path(name).read_bytes())


def _usage(payloads: object) -> str:
    shown = repr(payloads)
    shown = shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}..."
    return (
        f"payloads must be the path of a configuration file, or a list of tables such as"
        f' {{"topic": "plant/#", "format": "json"}}, not {shown}'
    )


def decoders_of(tables: tuple[PayloadTable, ...]) -> Decoders | None:
    """Decoders for one reading; ``None`` without tables."""
    from mqttscope.payloads.decoders import Decoders

    return Decoders(tables, functions=payload_function) if tables else None


def _document(path: Path) -> Mapping[str, Any]:
    """Read the table ``mqttscope`` of a configuration file."""
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
    """Decoder of an installed package by entry point; `UndecodableError` if it does not exist or fails to load."""
    from importlib import metadata

    from mqttscope.payloads.values import UndecodableError

    points = [entry_point for entry_point in metadata.entry_points(group=GROUP) if entry_point.name == name]
    if not points:
        raise UndecodableError(f"no installed package has a decoder {name} (entry point group {GROUP})")
    where = f"entry point {name} = {points[0].value}"
    try:
        loaded: Function = points[0].load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # including SystemExit: a decoder must not end the program
        raise UndecodableError(f"{where}: {type(error).__name__}: {error}") from None
    if not callable(loaded):
        raise UndecodableError(f"{where}: it is not a function of a topic and a payload")
    return loaded
