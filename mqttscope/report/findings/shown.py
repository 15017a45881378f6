"""Formats of findings: made by name, and fed findings that are concealed, whatever a format does with them.

Most formats get findings of one cause as one (`lint.grouping`): at the end, when it is known how many they are, in the
order of their first; where traffic is live, the first at once, and what became of it at the end.

A format is fed `ShownFinding` and nothing else, so that one which forgets to hide secrets cannot be written.  What it
asks for is concealed then and once: most formats count more findings than they show.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, cast

from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.gate import Suppression
from mqttscope.lint.grouping import Group, Groups, cause, cause_fingerprint
from mqttscope.mqtt import ControlPacket, Direction, Malformed, PacketType, ProtocolVersion, decode
from mqttscope.mqtt.codec import NEED_MORE, packet_end
from mqttscope.mqtt.wire import write_variable_byte_integer
from mqttscope.report.base import Clock, Sink, View
from mqttscope.report.findings.base import MAX_MESSAGE, FindingReporter, Summary, everything
from mqttscope.report.numbers import number
from mqttscope.report.public import hidden_of, public_malformed, public_packet
from mqttscope.report.style import Painter
from mqttscope.secrets.findings import Concealed, Hiding, client_name, concealed
from mqttscope.secrets.packets import BROKEN, Ranges, covered, hidden_ranges
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
    "html": ("html", "Html"),
}
"""Name of a format -> module, which is imported when the format is used, and class."""


EACH = ("json", "jsonl")
"""Formats that always have each finding: programs count for themselves."""
OF_FILES = ("sarif", "junit", "github", "gitlab")
"""Formats whose findings belong to a file: one cause in two captures is two findings."""
STREAMED = ("full", "concise", "jsonl", "github")
"""Formats that can be written while traffic passes."""
MAX_CLIENTS = 100_000
"""Clients of one rule that are told apart."""


class ShownFinding:
    """A finding of which a format may show everything that it can get."""

    def __init__(self, finding: Finding, hiding: Hiding, group: Group | None = None) -> None:
        """``group``: the findings that it stands for, of which it is the first."""
        self._hiding = hiding
        self._as_found = finding
        self._group = group
        self.rule, self.slug = finding.rule, finding.slug
        self.severity: Severity = finding.severity
        self.confidence: Confidence = finding.confidence
        self.capture = finding.capture
        self.size = len(finding.raw)
        """Bytes of its packet."""

    @property
    def occurrences(self) -> int:
        """How many findings it stands for, as far as that is known by now."""
        return 1 if self._group is None else self._group.occurrences

    @property
    def clients(self) -> int:
        return max(self._as_found.clients, 0 if self._group is None else len(self._group.clients))

    @property
    def last_ns(self) -> int:
        return self._as_found.timestamp_ns if self._group is None else self._group.last_ns

    @property
    def cause(self) -> str:
        """What its cause is known by in the next capture; empty where it stands for itself."""
        return "" if self._group is None else cause_fingerprint(self._as_found)

    def repeats(self, painter: Painter) -> str:
        """``19 times from … to …, last in frame 900, 12 clients: 'a', 'b', 'c' and 9 more``; empty for a single one."""
        group = self._group
        if group is None or group.occurrences < 2:
            return ""
        clock, first = Clock(), self._as_found
        where = f" of {painter.safe(group.last_capture)}" if group.last_capture != first.capture else ""
        told = (
            f"{group.occurrences:,} times from {_short(clock.iso(group.first_ns))} to"
            f" {_short(clock.iso(group.last_ns))}, last in frame {group.last_frame}{where}"
        )
        if len(group.clients) > 1 or group.more:
            told += f", {group.number_of_clients} clients: {painter.name(group.named(), MAX_MESSAGE)}"
        return told

    def __repr__(self) -> str:
        return f"ShownFinding({self.finding!r})"

    @cached_property
    def _concealed(self) -> Concealed[Finding]:
        return concealed(self._as_found, self._hiding)

    @property
    def finding(self) -> Finding:
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


def _short(iso: str) -> str:
    return re.sub(r"(\.\d{3})\d{6}", r"\1", iso)


class FindingFormat:
    """Turns findings into output; only ever fed by an `Entrance`."""

    def __init__(self, sink: Sink, view: View) -> None:
        self.sink = sink
        self.painter = Painter(view)

    def feed(self, shown: ShownFinding, suppressed: Suppression | None = None) -> None:
        """Take one finding; one that is suppressed is left out, unless a format says otherwise."""
        if suppressed is None:
            self.write(shown)

    def write(self, shown: ShownFinding) -> None:
        """Take a finding that is not suppressed."""
        raise NotImplementedError

    def again(self, shown: ShownFinding) -> None:
        """Write how often a finding came again that was written when it came first (`STREAMED`)."""
        raise NotImplementedError

    def close(self, summary: Summary) -> None:
        """Write what is left at the end."""


class FileFormat(FindingFormat):
    """A format for programs and files: its lines have no limit."""

    def __init__(self, sink: Sink, view: View) -> None:
        super().__init__(sink, View(width=0))


@dataclass(slots=True)
class RuleCount:
    """What was found by one rule."""

    rule: str
    slug: str
    severity: Severity
    """The worst of its findings."""
    findings: int = 0
    """Those that are not suppressed."""
    occurrences: int = 0
    suppressed: int = 0
    statements: dict[str, None] = field(default_factory=dict)
    """Those that the findings break, in their order."""
    has_more_clients: bool = False
    """There were more clients than are distinguished."""
    _clients: set[int] = field(default_factory=set)
    _together: int = 0
    """Clients of a finding that is about many."""

    def add(self, shown: ShownFinding, most: int | None = None) -> None:
        """Count a finding that is not suppressed; ``most``: clients that are distinguished, else `MAX_CLIENTS`."""
        self.findings += 1
        self.occurrences += shown.occurrences
        if shown.severity.rank > self.severity.rank:
            self.severity = shown.severity
        if len(self._clients) < (MAX_CLIENTS if most is None else most):
            self._clients.add(shown.client_key)
        elif shown.client_key not in self._clients:
            self.has_more_clients = True
        self._together = max(self._together, shown.clients)

    @property
    def number_of_clients(self) -> int:
        return max(len(self._clients), self._together)

    @property
    def clients_text(self) -> str:
        """Number of clients for people: ``900``, ``> 100,000``; empty for none."""
        return f"{'> ' if self.has_more_clients else ''}{number(self.number_of_clients)}"


class Entrance(FindingReporter):
    """Where findings enter a format."""

    def __init__(
        self, format_: FindingFormat, view: View, *, grouped: bool = False, live: bool = False, by_capture: bool = False
    ) -> None:
        """``grouped``: pass findings of one cause on as one; with ``live`` at once, else when all are known.

        ``by_capture``: what was found in two captures has two causes.
        """
        self.format = format_
        self.hiding = view.hiding()
        self._groups = Groups(partial(client_name, hiding=self.hiding)) if grouped else None
        self._live, self._by_capture = live, by_capture
        self._suppressed: dict[int, Suppression] = {}
        """Why causes are suppressed, by the identity of their groups."""
        self.causes: Counter[Severity] = Counter()
        """Causes that are not suppressed, where findings are grouped."""

    def _key(self, finding: Finding, suppressed: Suppression | None) -> tuple[Hashable, ...]:
        return *cause(finding), suppressed, finding.capture if self._by_capture else ""

    def is_new(self, finding: Finding, suppressed: Suppression | None = None) -> bool:
        """Whether a finding would be passed on, and not only be counted with another."""
        return self._groups is None or self._key(finding, suppressed) not in self._groups

    def feed(self, finding: Finding, suppressed: Suppression | None = None) -> None:
        """Pass one finding on, as it may be shown."""
        if self._groups is None:
            self.format.feed(ShownFinding(finding, self.hiding), suppressed)
            return
        group = self._groups.add(self._key(finding, suppressed), finding)
        if group.occurrences > 1:
            return
        self.causes[finding.severity] += suppressed is None
        if suppressed is not None:
            self._suppressed[id(group)] = suppressed
        if self._live:
            self.format.feed(ShownFinding(finding, self.hiding, group), suppressed)
        self._end()

    def _end(self, *, everything: bool = False) -> None:
        """Pass on what is known of causes that are not followed any more."""
        assert self._groups is not None
        for group in self._groups.ended(everything=everything):
            shown, suppressed = ShownFinding(group.first, self.hiding, group), self._suppressed.pop(id(group), None)
            if not self._live:
                self.format.feed(shown, suppressed)
            elif suppressed is None and group.occurrences > 1:
                self.format.again(shown)

    def close(self, summary: Summary) -> None:
        """End the report."""
        if self._groups is not None:
            self._end(everything=True)
            summary = replace(summary, causes=self.causes)
        self.format.close(summary)


def make_reporter(
    name: str,
    sink: Sink,
    view: View,
    *,
    counts: Callable[[Finding], bool] = everything,
    ranked: bool = False,
    verbose: bool = False,
    every: bool = False,
    live: bool = False,
) -> Entrance:
    """The reporter of a format, which gets every finding without its secrets.

    ``counts`` says of a finding that is not suppressed whether the run fails by it.  With ``ranked`` the format
    ``full`` shows findings by severity instead of as they come, and notes in short unless it is ``verbose``.
    ``every``: show each of several findings of one cause.  ``live``: show the first of them at once.
    """
    module, kind = ("full", "Ranked") if name == "full" and ranked else FORMATS[name]
    made = getattr(importlib.import_module(f"mqttscope.report.findings.{module}"), kind)
    special: dict[str, dict[str, Any]] = {
        "Ranked": {"verbose": verbose}, "Markdown": {"verbose": verbose}, "GitHub": {"counts": counts},
    }  # fmt: skip
    return Entrance(
        cast(FindingFormat, made(sink, view, **special.get(kind, {}))),
        view,
        grouped=not every and name not in EACH,
        live=live and name in STREAMED,
        by_capture=name in OF_FILES,
    )
