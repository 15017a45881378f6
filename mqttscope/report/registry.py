"""The reports of events by name; a module is imported when its format is used."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from mqttscope.report.base import Reporter, Sink, View

if TYPE_CHECKING:
    from mqttscope.report.public import PublicReport

_PACKAGE = "mqttscope.report"
FORMATS: dict[str, tuple[str, str]] = {
    "text": ("text", "TextLines"),
    "tree": ("tree", "Tree"),
    "ladder": ("ladder", "Ladder"),
    "csv": ("table", "Table"),
}
"""Name of a format -> module and class, all of them `report.public.PublicReport`."""


def make_reporter(name: str, sink: Sink, view: View) -> Reporter:
    """The report of a format, ``jsonl`` among them: it is the one with a lane of its own for packets."""
    if name == "jsonl":
        from mqttscope.report.jsonl import JsonLines

        return JsonLines(sink, payload_limit=view.payload_limit, show_secrets=view.show_secrets)
    module, kind = FORMATS[name]
    made = cast("Callable[[Sink, View], PublicReport]", getattr(importlib.import_module(f"{_PACKAGE}.{module}"), kind))
    return made(sink, view)
