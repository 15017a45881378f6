"""Frames of a live interface, captured by Wireshark's dumpcap.

dumpcap is found as pyshark finds it, and is the only program that needs the right to capture.  It writes pcapng to a
pipe, which is read like any other capture.  While nothing comes, whoever reads is called several times a second, so
that stop conditions, files and flows that went idle do not wait for the next frame.

What dumpcap says on standard error becomes an exception before the first frame and a :class:`CaptureError` after it;
both name the cause and the remedy.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from mqttscope.capture import prompt
from mqttscope.capture.complaints import CannotCaptureError, explain, went_away
from mqttscope.capture.drops import DropCounter
from mqttscope.capture.reading import read_capture
from mqttscope.capture.tools import find_tool
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureNotice, Frame

BUFFER_MIB = 64
"""What the kernel keeps of an interface while dumpcap is busy."""
TICK_SECONDS = 0.05
"""So often whoever reads is called while nothing comes."""
SETTLE_SECONDS = 0.35
"""How long a capture goes on after it was told to stop: the kernel hands frames over in blocks, the last one late."""
LINK_SECONDS = 1.0
"""So often the interfaces are looked at: the kernel tells nobody who captures that one went down."""
END_SECONDS = 5.0
"""How long dumpcap may take to end before it is killed."""
MAX_COMPLAINTS = 1 << 16
"""Bytes of dumpcap's standard error that are kept."""
PIPE_BYTES = 1 << 20
"""Asked of the kernel for the pipe, so that dumpcap need not wait while frames are decoded."""

_F_SETPIPE_SZ = 1031
_UP = 1
_READY = b"File: "
_COMPLAINT = re.compile(r"^dumpcap: ", re.M)
_DROPPED = re.compile(r"received/dropped on interface .*?: (\d+)/(\d+)")


@dataclass(slots=True)
class Interface:
    """An interface that can be captured from."""

    name: str
    description: str = ""
    addresses: tuple[str, ...] = ()
    loopback: bool = False


def interfaces() -> list[Interface]:
    """The interfaces that dumpcap knows, in its order.

    `MissingToolError` where there is no dumpcap, `CannotCaptureError` where it cannot tell.
    """
    dumpcap = find_dumpcap()
    try:
        done = subprocess.run([dumpcap, "-D", "-M"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        raise CannotCaptureError(explain(str(error), dumpcap, ())) from None
    if done.returncode:
        raise CannotCaptureError(explain(done.stderr.decode("utf-8", "replace"), dumpcap, ()))
    found = []
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        # 3. lo <tab> vendor <tab> Loopback <tab> type <tab> addresses <tab> kind
        parts = [*line.split("\t"), "", "", "", "", ""]
        name = parts[0].partition(". ")[2]
        if name:
            addresses = tuple(filter(None, parts[4].split(",")))
            found.append(Interface(name, parts[2] or parts[1], addresses, parts[5] == "loopback"))
    return found


def find_dumpcap() -> str:
    """Path of dumpcap; `MissingToolError` where there is none."""
    return find_tool("dumpcap", "to capture")


class LiveCapture:
    """One run of dumpcap.

    ``waiting`` is called whenever everything that came was handed out, every `TICK_SECONDS` while nothing comes, and
    when something comes on a descriptor that ``watched`` names; what it raises ends the capture and is raised by
    :meth:`frames`.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        capture_filter: str = "",
        buffer_mib: int = BUFFER_MIB,
        promiscuous: bool = True,
        waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self.names = tuple(names)
        self.name = ",".join(names)
        """What frames name as their capture."""
        self.waiting = waiting
        self.watched: Callable[[], Sequence[int]] = tuple
        self.received = 0
        """Frames that came, as the kernel says where it can be asked, and dumpcap at its end."""
        self.dropped = 0
        """Frames that were dropped, as far as it is known."""
        self.ready = False
        """Whether the interface was opened."""
        self.silent = False
        """Whether nothing came since `waiting` was called before, and nothing waits in the pipe."""
        self.stopping = False
        """Whether somebody asked for the end."""
        self._dumpcap = find_dumpcap()
        self._arguments = [self._dumpcap, "-q", "-n", "-B", str(buffer_mib)]
        for name in names:
            self._arguments += ["-i", name]
            if capture_filter:
                self._arguments += ["-f", capture_filter]
            if not promiscuous:
                self._arguments.append("-p")
        self._arguments += ["-w", "-"]
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints = b""
        self._complaining = True
        self._stop_at = 0.0
        self._look_at = 0.0
        self._signalled = False
        self._at_end = False
        """Whether dumpcap has closed its output, so that it is about to end."""
        self._cut_short = False
        """Whether dumpcap was ended since what it wrote could not be read."""
        self._down = ""
        self._failure: BaseException | None = None
        self._told_dropped = 0
        """Drops that dumpcap told at its end."""
        self._told_by_dumpcap = 0
        """Those of them that the capture told already."""
        self._counter: DropCounter | None = None
        self._noticed: list[CaptureDrops] = []

    def frames(self) -> Iterator[Frame | CaptureNotice]:
        """Frames as they come, until :meth:`stop`; `CannotCaptureError` when it cannot even begin."""
        self._start()
        frames = 0
        fault: CaptureError | None = None
        try:
            for item in read_capture(cast(BinaryIO, self), self.name):
                if self._noticed:
                    yield from self._taken()
                if type(item) is Frame:
                    frames = item.number
                elif isinstance(item, CaptureError):
                    fault = item
                    continue
                elif isinstance(item, CaptureDrops):
                    self.dropped += item.dropped
                    self._told_by_dumpcap += item.dropped
                yield item
        finally:
            self.close()
        if self._failure is not None:
            raise self._failure
        yield from self._taken()
        yield from self._last_words(frames, fault)

    def stop(self, *, settle: bool = True) -> None:
        """End the capture; frames that are on their way still come, unless they are not waited for.

        Asking again makes it end no later.
        """
        stop_at = time.monotonic() + (SETTLE_SECONDS if settle else 0)
        self._stop_at = min(self._stop_at, stop_at) if self.stopping else stop_at
        self.stopping = True

    def close(self) -> None:
        """End dumpcap now, if it still runs, and hear what it has to say."""
        process = self._process
        if process is None or (process.stdout is not None and process.stdout.closed):
            return
        assert process.stdout is not None
        assert process.stderr is not None
        self._count_drops()
        if self._counter is not None:
            self._counter.close()
        if process.poll() is None and not self._signalled and not self._at_end:
            self._cut_short = not self.stopping
            self._interrupt()
        deadline = time.monotonic() + END_SECONDS
        open_pipes = [process.stdout.fileno(), process.stderr.fileno()]
        # dumpcap cannot end while nobody takes what it writes.
        while open_pipes and time.monotonic() < deadline:
            for pipe in select.select(open_pipes, [], [], TICK_SECONDS)[0]:
                data = os.read(pipe, 1 << 16)
                if not data:
                    open_pipes.remove(pipe)
                elif pipe == process.stderr.fileno():
                    self._hear(data)
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        process.stderr.close()
        found = _DROPPED.findall(self._said())
        if found:
            # dumpcap counts what it read by itself, whatever the kernel was asked before; drops it asks the kernel for.
            self.received = sum(int(received) for received, _ in found)
        self._told_dropped = sum(int(dropped) for _, dropped in found)

    def read1(self, size: int) -> bytes:
        """What dumpcap has written, at most ``size`` bytes; empty at its end.  For `read_capture`."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        assert process.stderr is not None
        output, errors = process.stdout.fileno(), process.stderr.fileno()
        self.silent = False
        while True:
            try:
                self.waiting()
                self._look()
            except BaseException as failure:
                # An OSError would pass for one of the pipe.
                self._failure = failure
                return b""
            pipes = [output, errors] if self._complaining else [output]
            came = select.select([*pipes, *self.watched()], [], [], TICK_SECONDS)[0]
            if output in came:
                found = os.read(output, size)
                self._at_end = not found
                return found
            if errors in came:
                data = os.read(errors, 1 << 12)
                self._complaining = bool(data)
                self._hear(data)
            self.silent = True

    read = read1

    def _start(self) -> None:
        hurried = prompt.available()
        try:
            self._process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Ctrl-C is for this process to act on: dumpcap would end before the last frames came.
                start_new_session=True,
                preexec_fn=_prepare_traced if hurried else _end_with_parent,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise CannotCaptureError(explain(str(error), self._dumpcap, self.names)) from None
        if hurried:
            prompt.shorten(self._process.pid, len(self.names))
        if sys.platform.startswith("linux") and self._process.stdout is not None:
            import fcntl

            with suppress(OSError):
                fcntl.fcntl(self._process.stdout, _F_SETPIPE_SZ, PIPE_BYTES)

    def _hear(self, data: bytes) -> None:
        """Keep what dumpcap says; its last words hold the counts, its first ones the cause."""
        said = self._complaints + data
        if len(said) > MAX_COMPLAINTS:
            said = said[: MAX_COMPLAINTS // 2] + said[-MAX_COMPLAINTS // 2 :]
        self._complaints = said
        self.ready = self.ready or _READY in said

    def _said(self) -> str:
        return self._complaints.decode("utf-8", "replace")

    def _look(self) -> None:
        """Stop when it is time, or when an interface went down."""
        now = time.monotonic()
        if self.ready and now >= self._look_at and not self.stopping:
            self._look_at = now + LINK_SECONDS
            self._count_drops()
            down = next((name for name in self.names if not is_up(name)), "")
            if down:
                self._down = down
                self.stop()
        if self.stopping and now >= self._stop_at and not self._signalled:
            self._interrupt()
        elif self._signalled and now >= self._stop_at + END_SECONDS and self._process is not None:
            self._process.kill()

    def _count_drops(self) -> None:
        """Ask the kernel for drops, where that is possible."""
        if self._counter is None:
            if not self.ready or self._process is None:
                return
            self._counter = DropCounter(self._process.pid)
        received, dropped = self._counter.read()
        self.received += received
        if dropped:
            self.dropped += dropped
            self._noticed.append(CaptureDrops(self.name, 0, received, dropped))

    def _taken(self) -> list[CaptureDrops]:
        noticed, self._noticed = self._noticed, []
        return noticed

    def _interrupt(self) -> None:
        self._signalled = True
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)

    def _last_words(self, frames: int, fault: CaptureError | None) -> Iterator[CaptureNotice]:
        """What dumpcap said at its end: drops that the capture did not tell, and why it ended."""
        more = self._told_dropped - self._told_by_dumpcap
        if more > 0:
            self.dropped += more
            yield CaptureDrops(self.name, 0, self.received, more)
        process = self._process
        assert process is not None
        said, code = self._said(), process.returncode
        if self._down:
            yield CaptureError(self.name, went_away(self._down), None, frames)
        elif self.stopping and code in (0, -signal.SIGINT) and not _COMPLAINT.search(said):
            return
        else:
            code = None if self._cut_short else code
            message = explain(
                said, self._dumpcap, self.names, code=code, fault=None if fault is None else fault.message
            )
            if not self.ready and not frames:
                raise CannotCaptureError(message)
            yield CaptureError(self.name, message, None, frames)


def is_up(name: str) -> bool:
    """Whether an interface is up, as far as the system tells."""
    if not os.path.isdir("/sys/class/net") or name == "any":
        return True
    folder = Path("/sys/class/net", name)
    if "/" in name or name.startswith(".") or not (folder.exists() or folder.is_symlink()):
        # No interface of the network: a pseudo-device of libpcap, a pipe.  One that was removed ends dumpcap.
        return True
    try:
        return bool(int((folder / "flags").read_text(), 16) & _UP)
    except (OSError, ValueError):
        return True


def _prepare_traced() -> None:  # pragma: no cover - runs in the child
    _end_with_parent()
    prompt.trace_me()


def _end_with_parent() -> None:  # pragma: no cover - runs in the child
    """Ask the kernel to end dumpcap when this program is killed: on a silent interface it would not notice."""
    # Programs that shells start in the background inherit that it is ignored, and it is what ends dumpcap.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform.startswith("linux"):
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, int(signal.SIGINT))
