"""The examples of a rule as `inspect` would show them, with the finding under the packet that is to blame."""

from __future__ import annotations

from dataclasses import replace

from mqttscope.dissect import dissect_segments
from mqttscope.events import ConnectionClosed, ConnectionOpened, Event
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import Conversation, segments
from mqttscope.lint.finding import Finding
from mqttscope.lint.rule import Rule
from mqttscope.report.base import View
from mqttscope.report.findings.ending import STYLES
from mqttscope.report.style import Painter, Wrapped
from mqttscope.report.text import TextLines

PAYLOAD_LIMIT = 64
_INDENT = 14


class _Lines:
    """A sink that keeps what was written."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []

    def write(self, data: bytes, /) -> object:
        """Keep the bytes."""
        self.kept.append(data)
        return len(data)

    def take(self) -> list[str]:
        """The lines since the last time."""
        shown = b"".join(self.kept).decode().split("\n")[:-1]
        self.kept.clear()
        return shown


def render(rule: type[Rule], example: Conversation, view: View) -> list[str]:
    """The lines of a conversation, times relative to its first packet."""
    sink = _Lines()
    shown = replace(view, time="relative", payload_limit=PAYLOAD_LIMIT)
    text = TextLines(sink, shown)
    linter = Linter([rule(example.settings)])
    out: list[str] = []
    for event in dissect_segments(segments(example)):
        findings = linter.feed(event)
        if findings or not _is_frame_work(event):
            text.feed(event)
            out += sink.take()
        for one in findings:
            out += _under(one, text.painter)
    return out or [" " * _INDENT + "(no packets)"]


def _is_frame_work(event: Event) -> bool:
    """Whether an event only says where the example begins and ends."""
    if isinstance(event, ConnectionClosed):
        return event.connection.closed_how == "capture_end"
    return isinstance(event, ConnectionOpened)


def _under(finding: Finding, painter: Painter) -> list[str]:
    line = painter.line()
    line.put(" " * _INDENT, _INDENT)
    text = Wrapped(line, indent=_INDENT + 2)
    sure = "" if finding.confidence == "certain" else f", {finding.confidence}"
    where = f" ({painter.safe(finding.field)})" if finding.field else ""
    text.add(f"^ {finding.rule} {finding.severity}{sure}: {painter.safe(finding.message)}", STYLES[finding.severity])
    text.add(where, "dim")
    return text.texts()
