"""Finding formats: created by name, fed with findings without secrets.

Most formats show findings of one cause as one (`lint.grouping`): at the end, when the number is known, in the order of
the first finding.  With live traffic the first finding is shown at once, and the number of repetitions at the end.

A format receives only `ShownFinding`, so it cannot forget to hide secrets.  Secrets are hidden on first access and only
once, since most formats count more findings than they show.
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
from mqttscope.report.findings.base import MAX_MESSAGE, FindingReporter, RunSummary, everything
from mqttscope.report.numbers import number
from mqttscope.report.public import hidden_of, public_malformed, public_packet
from mqttscope.report.style import Painter
from mqttscope.secrets.findings import ConcealedFinding, HidingOptions, client_name, concealed
from mqttscope.secrets.packets import BROKEN, Ranges, covered, hidden_ranges
from mqttscope.session.connection import Connection

FORMATS: dict[str, tuple[str, str]] = {
    "full": ("full", "FullFindings"),
    "concise": ("concise", "ConciseFindings"),
    "json": ("json", "FindingDocument"),
    "jsonl": ("json", "FindingJsonLines"),
    "sarif": ("sarif", "Sarif"),
    "junit": ("junit", "JUnit"),
    "github": ("annotations", "GitHub"),
    "gitlab": ("annotations", "GitLab"),
    "markdown": ("markdown", "FindingMarkdown"),
    "html": ("html", "FindingHtml"),
}
"""Name of a format -> module, which is imported when the format is used, and class."""
COPY = {"pcapng": ("comments", "FindingComments")}
"""The format for a `CommentSink`."""


EACH = ("json", "jsonl", "pcapng")
"""Formats that always contain each finding: programs group findings themselves, and each frame has its comments."""
OF_FILES = ("sarif", "junit", "github", "gitlab")
"""Formats with findings per file: one cause in two captures is two findings."""
STREAMED = ("full", "concise", "jsonl", "github")
"""Formats that can be written while traffic is captured."""
MAX_CLIENTS = 100_000
"""Maximum number of clients counted separately for one rule."""


class ShownFinding:
    """A finding without its secrets."""

    def __init__(self, finding: Finding, hiding: HidingOptions, group: Group | None = None) -> None:
        """``group``: the findings of the cause, beginning with this one."""
        self._hiding = hiding
        self._as_found = finding
        self._hidden: ConcealedFinding[Finding] | None = None
        self._group = group
        self.rule, self.slug = finding.rule, finding.slug
        self.severity: Severity = finding.severity
        self.confidence: Confidence = finding.confidence
        self.capture = finding.capture
        self.size = len(finding.raw)
        """Size of its packet in bytes."""

    @property
    def occurrences(self) -> int:
        """Number of findings of the cause known by now."""
        return 1 if self._group is None else self._group.occurrences

    @property
    def clients(self) -> int:
        return max(self._as_found.clients, 0 if self._group is None else len(self._group.clients))

    @property
    def last_ns(self) -> int:
        return self._as_found.timestamp_ns if self._group is None else self._group.last_ns

    @property
    def cause(self) -> str:
        """Fingerprint of the cause, equal in the next capture; empty if findings are not grouped."""
        return "" if self._group is None else cause_fingerprint(self._as_found)

    def repeats(self, painter: Painter) -> str:
        """``19 times from … to …, last in frame 900, 12 clients: 'a', 'b', 'c' and 9 more``; empty for one finding."""
        group = self._group
        if group is None or group.occurrences < 2:
            return ""
        clock, first = Clock(), self._as_found
        where = f" of {painter.safe(group.last_capture)}" if group.last_capture != first.capture else ""
        text = (
            f"{group.occurrences:,} times from {_short(clock.iso(group.first_ns))} to"
            f" {_short(clock.iso(group.last_ns))}, last in frame {group.last_frame}{where}"
        )
        if len(group.clients) > 1 or group.more:
            text += f", {group.number_of_clients} clients: {painter.name(group.named(), MAX_MESSAGE)}"
        return text

    def __repr__(self) -> str:
        return f"ShownFinding({self.finding!r})"

    @property
    def _concealed(self) -> ConcealedFinding[Finding]:
        if self._hidden is None:
            self._hidden = concealed(self._as_found, self._hiding)
        return self._hidden

    @property
    def finding(self) -> Finding:
        return self._concealed.finding

    @property
    def client_key(self) -> int:
        """Equal for findings about one client; hidden names may look alike."""
        return hash(self._as_found.client_identifier or self._as_found.client)

    @cached_property
    def event(self) -> PacketEvent | MalformedEvent | None:
        """The event of the packet; ``None`` for a finding without a packet.

        Its connection contains only the facts in the finding.
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
        # A doubtful packet may be malformed because its end is missing; then it has no topic.
        decoded = _decoded(finding.raw, 0 if finding.doubt else finding.missing, version, whole=whole)
        if isinstance(decoded, Malformed):
            malformed = MalformedEvent(*place, decoded, finding.topic)
            return malformed if whole else public_malformed(malformed)
        event = PacketEvent(*place, decoded, finding.topic)
        return event if whole else public_packet(event)

    @property
    def hidden(self) -> Ranges:
        """Ranges of the packet's bytes that are hidden."""
        event = self.event
        return [*([] if event is None else hidden_of(event)), *self._concealed.hidden]


def _decoded(raw: bytes, missing: int, version: ProtocolVersion, *, whole: bool) -> ControlPacket | Malformed:
    """The packet as decoded when the rule ran; a PUBLISH may lack bytes of its payload.

    Decoding the bytes may give another packet if a wrong length made it payload; it is shown only if ``whole``.
    """
    if missing and raw[0] >> 4 == PacketType.PUBLISH:
        body, _ = packet_end(raw, 0, len(raw))
        if body > NEED_MORE:
            payload = (raw if whole else covered(raw, hidden_ranges(raw, version)))[body:]
            packet = decode(raw[:1] + write_variable_byte_integer(len(payload)) + payload, version)
            if isinstance(packet, ControlPacket):
                packet.raw, packet.missing = raw, missing
                return packet
    return decode(raw, version)


def _short(iso: str) -> str:
    return re.sub(r"(\.\d{3})\d{6}", r"\1", iso)


class FindingFormat:
    """Turns findings into output; fed only by an `FindingEntrance`."""

    def __init__(self, sink: Sink, view: View) -> None:
        self.sink = sink
        self.painter = Painter(view)

    def feed(self, shown: ShownFinding, suppressed: Suppression | None = None) -> None:
        """Accept a finding; a suppressed finding is left out unless the format overrides this."""
        if suppressed is None:
            self.write(shown)

    def write(self, shown: ShownFinding) -> None:
        """Write a finding that is not suppressed."""
        raise NotImplementedError

    def again(self, shown: ShownFinding) -> None:
        """Write how often a finding occurred again that was written at its first occurrence (`STREAMED`)."""
        raise NotImplementedError

    def close(self, summary: RunSummary) -> None:
        """Write the rest of the output."""


class FileFormat(FindingFormat):
    """A format for programs and files: its lines have no maximum length."""

    def __init__(self, sink: Sink, view: View) -> None:
        super().__init__(sink, View(width=0))


@dataclass(slots=True)
class RuleCount:
    """Number of findings of one rule."""

    rule: str
    slug: str
    severity: Severity
    """Worst severity of its findings."""
    findings: int = 0
    """Findings that are not suppressed."""
    occurrences: int = 0
    suppressed: int = 0
    statements: dict[str, None] = field(default_factory=dict)
    """Statements that the findings break, in order."""
    has_more_clients: bool = False
    """Whether there were more clients than are counted separately."""
    _clients: set[int] = field(default_factory=set)
    _together: int = 0
    """Number of clients of a finding that is about many."""

    def add(self, shown: ShownFinding, most: int | None = None) -> None:
        """Count a finding that is not suppressed; ``most``: maximum number of clients, default `MAX_CLIENTS`."""
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
        """Number of clients for people: ``900``, ``> 100,000``; empty for 0."""
        return f"{'> ' if self.has_more_clients else ''}{number(self.number_of_clients)}"


class FindingEntrance(FindingReporter):
    """Entry point of findings into a format: hides secrets, and groups findings of one cause."""

    def __init__(
        self, format_: FindingFormat, view: View, *, grouped: bool = False, live: bool = False, by_capture: bool = False
    ) -> None:
        """``grouped``: pass findings of one cause on as one, with ``live`` at once, else at the end.

        ``by_capture``: the same problem in two captures is two causes.
        """
        self.format = format_
        self.hiding = view.hiding()
        self._groups = Groups(partial(client_name, hiding=self.hiding)) if grouped else None
        self._live, self._by_capture = live, by_capture
        self._suppressed: dict[int, Suppression] = {}
        """Suppressions of causes, by the identity of their groups."""
        self.causes: Counter[Severity] = Counter()
        """Number of causes that are not suppressed, if findings are grouped."""

    def _key(self, finding: Finding, suppressed: Suppression | None) -> tuple[Hashable, ...]:
        return *cause(finding), suppressed, finding.capture if self._by_capture else ""

    def is_new(self, finding: Finding, suppressed: Suppression | None = None) -> bool:
        """Whether a finding would be passed on, rather than counted with an earlier one."""
        return self._groups is None or self._key(finding, suppressed) not in self._groups

    def feed(self, finding: Finding, suppressed: Suppression | None = None) -> None:
        """Pass a finding on without its secrets."""
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
        """Pass on the causes that are complete."""
        assert self._groups is not None
        for group in self._groups.ended(everything=everything):
            shown, suppressed = ShownFinding(group.first, self.hiding, group), self._suppressed.pop(id(group), None)
            if not self._live:
                self.format.feed(shown, suppressed)
            elif suppressed is None and group.occurrences > 1:
                self.format.again(shown)

    def close(self, summary: RunSummary) -> None:
        """Finish the report."""
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
) -> FindingEntrance:
    """The reporter of a format, which receives findings without secrets.

    ``counts`` decides whether a finding that is not suppressed fails the run.  ``ranked``: the format ``full`` sorts
    findings by severity and shortens notes unless ``verbose``.  ``every``: show each finding of a cause.
    ``live``: show the first finding of a cause at once.
    """
    module, kind = ("full", "RankedFindings") if name == "full" and ranked else (FORMATS | COPY)[name]
    format_type = getattr(importlib.import_module(f"mqttscope.report.findings.{module}"), kind)
    special: dict[str, dict[str, Any]] = {
        "RankedFindings": {"verbose": verbose}, "FindingMarkdown": {"verbose": verbose}, "GitHub": {"counts": counts},
    }  # fmt: skip
    return FindingEntrance(
        cast(FindingFormat, format_type(sink, view, **special.get(kind, {}))),
        view,
        grouped=not every and name not in EACH,
        live=live and name in STREAMED,
        by_capture=name in OF_FILES,
    )
