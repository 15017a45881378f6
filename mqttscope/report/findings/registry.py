"""The formats by name; a module is imported when its format is used."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, cast

from mqttscope.lint.finding import Finding
from mqttscope.report.base import Sink, View
from mqttscope.report.findings.base import FindingReporter, everything
from mqttscope.report.findings.shown import Entrance, FindingFormat

_PACKAGE = "mqttscope.report.findings"
FORMATS: dict[str, tuple[str, str]] = {
    "full": ("full", "Full"),
    "concise": ("concise", "Concise"),
    "json": ("json", "Document"),
    "jsonl": ("json", "JsonLines"),
    "sarif": ("sarif", "Sarif"),
    "junit": ("junit", "JUnit"),
    "github": ("github", "GitHub"),
    "gitlab": ("gitlab", "GitLab"),
    "markdown": ("markdown", "Markdown"),
}
"""Name of a format -> module and class."""


def make_reporter(
    name: str,
    sink: Sink,
    view: View,
    *,
    counts: Callable[[Finding], bool] = everything,
    ranked: bool = False,
    verbose: bool = False,
) -> FindingReporter:
    """The reporter of a format, which gets every finding without its secrets.

    ``counts`` says of a finding that is not suppressed whether the run fails by it.  With ``ranked`` the format
    ``full`` shows findings by severity instead of as they come, and notes in short unless it is ``verbose``.
    """
    if name == "full" and ranked:
        from mqttscope.report.findings.full import Ranked

        return Entrance(Ranked(sink, view, verbose=verbose), view)
    module, kind = FORMATS[name]
    found = importlib.import_module(f"{_PACKAGE}.{module}")
    special: dict[str, dict[str, Any]] = {"github": {"counts": counts}, "markdown": {"verbose": verbose}}
    return Entrance(cast(FindingFormat, getattr(found, kind)(sink, view, **special.get(name, {}))), view)
