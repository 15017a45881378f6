"""The start of a live run: scripts from captures, selected by its options, and what records and lints the traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import chain, count
from pathlib import Path

import click

from mqttscope.api.recorded import Matching, NothingRecordedError, Recorded, Wanted, arrange
from mqttscope.cli import advice
from mqttscope.cli.linting import LintRun
from mqttscope.cli.live_options import ChangeOptions, RecordedOptions, RunOptions
from mqttscope.cli.main import EXIT_UNREADABLE
from mqttscope.cli.options import FileOptions, ProtocolOptions, compile_filter
from mqttscope.cli.output import CannotWriteError, Watch, refuse_inputs, warn
from mqttscope.cli.reading import Reading
from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.dissect import Options as DissectOptions
from mqttscope.dissect.options import MQTT
from mqttscope.errors import MqttscopeError
from mqttscope.events import Event
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureNotice, Decrypted
from mqttscope.net.segment import Segment
from mqttscope.replay.rewrite import (
    Moment,
    RewriteError,
    Rewrites,
)
from mqttscope.replay.script_file import PASSWORD, ScriptFileError, is_script, read_script, segments_of
from mqttscope.report.base import Sink
from mqttscope.report.replay.text import Limited
from mqttscope.transport.recording import Recording


class NothingToReplayError(MqttscopeError, click.ClickException):
    """The captures hold no connection that could be played."""

    exit_code = EXIT_UNREADABLE


def read(
    captures: Sequence[str],
    files: FileOptions,
    protocol: ProtocolOptions,
    chosen: RecordedOptions,
    changing: ChangeOptions,
    *,
    credentials: bool = False,
) -> Recorded:
    """Read captures, select and rewrite; usage errors where that cannot be done.

    ``credentials``: others than the recorded ones are sent.
    """
    wanted = compile_filter(chosen.expression)
    try:
        rewrites = Rewrites.parse(chosen.topics, chosen.names, changing.settings, changing.unset, read_file=_file)
        start = None if chosen.start is None else Moment.parse(chosen.start)
        end = None if chosen.end is None else Moment.parse(chosen.end)
    except RewriteError as error:
        raise click.UsageError(str(error)) from None
    asked = Wanted(
        clients=chosen.clients,
        start=start,
        end=end,
        rewrites=rewrites,
        convert=changing.convert,
        lossy=changing.lossy,
        copies=changing.copies,
        topic_template=changing.topic_template,
        topics=bool(chosen.topics or changing.topic_template),
        names=bool(chosen.names),
        credentials=credentials,
    )
    written = [one for one in captures if _is_script(one)]
    reading = Reading([one for one in captures if one not in written], files)
    dissector = reading.dissector(protocol.dissection())
    segments: Iterator[Segment | CaptureNotice | Decrypted]
    segments, hidden = _written(written, dissector.options)
    watch = Watch(progress=True)
    matching = Matching(wanted)
    if reading.captures:
        segments = chain(watch.follow(reading).segments(watch.skipped), segments)
    for event in watch.events(dissect_segments(segments, dissector=dissector)):
        matching.feed(event)
    nothing = advice.nothing_found(dissector) if not dissector.connections else None
    for told in filter(None, (nothing, *reading.advice(), advice.not_read(dissector, watch.skipped, via=reading.via))):
        warn(told)
    try:
        found = arrange(matching, asked, truncated=bool(watch.errors), note=warn)
    except RewriteError as error:
        raise click.UsageError(str(error)) from None
    except NothingRecordedError as error:
        raise NothingToReplayError(str(error)) from None
    found.hides_password = hidden
    return found


class BadScriptError(MqttscopeError, click.ClickException):
    """A script of a connection cannot be read."""

    exit_code = EXIT_UNREADABLE


def _is_script(path: str) -> bool:
    """Whether a file holds the script of a connection, and no capture; a file that cannot be read is reported later."""
    try:
        with open(path, "rb") as file:
            return file.seekable() and is_script(file.read(64))
    except (OSError, ValueError):
        return False


def _written(paths: Sequence[str], options: DissectOptions) -> tuple[Iterator[Segment], str]:
    """The segments of scripts in the order of their times, and the first script that hides a password."""
    numbers = count(1).__next__
    found: list[Iterator[Segment]] = []
    hidden = ""
    for path in paths:
        try:
            made = read_script(Path(path).read_bytes())
            # All at once: what is wrong is said before anything is sent.
            found.append(iter(list(segments_of(made, path, numbers))))
        except (ScriptFileError, OSError) as error:
            raise BadScriptError(f"{utf8(path)}: {getattr(error, 'strerror', None) or error}") from None
        options.ports.setdefault(int(made.server.rpartition(":")[2]), MQTT)
        others = [(made.steps[at], [one for one in names if one != PASSWORD]) for at, names in made.hidden]
        fields = sum(len(names) for step, names in others if step.from_client)
        if fields:
            are = "is" if fields == 1 else "are"
            warn(f"{utf8(path)}: {counted(fields, 'hidden field')} of the client {are} asterisks")
        if made.hides_password:
            hidden = hidden or path
    return merge(*found, key=lambda segment: segment.timestamp_ns), hidden


def limit_findings(lint: LintRun, given: RunOptions, sink: Sink) -> None:
    """Limit the findings of a live run where they are for people."""
    if given.form == "text":
        lint.reporters = [Limited(one, sink) for one in lint.reporters]


def _file(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except (OSError, ValueError) as error:
        raise RewriteError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None


def prepare_record(
    given: RunOptions,
    captures: Sequence[str],
    where: str,
    options: DissectOptions,
    sink: Callable[[], Sink],
    activity: str,
) -> tuple[LintRun | None, Recording | None, DissectOptions]:
    """The linter of ``--lint``, the recording of ``--write`` or for the linter, and the options that hold.

    ``where`` names the capture where there is no file; ``sink`` gives the place of findings.  `CannotWriteError` where
    the file cannot be made, a usage error where it is a capture that is read.
    """
    name = given.write or where
    lint: LintRun | None = None
    listener: Callable[[Event], None] | None = None
    dissector = Dissector(options)
    if given.lint:
        from mqttscope.cli.linting_settings import resolve

        settings = resolve(given.judging, form="full" if given.form == "text" else "jsonl")
        lint = LintRun(settings, Reading((name,)), colour=given.colour, sink=sink())
        dissector, listener, options = lint.dissector, lint.feed, settings.options
    if given.write is None and listener is None:
        return lint, None, options
    if given.write is not None:
        refuse_inputs(given.write, captures, option="--write")
    try:
        recording = Recording(
            name, path=given.write, dissector=dissector, listener=listener, note=warn, activity=activity
        )
    except OSError as error:
        raise CannotWriteError(f"cannot write {given.write}: {error.strerror or error}") from None
    return lint, recording, options
