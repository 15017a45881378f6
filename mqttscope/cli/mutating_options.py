"""Which options of ``mutate`` go together: none is taken and then ignored."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Any

import click
from click.core import ParameterSource

from mqttscope.cli.targets import refuse_inputs
from mqttscope.mqtt.view import utf8
from mqttscope.mutate import select
from mqttscope.mutate.flow import CLIENT

PROGRAMS = ("json", "jsonl")
"""Formats of the list, and of what was written."""
_OF_THE_LIST = frozenset({"listing", "pattern", "side", "format_", "output", "colour"})
_OF_BROKERS = frozenset(
    {"together", "spawn", "pid", "folder", "patience", "longest", "rate", "allowed", "show_secrets"}
    | {"ca", "cert", "key", "server_name", "insecure", "user", "password_file", "connect_timeout"}
)


def settle(given: dict[str, Any]) -> None:
    """Refuse options that exclude each other; usage errors.

    A broker that only the environment names is not meant where flows are written or listed.
    """
    if not given["listing"] and not given["captures"]:
        raise click.UsageError("Missing argument 'CAPTURE...'.")
    if given["write"] is not None and not _said("broker"):
        given["broker"] = None
    _refuse_empty(given)
    if not select(given["pattern"], sender=given["side"] or CLIENT):
        raise click.UsageError(
            f"--mutation: no mutation of a {given['side'] or CLIENT} matches '{utf8(given['pattern'])}'"
        )
    if given["listing"]:
        _settle_list(given)
        return
    if given["number"] is not None and given["limit"] is not None:
        raise click.UsageError("--case plays one case, --cases plays N: give one of them")
    wanted = bool(given["broker"] or given["matrix"])
    if wanted == (given["write"] is not None):
        raise click.UsageError("either --broker URL (or --matrix URL), or --write FILE, or --list")
    if wanted:
        _settle_brokers(given)
    else:
        _settle_write(given)
    if given["output"] is not None:
        refuse_inputs(given["output"], given["captures"], {"the file of --write": given["write"]})


def _said(name: str) -> bool:
    """Whether an option stands on the command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _options() -> Iterator[tuple[str, str]]:
    """What stands on the command line: the names of parameters, and how they are spelled there."""
    for one in click.get_current_context().command.params:
        if one.name is not None and _said(one.name):
            yield one.name, one.opts[0] if isinstance(one, click.Option) else "CAPTURE"


def _refuse_empty(given: dict[str, Any]) -> None:
    for name, option in (("write", "write"), ("output", "output"), ("folder", "reduce")):
        if given[name] == "":
            raise click.UsageError(f"--{option} needs the name of a file or folder")


def _settle_list(given: dict[str, Any]) -> None:
    idle = next((spelled for name, spelled in _options() if name not in _OF_THE_LIST), None)
    if idle is not None:
        raise click.UsageError(f"--list shows mutations and plays none: {idle} changes nothing there")
    if given["format_"] not in ("text", *PROGRAMS):
        raise click.UsageError(f"--list has the formats text, json and jsonl, not {given['format_']}")


def _settle_write(given: dict[str, Any]) -> None:
    if given["write"] == "-":
        raise click.UsageError("--write needs the name of a file; /dev/stdout is standard output")
    idle = next((spelled for name, spelled in _options() if name in _OF_BROKERS), None)
    if idle is not None:
        raise click.UsageError(f"{idle} is for brokers: --write has none")
    if given["format_"] not in ("text", *PROGRAMS):
        raise click.UsageError(
            f"--format {given['format_']} is for brokers; with --write, json and jsonl list what the file holds"
        )
    if given["output"] is not None and given["format_"] == "text":
        raise click.UsageError("--output with --write is for the list of flows: add --format json or jsonl")
    refuse_inputs(given["write"], given["captures"], option="--write")


def _settle_brokers(given: dict[str, Any]) -> None:
    if given["side"] == "server":
        raise click.UsageError("--side server is for --list and --write: a broker gets what clients send")
    if given["spawn"] is not None:
        _check_command(given["spawn"])
    if given["spawn"] and given["pid"]:
        raise click.UsageError("--spawn starts the broker, --broker-pid names one that runs: one of them")
    if given["matrix"] and (given["spawn"] or given["pid"] or given["folder"]):
        raise click.UsageError("--matrix compares brokers that run: without --spawn, --broker-pid and --reduce")
    if given["folder"] is not None and os.path.lexists(given["folder"]) and not os.path.isdir(given["folder"]):
        raise click.UsageError(f"--reduce: {given['folder']} is not a folder")


def _check_command(command: str) -> None:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise click.UsageError(f"--spawn: {command}: {str(error).lower()}") from None
    if not words:
        raise click.UsageError("--spawn needs the command that starts the broker")
