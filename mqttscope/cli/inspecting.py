"""The reproducer that ``inspect --output reproduce.sh`` writes: one connection as something that can be run."""

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
"""Connections that are named where several are meant."""
MAX_KEPT_BYTES = 256 << 20
"""Bytes of packets that are kept until it is known which connections are meant."""
PACKET_COST = 1_000
"""What each packet counts beside its bytes."""
_TAKEN = {"captures", "output", "expression", "connection", "show_secrets", "ports", "mqtt_version", "keylog", "via",
          "deduplicate", "colour", "jobs", "config", "no_config"}  # fmt: skip
"""Options that a reproducer goes by."""


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
    """Write the connection that the options select to a file; returns the exit code.

    ``suffix``: one of `WRITERS`.  A usage error where several connections are selected, `CommandFailedError` where
    there is none, or where the capture does not have what its client sent.
    """
    idle = next((spelled for name, spelled in on_command_line() if name not in _TAKEN), None)
    if idle is not None:
        raise click.UsageError(
            f"--output {output} is a reproducer of a connection: {idle} changes nothing there; with --format it is a"
            " report"
        )
    if len(set(selection.connection)) > 1:
        numbers = ", ".join(map(str, dict.fromkeys(selection.connection)))
        raise click.UsageError(
            f"--output {output} is a reproducer of one connection, and --connection names {numbers}; name one of them"
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
        made = script_file(script, show_secrets=show_secrets)
    _tell(script, made, suffix)
    sink = FileSink(output, captures)
    sink.write(WRITERS[suffix](made))
    sink.flush()
    sink.close()
    if suffix == ".sh" and os.path.isfile(output):
        # For whom it may be read, it may be run.
        mode = os.stat(output).st_mode
        os.chmod(output, mode | (mode & 0o444) >> 2)
    return EXIT_UNREADABLE if watch.errors else EXIT_CLEAN


def _choose(events: Iterable[Event], wanted: Any, connections: tuple[int, ...]) -> list[Script]:
    """The connections that are selected: by number, and with a packet that matches.

    Where numbers are given, nothing is read after the end of the last of them.
    """
    reader, matched, kept = ScriptReader(), set[int](), 0
    left = set(connections)
    for event in events:
        connection = getattr(event, "connection", None)
        if connection is None or (connections and connection.number not in connections):
            continue
        if isinstance(event, PacketEvent | MalformedEvent):
            packet = event.packet if isinstance(event, PacketEvent) else event.malformed
            kept += PACKET_COST + len(packet.raw) + len(getattr(packet, "payload", b""))
            if kept > MAX_KEPT_BYTES:
                raise CommandFailedError(
                    f"more than {MAX_KEPT_BYTES >> 20} MiB of packets would have to be kept: name the connection with"
                    " --connection N"
                )
        if wanted is None or wanted.matches(event):
            matched.add(connection.number)
        reader.feed(event)
        if isinstance(event, ConnectionClosed) and connections:
            left.discard(connection.number)
            if not left:
                break
    return [one for one in reader.finish() if one.entries and one.connection.number in matched]


def _several(chosen: list[Script]) -> str:
    lines = []
    for one in chosen[:MAX_NAMED]:
        packets = counted(len(one.entries), "packet")
        lines.append(f"{one.connection.number:>6}  {utf8(starred_name(one.name))}, {packets}")
    if len(chosen) > MAX_NAMED:
        lines.append(f"and {len(chosen) - MAX_NAMED:,} more")
    told = "\n".join(lines)
    return (
        f"a reproducer holds one connection, and {len(chosen):,} are selected: choose one with --connection N\n{told}"
    )


def _tell(script: Script, made: ScriptFile, suffix: str) -> None:
    if script.connection.transport == "websocket" and suffix != ".json":
        warn("the connection was recorded over WebSocket; the file sends the same packets over TCP")
    if made.lost:
        warn(f"{counted(made.lost, 'byte')} of the client are not in the capture, and not in the file")
    fields = sum(len(names) for index, names in made.hidden if made.steps[index].from_client)
    if fields:
        hidden = "1 field is" if fields == 1 else f"{fields} fields are"
        warn(f"{hidden} hidden in the file, which says what to do about that; --show-secrets shows everything")
