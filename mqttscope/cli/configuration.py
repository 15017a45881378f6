"""Finds and reads the configuration file, and makes payload decoders from it.

The file is ``mqttscope.toml``, or ``[tool.mqttscope]`` in ``pyproject.toml``, from the working directory upwards,
unless ``--config`` names a file.  Every command that reads it refuses unknown tables; `linting_settings` checks the
contents of ``[lint]`` and ``[rules]``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mqttscope.cli.errors import ErrorTranslation

if TYPE_CHECKING:
    from mqttscope.payloads.decoders import Decoders, PayloadTable

NAME = "mqttscope.toml"
SHARED = "pyproject.toml"
VARIABLE = "MQTTSCOPE_CONFIG"
TABLES = ("lint", "rules", "payload", "secrets")
"""Allowed tables of a configuration."""
_WORD = re.compile("[A-Za-z]{3,40}")


def find_configuration(start: Path) -> Path | None:
    """Nearest configuration file from a folder upwards; a ``pyproject.toml`` without our table is skipped."""
    for folder in (start, *start.parents):
        own, shared = folder / NAME, folder / SHARED
        if own.is_file():
            return own
        if own.is_dir():
            raise click.UsageError(f"{own} is a folder, but the configuration must be a file")
        if shared.is_file() and "mqttscope" in _tools(shared):
            return shared
    return None


def read_document(path: Path) -> dict[str, Any]:
    """Read a configuration file; usage errors for invalid TOML and for unknown tables."""
    document = _tools(path).get("mqttscope", {}) if path.name == SHARED else _load(path)
    if not isinstance(document, dict):
        raise click.UsageError(f"{path}: tool.mqttscope is not a table")
    for key in document:
        if key not in TABLES:
            import difflib

            near = difflib.get_close_matches(key, TABLES, 1, 0.5)
            hint = f"did you mean {near[0]}? " if near else ""
            known = "[lint], [rules], [[payload]] and [secrets]"
            raise click.UsageError(f"{path}: {key[:60]} is an unknown key; {hint}The tables are {known}.")
    return document


def _tools(path: Path) -> dict[str, Any]:
    """The ``[tool]`` table of a ``pyproject.toml``; callers check its contents."""
    tools = _load(path).get("tool")
    return tools if isinstance(tools, dict) else {}


def _load(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror or error}") from None
    except RecursionError:
        raise click.UsageError(f"{path}: nested too deeply") from None
    except ValueError as error:
        raise click.UsageError(f"{path}: not TOML: {error}") from None


def configured_payloads() -> Decoders | None:
    """Payload decoders in the configuration of the running command, or ``None``.

    ``--config`` and ``--no-config`` take precedence over the environment and the nearest file.
    """
    path = _source()
    if path is None:
        return None
    tables = checked_payloads(read_document(path), path)
    if not tables:
        return None
    from mqttscope.api.payloads import payload_function
    from mqttscope.payloads.decoders import Decoders

    return Decoders(tables, functions=payload_function)


def checked_payloads(document: dict[str, Any], path: Path) -> tuple[PayloadTable, ...]:
    """The ``[[payload]]`` tables of a configuration file; usage errors for invalid tables."""
    if "payload" not in document:
        return ()
    from mqttscope.payloads.settings import PayloadConfigError, payload_tables

    with ErrorTranslation(click.UsageError, PayloadConfigError, before=f"{path}: "):
        return payload_tables(document, lambda name: (path.parent / name).read_bytes())


def hide_configured() -> None:
    """Hide the values of names listed in ``[secrets]`` of the configuration in all output of the running command."""
    path = _source()
    if path is None or not path.is_file():
        return
    try:
        table = read_document(path).get("secrets")
    except click.UsageError:
        return  # the command reports the error, or needs no configuration
    if table is None:
        return
    words = table.get("words") if isinstance(table, dict) and table.keys() == {"words"} else None
    if not isinstance(words, list) or not all(isinstance(word, str) and _WORD.fullmatch(word) for word in words):
        raise click.UsageError(
            f"{path}: [secrets] has one key, words: a list of last words of names, each of three letters or more,"
            ' such as words = ["imei"]'
        )
    from mqttscope.secrets.names import set_words

    set_words(words)


def warn_of_configuration() -> None:
    """Report errors of a configuration file that the running command does not use.

    The author of the file expects it to have an effect, and these commands have no option for another file.
    """
    from mqttscope.cli.output import warn

    try:
        configured_payloads()
    except click.UsageError as error:
        warn(error.message)


def _source() -> Path | None:
    context = click.get_current_context(silent=True)
    parameters = {} if context is None else context.params
    if parameters.get("no_config"):
        return None
    named = parameters.get("config") or os.environ.get(VARIABLE)
    return Path(named) if named else find_configuration(Path.cwd())
