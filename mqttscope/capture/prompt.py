"""Frames sooner: shorten how long the kernel gathers frames before it hands them to dumpcap.

dumpcap asks for at most 250 ms and has no option for less: on a quiet link every frame comes that late.  As root
on Linux this program starts dumpcap traced (ptrace), waits for the one system call that sets up the ring of an
interface (``setsockopt PACKET_RX_RING``), writes a shorter time into its argument and lets dumpcap go.  That takes a
few milliseconds, and where anything is not as expected dumpcap goes on as it would have without.  For other users
it is not done: a traced program gets no capabilities from its file.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress

RETIRE_MS = 30
"""How long the kernel may gather frames."""
TRACE_SECONDS = 1.0
"""How long the system call is waited for."""

_TRACEME, _SYSCALL, _DETACH, _SETOPTIONS, _GET_SYSCALL_INFO = 0, 24, 17, 0x4200, 0x420E
_SYSGOOD, _EXITKILL = 1, 1 << 20
_SYSCALL_STOP = signal.SIGTRAP | 0x80
_ENTRY = 1
_INFO_BYTES = 88
_SOL_PACKET, _RX_RING, _REQUEST_BYTES = 263, 5, 28
_RETIRE_OFFSET = 16
_POLL_SECONDS = 0.0005

_Ptrace = Callable[[int, int, int, int], int]


def available() -> bool:
    """Whether it can be done here."""
    return sys.platform.startswith("linux") and os.geteuid() == 0 and _ptrace() is not None


def trace_me() -> None:  # pragma: no cover - runs in the child
    """Be traced by the parent; for the child, before it becomes dumpcap."""
    call = _ptrace()
    if call is not None:
        call(_TRACEME, 0, 0, 0)


def shorten(pid: int, rings: int, retire_ms: int = RETIRE_MS) -> int:
    """Let a traced program run until it has set up so many rings, each made prompt; returns how many were.

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
        elif stop != signal.SIGTRAP:
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
