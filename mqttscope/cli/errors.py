"""Errors of commands: a sentence and an exit code, mostly made of an error of the part below."""

from __future__ import annotations

from collections.abc import Callable

import click

from mqttscope.cli.main import EXIT_FAILED, printable
from mqttscope.errors import MqttscopeError


class CommandFailedError(MqttscopeError, click.ClickException):
    """What a command is for cannot be done; the text says why."""

    exit_code = EXIT_FAILED


def reason(error: BaseException) -> str:
    """What an error says, without the name of the file that some repeat."""
    return str(getattr(error, "strerror", None) or error)


def printable_reason(error: BaseException) -> str:
    """What an error says, with escapes for what a terminal would obey."""
    return printable(reason(error))


class ErrorTranslation:
    """A context that raises errors of the parts below as an error of commands.

    ``before``: what the sentence begins with.  ``text``: makes the rest of it.
    """

    def __init__(
        self,
        kind: type[Exception],
        *errors: type[BaseException],
        before: str = "",
        text: Callable[[BaseException], str] = reason,
    ) -> None:
        self._kind = kind
        self._errors = errors
        self._before = before
        self._text = text

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, self._errors):
            raise self._kind(f"{self._before}{self._text(error)}") from None
