"""Finds and reads the configuration: ``mqttscope.toml`` or ``[tool.mqttscope]`` in ``pyproject.toml``, upwards."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from mqttscope.lint.config import Config

NAME = "mqttscope.toml"
SHARED = "pyproject.toml"


def find(start: Path) -> Path | None:
    """The nearest configuration file from a folder upwards; a ``pyproject.toml`` without our table is passed over."""
    for folder in (start, *start.parents):
        own, shared = folder / NAME, folder / SHARED
        if own.is_file():
            return own
        if shared.is_file() and "mqttscope" in _tools(shared):
            return shared
    return None


def read(path: Path | None) -> Config:
    """The configuration in a file, or the one of no file; usage errors for what is wrong in it."""
    from mqttscope.lint.config import Config, ConfigError, parse

    if path is None:
        return Config()
    document = _tools(path).get("mqttscope", {}) if path.name == SHARED else _load(path)
    if not isinstance(document, dict):
        raise click.UsageError(f"{path}: tool.mqttscope is not a table")
    try:
        return parse(document)
    except ConfigError as error:
        raise click.UsageError(f"{path}: {error}") from None


def _tools(path: Path) -> dict[str, Any]:
    """The table of tools of a ``pyproject.toml``; what it is good for is checked by others."""
    tools = _load(path).get("tool")
    return tools if isinstance(tools, dict) else {}


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror or error}") from None
    except RecursionError:
        raise click.UsageError(f"{path}: nested too deeply") from None
    except ValueError as error:
        raise click.UsageError(f"{path}: not TOML: {error}") from None
