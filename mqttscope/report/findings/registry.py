"""The formats by name; a module is imported when its format is used."""

from __future__ import annotations

import importlib
from typing import cast

from mqttscope.report.base import Sink, View
from mqttscope.report.findings.base import FindingReporter

_PACKAGE = "mqttscope.report.findings"
FORMATS: dict[str, tuple[str, str]] = {
    "full": ("full", "Full"),
    "concise": ("concise", "Concise"),
    "json": ("json", "Document"),
    "jsonl": ("jsonl", "JsonLines"),
    "sarif": ("sarif", "Sarif"),
    "junit": ("junit", "JUnit"),
    "github": ("github", "GitHub"),
    "gitlab": ("gitlab", "GitLab"),
    "markdown": ("markdown", "Markdown"),
}
"""Name of a format -> module and class."""


def make_reporter(name: str, sink: Sink, view: View) -> FindingReporter:
    """The reporter of a format."""
    module, kind = FORMATS[name]
    found = importlib.import_module(f"{_PACKAGE}.{module}")
    return cast(FindingReporter, getattr(found, kind)(sink, view))
