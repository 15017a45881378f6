"""Runs work in a second process: a forked copy of this one, which begins at once with everything loaded."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NoReturn

import click

from mqttscope import system
from mqttscope.cli.main import EXIT_FAILED, leaving
from mqttscope.errors import MqttscopeError

Work = Callable[[Callable[[], object]], bytes]
"""Work of the second process; it calls its argument now and then, which ends the process if it is orphaned."""

_FAILED: Final = 2
"""Exit code after an exception, which is then the content of the pipe."""
_SIGNALS: Final = (signal.SIGINT, *system.signals("SIGTERM", "SIGHUP"))


class SecondProcessLostError(MqttscopeError, click.ClickException):
    """The second process of a command ended without a result."""

    exit_code = EXIT_FAILED


@contextmanager
def second_process(work: Work) -> Iterator[Callable[[], bytes]]:
    """Run work in a second process; yields a function that waits for its result, or raises its exception.

    The second process ends with the context, and with this process.
    """
    parent, process = os.getpid(), 0
    inner, outer = os.pipe()

    def kill() -> None:
        if process:
            system.kill(process)

    def result() -> bytes:
        nonlocal process
        with open(inner, "rb", closefd=False) as pipe:
            content = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        process = 0
        if status == _FAILED:
            error, trace = pickle.loads(content)
            error.add_note(trace)
            raise error
        if status:
            how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with code {status}"
            raise SecondProcessLostError(
                f"a process of --jobs 2 {how}, so the output is incomplete; --jobs 1 needs less memory"
            )
        return content

    with leaving(kill):
        try:
            # Signals are blocked until the second process has its own handlers.
            with system.blocked(_SIGNALS):
                process = system.fork()
                if not process:
                    os.close(inner)
                    _run(work, outer, parent)
                os.close(outer)
            yield result
        finally:
            kill()
            if process:
                os.waitpid(process, 0)
            os.close(inner)


def _run(work: Work, descriptor: int, parent: int) -> NoReturn:
    """Do the work, and exit without touching files that the parent has open."""

    def end_orphan() -> None:
        if os.getppid() != parent:
            os._exit(1)

    code = 1
    try:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        # Ctrl-C stays blocked: the parent handles it, and ends this process.
        system.let_through(*_SIGNALS[1:])
        try:
            content, end = work(end_orphan), 0
        except BaseException as error:
            content, end = _packed(error), _FAILED
        with open(descriptor, "wb") as pipe:
            pipe.write(content)
        code = end
    finally:
        os._exit(code)


def _packed(error: BaseException) -> bytes:
    trace = "".join(traceback.format_exception(error))
    with suppress(Exception):
        packed = pickle.dumps((error, trace))
        pickle.loads(packed)
        return packed
    return pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), trace))
