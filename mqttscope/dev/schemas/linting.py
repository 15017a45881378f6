"""The schema of the file of a baseline."""

from __future__ import annotations

from dataclasses import fields

from mqttscope.lint.gate import BaselineEntry
from mqttscope.report.documents import TEXT, VERSION_1, Schema, each, record


def baseline() -> Schema:
    """The file of ``lint --baseline``."""
    entry = record({field.name: TEXT for field in fields(BaselineEntry)})
    return record({"schema": VERSION_1, "tool": {"const": "mqttscope"}, "findings": each(entry)})
