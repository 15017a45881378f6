"""Finds and reads the configuration file, and takes the decoders of payloads from it.

It is ``mqttscope.toml``, or ``[tool.mqttscope]`` in ``pyproject.toml``, from the working directory upwards, unless
``--config`` names one.  Every command that reads it refuses tables that it does not know; what ``[lint]`` and
``[rules]`` say is checked by `linting_settings`.
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
"""What a configuration can hold."""
_WORD = re.compile("[A-Za-z]{3,40}")


def find_configuration(start: Path) -> Path | None:
    """The nearest configuration file from a folder upwards; a ``pyproject.toml`` without our table is passed over."""
    for folder in (start, *start.parents):
        own, shared = folder / NAME, folder / SHARED
        if own.is_file():
            return own
        if own.is_dir():
            raise click.UsageError(f"{own} is a folder; the configuration is a file of that name")
        if shared.is_file() and "mqttscope" in _tools(shared):
            return shared
    return None


def read_document(path: Path) -> dict[str, Any]:
    """What a configuration file holds; usage errors for what is no table of TOML, and for tables of other names."""
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
    """The table of tools of a ``pyproject.toml``; what it is good for is checked by others."""
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
    """The decoders that the configuration of the running command names; ``None`` where it has none.

    Commands with ``--config`` and ``--no-config`` go by these, others by the environment and the nearest file.
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
    """The ``[[payload]]`` tables of a configuration file; usage errors for what is wrong in them."""
    if "payload" not in document:
        return ()
    from mqttscope.payloads.settings import PayloadConfigError, payload_tables

    with ErrorTranslation(click.UsageError, PayloadConfigError, before=f"{path}: "):
        return payload_tables(document, lambda name: (path.parent / name).read_bytes())


def hide_configured() -> None:
    """Hide the values of names that ``[secrets]`` of the configuration has, in whatever the running command shows."""
    path = _source()
    if path is None or not path.is_file():
        return
    try:
        table = read_document(path).get("secrets")
    except click.UsageError:
        return  # the command says it, or needs no configuration
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
    """Say what is wrong with a configuration file of which the running command uses nothing.

    Whoever wrote the file expects it to have an effect, and these commands have no option that names another.
    """
    from mqttscope.cli.output import warn

    try:
        configured_payloads()
    except click.UsageError as error:
        warn(error.message)


def _source() -> Path | None:
    context = click.get_current_context(silent=True)
    given = {} if context is None else context.params
    if given.get("no_config"):
        return None
    named = given.get("config") or os.environ.get(VARIABLE)
    return Path(named) if named else find_configuration(Path.cwd())
