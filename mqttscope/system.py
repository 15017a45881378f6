"""What systems differ in: everything that Linux or POSIX alone has, and what happens elsewhere.

No other module asks which system this is, or uses such a thing directly; tests/test_structure.py holds the list of
names.  docs/systems.md says what users notice.  ``MQTTSCOPE_PORTABLE=1`` takes all of it away, so that Linux behaves as
a system that has nothing of its own.  It is looked at in each call: tests set it for processes that they fork.
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
    """Whether this is Linux: /proc, packet sockets, files in memory, sizes of pipes, bytes under way of sockets."""
    return sys.platform.startswith("linux") and posix()


def posix() -> bool:
    """Whether this is a POSIX system: signals, sessions of processes, terminals, locks, pipes that do not block."""
    return os.name == "posix" and sys.platform != "win32" and os.environ.get(PORTABLE, "") in ("", "0")


def _module(name: str) -> ModuleType | None:
    """A module that POSIX systems alone have."""
    if posix():
        with suppress(ImportError):
            return __import__(name)
    return None


# Processes


def can_fork() -> bool:
    """Whether processes are made as copies of this one: the libraries of macOS do not bear it."""
    return posix() and hasattr(os, "fork") and sys.platform != "darwin"


def fork() -> int:
    """A copy of this process, where `can_fork` says so; 0 in the copy."""
    return os.fork()


def processors() -> int:
    """Processors that this process may use; all of them where the system does not tell."""
    if posix() and hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def wireshark_folders() -> list[str]:
    """Folders outside of ``PATH`` into which Wireshark's installer puts its programs."""
    if sys.platform == "darwin":
        return ["/Applications/Wireshark.app/Contents/MacOS"]
    if sys.platform == "win32":
        parents = map(os.environ.get, ("ProgramFiles", "ProgramFiles(x86)"))
        return [os.path.join(parent, "Wireshark") for parent in parents if parent]
    return []


def apart(prepare: Callable[[], None] | None = None) -> dict[str, Any]:
    """Arguments of `subprocess.Popen` for a process that Ctrl-C at the terminal does not reach.

    ``prepare`` is called in it before the program starts, on POSIX systems alone.
    """
    if posix():
        return {"start_new_session": True, "preexec_fn": prepare}
    return {"creationflags": _NEW_GROUP if sys.platform == "win32" else 0}


def end_all(leader: int, *, at_once: bool) -> bool:
    """End a process that was started `apart`, with all that it has started; false where that cannot be done."""
    if not posix():
        return False
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL if at_once else signal.SIGTERM)
    return True


def kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL if posix() else signal.SIGTERM)


def is_running(process: int) -> bool | None:
    """Whether a process runs (one that has ended and was not collected yet does not); ``None`` where nobody can say."""
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
    """Memory of a process; 0 where that is not known: on Linux alone it is."""
    folder = process_folder(process)
    if folder is None:
        return 0
    try:
        return int((folder / "statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def process_folder(process: int | str) -> Path | None:
    """What Linux shows of a process; ``None`` elsewhere.  ``self``: of this one."""
    return Path(f"/proc/{process}") if linux() else None


def quote(word: str) -> str:
    """A word as the shell of this system takes it: a POSIX shell, or cmd and PowerShell."""
    if posix():
        return shlex.quote(word)
    return word if re.fullmatch(r"[\w+=:./\\-]+", word) else f'"{word}"'


def is_own(user: int) -> bool:
    """Whether this is the number of the user whom this process belongs to; true where users have no numbers."""
    return not posix() or user == os.getuid()


# Signals and terminals


def signals(*names: str) -> list[signal.Signals]:
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


@contextmanager
def blocked(numbers: Iterable[signal.Signals]) -> Iterator[None]:
    """Signals wait meanwhile, in this thread and in processes that start in it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_through(*numbers: signal.Signals) -> None:
    """Signals wait no longer."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def alarm_signal() -> signal.Signals | None:
    """The signal of `set_alarm`; ``None`` where there is none, and no alarm."""
    return signal.SIGALRM if posix() and hasattr(signal, "setitimer") else None


def set_alarm(seconds: float) -> None:
    """Have that signal come after so long; 0 for never."""
    if alarm_signal() is not None:
        signal.setitimer(signal.ITIMER_REAL, seconds)


def terminal() -> tuple[Any, Any] | None:
    """The modules ``termios`` and ``tty``; ``None`` where terminals are others: then single keys are not taken."""
    both = _module("termios"), _module("tty")
    return None if None in both else both


def in_foreground(descriptor: int) -> bool:
    """Whether a terminal is this process's to use: another one would be stopped for touching it."""
    try:
        return posix() and os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False


# Files, pipes, sockets


def lock(descriptor: int) -> bool:
    """Keep others from locking this file as long as it is open here; whether nobody else has.

    It is true as well where there are no such locks: on Windows, and on some network file systems.
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
    """Flags of `os.open` for what may be a pipe without a writer, which then is not waited for (POSIX)."""
    return getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Bring the names in a folder to the disk; nothing where folders cannot be opened."""
    if not posix() or not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def memory_file(name: str) -> tuple[int, str] | None:
    """A file that has no place on a disk, and the path under which programs open it that inherit it; Linux alone."""
    if linux() and hasattr(os, "memfd_create") and os.path.isdir("/dev/fd"):
        with suppress(OSError):
            file = os.memfd_create(name)
            return file, f"/dev/fd/{file}"
    return None


def inherited(descriptors: tuple[int, ...]) -> dict[str, Any]:
    """Arguments of `subprocess.Popen` for descriptors that the process keeps; there are some on POSIX systems alone."""
    return {"pass_fds": descriptors} if posix() else {}


def widen(pipe: int, size: int) -> None:
    """Let a pipe hold more, so that its writer is not stopped as soon as its reader is at something else; on Linux."""
    fcntl: Any = _module("fcntl") if linux() else None
    if fcntl is not None:
        with suppress(AttributeError, OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, size)


def unblock(pipe: int) -> None:
    """Let reads and writes of a pipe return at once; `OSError` where the system has no such pipes."""
    if not posix():
        raise OSError("the pipes of this system cannot be watched")
    os.set_blocking(pipe, False)


def bytes_under_way(socket: int) -> int:
    """Bytes that the other side has not acknowledged; 0 where the kernel does not tell, as all but Linux."""
    return _asked(socket, "TIOCOUTQ") if linux() else 0


def bytes_unread(socket: int) -> int:
    """Bytes that arrived and were not read yet; 0 where the kernel does not tell."""
    return _asked(socket, "FIONREAD")


def _asked(socket: int, name: str) -> int:
    fcntl: Any = _module("fcntl")
    termios: Any = _module("termios")
    if fcntl is None or termios is None or socket < 0:
        return 0
    try:
        return int.from_bytes(fcntl.ioctl(socket, getattr(termios, name), _ZERO), sys.byteorder)
    except OSError:
        return 0


def allow_descriptors(wanted: int) -> None:
    """Ask for so many open files, as far as the system allows; nothing where it has no such limit."""
    resource: Any = _module("resource")
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
