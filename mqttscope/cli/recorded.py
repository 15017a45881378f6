"""The start of a live run: scripts from captures, selected by its options, and what records and lints the traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import chain, count
from pathlib import Path
from typing import Any

import click

from mqttscope.api.recorded import Matching, NothingRecordedError, Recorded, Wanted, arrange, read_moment
from mqttscope.cli.capture_run import CaptureRun
from mqttscope.cli.errors import CommandFailedError, ErrorTranslation
from mqttscope.cli.linting import LintRun, tell_judging
from mqttscope.cli.live_options import ChangeOptions, RecordedOptions, ReplayOptions, ServeOptions
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FAILED, EXIT_FINDINGS
from mqttscope.cli.options import FileOptions, ProtocolOptions, compile_filter
from mqttscope.cli.output import CannotWriteError, FileSink, Output, refuse_inputs, warn
from mqttscope.cli.reading import Reading
from mqttscope.dissect import Dissector
from mqttscope.dissect import Options as DissectOptions
from mqttscope.dissect.options import MQTT
from mqttscope.events import Event
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted
from mqttscope.net.segment import Segment
from mqttscope.replay.rewrite import RewriteError, Rewrites
from mqttscope.replay.script_file import PASSWORD, ScriptFileError, is_script, read_script, segments_of
from mqttscope.replay.verify.difference import Verification
from mqttscope.report.base import Sink
from mqttscope.report.replay.json import ReplayJson
from mqttscope.report.replay.text import Limited
from mqttscope.transport.recording import Recording


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
    matching = Matching(compile_filter(chosen.expression))
    with ErrorTranslation(click.UsageError, RewriteError):
        asked = Wanted(
            rewrites=Rewrites.parse(chosen.topics, chosen.names, changing.settings, changing.unset, read_file=_file),
            clients=chosen.clients,
            start=read_moment("start", chosen.start),
            end=read_moment("end", chosen.end),
            convert=changing.convert,
            lossy=changing.lossy,
            copies=changing.copies,
            topic_template=changing.topic_template,
            credentials=credentials,
        )
    written = [one for one in captures if _is_script(one)]
    run = CaptureRun([one for one in captures if one not in written], files, protocol)
    segments, hidden = _written(written, run.dissector.options)
    for event in run.events(chain(run.segments(), segments) if run.captures else segments):
        matching.feed(event)
    run.tell_captures()
    with (
        ErrorTranslation(click.UsageError, RewriteError),
        ErrorTranslation(CommandFailedError, NothingRecordedError),
    ):
        found = arrange(matching, asked, truncated=bool(run.watch.errors), note=warn)
    found.hides_password = hidden
    return found


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
        with ErrorTranslation(CommandFailedError, ScriptFileError, OSError, before=f"{utf8(path)}: "):
            made = read_script(Path(path).read_bytes())
            # All at once: what is wrong is said before anything is sent.
            found.append(iter(list(segments_of(made, path, numbers))))
        options.ports.setdefault(int(made.server.rpartition(":")[2]), MQTT)
        others = [(made.steps[at], [one for one in names if one != PASSWORD]) for at, names in made.hidden]
        fields = sum(len(names) for step, names in others if step.from_client)
        if fields:
            are = "is" if fields == 1 else "are"
            warn(f"{utf8(path)}: {counted(fields, 'hidden field')} of the client {are} asterisks")
        if made.hides_password:
            hidden = hidden or path
    return merge(*found, key=lambda segment: segment.timestamp_ns), hidden


def _file(name: str) -> bytes:
    with ErrorTranslation(RewriteError, OSError, ValueError, before=f"cannot read {name}: "):
        return Path(name).read_bytes()


class LiveRun:
    """A run of ``replay`` or ``serve``: its recording, its linter, its report and its exit code."""

    immediate = False
    """Whether lines of the report are written at once."""

    def __init__(self, given: ReplayOptions | ServeOptions) -> None:
        self.run_options = given.run
        self.captures = given.captures
        self.view = given.run.view()
        self.lint: LintRun | None = None
        self.recording: Recording | None = None
        self._sink: Sink | None = None

    def sink(self) -> Any:
        """Where the report goes, opened once."""
        if self._sink is None:
            path = self.run_options.output
            self._sink = Output(immediate=self.immediate) if path is None else FileSink(path)
        return self._sink

    def record(self, where: str, activity: str) -> DissectOptions:
        """Prepare the linter of ``--lint`` and the recording of ``--write``; returns the options of dissection.

        ``where`` names the capture if there is no file.  `CannotWriteError` if the file cannot be made, a usage error
        if it is a capture that is read.
        """
        given, options = self.run_options, DissectOptions()
        name = given.write or where
        listener: Callable[[Event], None] | None = None
        dissector = Dissector(options)
        if given.lint:
            from mqttscope.cli.linting_settings import resolve

            settings = resolve(given.judging, form="full" if given.form == "text" else "jsonl")
            sink = self.sink()
            self.lint = lint = LintRun(settings, Reading((name,)), colour=given.colour, sink=sink)
            if given.form == "text":
                lint.reporters = [Limited(reporter, sink) for reporter in lint.reporters]
            dissector, listener, options = lint.dissector, lint.feed, settings.options
        if given.write is not None:
            refuse_inputs(given.write, self.captures, option="--write")
        if given.write is not None or listener is not None:
            with ErrorTranslation(CannotWriteError, OSError, before=f"cannot write {given.write}: "):
                self.recording = Recording(
                    name, path=given.write, dissector=dissector, listener=listener, note=warn, activity=activity
                )
        return options

    def close_record(self, within_s: float) -> None:
        """End the recording, whose judging has this long to catch up, and the linter."""
        if self.recording is not None:
            self.recording.close(within_s)
            tell_judging(self.recording)
        if self.lint is not None:
            self.lint.close()

    def code(self, found: Verification | None, *, failed: bool, differs: bool) -> int:
        """The exit code: errors first, then what was found."""
        recording, lint = self.recording, self.lint
        failed |= recording is not None and recording.failed
        if failed or (lint is not None and lint.linter.internal_errors):
            return EXIT_FAILED
        if found is not None and found.nothing:
            warn(found.nothing)
            return EXIT_FAILED
        if self.run_options.judging.exit_zero or (lint is not None and lint.settings.exit_zero):
            return EXIT_CLEAN
        return EXIT_FINDINGS if differs or (lint is not None and lint.failing) else EXIT_CLEAN

    def write_differences(self, found: Verification) -> None:
        """Write differences as JSON Lines."""
        differences = ReplayJson(self.sink(), self.view)
        for difference in found.differences:
            differences.feed(difference)
        differences.close(found)
