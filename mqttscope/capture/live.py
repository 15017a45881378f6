"""Captures frames of a live interface with Wireshark's dumpcap.

dumpcap is the only program that needs the privilege to capture.  It writes pcapng to a pipe, which is read like any
other capture.  On a quiet interface the reader is still called several times a second, so that stop conditions, files
and idle flows do not wait for the next frame.  What dumpcap prints on standard error becomes an exception before the
first frame and a :class:`CaptureError` after it; `explain` adds the cause and the remedy to both.

dumpcap reports dropped frames only when it ends.  A process that may inspect dumpcap (root, on Linux) can ask the
kernel earlier: `DropCounter` copies dumpcap's packet sockets (``pidfd_getfd``) and reads their counters.  Reading
resets them, so the drops read here are missing from dumpcap's own sum, and the two are added.

On the loopback interface a packet socket sees every frame twice, when it leaves and when it arrives, and libpcap
discards the outgoing copy only after it took space in the ring.  Through the copy of the socket, this program asks the
kernel to leave outgoing frames out (``PACKET_IGNORE_OUTGOING``).  A capture filter (``inbound and ...``) does not work:
libpcap 1.10 applies the filter itself to the first block of frames, without their direction, and loses them all.

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
    """Capturing is not possible; the message names the cause and the remedy."""


class NotPermittedError(CannotCaptureError):
    """The user lacks the permission to capture or to run dumpcap."""

    def __init__(self, cause: str, dumpcap: str) -> None:
        """``cause``: a sentence without its full stop; ``dumpcap``: path of the program that needs the permission."""
        super().__init__(
            f"{cause}. Debian: dpkg-reconfigure wireshark-common (answer yes), then usermod -aG wireshark $USER and log"
            f" in again. Elsewhere: setcap cap_net_raw,cap_net_admin=eip {shlex.quote(dumpcap)}. Or run it as root, or"
            " let clients connect to mqttscope proxy, which needs no privileges"
        )
        self.cause = cause
        self.dumpcap = dumpcap


class BadCaptureFilterError(CannotCaptureError):
    """The capture filter is invalid."""


BUFFER_MIB = 64
"""Size of the kernel buffer for an interface, used while dumpcap is busy."""
TICK_SECONDS = 0.05
"""Interval between calls of the reader while no data arrives."""
SETTLE_SECONDS = 0.35
"""Time that a capture continues after a stop: the kernel delivers frames in blocks, the last block late."""
LINK_SECONDS = 1.0
"""Interval between checks of the interfaces: the kernel does not report to a capture that one went down."""
END_SECONDS = 5.0
"""Timeout for the end of dumpcap; then it is killed."""
MAX_COMPLAINTS = 1 << 16
"""Maximum number of bytes kept from dumpcap's standard error."""
NOT_HERE = (
    "capturing from interfaces is not supported on this system, which cannot wait for pipes (as on Windows); pipe the"
    " output of dumpcap into another command: dumpcap -i 1 -w - | mqttscope inspect -"
)
"""Message on systems where this program cannot wait for the output of dumpcap."""
PIPE_BYTES = 1 << 20
"""Pipe size requested from the kernel, so that dumpcap does not block while frames are decoded."""

_UP = 1
_READY = b"File: "
_COMPLAINT = re.compile(r"^dumpcap: ", re.M)
_DROPPED = re.compile(r"received/dropped on interface .*?: (\d+)/(\d+)")


@dataclass(slots=True)
class CaptureInterface:
    """A network interface, as listed by dumpcap."""

    name: str
    description: str = ""
    addresses: tuple[str, ...] = ()
    loopback: bool = False


def interfaces() -> list[CaptureInterface]:
    """The interfaces that dumpcap lists, in its order.

    `MissingToolError` if dumpcap is not installed, `CannotCaptureError` if it fails.
    """
    dumpcap = find_dumpcap()
    try:
        done = subprocess.run([dumpcap, "-D", "-M"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        raise CannotCaptureError(explain(str(error), dumpcap, ())) from None
    if done.returncode:
        raise CannotCaptureError(explain(done.stderr.decode("utf-8", "replace"), dumpcap, ()))
    listed = []
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        # 3. lo <tab> vendor <tab> Loopback <tab> type <tab> addresses <tab> kind
        parts = [*line.split("\t"), "", "", "", "", ""]
        name = parts[0].partition(". ")[2]
        if name:
            addresses = tuple(filter(None, parts[4].split(",")))
            listed.append(CaptureInterface(name, parts[2] or parts[1], addresses, parts[5] == "loopback"))
    return listed


def find_dumpcap() -> str:
    """Path of dumpcap; `MissingToolError` if it is not installed."""
    return find_tool("dumpcap", "to capture")


class MachineClock:
    """The system clock since the capture began, and how far it was set in the meantime."""

    def __init__(self) -> None:
        self._began_ns = time.time_ns() - time.monotonic_ns()

    def set_by_ns(self) -> int:
        """Nanoseconds that the clock was set forward; negative if it was set back."""
        return time.time_ns() - time.monotonic_ns() - self._began_ns

    def now_ns(self) -> int:
        """The current time if the clock had not been set."""
        return self._began_ns + time.monotonic_ns()


class LiveCapture:
    """One run of dumpcap.

    ``waiting`` is called whenever all received data is processed, every `TICK_SECONDS` while idle, and when a
    descriptor from ``watched`` becomes readable.  An exception from it ends the capture and is raised by
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
        """Value of ``Frame.capture``."""
        self.waiting = waiting
        self.watched: Callable[[], Sequence[int]] = tuple
        self.received = 0
        """Frames received: from the kernel's counters if they are readable, finally from dumpcap."""
        self.dropped = 0
        """Frames dropped, as far as known."""
        self.clock = MachineClock()
        self.ready = False
        """Whether dumpcap has opened the interface."""
        self.silent = False
        """Whether no data has arrived since the previous call of `waiting`, and the pipe is empty."""
        self.stopping = False
        """Whether :meth:`stop` was called."""
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
        self._check_at = 0.0
        self._signalled = False
        self._at_end = False
        """Whether dumpcap has closed its output and is about to end."""
        self._cut_short = False
        """Whether dumpcap was ended because its output could not be read."""
        self._down = ""
        self._failure: BaseException | None = None
        self._reported_drops = 0
        """Drops that dumpcap reported at its end."""
        self._drops_in_capture = 0
        """Drops that the capture data has already reported."""
        self._counter: DropCounter | None = None
        self._notices: list[CaptureDrops] = []

    def frames(self) -> Iterator[Frame | CaptureNotice]:
        """Frames as they arrive, until :meth:`stop`; `CannotCaptureError` if the capture cannot begin."""
        self._start()
        frames = 0
        fault: CaptureError | None = None
        try:
            for item in read_capture(cast(BinaryIO, self), self.name):
                if self._notices:
                    yield from self._pop_notices()
                if type(item) is Frame:
                    frames = item.number
                elif isinstance(item, CaptureError):
                    fault = item
                    continue
                elif isinstance(item, CaptureDrops):
                    self.dropped += item.dropped
                    self._drops_in_capture += item.dropped
                yield item
        finally:
            self.close()
        if self._failure is not None:
            raise self._failure
        yield from self._pop_notices()
        yield from self._final_notices(frames, fault)

    def stop(self, *, settle: bool = True) -> None:
        """End the capture; with ``settle``, wait for frames that the kernel has not delivered yet.

        A further call can only make it end earlier.
        """
        stop_at = time.monotonic() + (SETTLE_SECONDS if settle else 0)
        self._stop_at = min(self._stop_at, stop_at) if self.stopping else stop_at
        self.stopping = True

    def close(self) -> None:
        """End dumpcap now, if it still runs, and read the rest of its standard error."""
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
        # dumpcap cannot end before its output is read.
        while open_pipes and time.monotonic() < deadline:
            for pipe in select.select(open_pipes, [], [], TICK_SECONDS)[0]:
                data = os.read(pipe, 1 << 16)
                if not data:
                    open_pipes.remove(pipe)
                elif pipe == process.stderr.fileno():
                    self._keep_complaints(data)
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        process.stderr.close()
        drops = _DROPPED.findall(self._stderr_text())
        if drops:
            # dumpcap counts received frames itself, so this is the total; it takes drops from the kernel's counters.
            self.received = sum(int(received) for received, _ in drops)
        self._reported_drops = sum(int(dropped) for _, dropped in drops)

    def read1(self, size: int) -> bytes:
        """Read output of dumpcap, at most ``size`` bytes; empty at its end.  For `read_capture`."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        assert process.stderr is not None
        output, errors = process.stdout.fileno(), process.stderr.fileno()
        self.silent = False
        while True:
            try:
                self.waiting()
                self._check()
            except BaseException as failure:
                # An OSError would be mistaken for an error of the pipe.
                self._failure = failure
                return b""
            pipes = [output, errors] if self._complaining else [output]
            came = select.select([*pipes, *self.watched()], [], [], TICK_SECONDS)[0]
            if output in came:
                frames = os.read(output, size)
                self._at_end = not frames
                return frames
            if errors in came:
                data = os.read(errors, 1 << 12)
                self._complaining = bool(data)
                self._keep_complaints(data)
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
                # Ctrl-C must reach this process only: dumpcap would end before the last frames arrive.
                **system.apart(_prepare_traced if hurried else _end_with_parent),
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise CannotCaptureError(explain(str(error), self._dumpcap, self.names)) from None
        if hurried:
            shorten_time_out(self._process.pid, len(self.names))
        if self._process.stdout is not None:
            system.widen(self._process.stdout.fileno(), PIPE_BYTES)

    def _keep_complaints(self, data: bytes) -> None:
        """Keep the begin of dumpcap's standard error, which has the cause, and the end, which has the counts."""
        complaints = self._complaints + data
        if len(complaints) > MAX_COMPLAINTS:
            complaints = complaints[: MAX_COMPLAINTS // 2] + complaints[-MAX_COMPLAINTS // 2 :]
        self._complaints = complaints
        self.ready = self.ready or _READY in complaints

    def _stderr_text(self) -> str:
        return self._complaints.decode("utf-8", "replace")

    def _check(self) -> None:
        """Stop at the requested time, or when an interface went down."""
        now = time.monotonic()
        if self.ready and now >= self._check_at and not self.stopping:
            self._check_at = now + LINK_SECONDS
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
        """Read the kernel's drop counters, if possible."""
        if self._counter is None:
            if not self.ready or self._process is None:
                return
            self._counter = DropCounter(self._process.pid)
        received, dropped = self._counter.read()
        self.received += received
        if dropped:
            self.dropped += dropped
            self._notices.append(CaptureDrops(self.name, 0, received, dropped))

    def _pop_notices(self) -> list[CaptureDrops]:
        notices, self._notices = self._notices, []
        return notices

    def _interrupt(self) -> None:
        self._signalled = True
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)

    def _final_notices(self, frames: int, fault: CaptureError | None) -> Iterator[CaptureNotice]:
        """Final notices: drops that the capture data did not report, and why dumpcap ended."""
        more = self._reported_drops - self._drops_in_capture
        if more > 0:
            self.dropped += more
            yield CaptureDrops(self.name, 0, self.received, more)
        process = self._process
        assert process is not None
        complaints, code = self._stderr_text(), process.returncode
        if self._down:
            yield CaptureError(self.name, went_away(self._down), None, frames)
        elif self.stopping and code in (0, -signal.SIGINT) and not _COMPLAINT.search(complaints):
            return
        else:
            code = None if self._cut_short else code
            message = explain(
                complaints, self._dumpcap, self.names, code=code, fault=None if fault is None else fault.message
            )
            if not self.ready and not frames:
                raise CannotCaptureError(message)
            yield CaptureError(self.name, message, None, frames)


def is_up(name: str) -> bool:
    """Whether an interface is up; true if the system does not report it."""
    if not os.path.isdir("/sys/class/net") or name == "any":
        return True
    folder = Path("/sys/class/net", name)
    if "/" in name or name.startswith(".") or not (folder.exists() or folder.is_symlink()):
        # Not a network interface: a pseudo-device of libpcap, or a pipe.  Removing an interface ends dumpcap.
        return True
    try:
        return bool(int((folder / "flags").read_text(), 16) & _UP)
    except (OSError, ValueError):
        return True


def _prepare_traced() -> None:  # pragma: no cover - runs in the child
    _end_with_parent()
    trace_me()


def _end_with_parent() -> None:  # pragma: no cover - runs in the child
    """Ask the kernel to end dumpcap when this program is killed: on a quiet interface it would not notice."""
    # SIGINT ends dumpcap, but programs started by a shell in the background inherit that it is ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if system.linux():
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, int(signal.SIGINT))


_FILTER = re.compile(r'Invalid capture filter "(?P<filter>.*?)" for interface .*?\n\s*(?P<why>[^\n]+)', re.S)
_WHY = re.compile(r"\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_NAMED = re.compile(r'"([^"\n]+)"')


def explain(text: str, dumpcap: str, names: Sequence[str], *, code: int | None = None, fault: str | None = None) -> str:
    """A message of one line about a failure of dumpcap, with a remedy.

    ``text``: standard error of dumpcap; ``code``: its exit code; ``fault``: the error in its capture data.  Raises
    `BadCaptureFilterError` if the user's filter is invalid, `NotPermittedError` if the permission to capture is
    missing.
    """
    name = _interface(text, names)
    low = text.lower()
    bad = _FILTER.search(text)
    if bad:
        why = _WHY.search(bad["why"])
        raise BadCaptureFilterError(f"{bad['filter']!r} is not a capture filter: {why[1] if why else bad['why']}")
    if "permission" in low or "not permitted" in low:
        raise not_permitted(dumpcap, name)
    if "no device named" in low or "no such device" in low:
        return f"interface {name} does not exist; mqttscope sniff --list-interfaces shows all interfaces"
    if "is not up" in low or "network is down" in low:
        return f"interface {name} is down; bring it up: {_up(name)}"
    if "no longer" in low or "disappeared" in low:
        return went_away(name)
    reason = " ".join(
        line.removeprefix("dumpcap: ").strip() for line in text.splitlines() if not _is_routine(line)
    ).strip()
    if not reason and code is not None and code < 0:
        reason = f"was ended by {_signal(-code)}"
    if not reason and fault is not None and code in (0, None):
        return f"the output of dumpcap is not a capture: it {fault}; {dumpcap} may not be Wireshark's dumpcap"
    if not reason:
        reason = "ended by itself" if not code else f"ended with exit code {code} and no message"
    return f"dumpcap: {reason}" if reason.startswith(("was ", "ended ")) else f"dumpcap reports: {reason}"


def went_away(name: str) -> str:
    """Message about an interface that went down or was removed during the capture."""
    return (
        f"interface {name} went down or was removed, which ended the capture; bring it up ({_up(name)}) and start again"
    )


def _up(name: str) -> str:
    """The command that brings an interface up."""
    quoted = shlex.quote(name)
    return f"ip link set {quoted} up" if sys.platform.startswith("linux") else f"ifconfig {quoted} up"


def not_permitted(dumpcap: str, name: str) -> NotPermittedError:
    """The error for a user without the permission to capture."""
    of = f" from {name}" if name else ""
    cause = f"no permission to capture{of}"
    if not os.access(dumpcap, os.X_OK):
        cause = f"no permission to run {dumpcap}, which captures{of}"
    return NotPermittedError(cause, dumpcap)


def _interface(text: str, names: Sequence[str]) -> str:
    """The interface that a message of dumpcap names, or all interfaces."""
    named = [name for name in _NAMED.findall(text) if name in names]
    return named[0] if named else ", ".join(names)


def _is_routine(line: str) -> bool:
    return not line.strip() or line.startswith(("Capturing on", "File:", "Packets captured", "Packets received"))


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


RETIRE_MS = 30
"""Maximum time that the kernel gathers frames, in milliseconds."""
TRACE_SECONDS = 1.0
"""Timeout for the system call that sets up the ring."""

_TRACEME, _SYSCALL, _DETACH, _SETOPTIONS, _GET_SYSCALL_INFO = 0, 24, 17, 0x4200, 0x420E
_SYSGOOD, _EXITKILL = 1, 1 << 20
_TRAP = 5
"""SIGTRAP, as a number because some systems do not define it."""
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
    """Let the parent trace this process; called in the child, before it becomes dumpcap."""
    call = _ptrace()
    if call is not None:
        call(_TRACEME, 0, 0, 0)


def shorten_time_out(pid: int, rings: int, retire_ms: int = RETIRE_MS) -> int:
    """Run a traced program until it has set up ``rings`` rings, and shorten their time-outs; returns how many.

    The program always continues untraced.  If it ends during tracing, the caller still has to wait for it.
    """
    call = _ptrace()
    changed, attached = 0, False
    if call is None:
        return 0
    deadline = time.monotonic() + TRACE_SECONDS
    while changed < rings:
        stop = _stopped(pid, deadline)
        if stop is None:
            break
        deliver = 0
        if not attached:
            # The first stop is caused by exec.
            attached = True
            call(_SETOPTIONS, pid, 0, _SYSGOOD | _EXITKILL)
        elif stop == _SYSCALL_STOP:
            changed += _is_ring(call, pid, retire_ms)
        elif stop != _TRAP:
            deliver = stop
        if changed < rings and call(_SYSCALL, pid, 0, deliver) < 0:
            return changed
    _let_go(call, pid, stopped=changed >= rings)
    return changed


def _stopped(pid: int, deadline: float) -> int | None:
    """The signal that stopped the program, or ``None`` if it ended or did not stop in time."""
    while True:
        try:
            status_info = os.waitid(os.P_PID, pid, os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return None
        if status_info is not None:
            if status_info.si_code in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED):
                return None
            # Also if it is not traced after all, and was stopped to be detached.
            _, status = os.waitpid(pid, os.WUNTRACED)
            return os.WSTOPSIG(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(_POLL_SECONDS)


def _is_ring(call: _Ptrace, pid: int, retire_ms: int) -> bool:
    """Whether the program stopped at the call that sets up a ring; its time-out is then changed."""
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
    """Stop tracing; only a stopped program can be detached."""
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
        function = ctypes.CDLL(None, use_errno=True).ptrace
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_long
    function.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    ptrace: _Ptrace = function
    return ptrace


_PIDFD_GETFD = 438  # equal on all architectures
_SOL_PACKET, _STATISTICS, _IGNORE_OUTGOING = 263, 6, 23
_STATISTICS_BYTES = 12
_LOOPBACK = 772
"""Hardware type of a loopback interface (``ARPHRD_LOOPBACK``)."""


class DropCounter:
    """Copies of the packet sockets of a process; empty if the process may not be inspected.

    From now on, sockets on the loopback interface receive each frame once.
    """

    def __init__(self, pid: int) -> None:
        self._sockets: list[socket.socket] = []
        with suppress(OSError, AttributeError, ValueError):
            self._sockets = _copies(pid)
        for packet_socket in self._sockets:
            # Not available before Linux 4.20; frames then count twice, as they do without copies.
            with suppress(OSError):
                if packet_socket.getsockname()[3] == _LOOPBACK:
                    packet_socket.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)

    def __len__(self) -> int:
        return len(self._sockets)

    def read(self) -> tuple[int, int]:
        """Frames received since the last call, and how many of these were dropped."""
        received = dropped = 0
        for packet_socket in self._sockets:
            with suppress(OSError, struct.error):
                counts = struct.unpack_from(
                    "=II", packet_socket.getsockopt(_SOL_PACKET, _STATISTICS, _STATISTICS_BYTES)
                )
                received += counts[0]
                dropped += counts[1]
        return received, dropped

    def close(self) -> None:
        """Close the sockets: while one is open, the kernel keeps its frames."""
        for packet_socket in self._sockets:
            packet_socket.close()
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
        descriptors = [int(call(_PIDFD_GETFD, process, number, 0)) for number in numbers]
    finally:
        os.close(process)
    return [socket.socket(fileno=number) for number in descriptors if number >= 0]
