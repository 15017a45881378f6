"""One run of a command over captures: reading, output, and the advice at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from mqttscope.cli import advice
from mqttscope.cli.main import EXIT_CLEAN, EXIT_UNREADABLE
from mqttscope.cli.options import FileOptions, ProtocolOptions
from mqttscope.cli.output import CaptureWatch, FileSink, Output, awaited, warn, warn_all
from mqttscope.cli.reading import CommandReading
from mqttscope.dissect import FastPath, dissect_segments
from mqttscope.events import Event

if TYPE_CHECKING:
    from mqttscope.net.fragments import FragmentTable
    from mqttscope.report.base import View


class CaptureRun:
    """The captures of one run, from their first frame to the exit code.

    ``progress`` and ``shown`` go to `CaptureWatch`, ``stdin`` and ``fragments`` to `CommandReading`.
    """

    def __init__(
        self,
        captures: Sequence[str],
        files: FileOptions,
        protocol: ProtocolOptions,
        *,
        progress: bool | CaptureWatch = True,
        shown: bool = False,
        stdin: BinaryIO | None = None,
        fragments: FragmentTable | None = None,
    ) -> None:
        self.captures = captures
        self.watch = CaptureWatch(progress=progress, shown=shown)
        self.reading = CommandReading(captures, files, stdin, fragments)
        self.dissector = self.reading.dissector(protocol.dissection())
        self.interrupt: KeyboardInterrupt | None = None
        """The signal that ended the reading."""

    def segments(self, frames: Any = None, fast_path: FastPath | None = None) -> Any:
        """Segments of the captures; ``frames`` and ``fast_path`` go to `CommandReading.segments`."""
        return self.watch.follow(self.reading).segments(self.watch.skipped, frames, fast_path)

    def events(self, segments: Iterable[Any] | None = None) -> Iterator[Event]:
        """Events of the captures, or of given segments."""
        items = self.segments() if segments is None else segments
        return self.watch.events(dissect_segments(items, dissector=self.dissector))

    def with_acknowledgments(self, events: Iterator[Event], *, asked: bool) -> Iterator[Event]:
        """Events with TCP acknowledgments, unless the captures can be read only once.

        ``asked``: whether the user asked for acknowledgments; then a warning reports that they are missing.
        """
        acknowledgments = self.reading.acknowledgments()
        if acknowledgments is None and asked:
            warn("the captures can be read only once: which packets TCP acknowledged is not shown")
        return events if acknowledgments is None else acknowledgments.attach(events)

    @contextmanager
    def until_interrupted(self) -> Iterator[None]:
        """A context for reading: a signal ends it, and `end` raises the signal again after the report.

        The report then contains partial results.  A second Ctrl-C ends the report as well.
        """
        try:
            yield
        except KeyboardInterrupt as error:
            self.interrupt = error

    @property
    def read_nothing(self) -> bool:
        return self.watch.read_nothing(self.dissector.flows.opened_flows)

    def file(self, view: View, path: str | None, *, colour: bool | None) -> FileSink | None:
        """The file of the report, ``None`` for standard output; the view of a report in a file has no width."""
        if path is None:
            return None
        view.width, view.colour, view.unicode = 0, bool(colour), True
        return FileSink(path, self.captures)

    def sink(self, file: FileSink | None) -> Any:
        """Sink of the report: a file, or standard output, which delays signals while it writes."""
        return Output(immediate=awaited(self.captures)) if file is None else file

    def nothing_found(self) -> str | None:
        """Message that the captures contain no MQTT, if they were read to their end."""
        return None if self.dissector.connections or self.watch.errors else advice.nothing_found(self.dissector)

    def tell_captures(self) -> None:
        """Report missing MQTT and the other messages about the captures."""
        nothing = None if self.dissector.connections else advice.nothing_found(self.dissector)
        warn_all((nothing, *self.of_captures()))

    def of_captures(self) -> list[str | None]:
        unread = advice.not_read(self.dissector, self.watch.skipped, via=self.reading.via)
        return [*self.reading.advice(), unread]

    def end(
        self,
        more: Iterable[str | None] = (),
        *,
        connections: tuple[int, ...] = (),
        filtered: bool = False,
        matched: bool = True,
        whole: bool = True,
    ) -> int:
        """Print the advice and ``more``; returns the exit code.  Raises the signal that ended the reading.

        ``connections``, ``filtered``, ``matched`` and ``whole`` go to `advice.selected_nothing`.
        """
        if self.interrupt is not None:
            raise self.interrupt
        sentences: list[str | None] = [self.nothing_found()]
        sentences += advice.of_connections(self.dissector, deduplicates=self.reading.deduplicate)
        sentences += [advice.snap_length(self.dissector, self.watch.skipped), *self.of_captures(), *more]
        if self.dissector.connections:
            sentences.append(
                advice.selected_nothing(self.dissector, connections, filtered=filtered, matched=matched, whole=whole)
            )
        warn_all(sentences)
        return EXIT_UNREADABLE if self.watch.errors else EXIT_CLEAN
