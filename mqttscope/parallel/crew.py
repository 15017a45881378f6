"""Processes that work on shares, and the pipes through which they say what they found.

Each process is forked, so that it has all that was loaded and set up before, and begins at once.  It writes messages
into a pipe of its own, and the parent reads from those pipes that it has room for: a process that is ahead waits in its
write.  Ctrl-C is the parent's business: the processes end with it.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, NoReturn

from mqttscope import system
from mqttscope.errors import MqttscopeError
from mqttscope.parallel.walk import IndivisibleError, Share

PIPE_BYTES: Final = 1 << 20
"""How much a pipe holds, where the system lets it."""
BATCH: Final = b"B"
"""A message: more of what a process has to say."""
END: Final = b"E"
"""The last message, with what the process has counted."""
_FAILED: Final = b"X"
_INDIVISIBLE: Final = b"I"
_HEADER: Final = struct.Struct("=Ic")


class WorkerLostError(MqttscopeError):
    """A process ended before it had said everything."""


class Outlet:
    """The pipe of a process to its parent."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, data: bytes, kind: bytes = BATCH) -> None:
        """Send a message; waits where the parent has no room for it."""
        descriptor, header = self._descriptor, _HEADER.pack(len(data), kind)
        sent = os.writev(descriptor, (header, data))
        left = memoryview(data)[sent - len(header) :] if sent >= len(header) else memoryview(header + data)[sent:]
        while left:
            left = left[os.write(descriptor, left) :]


class _Inlet:
    """The end of a pipe at which the parent reads: one message after the other, without a copy."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._header = b""
        self._message = bytearray()
        self._filled = 0

    def read(self) -> tuple[bytes, bytearray] | None:
        """Read what is there, once; kind and message where that completes one.  No kind: nothing more comes."""
        if len(self._header) < _HEADER.size:
            more = os.read(self._descriptor, _HEADER.size - len(self._header))
            self._header += more
            if not more:
                return b"", bytearray()
            if len(self._header) < _HEADER.size:
                return None
            self._message, self._filled = bytearray(_HEADER.unpack(self._header)[0]), 0
        elif self._filled < len(self._message):
            count = os.readv(self._descriptor, (memoryview(self._message)[self._filled :],))
            if not count:
                return b"", bytearray()
            self._filled += count
        if self._filled < len(self._message):
            return None
        kind = _HEADER.unpack(self._header)[1]
        self._header = b""
        return kind, self._message


class Stop:
    """Whether this process was asked to come to an end, with what it has found so far."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGINT, self._ask)
        system.let_through(signal.SIGINT)

    def _ask(self, number: int, frame: object) -> None:
        self.asked = True


Work = Callable[[Share, Outlet], object]
"""What a process does; what it returns goes to the parent with `END`, pickled."""


_SIGNALS = (signal.SIGINT, *system.signals("SIGTERM", "SIGHUP"))


class Crew:
    """The processes at work.  A context manager: none is left after it."""

    def __init__(self, count: int, work: Work, *, jobs: int | None = None) -> None:
        """``jobs``: how many processes the user knows of, this one perhaps among them."""
        self.count = count
        self._jobs = jobs or count
        self._work = work
        self._pipes: dict[int, int] = {}
        """Descriptor that is read -> number of the process."""
        self._running: dict[int, int] = {}
        """Number of a process -> its identifier of the system."""
        self._is_stopping = False

    def __enter__(self) -> Crew:
        # No process gets a signal before it has its own answer to it.
        with system.blocked(_SIGNALS):
            self._start()
        if self._is_stopping:  # another thread took the signal when not all processes were known
            self.stop()
        return self

    def _start(self) -> None:
        for number in range(self.count):
            inner, outer = os.pipe()
            system.widen(outer, PIPE_BYTES)
            process = system.fork()
            if not process:
                for known in (*self._pipes, inner):
                    os.close(known)
                self._run(number, outer)
            os.close(outer)
            self._pipes[inner] = number
            self._running[number] = process

    def __exit__(self, *fault: object) -> None:
        self.kill()
        for process in self._running.values():
            with suppress(ChildProcessError):
                os.waitpid(process, 0)
        self._running.clear()
        for known in self._pipes:
            os.close(known)
        self._pipes.clear()

    def kill(self) -> None:
        for process in self._running.values():
            system.kill(process)

    def stop(self) -> None:
        """Ask the processes to come to an end; those that did not make a `Stop` take no notice."""
        self._is_stopping = True
        for process in self._running.values():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGINT)

    def messages(self, has_room: Callable[[int], bool]) -> Iterator[tuple[int, bytes, bytearray]]:
        """Number of a process, kind of message and message, until all have said `END`.

        ``has_room``: whether more is to be read of a process.  It must be true of the one that is furthest back.
        """
        waiting = {known: _Inlet(known) for known in self._pipes}
        while waiting:
            poll = select.poll()
            for known in waiting:
                if has_room(self._pipes[known]):
                    poll.register(known, select.POLLIN)
            for known, _ in poll.poll():
                number, inlet = self._pipes[known], waiting[known]
                found = inlet.read()
                if found is None:
                    continue
                kind, message = found
                if not kind:
                    self._lost(number)
                if kind == _FAILED:
                    self._failed(message)
                if kind == _INDIVISIBLE:
                    raise IndivisibleError(message.decode())
                if kind == END:
                    del waiting[known]
                yield number, kind, message

    def _run(self, number: int, descriptor: int) -> NoReturn:
        """Be the process: work, and end without a trace in what the parent has open."""
        outlet, code = Outlet(descriptor), 1
        try:
            for each in _SIGNALS:
                signal.signal(each, signal.SIG_DFL)
            # SIGINT waits for a `Stop`, which may be made later.
            system.let_through(*(each for each in _SIGNALS if each != signal.SIGINT))
            outlet.send(pickle.dumps(self._work(Share(number, self.count), outlet)), END)
            code = 0
        except IndivisibleError as error:
            outlet.send(str(error).encode(), _INDIVISIBLE)
        except BrokenPipeError:
            pass  # the parent has ended
        except BaseException as error:
            with suppress(BaseException):
                outlet.send(_packed(error), _FAILED)
        finally:
            os._exit(code)

    def _failed(self, message: bytearray) -> NoReturn:
        """A process met what it had no answer to: the parent raises it as its own."""
        error, trace = pickle.loads(message)
        error.add_note(trace)
        raise error

    def _lost(self, number: int) -> NoReturn:
        process = self._running.pop(number)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with code {status}"
        raise WorkerLostError(
            f"a process of --jobs {self._jobs} {how}, so that the rest is missing; --jobs 1 needs less memory"
        )


def _packed(error: BaseException) -> bytes:
    trace = "".join(traceback.format_exception(error))
    try:
        packed = pickle.dumps((error, trace))
        pickle.loads(packed)
    except Exception:
        packed = pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), trace))
    return packed


def unpickled(message: bytearray) -> Any:
    return pickle.loads(message)
