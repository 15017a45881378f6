"""Captures frames of a live interface with Wireshark's dumpcap.

dumpcap is the only program that needs the privilege to capture.  It writes pcapng to a pipe, which is read like any
other capture.  On a quiet interface the reader is still called several times a second, so that stop conditions, files
and idle flows do not wait for the next frame.  What dumpcap prints on standard error becomes an exception before the
first frame and a :class:`CaptureError` after it; `explain` adds the cause and the remedy to both.

dumpcap reports dropped frames only when it ends.  A process that may inspect dumpcap (root, on Linux) can ask the
kernel earlier: `DropCounter` copies dumpcap's packet sockets (``pidfd_getfd``) and reads their counters.  Reading
resets them, so the drops read here are missing from dumpcap's own sum, and the two are added.

On the loopback interface a packet socket sees every frame twice, when it leaves and when it arrives, and libpcap
discards the leaving one after it took its place in the ring.  The copy of the socket lets this program tell the kernel
not to put it there (``PACKET_IGNORE_OUTGOING``).  A capture filter (``inbound and ...``) is no alternative: libpcap
1.10 itself applies the filter to the first block of frames, does not know the direction there, and loses them all.

dumpcap also makes the kernel gather frames for up to 250 ms and has no option for less: on a quiet link every frame
comes that late.  As root on Linux, `shorten_time_out` starts dumpcap traced (ptrace), waits for the one system call
that sets up the ring of an interface (``setsockopt PACKET_RX_RING``), writes a shorter time into its argument and stops
tracing.  That takes a few milliseconds, and if anything is not as expected, dumpcap continues unchanged.  For other
users it is not done: a traced program gets no capabilities from its file.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from mqttscope import system
from mqttscope.capture.read import read_capture
from mqttscope.capture.tshark import find_tool
from mqttscope.errors import MqttscopeError
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureNotice, Frame


class CannotCaptureError(MqttscopeError):
    """Nothing can be captured; the text names the cause and the remedy."""


class NotPermittedError(CannotCaptureError):
    """The user may not capture, or not run what captures."""

    def __init__(self, cause: str, dumpcap: str) -> None:
        """``cause``: a sentence without its end; ``dumpcap``: what needs the right."""
        super().__init__(
            f"{cause}. Debian: dpkg-reconfigure wireshark-common (answer yes), then usermod -aG wireshark $USER and log"
            f" in again. Elsewhere: setcap cap_net_raw,cap_net_admin=eip {shlex.quote(dumpcap)}. Or run it as root, or"
            " let clients connect to mqttscope proxy, which needs no privileges"
        )
        self.cause = cause
        self.dumpcap = dumpcap


class BadCaptureFilterError(CannotCaptureError):
    """The capture filter is none."""


BUFFER_MIB = 64
"""What the kernel keeps of an interface while dumpcap is busy."""
TICK_SECONDS = 0.05
"""So often whoever reads is called while nothing comes."""
SETTLE_SECONDS = 0.35
"""How long a capture continues after it was told to stop: the kernel hands frames over in blocks, the last one late."""
LINK_SECONDS = 1.0
"""So often the interfaces are looked at: the kernel tells nobody who captures that one went down."""
END_SECONDS = 5.0
"""How long dumpcap may take to end before it is killed."""
MAX_COMPLAINTS = 1 << 16
"""Bytes of dumpcap's standard error that are kept."""
NOT_HERE = (
    "capturing from interfaces is not possible here: as on Windows, nobody can wait for pipes; let dumpcap write to the"
    " standard input of another command: dumpcap -i 1 -w - | mqttscope inspect -"
)
"""What is said where this program cannot read from dumpcap as it comes."""
PIPE_BYTES = 1 << 20
"""Asked of the kernel for the pipe, so that dumpcap need not wait while frames are decoded."""

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


class MachineClock:
    """The clock of this machine since a capture began.  Whoever sets it does not change how long that is ago."""

    def __init__(self) -> None:
        self._began_ns = time.time_ns() - time.monotonic_ns()

    def set_by_ns(self) -> int:
        """How far forward it was set."""
        return time.time_ns() - time.monotonic_ns() - self._began_ns

    def now_ns(self) -> int:
        """The time if nobody had set it."""
        return self._began_ns + time.monotonic_ns()


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
        self.clock = MachineClock()
        self.ready = False
        """Whether the interface was opened."""
        self.silent = False
        """Whether nothing came since `waiting` was called before, and nothing waits in the pipe."""
        self.stopping = False
        """Whether somebody asked for the end."""
        if not system.posix():
            raise CannotCaptureError(NOT_HERE)
        self._dumpcap = find_dumpcap()
        self._arguments = [self._dumpcap, "-q", "-n", "-B", str(BUFFER_MIB)]
        for name in names:
            self._arguments += ["-i", name]
            if capture_filter:
                self._arguments += ["-f", capture_filter]
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
        hurried = can_shorten_time_out()
        try:
            self._process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Ctrl-C is for this process to act on: dumpcap would end before the last frames came.
                **system.apart(_prepare_traced if hurried else _end_with_parent),
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise CannotCaptureError(explain(str(error), self._dumpcap, self.names)) from None
        if hurried:
            shorten_time_out(self._process.pid, len(self.names))
        if self._process.stdout is not None:
            system.widen(self._process.stdout.fileno(), PIPE_BYTES)

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
    trace_me()


def _end_with_parent() -> None:  # pragma: no cover - runs in the child
    """Ask the kernel to end dumpcap when this program is killed: on a silent interface it would not notice."""
    # Programs that shells start in the background inherit that it is ignored, and it is what ends dumpcap.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if system.linux():
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, int(signal.SIGINT))


_FILTER = re.compile(r'Invalid capture filter "(?P<filter>.*?)" for interface .*?\n\s*(?P<why>[^\n]+)', re.S)
_WHY = re.compile(r"\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_NAMED = re.compile(r'"([^"\n]+)"')


def explain(said: str, dumpcap: str, names: Sequence[str], *, code: int | None = None, fault: str | None = None) -> str:
    """One line for what dumpcap said: why it cannot capture (any more), and what helps.

    ``said``: its standard error; ``code``: its exit code; ``fault``: what was wrong with what it wrote.  Raises
    `BadCaptureFilterError` where the user's filter is at fault, `NotPermittedError` where the right to capture is
    missing.
    """
    name = _interface(said, names)
    low = said.lower()
    bad = _FILTER.search(said)
    if bad:
        why = _WHY.search(bad["why"])
        raise BadCaptureFilterError(f"{bad['filter']!r} is no capture filter: {why[1] if why else bad['why']}")
    if "permission" in low or "not permitted" in low:
        raise not_permitted(dumpcap, name)
    if "no device named" in low or "no such device" in low:
        return f"there is no interface {name}; mqttscope sniff --list-interfaces shows those there are"
    if "is not up" in low or "network is down" in low:
        return f"interface {name} is down; bring it up: {_up(name)}"
    if "no longer" in low or "disappeared" in low:
        return went_away(name)
    told = " ".join(line.removeprefix("dumpcap: ").strip() for line in said.splitlines() if not _usual(line)).strip()
    if not told and code is not None and code < 0:
        told = f"was ended by {_signal(-code)}"
    if not told and fault is not None and code in (0, None):
        return f"dumpcap wrote what is no capture: it {fault}; {dumpcap} may not be Wireshark's dumpcap"
    if not told:
        told = "ended by itself" if not code else f"ended with exit code {code} and said nothing"
    return f"dumpcap: {told}" if told.startswith(("was ", "ended ")) else f"dumpcap says: {told}"


def went_away(name: str) -> str:
    """What to say of an interface that went down or was removed while it was captured from."""
    return (
        f"interface {name} went down or was removed, so that the capture ended; bring it up "
        f"({_up(name)}) and start again"
    )


def _up(name: str) -> str:
    """The command that brings an interface up."""
    quoted = shlex.quote(name)
    return f"ip link set {quoted} up" if sys.platform.startswith("linux") else f"ifconfig {quoted} up"


def not_permitted(dumpcap: str, name: str) -> NotPermittedError:
    """The error for a user who may not capture."""
    of = f" from {name}" if name else ""
    cause = f"no permission to capture{of}"
    if not os.access(dumpcap, os.X_OK):
        cause = f"no permission to run {dumpcap}, which captures{of}"
    return NotPermittedError(cause, dumpcap)


def _interface(said: str, names: Sequence[str]) -> str:
    """The interface that a complaint is about."""
    named = [one for one in _NAMED.findall(said) if one in names]
    return named[0] if named else ", ".join(names)


def _usual(line: str) -> bool:
    return not line.strip() or line.startswith(("Capturing on", "File:", "Packets captured", "Packets received"))


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


RETIRE_MS = 30
"""How long the kernel may gather frames."""
TRACE_SECONDS = 1.0
"""How long the system call is waited for."""

_TRACEME, _SYSCALL, _DETACH, _SETOPTIONS, _GET_SYSCALL_INFO = 0, 24, 17, 0x4200, 0x420E
_SYSGOOD, _EXITKILL = 1, 1 << 20
_TRAP = 5
"""SIGTRAP, which the module is loaded without on systems that do not have it."""
_SYSCALL_STOP = _TRAP | 0x80
_ENTRY = 1
_INFO_BYTES = 88
_RX_RING, _REQUEST_BYTES = 5, 28
_RETIRE_OFFSET = 16
_POLL_SECONDS = 0.0005

_Ptrace = Callable[[int, int, int, int], int]


def can_shorten_time_out() -> bool:
    return system.linux() and os.geteuid() == 0 and _ptrace() is not None


def trace_me() -> None:  # pragma: no cover - runs in the child
    """Be traced by the parent; for the child, before it becomes dumpcap."""
    call = _ptrace()
    if call is not None:
        call(_TRACEME, 0, 0, 0)


def shorten_time_out(pid: int, rings: int, retire_ms: int = RETIRE_MS) -> int:
    """Let a traced program run until it has set up so many rings, and shorten their time-outs; returns how many.

    It runs on untraced afterwards in any case.  When it ends meanwhile, its exit status is left to be waited for.
    """
    call = _ptrace()
    made, attached = 0, False
    if call is None:
        return 0
    deadline = time.monotonic() + TRACE_SECONDS
    while made < rings:
        stop = _stopped(pid, deadline)
        if stop is None:
            break
        deliver = 0
        if not attached:
            # The stop that exec makes.
            attached = True
            call(_SETOPTIONS, pid, 0, _SYSGOOD | _EXITKILL)
        elif stop == _SYSCALL_STOP:
            made += _is_ring(call, pid, retire_ms)
        elif stop != _TRAP:
            deliver = stop
        if made < rings and call(_SYSCALL, pid, 0, deliver) < 0:
            return made
    _let_go(call, pid, stopped=made >= rings)
    return made


def _stopped(pid: int, deadline: float) -> int | None:
    """The signal that the program stopped with, ``None`` when it ended or did not stop in time."""
    while True:
        try:
            found = os.waitid(os.P_PID, pid, os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return None
        if found is not None:
            if found.si_code in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED):
                return None
            # Also where it is not traced after all, and was stopped to be let go.
            _, status = os.waitpid(pid, os.WUNTRACED)
            return os.WSTOPSIG(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(_POLL_SECONDS)


def _is_ring(call: _Ptrace, pid: int, retire_ms: int) -> bool:
    """Whether this stop is the wanted call; then its argument was changed."""
    info = ctypes.create_string_buffer(_INFO_BYTES)
    if call(_GET_SYSCALL_INFO, pid, _INFO_BYTES, ctypes.addressof(info)) < 0 or info.raw[0] != _ENTRY:
        return False
    _, _, level, name, request, length, _ = struct.unpack_from("=7Q", info.raw, 24)
    if (level & 0xFFFFFFFF, name & 0xFFFFFFFF, length & 0xFFFFFFFF) != (_SOL_PACKET, _RX_RING, _REQUEST_BYTES):
        return False
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        block_bytes, blocks, _, _, retire = struct.unpack("=5I", os.pread(memory, 20, request))
        if block_bytes and blocks and not block_bytes % 4096 and retire_ms < retire <= 10_000:
            os.pwrite(memory, struct.pack("=I", retire_ms), request + _RETIRE_OFFSET)
            return True
    except (OSError, struct.error):
        pass
    finally:
        os.close(memory)
    return False


def _let_go(call: _Ptrace, pid: int, *, stopped: bool) -> None:
    """Stop tracing; only a stopped program can be let go."""
    if not stopped:
        with suppress(OSError):
            os.kill(pid, signal.SIGSTOP)
        if _stopped(pid, time.monotonic() + TRACE_SECONDS) is None:
            return
    call(_DETACH, pid, 0, 0)
    with suppress(OSError):
        os.kill(pid, signal.SIGCONT)


def _ptrace() -> _Ptrace | None:
    try:
        found = ctypes.CDLL(None, use_errno=True).ptrace
    except (OSError, AttributeError):
        return None
    found.restype = ctypes.c_long
    found.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    made: _Ptrace = found
    return made


_PIDFD_GETFD = 438  # the same on every architecture
_SOL_PACKET, _STATISTICS, _IGNORE_OUTGOING = 263, 6, 23
_STATISTICS_BYTES = 12
_LOOPBACK = 772
"""What the kernel calls the kind of an interface that leads back (``ARPHRD_LOOPBACK``)."""


class DropCounter:
    """The packet sockets of a process; none where they cannot be had.

    Those of loopback get each frame once from now on.
    """

    def __init__(self, pid: int) -> None:
        self._sockets: list[socket.socket] = []
        with suppress(OSError, AttributeError, ValueError):
            self._sockets = _copies(pid)
        for one in self._sockets:
            # Linux before 4.20 does not know this; frames then count twice, as they do where there are no copies.
            with suppress(OSError):
                if one.getsockname()[3] == _LOOPBACK:
                    one.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)

    def __len__(self) -> int:
        return len(self._sockets)

    def read(self) -> tuple[int, int]:
        """Frames that came, and those of them that were dropped, since the last time."""
        received = dropped = 0
        for one in self._sockets:
            with suppress(OSError, struct.error):
                counts = struct.unpack_from("=II", one.getsockopt(_SOL_PACKET, _STATISTICS, _STATISTICS_BYTES))
                received += counts[0]
                dropped += counts[1]
        return received, dropped

    def close(self) -> None:
        """Give the sockets back: while somebody has one, the kernel keeps its frames."""
        for one in self._sockets:
            one.close()
        self._sockets = []


def _copies(pid: int) -> list[socket.socket]:
    if not system.linux():
        return []
    table = Path("/proc/net/packet").read_text().splitlines()[1:]
    inodes = {f"socket:[{line.split()[-1]}]" for line in table if line.strip()}
    folder = f"/proc/{pid}/fd"
    numbers = [int(name) for name in os.listdir(folder) if os.readlink(f"{folder}/{name}") in inodes]
    call = ctypes.CDLL(None, use_errno=True).syscall
    process = os.pidfd_open(pid)
    try:
        found = [int(call(_PIDFD_GETFD, process, number, 0)) for number in numbers]
    finally:
        os.close(process)
    return [socket.socket(fileno=number) for number in found if number >= 0]
