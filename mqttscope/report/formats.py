"""Reports of events by the names of their formats."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any, cast

from mqttscope.report.base import Reporter, Sink, View

FORMATS: dict[str, tuple[str, str]] = {
    "text": ("text", "TextLines"),
    "tree": ("tree", "Tree"),
    "ladder": ("ladder", "Ladder"),
    "csv": ("table", "Table"),
    "jsonl": ("jsonl", "JsonLines"),
    "html": ("html.packets", "Packets"),
}
"""Name of a format -> module, which is imported when the format is used, and class: a `PublicReport` but for jsonl and
what is made of its lines."""


def make_reporter(name: str, sink: Sink, view: View) -> Reporter:
    """The report of a format, ``jsonl`` among them: it is the one with a lane of its own for packets."""
    if name == "jsonl" and view.acknowledged:
        lines: Any = make_reporter(name, sink, replace(view, acknowledged=False))
        return cast(Reporter, importlib.import_module("mqttscope.report.jsonl").AcknowledgedLines(sink, lines.line))
    if name == "jsonl" and view.decoders() is not None:
        # A class of its own, so that lines without decoders cost nothing more.
        return cast(Reporter, importlib.import_module("mqttscope.report.jsonl_decoded").DecodedLines(sink, view))
    module, kind = FORMATS[name]
    made = getattr(importlib.import_module(f"mqttscope.report.{module}"), kind)
    if name == "jsonl":
        return cast(Reporter, made(sink, payload_limit=view.payload_limit, show_secrets=view.show_secrets))
    return cast(Reporter, made(sink, view))
