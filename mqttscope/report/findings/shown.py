"""Formats of findings: made by name, and fed findings that are concealed, whatever a format does with them.

A format is fed `ShownFinding` and nothing else, so that one which forgets to hide secrets cannot be written.  What it
asks for is concealed then and once: most formats count more findings than they show.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol, cast

from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.gate import Suppression
from mqttscope.mqtt.codec import NEED_MORE, decode, packet_end
from mqttscope.mqtt.constants import Direction, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.wire import write_variable_byte_integer
from mqttscope.redact.findings import Concealed, Hiding, concealed
from mqttscope.redact.packets import BROKEN, Ranges, covered, hidden_ranges
from mqttscope.report.base import Sink, View
from mqttscope.report.findings.base import FindingReporter, Summary, everything
from mqttscope.report.public import hidden_of, public_malformed, public_packet
from mqttscope.session.connection import Connection

FORMATS: dict[str, tuple[str, str]] = {
    "full": ("full", "Full"),
    "concise": ("concise", "Concise"),
    "json": ("json", "Document"),
    "jsonl": ("json", "JsonLines"),
    "sarif": ("sarif", "Sarif"),
    "junit": ("junit", "JUnit"),
    "github": ("annotations", "GitHub"),
    "gitlab": ("annotations", "GitLab"),
    "markdown": ("markdown", "Markdown"),
}
"""Name of a format -> module, which is imported when the format is used, and class."""


class ShownFinding:
    """A finding of which a format may show everything that it can get."""

    def __init__(self, finding: Finding, hiding: Hiding) -> None:
        self._hiding = hiding
        self._as_found = finding
        self.rule, self.slug = finding.rule, finding.slug
        self.severity: Severity = finding.severity
        self.confidence: Confidence = finding.confidence
        self.capture = finding.capture
        self.clients = finding.clients
        """How many clients it is about."""
        self.size = len(finding.raw)
        """Bytes of its packet."""

    def __repr__(self) -> str:
        return f"ShownFinding({self.finding!r})"

    @cached_property
    def _concealed(self) -> Concealed[Finding]:
        return concealed(self._as_found, self._hiding)

    @property
    def finding(self) -> Finding:
        """The finding itself."""
        return self._concealed.finding

    @property
    def client_key(self) -> int:
        """The same for findings about one client: names that are hidden may look alike."""
        return hash(self._as_found.client_identifier or self._as_found.client)

    @cached_property
    def event(self) -> PacketEvent | MalformedEvent | None:
        """The event of its packet; ``None`` for a finding that is about no packet.

        Of its connection no more is known than the finding says.
        """
        finding = self._concealed.decoded
        if not finding.raw or finding.packet is None:
            return None
        version = ProtocolVersion.from_text(finding.version)
        direction = Direction(finding.sender or finding.direction or Direction.CLIENT_TO_SERVER)
        connection = Connection(
            finding.connection, finding.client, finding.server, finding.capture, finding.frame, finding.timestamp_ns,
            handshake_seen=True, version=version, version_known=True, client_identifier=finding.client_identifier,
        )  # fmt: skip
        connection.side(direction).doubt = finding.doubt
        connection.doubtful = finding.doubt >= BROKEN
        place = connection, direction, finding.packet, finding.frame, finding.timestamp_ns, finding.capture
        whole = self._hiding.show_secrets
        # What is in doubt may be malformed for want of its end, and then its topic is none.
        found = _decoded(finding.raw, 0 if finding.doubt else finding.missing, version, whole=whole)
        if isinstance(found, Malformed):
            malformed = MalformedEvent(*place, found, finding.topic)
            return malformed if whole else public_malformed(malformed)
        event = PacketEvent(*place, found, finding.topic)
        return event if whole else public_packet(event)

    @property
    def hidden(self) -> Ranges:
        """Ranges of the bytes of its packet that are not shown."""
        event = self.event
        return [*([] if event is None else hidden_of(event)), *self._concealed.hidden]


def _decoded(raw: bytes, missing: int, version: ProtocolVersion, *, whole: bool) -> ControlPacket | Malformed:
    """The packet as it was when it was found; a PUBLISH may lack bytes of its payload.

    What came of that may be another packet, which a wrong length took for payload: it is shown if ``whole``.
    """
    if missing and raw[0] >> 4 == PacketType.PUBLISH:
        body, _ = packet_end(raw, 0, len(raw))
        if body > NEED_MORE:
            came = (raw if whole else covered(raw, hidden_ranges(raw, version)))[body:]
            found = decode(raw[:1] + write_variable_byte_integer(len(came)) + came, version)
            if isinstance(found, ControlPacket):
                found.raw, found.missing = raw, missing
                return found
    return decode(raw, version)


class FindingFormat(Protocol):
    """Turns findings into output; only ever fed by an `Entrance`."""

    def feed(self, shown: ShownFinding, suppressed: Suppression | None = None) -> None:
        """Take one finding; a suppressed one does not count."""

    def close(self, summary: Summary) -> None:
        """Write what is left at the end."""


class Entrance(FindingReporter):
    """Where findings enter a format."""

    def __init__(self, format_: FindingFormat, view: View) -> None:
        self.format = format_
        self.hiding = view.hiding()

    def feed(self, finding: Finding, suppressed: Suppression | None = None) -> None:
        """Pass one finding on, as it may be shown."""
        self.format.feed(ShownFinding(finding, self.hiding), suppressed)

    def close(self, summary: Summary) -> None:
        """End the report."""
        self.format.close(summary)


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
    module, kind = ("full", "Ranked") if name == "full" and ranked else FORMATS[name]
    made = getattr(importlib.import_module(f"mqttscope.report.findings.{module}"), kind)
    special: dict[str, dict[str, Any]] = {
        "Ranked": {"verbose": verbose}, "Markdown": {"verbose": verbose}, "GitHub": {"counts": counts},
    }  # fmt: skip
    return Entrance(cast(FindingFormat, made(sink, view, **special.get(kind, {}))), view)
