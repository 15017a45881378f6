"""Reading of captures by commands: `api.reading` with their options, environment and exit codes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import BinaryIO

import click

from mqttscope.api import reading
from mqttscope.api.reading import ReadingError
from mqttscope.cli.main import EXIT_UNREADABLE
from mqttscope.cli.options import FileOptions
from mqttscope.cli.output import warn
from mqttscope.net.fragments import FragmentTable

KEYLOG_VARIABLE = "SSLKEYLOGFILE"


class CannotReadError(ReadingError, click.ClickException):
    """The captures cannot be read, because keys are unusable or tshark is not available."""

    exit_code = EXIT_UNREADABLE


class CommandReading(reading.CaptureReading):
    """The captures of one run of a command."""

    joining = ", --deduplicate merges several taps"
    error = CannotReadError

    def __init__(
        self,
        captures: Sequence[str],
        files: FileOptions | None = None,
        stdin: BinaryIO | None = None,
        fragments: FragmentTable | None = None,
    ) -> None:
        super().__init__(
            captures,
            keylog=None if files is None else files.keylog,
            via=None if files is None else files.via,
            stdin=stdin,
            deduplicate=files is not None and files.deduplicate,
            fragments=fragments,
        )
        variable = os.environ.get(KEYLOG_VARIABLE, "")
        if self.keys is None and os.path.isfile(variable):
            # The variable is shared with other programs, so errors in its file are not fatal.
            try:
                self.keys = self._read_keys(variable)
                self._keylog = variable
            except CannotReadError as error:
                warn(f"{error.message} (${KEYLOG_VARIABLE})")

    def note(self, sentence: str) -> None:
        warn(sentence)
