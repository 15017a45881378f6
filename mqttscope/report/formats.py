"""Event reports by the names of their formats."""

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
    "jsonl": ("jsonl", "EventJsonLines"),
    "html": ("html.packets", "PacketPage"),
}
"""Name of a format -> module, imported on use, and class: a `PublicReport`, except for formats based on jsonl."""


def make_reporter(name: str, sink: Sink, view: View) -> Reporter:
    """The report of a format."""
    if name == "jsonl" and view.acknowledged:
        lines: Any = make_reporter(name, sink, replace(view, acknowledged=False))
        return cast(Reporter, importlib.import_module("mqttscope.report.jsonl").AcknowledgedLines(sink, lines.line))
    if name == "jsonl" and view.decoders() is not None:
        # A separate class, so that lines without decoders cost nothing more.
        return cast(Reporter, importlib.import_module("mqttscope.report.jsonl_decoded").DecodedLines(sink, view))
    module, kind = FORMATS[name]
    report_type = getattr(importlib.import_module(f"mqttscope.report.{module}"), kind)
    if name == "jsonl":
        return cast(Reporter, report_type(sink, payload_limit=view.payload_limit, show_secrets=view.show_secrets))
    return cast(Reporter, report_type(sink, view))
