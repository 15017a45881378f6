"""Errors of commands: a sentence and an exit code, mostly translated from errors of lower layers."""

from __future__ import annotations

from collections.abc import Callable

import click

from mqttscope.cli.main import EXIT_FAILED, printable
from mqttscope.errors import MqttscopeError


class CommandFailedError(MqttscopeError, click.ClickException):
    """A command cannot do its work; the text gives the reason."""

    exit_code = EXIT_FAILED


def reason(error: BaseException) -> str:
    """Message of an error, without the file name that some errors repeat."""
    return str(getattr(error, "strerror", None) or error)


def printable_reason(error: BaseException) -> str:
    """Message of an error, with control characters escaped."""
    return printable(reason(error))


class ErrorTranslation:
    """A context that translates errors of lower layers to errors of commands.

    ``before``: start of the sentence.  ``text``: makes the rest of it.
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
