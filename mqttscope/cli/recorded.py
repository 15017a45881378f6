"""Start of a live run: scripts from captures, and the recording and linting of the live traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import chain, count
from pathlib import Path
from typing import Any

import click

from mqttscope.api.recorded import (
    MatchingScripts,
    NothingRecordedError,
    Recorded,
    RecordedSelection,
    arrange,
    read_moment,
)
from mqttscope.cli.capture_run import CaptureRun
from mqttscope.cli.errors import CommandFailedError, ErrorTranslation
from mqttscope.cli.linting import LintRun, print_lint_messages
from mqttscope.cli.live_options import ChangeOptions, RecordedOptions, ReplayOptions, ServeOptions
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FAILED, EXIT_FINDINGS
from mqttscope.cli.options import FileOptions, ProtocolOptions, compile_filter
from mqttscope.cli.output import CannotWriteError, FileSink, Output, refuse_inputs, warn
from mqttscope.cli.reading import CommandReading
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
from mqttscope.report.replay.text import LimitedFindings
from mqttscope.session.connection import port_of
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
    """Read captures, select and rewrite connections; usage errors if that is impossible.

    ``credentials``: credentials other than the recorded ones are sent.
    """
    matching = MatchingScripts(compile_filter(chosen.expression))
    with ErrorTranslation(click.UsageError, RewriteError):
        asked = RecordedSelection(
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
    written = [capture for capture in captures if _is_script(capture)]
    run = CaptureRun([capture for capture in captures if capture not in written], files, protocol)
    segments, hidden = _written(written, run.dissector.options)
    for event in run.events(chain(run.segments(), segments) if run.captures else segments):
        matching.feed(event)
    run.tell_captures()
    with (
        ErrorTranslation(click.UsageError, RewriteError),
        ErrorTranslation(CommandFailedError, NothingRecordedError),
    ):
        recorded = arrange(matching, asked, truncated=bool(run.watch.errors), note=warn)
    recorded.hides_password = hidden
    return recorded


def _is_script(path: str) -> bool:
    """Whether a file is the script of a connection, not a capture; an unreadable file is reported later."""
    try:
        with open(path, "rb") as file:
            return file.seekable() and is_script(file.read(64))
    except (OSError, ValueError):
        return False


def _written(paths: Sequence[str], options: DissectOptions) -> tuple[Iterator[Segment], str]:
    """Segments of scripts by time, and the first script that hides a password."""
    numbers = count(1).__next__
    sources: list[Iterator[Segment]] = []
    hidden = ""
    for path in paths:
        with ErrorTranslation(CommandFailedError, ScriptFileError, OSError, before=f"{utf8(path)}: "):
            script = read_script(Path(path).read_bytes())
            # Read all segments now: errors are reported before anything is sent.
            sources.append(iter(list(segments_of(script, path, numbers))))
        options.ports.setdefault(int(port_of(script.server)), MQTT)
        others = [(script.steps[at], [name for name in names if name != PASSWORD]) for at, names in script.hidden]
        fields = sum(len(names) for step, names in others if step.from_client)
        if fields:
            are = "is" if fields == 1 else "are"
            warn(f"{utf8(path)}: {counted(fields, 'hidden field')} of the client {are} asterisks")
        if script.hides_password:
            hidden = hidden or path
    return merge(*sources, key=lambda segment: segment.timestamp_ns), hidden


def _file(name: str) -> bytes:
    with ErrorTranslation(RewriteError, OSError, ValueError, before=f"cannot read {name}: "):
        return Path(name).read_bytes()


class LiveRun:
    """A run of ``replay`` or ``serve``: recording, linter, report and exit code."""

    immediate = False
    """Whether lines of the report are written without a buffer."""

    def __init__(self, args: ReplayOptions | ServeOptions) -> None:
        self.run_options = args.run
        self.captures = args.captures
        self.view = args.run.view()
        self.lint: LintRun | None = None
        self.recording: Recording | None = None
        self._sink: Sink | None = None

    def sink(self) -> Any:
        """Sink of the report, opened once."""
        if self._sink is None:
            path = self.run_options.output
            self._sink = Output(immediate=self.immediate) if path is None else FileSink(path)
        return self._sink

    def record(self, where: str, activity: str) -> DissectOptions:
        """Prepare the linter of ``--lint`` and the recording of ``--write``; returns the options of dissection.

        ``where``: name of the capture without a file.  `CannotWriteError` if the file cannot be written, a usage error
        if it is an input capture.
        """
        run_options, options = self.run_options, DissectOptions()
        name = run_options.write or where
        listener: Callable[[Event], object] | None = None
        dissector = Dissector(options)
        if run_options.lint:
            from mqttscope.cli.linting_settings import resolve

            settings = resolve(run_options.judging, form="full" if run_options.form == "text" else "jsonl")
            sink = self.sink()
            self.lint = lint = LintRun(settings, CommandReading((name,)), colour=run_options.colour, sink=sink)
            if run_options.form == "text":
                lint.reporters = [LimitedFindings(reporter, sink) for reporter in lint.reporters]
            dissector, listener, options = lint.dissector, lint.feed, settings.options
        if run_options.write is not None:
            refuse_inputs(run_options.write, self.captures, option="--write")
        if run_options.write is not None or listener is not None:
            with ErrorTranslation(CannotWriteError, OSError, before=f"cannot write {run_options.write}: "):
                self.recording = Recording(
                    name, path=run_options.write, dissector=dissector, listener=listener, note=warn, activity=activity
                )
        return options

    def close_record(self, within_s: float) -> None:
        """End the recording and the linter; ``within_s``: maximum time for the linter to catch up."""
        if self.recording is not None:
            self.recording.close(within_s)
            print_lint_messages(self.recording)
        if self.lint is not None:
            self.lint.close()

    def code(self, verification: Verification | None, *, failed: bool, differs: bool) -> int:
        """Exit code: errors first, then differences and findings."""
        recording, lint = self.recording, self.lint
        failed |= recording is not None and recording.failed
        if failed or (lint is not None and lint.linter.internal_errors):
            return EXIT_FAILED
        if verification is not None and verification.nothing:
            warn(verification.nothing)
            return EXIT_FAILED
        if self.run_options.judging.exit_zero or (lint is not None and lint.settings.exit_zero):
            return EXIT_CLEAN
        return EXIT_FINDINGS if differs or (lint is not None and lint.failing) else EXIT_CLEAN

    def write_differences(self, verification: Verification) -> None:
        """Write differences as JSON Lines."""
        differences = ReplayJson(self.sink(), self.view)
        for difference in verification.differences:
            differences.feed(difference)
        differences.close(verification)
