"""Contents and faults of a capture, gathered in one pass.

`Triage` passes each event to the linter, the explainer, the message watch and the statistics, which do the work, and
groups their reports into rows (`TriageFault`): connection ends by cause, losses by client and fate, findings by rule,
gaps by reason.  A finding that explains a connection end is part of the row of that end.

The rows are ordered for an engineer who has one minute (`Rank`).  Each row keeps the certainty of the component that
reported it; triage never raises it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial

from mqttscope.events import ClockStep, ConnectionClosed, Event, GapEvent, PacketEvent
from mqttscope.explain import Explainer, Explanation, describe
from mqttscope.explain.edge_nodes import NodeWatch
from mqttscope.explain.explainer import REMARKED
from mqttscope.explain.fates import Fate, Loss
from mqttscope.explain.message_report import MessageReport
from mqttscope.explain.messages import MAX_MESSAGES, MessageWatch
from mqttscope.explain.model import PLAIN, Certainty, NodeAnswer, NodeQuestion
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.grouping import Group, Groups, client_of
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureNotice, Frame
from mqttscope.report.explanations.base import NODE_TITLES, TITLES
from mqttscope.secrets.findings import HidingOptions, client_name, conceal
from mqttscope.session.connection import Connection, host_of
from mqttscope.stats.collect import Statistics
from mqttscope.stats.rows import MALFORMED, MALFORMED_BYTES

MAX_SERVERS = 1_000
"""Maximum number of distinguished brokers; connections of further brokers are only counted."""
MAX_SERVER_NAMES = 100
"""Maximum number of server names of all brokers together; the screen mentions further names without listing them."""
MAX_CLIENTS = 10_000
"""Maximum number of clients per cause, and of connections per gap reason, that are distinguished."""
MAX_LOSSES = 10_000
"""Maximum number of rows of losses, one for each client and fate."""
MAX_STEPS = 100
"""Maximum number of clock steps shown; further steps are counted."""
MAX_PRODUCT_BYTES = 60
"""Maximum number of bytes of a message that is read as the name and version of a broker."""
EXTENDED = ("OPS230", *REMARKED)
"""Rules of practice that are judged as well: no other row shows messages that circulate, and clients that leave at
once."""
_VERSION_TOPIC = re.compile(r"\$SYS/(?:broker|brokers/[^/]+)/version")
"""Topics for the name and version of a broker."""
_SURENESS = {"certain": 0, "likely": 1, "heuristic": 2, "hypothesis": 2}


class Rank(IntEnum):
    """Severity of a fault, the worst first."""

    NAMED_END = 0
    """A connection ended, and the cause is known or likely."""
    CERTAIN_ERROR = 1
    LOSS = 2
    LIKELY_ERROR = 3
    NODE = 4
    """An edge node of Sparkplug is offline or stale for hosts, or sends metrics without a birth."""
    BARE_END = 5
    """A connection ended without DISCONNECT, and the capture does not show why."""
    GAP = 6
    """The capture lacks bytes or frames."""
    HEURISTIC_ERROR = 7
    WARNING = 8


class FaultKind(IntEnum):
    """Kind of a fault; determines the suggested command for details."""

    END = 0
    LOSS = 1
    FINDING = 2
    GAP = 3
    NODE = 4


@dataclass(slots=True)
class TriageFault:
    """One row of the section "What broke"."""

    kind: FaultKind
    rank: Rank
    certainty: str
    """``certain``, ``likely``, ``heuristic`` or ``hypothesis``."""
    who: str
    """The client, ``broker``, or a number of clients; without secrets, not escaped."""
    text: str
    """Description of the first occurrence; without secrets, not escaped."""
    frame: int
    """Frame of the first occurrence, or 0."""
    timestamp_ns: int
    capture: str
    count: int = 1
    connection: int | None = None
    client: str | None = None
    """Client Identifier of the only client, as it may be shown."""
    topic: str | None = None
    """Topic of a lost message, as on the wire."""
    rule: str = ""
    title: str = ""
    """Short name of the cause of a connection end."""


@dataclass(slots=True)
class BrokerSummary:
    """A server, its connections and its names."""

    connections: int = 0
    transports: Counter[str] = field(default_factory=Counter)
    encrypted: int = 0
    """TLS connections that could not be read."""
    decryptable: int = 0
    """Encrypted connections with both hellos captured; a key log decrypts them."""
    product: str = ""
    """Name and version that the broker publishes."""
    names: Counter[str] = field(default_factory=Counter)
    """Its host names, by `Connection.server_name`."""


@dataclass(slots=True)
class _Ends:
    """Ends of one cause and certainty."""

    first: Explanation
    count: int = 0
    clients: set[str] = field(default_factory=set)
    has_more: bool = False
    """Whether there were more clients than are distinguished."""

    def add(self, explanation: Explanation) -> None:
        """Count one more end."""
        self.count += 1
        name = name_of(explanation)
        if len(self.clients) < MAX_CLIENTS:
            self.clients.add(name)
        elif name not in self.clients:
            self.has_more = True


@dataclass(slots=True)
class _Gaps:
    """Gaps of one reason."""

    first: GapEvent
    count: int = 0
    size: int = 0
    connections: set[int] = field(default_factory=set)
    has_more: bool = False
    """Whether there were more connections than are distinguished."""


@dataclass(slots=True)
class _Losses:
    """Losses of one client with one fate."""

    first: Loss
    count: int = 0


class Triage:
    """Gathers contents and faults: feed it every event before its packet is applied, call `finish`, read `faults`.

    ``explainer.watch`` must receive the segments before the dissector does.
    """

    def __init__(self, *, together: bool = False) -> None:
        """``together``: the captures come from several taps and are read as one."""
        rules = [usual_rule(rule) for rule in select(extended=EXTENDED).values()]
        self.rules = len(rules)
        """Number of rules that judge."""
        self._nodes = NodeWatch()
        self.linter = Linter([*rules, self._nodes.observer], together=together)
        self.explainer = Explainer()
        self.messages = MessageWatch("#")
        self.statistics = Statistics()
        self.errors: list[CaptureError] = []
        self.brokers: dict[str, BrokerSummary] = {}
        """Brokers by endpoint, in order of appearance."""
        self.other_brokers = 0
        """Number of connections of brokers beyond `MAX_SERVERS`."""
        self.other_losses = 0
        """Number of losses beyond `MAX_LOSSES` rows."""
        self.other_steps = 0
        """Number of clock steps beyond `MAX_STEPS`."""
        self.has_more_names = False
        """Whether there were more server names than `MAX_SERVER_NAMES`."""
        self.notes = 0
        """Number of findings that are neither errors nor warnings."""
        self.faults: list[TriageFault] = []
        """The worst first; complete after `finish`."""
        self._hiding = HidingOptions()
        self._findings = Groups(partial(client_name, hiding=self._hiding))
        self._done: list[Group] = []
        self._ends: dict[tuple[str, Certainty], _Ends] = {}
        self._broken: Counter[str] = Counter()
        """Number of findings that are part of the explanation of an end, by rule."""
        self._gaps: dict[str, _Gaps] = {}
        self._drops: dict[str, int] = {}
        """Number of dropped frames, by capture."""
        self._steps: list[ClockStep] = []
        self._missing: set[tuple[str, str]] = set()
        """Clients and topics of findings about messages that never came."""
        self._server_names = 0

    def frames(self, source: Iterable[Frame | CaptureNotice]) -> Iterator[Frame | CaptureNotice]:
        """Pass frames on; counts them, and shows them to the explainer."""
        return self.explainer.watch.frames(self.statistics.frames(source))

    def feed(self, event: Event) -> None:
        """Process one event."""
        findings = self.linter.feed(event)
        for finding in findings:
            self._finding(finding)
        for explanation in self.explainer.feed(event, findings):
            self._end(explanation)
        self.messages.feed(event)
        self.statistics.feed(event)
        if type(event) is PacketEvent:
            if event.topic is not None and event.topic[:5] == "$SYS/":
                self._status(event)
        elif isinstance(event, ConnectionClosed):
            self._closed(event.connection)
        elif isinstance(event, GapEvent):
            gaps = self._gaps.setdefault(event.reason, _Gaps(event))
            gaps.count += 1
            gaps.size += event.length
            if len(gaps.connections) < MAX_CLIENTS:
                gaps.connections.add(event.connection.number)
            elif event.connection.number not in gaps.connections:
                gaps.has_more = True
        elif isinstance(event, CaptureError):
            self.errors.append(event)
        elif isinstance(event, CaptureDrops) and event.dropped:
            self._drops[event.capture] = self._drops.get(event.capture, 0) + event.dropped
        elif isinstance(event, ClockStep):
            if len(self._steps) < MAX_STEPS:
                self._steps.append(event)
            else:
                self.other_steps += 1

    def finish(self) -> None:
        """Complete and order the faults at the end of the captures, or when the user stops the run."""
        for explanation in self.explainer.close():
            self._end(explanation)
        self.statistics.finish()
        self._done += self._findings.ended(everything=True)
        report = MessageReport(self.messages)
        self.explainer.totals.remarks += report.doubled()
        faults = [*self._of_ends(), *self._of_losses(report), *self._of_findings(), *self._of_nodes(), *self._of_gaps()]
        faults.sort(key=lambda fault: (fault.rank, -fault.count, _SURENESS[fault.certainty], fault.timestamp_ns))
        self.faults = faults

    @property
    def packets(self) -> int:
        """MQTT packets that were read, malformed ones included."""
        traffic = self.statistics.totals.traffic
        return traffic.packets + sum(traffic.counts[MALFORMED:MALFORMED_BYTES])

    @property
    def is_judged(self) -> bool:
        """Whether there was anything to judge: MQTT packets, or an end that shows its cause without them."""
        return bool(self.packets) or any(fault.kind is FaultKind.END for fault in self.faults)

    def limits(self) -> list[str]:
        """Limits of the verdict, as phrases; empty if the captures are complete."""
        phrases = self.linter.quality.sentences()
        withheld = self.linter.withheld.total()
        if withheld:
            phrases.append(f"{counted(withheld, 'possible finding')} not shown, for lack of evidence")
        phrases += [f"no room for {count:,} {name}" for name, count in self.explainer.totals.dropped.items()]
        if self.messages.beyond:
            phrases.append(f"{MAX_MESSAGES:,} messages followed to their subscribers, {self.messages.beyond:,} not")
        if self.other_brokers:
            phrases.append(f"no room for the brokers of {counted(self.other_brokers, 'connection')}")
        if self.other_losses:
            losses = "loss" if self.other_losses == 1 else "losses"
            phrases.append(f"no room for {self.other_losses:,} {losses} of messages or subscriptions")
        if self.other_steps:
            phrases.append(f"no room for {counted(self.other_steps, 'more step')} of the clock")
        return phrases + self.linter.failure_sentences()

    def _finding(self, finding: Finding) -> None:
        if finding.severity is Severity.INFO:
            self.notes += 1
            return
        if finding.packet is None and finding.topic and len(self._missing) < MAX_LOSSES:
            self._missing.add((client_of(finding), finding.topic))
        self._findings.add((finding.rule, finding.severity, finding.confidence, finding.blamed), finding)
        self._done += self._findings.ended()

    def _end(self, explanation: Explanation) -> None:
        self.messages.note_end(explanation)
        self._nodes.note_end(explanation)
        if explanation.is_quiet:
            return
        first = explanation.first
        key = str(first.cause), first.certainty
        ends = self._ends.get(key)
        if ends is None:
            ends = self._ends[key] = _Ends(explanation)
        ends.add(explanation)
        self._broken.update({broken.rule for broken in first.broken})

    def _closed(self, connection: Connection) -> None:
        broker = self._broker(connection.server)
        if broker is None:
            self.other_brokers += 1
            return
        broker.connections += 1
        broker.transports[connection.transport] += 1
        details = connection.details
        if connection.transport == "tls" and not connection.decrypted:
            broker.encrypted += 1
            broker.decryptable += bool(details.get("client_hello") and details.get("server_hello"))
        name = connection.server_name
        if name and (name in broker.names or self._server_names < MAX_SERVER_NAMES):
            self._server_names += name not in broker.names
            broker.names[name] += 1
        elif name:
            self.has_more_names = True

    def _broker(self, server: str) -> BrokerSummary | None:
        broker = self.brokers.get(server)
        if broker is None and len(self.brokers) < MAX_SERVERS:
            broker = self.brokers[server] = BrokerSummary()
        return broker

    def _status(self, event: PacketEvent) -> None:
        """Record the name and version that a broker publishes."""
        packet = event.packet
        if event.direction is Direction.CLIENT_TO_SERVER or not isinstance(packet, Publish) or packet.missing:
            return
        if not _VERSION_TOPIC.fullmatch(event.topic or "") or not 0 < len(packet.payload) <= MAX_PRODUCT_BYTES:
            return
        broker = self._broker(event.connection.server)
        if broker is not None:
            broker.product = describe.name(packet.payload.decode("utf-8", "surrogateescape"))

    def _of_ends(self) -> Iterator[TriageFault]:
        for ends in self._ends.values():
            explanation, candidate = ends.first, ends.first.first
            is_bare = candidate.cause in PLAIN or candidate.certainty is Certainty.HYPOTHESIS
            alone = len(ends.clients) == 1 and not ends.has_more
            yield TriageFault(
                FaultKind.END, Rank.BARE_END if is_bare else Rank.NAMED_END, str(candidate.certainty),
                name_of(explanation) if alone else _number(len(ends.clients), "client", ends.has_more),
                candidate.headline,
                explanation.ended_frame, explanation.ended_ns, explanation.ended_capture, ends.count,
                explanation.connection, explanation.client_identifier if alone else None, title=TITLES[candidate.cause],
            )  # fmt: skip

    def _of_losses(self, report: MessageReport) -> Iterator[TriageFault]:
        rows: dict[tuple[str, Fate], _Losses] = {}
        for loss in report.losses():
            if (loss.client, loss.topic) in self._missing:
                continue
            key = loss.client, loss.fate
            row = rows.get(key)
            if row is None:
                if len(rows) >= MAX_LOSSES:
                    self.other_losses += 1
                    continue
                row = rows[key] = _Losses(loss)
            row.count += 1
        for row in rows.values():
            first = row.first
            is_refused = first.fate in (Fate.SUBSCRIPTION_REFUSED, Fate.MESSAGE_REFUSED)
            yield TriageFault(
                FaultKind.LOSS, Rank.LOSS, "certain" if is_refused else "likely", first.client, first.text, first.frame,
                first.timestamp_ns, first.capture, row.count, first.connection, first.client, first.topic,
            )  # fmt: skip

    def _of_findings(self) -> Iterator[TriageFault]:
        rules: Counter[str] = Counter()
        for group in self._done:
            rules[group.first.rule] += group.occurrences
        for group in self._done:
            first = conceal(group.first, self._hiding)
            if rules[first.rule] <= self._broken[first.rule]:
                continue
            alone = len(group.clients) == 1 and not group.more
            who = "broker" if first.blamed == "server" else client_of(first)
            if not alone and first.blamed == "client":
                who = _number(len(group.clients), "client", group.more)
            yield TriageFault(
                FaultKind.FINDING, _rank(first), str(first.confidence), who, first.message, first.frame,
                first.timestamp_ns, first.capture, group.occurrences, first.connection,
                first.client_identifier if alone else None, rule=first.rule,
            )  # fmt: skip

    def _of_nodes(self) -> Iterator[TriageFault]:
        """One row for each question about edge nodes of Sparkplug that is not usual."""
        answers: dict[NodeQuestion, list[NodeAnswer]] = {}
        for answer in self._nodes.answers():
            if not answer.is_usual:
                answers.setdefault(answer.question, []).append(answer)
        for question, rows in answers.items():
            first, count = rows[0], len({answer.node for answer in rows})
            place = next((reason for reason in first.reasons if reason.frame), first.reasons[0])
            yield TriageFault(
                FaultKind.NODE, Rank.WARNING if question is NodeQuestion.REBIRTH else Rank.NODE,
                str(first.certainty or Certainty.HYPOTHESIS),
                f"edge node {first.node}" if count == 1 else counted(count, "edge node"), first.headline,
                place.frame or 0, place.timestamp_ns or 0, place.capture or "", len(rows), first.connections[0],
                title=NODE_TITLES[question],
            )  # fmt: skip

    def _of_gaps(self) -> Iterator[TriageFault]:
        for reason, gaps in self._gaps.items():
            first = gaps.first
            owner = first.connection
            alone = len(gaps.connections) == 1 and not gaps.has_more
            name = describe.name(owner.client_identifier) or owner.client
            text = GapEvent.describe(gaps.size, reason)
            who = name if alone else _number(len(gaps.connections), "connection", gaps.has_more)
            yield TriageFault(
                FaultKind.GAP, Rank.GAP, "certain", who, text, first.frame, first.timestamp_ns, first.capture,
                connection=owner.number,
            )  # fmt: skip
        for capture, dropped in self._drops.items():
            text = f"{counted(dropped, 'frame')} dropped while capturing"
            yield TriageFault(FaultKind.GAP, Rank.GAP, "certain", "capture", text, 0, 0, capture)
        for step in self._steps:
            place = step.frame, step.timestamp_ns, step.capture
            certainty = "certain" if step.by_ns else "hypothesis"
            yield TriageFault(FaultKind.GAP, Rank.GAP, certainty, "capture", step.message, *place)


def name_of(explanation: Explanation) -> str:
    """The Client Identifier in an explanation, or the host of a client without one."""
    return explanation.client_identifier or host_of(explanation.client)


def _number(count: int, word: str, has_more: bool) -> str:
    return counted(count, word) + (" or more" if has_more else "")


def _rank(finding: Finding) -> Rank:
    if finding.severity is Severity.WARNING:
        return Rank.WARNING
    ranks = {Confidence.CERTAIN: Rank.CERTAIN_ERROR, Confidence.LIKELY: Rank.LIKELY_ERROR}
    return ranks.get(finding.confidence, Rank.HEURISTIC_ERROR)
