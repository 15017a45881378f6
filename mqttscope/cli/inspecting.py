"""The reproducer of ``inspect --output reproduce.sh``: one connection as a script, a recording or a test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from mqttscope.cli import advice
from mqttscope.cli.capture_run import CaptureRun
from mqttscope.cli.command import on_command_line
from mqttscope.cli.errors import CommandFailedError, ErrorTranslation
from mqttscope.cli.main import EXIT_CLEAN, EXIT_UNREADABLE
from mqttscope.cli.options import FileOptions, ProtocolOptions, SelectionOptions, compile_filter
from mqttscope.cli.output import FileSink, warn, warn_all
from mqttscope.events import ConnectionClosed, Event, MalformedEvent, PacketEvent
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted
from mqttscope.replay.script import Script, ScriptReader
from mqttscope.replay.script_file import ScriptFile, ScriptFileError, script_file
from mqttscope.report.reproduce import json_script, pytest_file, shell_script
from mqttscope.secrets.credentials import starred_name

WRITERS: dict[str, Callable[[ScriptFile], bytes]] = {".sh": shell_script, ".json": json_script, ".py": pytest_file}
MAX_NAMED = 10
"""Maximum number of connections listed if several are selected."""
MAX_KEPT_BYTES = 256 << 20
"""Maximum bytes of packets kept until the selected connections are known."""
PACKET_COST = 1_000
"""Overhead counted for each packet, in bytes."""
_TAKEN = {"captures", "output", "expression", "connection", "show_secrets", "ports", "mqtt_version", "keylog", "via",
          "deduplicate", "colour", "config", "no_config"}  # fmt: skip
"""Options that affect a reproducer."""


def reproduce(
    captures: Sequence[str],
    output: str,
    suffix: str,
    files: FileOptions,
    protocol: ProtocolOptions,
    selection: SelectionOptions,
    *,
    show_secrets: bool,
) -> int:
    """Write the selected connection to a file; returns the exit code.

    ``suffix``: one of `WRITERS`.  A usage error if several connections are selected, `CommandFailedError` without one,
    or if the capture lacks the packets of its client.
    """
    idle = next((spelled for name, spelled in on_command_line() if name not in _TAKEN), None)
    if idle is not None:
        raise click.UsageError(
            f"--output {output} is a reproducer of a connection: {idle} has no effect on it; --format makes it a report"
        )
    if len(set(selection.connection)) > 1:
        numbers = ", ".join(map(str, dict.fromkeys(selection.connection)))
        raise click.UsageError(
            f"--output {output} is a reproducer of one connection, not of {numbers}; select one of them"
        )
    wanted = compile_filter(selection.expression)
    run = CaptureRun(captures, files, protocol)
    watch, dissector = run.watch, run.dissector
    chosen = _choose(run.events(), wanted, selection.connection)
    warn_all(run.of_captures())
    if not dissector.connections:
        if watch.errors:
            return EXIT_UNREADABLE
        raise CommandFailedError(advice.nothing_found(dissector))
    if not chosen:
        absent = advice.selected_nothing(
            dissector, selection.connection, filtered=wanted is not None, matched=False, whole=True
        )
        raise CommandFailedError(absent or "no packet of a connection can be read")
    if len(chosen) > 1:
        raise click.UsageError(_several(chosen))
    script = chosen[0]
    before = f"connection {script.connection.number} cannot be reproduced: "
    with ErrorTranslation(CommandFailedError, ScriptFileError, before=before):
        reproducer = script_file(script, show_secrets=show_secrets)
    _warn_changes(script, reproducer, suffix)
    sink = FileSink(output, captures)
    sink.write(WRITERS[suffix](reproducer))
    sink.flush()
    sink.close()
    if suffix == ".sh" and os.path.isfile(output):
        # Make it executable for everyone who can read it.
        mode = os.stat(output).st_mode
        os.chmod(output, mode | (mode & 0o444) >> 2)
    return EXIT_UNREADABLE if watch.errors else EXIT_CLEAN


def _choose(events: Iterable[Event], wanted: Any, connections: tuple[int, ...]) -> list[Script]:
    """Select connections by number, and by a packet that matches.

    With numbers, reading stops after the end of the last selected connection.
    """
    reader, matched, size = ScriptReader(), set[int](), 0
    left = set(connections)
    for event in events:
        connection = getattr(event, "connection", None)
        if connection is None or (connections and connection.number not in connections):
            continue
        if isinstance(event, PacketEvent | MalformedEvent):
            packet = event.packet if isinstance(event, PacketEvent) else event.malformed
            size += PACKET_COST + len(packet.raw) + len(getattr(packet, "payload", b""))
            if size > MAX_KEPT_BYTES:
                raise CommandFailedError(
                    f"the selection needs more than {MAX_KEPT_BYTES >> 20} MiB of packets: select a connection with"
                    " --connection N"
                )
        if wanted is None or wanted.matches(event):
            matched.add(connection.number)
        reader.feed(event)
        if isinstance(event, ConnectionClosed) and connections:
            left.discard(connection.number)
            if not left:
                break
    return [script for script in reader.finish() if script.entries and script.connection.number in matched]


def _several(chosen: list[Script]) -> str:
    lines = []
    for script in chosen[:MAX_NAMED]:
        packets = counted(len(script.entries), "packet")
        lines.append(f"{script.connection.number:>6}  {utf8(starred_name(script.name))}, {packets}")
    if len(chosen) > MAX_NAMED:
        lines.append(f"and {len(chosen) - MAX_NAMED:,} more")
    rows = "\n".join(lines)
    return f"a reproducer contains one connection, and {len(chosen):,} are selected: choose with --connection N\n{rows}"


def _warn_changes(script: Script, reproducer: ScriptFile, suffix: str) -> None:
    if script.connection.transport == "websocket" and suffix != ".json":
        warn("the connection was recorded over WebSocket; the file sends the same packets over TCP")
    if reproducer.lost:
        warn(f"{counted(reproducer.lost, 'byte')} of the client are missing in the capture, and in the file")
    fields = sum(len(names) for index, names in reproducer.hidden if reproducer.steps[index].from_client)
    if fields:
        hidden = "1 field is" if fields == 1 else f"{fields} fields are"
        warn(f"{hidden} hidden in the file, which explains what to do; --show-secrets shows everything")
