"""Runs a command on several processes: chooses how many, opens the captures for each, and reports the loss of one.

What only one process can do runs in one, whatever ``--jobs`` says: standard input and pipes, which can be read once;
TLS that is decrypted and frames that tshark dissects, where another program reads along; and captures of several taps,
whose frames are compared.
"""

from __future__ import annotations

import mmap
import os
import signal
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from mqttscope.capture import open_capture
from mqttscope.capture.files import Part, find_captures
from mqttscope.capture.fingerprint import head_crc
from mqttscope.capture.pcap import FrameSink
from mqttscope.cli.errors import CommandFailedError
from mqttscope.cli.main import ENDINGS, EXIT_FAILED, handling, installed, interruption, leaving, limit_ending
from mqttscope.cli.options import LARGE_BYTES, MOST_UNASKED
from mqttscope.cli.output import ReadProgress, Watch
from mqttscope.cli.reading import Reading
from mqttscope.errors import MqttscopeError
from mqttscope.net.frame import CaptureNotice, Frame
from mqttscope.system import can_fork, processors

if TYPE_CHECKING:
    from mqttscope.dissect import Dissector
    from mqttscope.parallel.counts import Counts
    from mqttscope.parallel.crew import Crew, Outlet, Work
    from mqttscope.parallel.walk import Share


_COUNT = struct.Struct("q")


class ShareFailedError(MqttscopeError, click.ClickException):
    """A process of the run was lost: what it had to say is missing."""

    exit_code = EXIT_FAILED


class Sources:
    """The captures of a run, as they were when it began, for each of its processes to read."""

    def __init__(self, reading: Reading) -> None:
        self.names: list[str] = []
        self.size = 0
        self._parts: dict[str, Part] = {}
        self.reading = reading
        self._passed = mmap.mmap(-1, _COUNT.size)
        """How many bytes were read, which all processes see."""

    def divisible(self) -> bool:
        """Whether several processes can read them."""
        reading = self.reading
        if not can_fork() or reading.decrypting or reading.via is not None or reading.deduplicate:
            return False
        for name in find_captures(reading.captures):
            # What is wrong with a source is said once, and a name that comes twice is read twice.
            if not isinstance(name, str) or name in self._parts:
                return False
            try:
                told = os.stat(name)
                if not stat.S_ISREG(told.st_mode):
                    return False
                with open(name, "rb", buffering=0) as file:
                    begins = head_crc(file, told.st_size)
            except (OSError, ValueError):
                return False
            self.names.append(name)
            self._parts[name] = Part(0, told.st_size, begins)
            self.size += told.st_size
        return True

    def frames(self, direct: FrameSink | None = None) -> Iterator[Frame | CaptureNotice]:
        """Their frames, but those that ``direct`` takes; each process reads all of them."""
        read = 0

        def seen(count: int) -> None:
            nonlocal read
            read += count
            # Of the one that is ahead: the others follow closely.
            if read > self.passed:
                _COUNT.pack_into(self._passed, 0, read)

        return open_capture(self.names, parts=self._parts, direct=direct, seen=seen)

    @property
    def passed(self) -> int:
        """Bytes of the captures that were read."""
        found: int = _COUNT.unpack_from(self._passed)[0]
        return found

    @property
    def several(self) -> bool:
        return len(self.names) > 1


def processes(jobs: int | None, sources: Sources, *, divisible: bool) -> int:
    """How many processes are to work; ``divisible``: nothing else is in the way of several."""
    count = min(MOST_UNASKED, processors()) if jobs is None else jobs
    if count == 1 or not divisible or not sources.divisible():
        return 1
    return count if jobs is not None or sources.size >= LARGE_BYTES else 1


def refuse_changes(counts: Sequence[Counts]) -> None:
    """`CommandFailedError` where not all processes have seen the same frames."""
    if len({one.frames for one in counts}) > 1:
        raise CommandFailedError("a capture was changed while it was read, so that the output is not complete")


@contextmanager
def at_work(
    count: int, work: Work, *, jobs: int | None = None, asked: list[KeyboardInterrupt] | None = None
) -> Iterator[Crew]:
    """Processes at work; they end with this one.

    ``jobs``: how many there are with this one, if it works too.  ``asked``: gets the first signal that ends programs;
    then the processes come to an end with what they have found.
    """
    from mqttscope.parallel.crew import Crew, WorkerLostError

    crew = Crew(count, work, jobs=jobs)
    # Signals are handled before the first process starts: one that came in between would end the run without a result.
    with leaving(crew.kill), nullcontext() if asked is None else ending_with(crew, asked):
        try:
            with crew:
                yield crew
        except WorkerLostError as error:
            raise ShareFailedError(str(error)) from None


@contextmanager
def beside(work: Callable[[Callable[[], object]], bytes]) -> Iterator[Callable[[], bytes]]:
    """Work that a copy of this process does meanwhile; gives what waits for its result.

    ``work`` gets what it calls now and then: that ends the copy where this process has ended.
    """
    from mqttscope.parallel.crew import END, unpickled

    def run(share: Share, outlet: Outlet) -> bytes:
        return work(lambda: outlet.send(b""))

    with at_work(1, run, jobs=2) as crew:

        def result() -> bytes:
            (message,) = (one for _, kind, one in crew.messages(lambda _: True) if kind == END)
            found: bytes = unpickled(message)
            return found

        yield result


@contextmanager
def ending_with(crew: Crew, asked: list[KeyboardInterrupt]) -> Iterator[None]:
    """Have processes come to an end on Ctrl-C, so that what they have found is there; a second one does not wait.

    What the first asked for is added to ``asked``.
    """

    def handler(number: int, frame: object) -> None:
        limit_ending(number)
        if asked:
            raise interruption(number)
        asked.append(interruption(number))
        crew.stop()

    with handling(handler, [number for number in ENDINGS if number == signal.SIGINT or installed(number)]):
        yield


def share_out(
    sources: Sources, count: int, work: Work, take: Callable[[Any], None], watch: Watch, dissector: Dissector,
    *, counts_of: Callable[[Any], Counts], max_limited: int | None, may_end: bool = False,
) -> tuple[list[Any], list[KeyboardInterrupt]] | None:  # fmt: skip
    """What processes return of the work, and the signals that ended them; ``None`` if one process has to do it.

    ``take``: gets what they give meanwhile, in its order.  ``dissector`` and ``watch``: get what was counted.
    ``may_end``: on a signal the processes end, and what they have found is returned.
    """
    from mqttscope.parallel.counts import add_up, overlapping
    from mqttscope.parallel.merge import gather
    from mqttscope.parallel.walk import IndivisibleError

    try:
        asked: list[KeyboardInterrupt] = []
        with at_work(count, work, asked=asked if may_end else None) as crew:
            watched = shown_progress(take, sources, enabled=watch.shows_progress)
            parts: list[Any] = gather(crew, watched, max_limited=max_limited)
        counts = [counts_of(part) for part in parts]
        if not asked:
            refuse_changes(counts)
        add_up(counts, dissector, watch.skipped)
    except IndivisibleError:
        watch.again()
        return None
    sources.reading.order.overlapping += overlapping(counts)
    return parts, asked


class Rest:
    """A sink that leaves out what was written before: by several processes, before they left the work to one."""

    def __init__(self, sink: Any, written: int) -> None:
        self._sink = sink
        self._left = written
        self.immediate = getattr(sink, "immediate", True)

    def write(self, data: bytes, /) -> None:
        """Write bytes that were not written before."""
        left = self._left
        if left:
            self._left = max(0, left - len(data))
            data = data[left:]
        if data:
            self._sink.write(data)

    def flush(self) -> None:
        self._sink.flush()


def shown_progress(take: Callable[[Any], None], sources: Sources, *, enabled: bool) -> Callable[[Any], None]:
    """Take entries, and show how much of the captures was read once the run takes longer."""
    progress = ReadProgress()
    if not enabled or not progress.enabled:
        return take
    progress.follow(sources.names)

    def watched(entries: Any) -> None:
        take(entries)
        progress.seen(sources.passed - progress.read)

    return watched
