"""Differences between operating systems: features of Linux or POSIX, and fallbacks elsewhere.

No other module checks the operating system or uses such a feature directly; tests/test_structure.py lists their names.
docs/systems.md describes the effects for users.  ``MQTTSCOPE_PORTABLE=1`` disables all features, so that Linux behaves
like a minimal system.  Each call reads the variable: tests set it for processes that they fork.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

PORTABLE = "MQTTSCOPE_PORTABLE"
_ZERO = b"\0\0\0\0"
_NEW_GROUP = 0x200
"""CREATE_NEW_PROCESS_GROUP of Windows."""


def linux() -> bool:
    """Whether this is Linux: /proc, packet sockets, memory files, pipe sizes, unacknowledged bytes of sockets."""
    return sys.platform.startswith("linux") and posix()


def posix() -> bool:
    """Whether this is a POSIX system: signals, process sessions, terminals, locks, non-blocking pipes."""
    return os.name == "posix" and sys.platform != "win32" and os.environ.get(PORTABLE, "") in ("", "0")


def _module(name: str) -> ModuleType | None:
    """Import a module that only POSIX systems have."""
    if posix():
        with suppress(ImportError):
            return __import__(name)
    return None


# Processes


def can_fork() -> bool:
    """Whether to fork processes: the libraries of macOS do not support it."""
    return posix() and hasattr(os, "fork") and sys.platform != "darwin"


def fork() -> int:
    """Fork this process, if `can_fork`; returns 0 in the copy."""
    return os.fork()


def processors() -> int:
    """Number of processors that this process may use; all processors if that is unknown."""
    if posix() and hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def wireshark_folders() -> list[str]:
    """Folders outside ``PATH`` where Wireshark installs its programs."""
    if sys.platform == "darwin":
        return ["/Applications/Wireshark.app/Contents/MacOS"]
    if sys.platform == "win32":
        parents = map(os.environ.get, ("ProgramFiles", "ProgramFiles(x86)"))
        return [os.path.join(parent, "Wireshark") for parent in parents if parent]
    return []


def apart(prepare: Callable[[], None] | None = None) -> dict[str, Any]:
    """Arguments of `subprocess.Popen` for a process that does not receive Ctrl-C of the terminal.

    ``prepare``: called in the process before the program starts, only on POSIX systems.
    """
    if posix():
        return {"start_new_session": True, "preexec_fn": prepare}
    return {"creationflags": _NEW_GROUP if sys.platform == "win32" else 0}


def end_all(leader: int, *, at_once: bool) -> bool:
    """End a process started `apart` with its child processes; returns false if that is unsupported."""
    if not posix():
        return False
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL if at_once else signal.SIGTERM)
    return True


def kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL if posix() else signal.SIGTERM)


def is_running(process: int) -> bool | None:
    """Whether a process runs, zombies excluded; ``None`` if that is unknown."""
    if not posix():
        return None
    folder = process_folder(process)
    if folder is not None:
        try:
            state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            return False
        return state not in (b"Z", b"X")
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def resident_bytes(process: int) -> int:
    """Resident memory of a process; 0 if unknown, as everywhere but on Linux."""
    folder = process_folder(process)
    if folder is None:
        return 0
    try:
        return int((folder / "statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def process_folder(process: int | str) -> Path | None:
    """Folder of a process in /proc; ``None`` except on Linux.  ``self``: this process."""
    return Path(f"/proc/{process}") if linux() else None


def quote(word: str) -> str:
    """Quote a word for the shell of this system: a POSIX shell, or cmd and PowerShell."""
    if posix():
        return shlex.quote(word)
    return word if re.fullmatch(r"[\w+=:./\\-]+", word) else f'"{word}"'


def is_own(user: int) -> bool:
    """Whether this process has the user id; true on systems without user ids."""
    return not posix() or user == os.getuid()


# Signals and terminals


def signals(*names: str) -> list[signal.Signals]:
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


@contextmanager
def blocked(numbers: Iterable[signal.Signals]) -> Iterator[None]:
    """Block signals in this thread and in processes that it starts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_through(*numbers: signal.Signals) -> None:
    """Unblock signals."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def alarm_signal() -> signal.Signals | None:
    """Signal of `set_alarm`; ``None`` on systems without alarms."""
    return signal.SIGALRM if posix() and hasattr(signal, "setitimer") else None


def set_alarm(seconds: float) -> None:
    """Send the alarm signal after some seconds; 0 cancels it."""
    if alarm_signal() is not None:
        signal.setitimer(signal.ITIMER_REAL, seconds)


# Files, pipes, sockets


def lock(descriptor: int) -> bool:
    """Lock a file while it is open here; returns false if another process holds the lock.

    Returns true without locking on Windows, and on some network file systems.
    """
    import errno

    fcntl: Any = _module("fcntl")
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def at_once_flags() -> int:
    """Flags of `os.open` for opening a possible pipe without waiting for its writer (POSIX)."""
    return getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Flush the entries of a folder to disk; no effect on systems that cannot open folders."""
    if not posix() or not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def memory_file(name: str) -> tuple[int, str] | None:
    """A file in memory, and its path for programs that inherit it; only on Linux."""
    if linux() and hasattr(os, "memfd_create") and os.path.isdir("/dev/fd"):
        with suppress(OSError):
            file = os.memfd_create(name)
            return file, f"/dev/fd/{file}"
    return None


def inherited(descriptors: tuple[int, ...]) -> dict[str, Any]:
    """Arguments of `subprocess.Popen` for inherited descriptors; empty except on POSIX systems."""
    return {"pass_fds": descriptors} if posix() else {}


def widen(pipe: int, size: int) -> None:
    """Enlarge the buffer of a pipe on Linux, so that a busy reader does not block the writer at once."""
    fcntl: Any = _module("fcntl") if linux() else None
    if fcntl is not None:
        with suppress(AttributeError, OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, size)


def unblock(pipe: int) -> None:
    """Make a pipe non-blocking; `OSError` on systems without non-blocking pipes."""
    if not posix():
        raise OSError("the pipes of this system cannot be watched")
    os.set_blocking(pipe, False)


def bytes_under_way(socket: int) -> int:
    """Number of bytes that the peer has not acknowledged; 0 except on Linux."""
    return _query_socket(socket, "TIOCOUTQ") if linux() else 0


def bytes_unread(socket: int) -> int:
    """Number of received bytes that were not read yet; 0 if unknown."""
    return _query_socket(socket, "FIONREAD")


def _query_socket(socket: int, name: str) -> int:
    fcntl: Any = _module("fcntl")
    termios: Any = _module("termios")
    if fcntl is None or termios is None or socket < 0:
        return 0
    try:
        return int.from_bytes(fcntl.ioctl(socket, getattr(termios, name), _ZERO), sys.byteorder)
    except OSError:
        return 0


def allow_descriptors(wanted: int) -> None:
    """Raise the limit of open files as far as allowed; no effect on systems without such a limit."""
    resource: Any = _module("resource")
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
