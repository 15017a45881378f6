"""How a command ends that a signal asks to: with what it has found so far, and in time."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

LIMIT_S = 1.8
"""What a command has for its reports after a signal; then the process ends, whatever holds it up."""
ENDINGS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Ctrl-C, what a service manager sends, and the end of the terminal."""
_limits: list[threading.Timer] = []
_leaving: list[Callable[[], str | None]] = []
_whole_process = False
"""The process is this program alone, and may be ended; a test that runs a command is not."""


class Terminated(KeyboardInterrupt):
    """A service manager or the end of the terminal asks the command to end: it does so as with Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


def limit_ending(number: int) -> None:
    """Have the process end in `LIMIT_S`: the reader of its output may not read, a packet may take a rule minutes."""
    if _limits or not _whole_process:
        return
    timer = threading.Timer(LIMIT_S, _leave, (number,))
    timer.daemon = True
    _limits.append(timer)
    timer.start()


@contextmanager
def leaving(do: Callable[[], str | None]) -> Iterator[None]:
    """Have something done where `limit_ending` ends the process: what it started ends with it.

    ``do`` is called in another thread and must not wait; it may return what is said in place of the usual sentence.
    """
    _leaving.append(do)
    try:
        yield
    finally:
        _leaving.remove(do)


def interruption(number: int) -> KeyboardInterrupt:
    """What a handler of a signal raises."""
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated(number)


def install() -> None:
    """Let signals that end a program raise, and limit the time that is left; for the start of the process.

    Commands may have handlers of their own, with `limit_ending` in them.
    """
    global _whole_process
    _whole_process = True
    for number in ENDINGS[1:]:
        # nohup has said that the end of the terminal is none of the program's business.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _raise)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _raise)


def at_endings(call: Callable[[int], None]) -> None:
    """Have the running event loop call this for each signal that ends a program, as far as the platform can."""
    import asyncio

    loop = asyncio.get_running_loop()
    for number in ENDINGS:
        # Event loops of Windows have no signal handlers.
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, call, number)


def leave(code: object) -> None:
    """End the process where a signal asked for it, with all that is to be written written.

    Python would first take apart all that is in memory, which takes seconds where that is much.
    """
    if not _limits:
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            if stream is not None:
                stream.flush()
    atexit._run_exitfuncs()
    os._exit(code if isinstance(code, int) else 0)


def installed(number: int) -> bool:
    """Whether a signal raises because of `install`."""
    return signal.getsignal(number) is _raise


def _raise(number: int, frame: FrameType | None) -> None:
    limit_ending(number)
    raise interruption(number)


def _leave(number: int) -> None:
    said = "ended by the signal before everything was written"
    for do in _leaving[::-1]:
        with suppress(Exception):
            said = do() or said
    with suppress(OSError):
        os.write(2, f"mqttscope: {said}\n".encode())
    os._exit(128 + number)
