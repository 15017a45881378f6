"""What commands that take part in traffic make of it: a file, findings, or both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mqttscope.cli.linting import Run
from mqttscope.cli.output import ENDINGS, CannotWriteError, refuse_inputs, warn
from mqttscope.cli.reading import Reading
from mqttscope.dissect import Dissector, Options
from mqttscope.events import Event
from mqttscope.report.base import Sink
from mqttscope.transport.recording import Recording


def prepare_record(
    given: dict[str, Any], where: str, options: Options, sink: Callable[[], Sink], activity: str
) -> tuple[Run | None, Recording | None, Options]:
    """The linter of ``--lint``, the recording of ``--write`` or for the linter, and the options that hold.

    ``where`` names the capture where there is no file; ``sink`` gives the place of findings.  `CannotWriteError` where
    the file cannot be made, a usage error where it is a capture that is read.
    """
    name = given["write"] or where
    lint: Run | None = None
    listener: Callable[[Event], None] | None = None
    dissector = Dissector(options)
    if given["lint"]:
        from mqttscope.cli.linting_settings import resolve

        asked = {**given, "format_": "full" if given["format_"] == "text" else "jsonl", "output": ()}
        settings = resolve(asked, ports=(), mqtt_version=None, config=given["config"], search=not given["no_config"])
        lint = Run(
            settings,
            Reading((name,), None),
            update_baseline=False,
            statistics=False,
            colour=given["colour"],
            sink=sink(),
        )
        dissector, listener, options = lint.dissector, lint.feed, settings.options
    if given["write"] is None and listener is None:
        return lint, None, options
    if given["write"] is not None:
        refuse_inputs(given["write"], given["captures"], option="--write")
    try:
        recording = Recording(
            name, path=given["write"], dissector=dissector, listener=listener, note=warn, activity=activity
        )
    except OSError as error:
        raise CannotWriteError(f"cannot write {given['write']}: {error.strerror or error}") from None
    return lint, recording, options


def at_endings(call: Callable[[int], None]) -> None:
    """Have the running event loop call this for each signal that ends a program, as far as the platform can."""
    loop = asyncio.get_running_loop()
    for number in ENDINGS:
        # Event loops of Windows have no signal handlers.
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, call, number)
