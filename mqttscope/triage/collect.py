"""What a capture holds and what broke in it, gathered in one pass.

`Triage` gives each event to the linter, the explainer, the message watch and the statistics, which do the work, and
folds their reports into rows (`Fault`): ends of connections by cause, losses by client and fate, findings by rule, gaps
by reason.  A finding that explains an end is part of the row of that end.

The rows are ordered for an engineer who has one minute (`Rank`).  A row says how sure it is in the words of the part
that reported it; nothing here is surer than that.
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
from mqttscope.explain.fates import Fate, Loss
from mqttscope.explain.messages import MAX_MESSAGES, MessageWatch
from mqttscope.explain.model import PLAIN, Certainty
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.grouping import Group, Groups, client_of
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureNotice, Frame
from mqttscope.report.explanations.base import TITLES
from mqttscope.report.notices import GAPS
from mqttscope.secrets.findings import Hiding, client_name, conceal
from mqttscope.session.connection import Connection
from mqttscope.stats.collect import Statistics
from mqttscope.stats.rows import MALFORMED, MALFORMED_BYTES

MAX_SERVERS = 1_000
"""Brokers that are told apart; connections of further ones are only counted."""
MAX_SERVER_NAMES = 100
"""Server names of all brokers together; of more, the screen says that there are others."""
MAX_CLIENTS = 10_000
"""Clients of one cause, and connections with gaps of one reason, that are distinguished."""
MAX_LOSSES = 10_000
"""Maximum number of rows of losses, one for each client and fate."""
MAX_STEPS = 100
"""Steps of clocks that are shown; further ones are counted."""
MAX_PRODUCT_BYTES = 60
"""Maximum number of bytes of a message that is read as the name and version of a broker."""
_VERSION_TOPIC = re.compile(r"\$SYS/(?:broker|brokers/[^/]+)/version")
"""Where brokers publish what they are."""
_SURENESS = {"certain": 0, "likely": 1, "heuristic": 2, "hypothesis": 2}


class Rank(IntEnum):
    """How bad a fault is, the worst first."""

    NAMED_END = 0
    """A connection ended, and the cause is known or likely."""
    CERTAIN_ERROR = 1
    LOSS = 2
    LIKELY_ERROR = 3
    BARE_END = 4
    """A connection ended without DISCONNECT, and the capture does not show why."""
    GAP = 5
    """The capture lacks bytes or frames."""
    HEURISTIC_ERROR = 6
    WARNING = 7


class FaultKind(IntEnum):
    """What a fault is, which decides on the command that shows more of it."""

    END = 0
    LOSS = 1
    FINDING = 2
    GAP = 3


@dataclass(slots=True)
class Fault:
    """One row of what broke."""

    kind: FaultKind
    rank: Rank
    certainty: str
    """``certain``, ``likely``, ``heuristic`` or ``hypothesis``."""
    who: str
    """The client, ``broker``, or how many clients; without secrets, not escaped."""
    text: str
    """What happened, to the first of them; without secrets, not escaped."""
    frame: int
    """Of the first of them; 0 where it has none."""
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
    """The cause of an end in a few words."""


@dataclass(slots=True)
class Broker:
    """One server and what was spoken with it."""

    connections: int = 0
    transports: Counter[str] = field(default_factory=Counter)
    encrypted: int = 0
    """TLS connections that could not be read."""
    decryptable: int = 0
    """Of these, those whose hellos were captured, so that a key log decrypts them."""
    product: str = ""
    """What it says it is."""
    names: Counter[str] = field(default_factory=Counter)
    """Its host names, by `Connection.server_name`."""


@dataclass(slots=True)
class _Ends:
    """Ends of one cause and certainty."""

    first: Explanation
    count: int = 0
    clients: set[str] = field(default_factory=set)
    has_more: bool = False
    """There were more clients than are told apart."""

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
    """There were more connections than are distinguished."""


@dataclass(slots=True)
class _Losses:
    """Losses of one client with one fate."""

    first: Loss
    count: int = 0


class Triage:
    """Feed it every event, in the state before its packet is applied; call `finish`, then read `faults`.

    ``explainer.watch`` has to see the segments before the dissector does.
    """

    def __init__(self, *, together: bool = False) -> None:
        """``together``: the captures are those of several taps, read as one."""
        self.linter = Linter([usual_rule(rule) for rule in select().values()], together=together)
        self.explainer = Explainer()
        self.messages = MessageWatch("#")
        self.statistics = Statistics()
        self.errors: list[CaptureError] = []
        self.brokers: dict[str, Broker] = {}
        """By endpoint, in order of appearance."""
        self.other_brokers = 0
        """Connections of brokers beyond `MAX_SERVERS`."""
        self.other_losses = 0
        """Losses beyond `MAX_LOSSES` rows."""
        self.other_steps = 0
        """Steps of clocks beyond `MAX_STEPS`."""
        self.has_more_names = False
        """There were more server names than `MAX_SERVER_NAMES`."""
        self.notes = 0
        """Findings that are neither errors nor warnings."""
        self.faults: list[Fault] = []
        """The worst first; complete after `finish`."""
        self._hiding = Hiding()
        self._findings = Groups(partial(client_name, hiding=self._hiding))
        self._done: list[Group] = []
        self._ends: dict[tuple[str, Certainty], _Ends] = {}
        self._broken: Counter[str] = Counter()
        """Findings by rule that are part of the explanation of an end."""
        self._gaps: dict[str, _Gaps] = {}
        self._drops: dict[str, int] = {}
        """Frames that were dropped, by capture."""
        self._steps: list[ClockStep] = []
        self._missing: set[tuple[str, str]] = set()
        """Clients and topics of findings about messages that never came."""
        self._server_names = 0

    def frames(self, source: Iterable[Frame | CaptureNotice]) -> Iterator[Frame | CaptureNotice]:
        """Pass frames on, counted and seen by the explainer."""
        return self.explainer.watch.frames(self.statistics.frames(source))

    def feed(self, event: Event) -> None:
        """Take one event."""
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
        """The captures have ended, or the user does not want to wait for that: order what was found."""
        for explanation in self.explainer.close():
            self._end(explanation)
        self.statistics.finish()
        self._done += self._findings.ended(everything=True)
        faults = [*self._of_ends(), *self._of_losses(), *self._of_findings(), *self._of_gaps()]
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
        """What the verdict depends on, as phrases; none where the captures are complete."""
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
        return phrases + self.linter.failures_told()

    def _finding(self, finding: Finding) -> None:
        if finding.severity is Severity.INFO:
            self.notes += 1
            return
        if finding.packet is None and finding.topic and len(self._missing) < MAX_LOSSES:
            self._missing.add((client_of(finding), finding.topic))
        self._findings.add((finding.rule, finding.severity, finding.confidence, finding.blamed), finding)
        self._done += self._findings.ended()

    def _end(self, explanation: Explanation) -> None:
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

    def _broker(self, server: str) -> Broker | None:
        broker = self.brokers.get(server)
        if broker is None and len(self.brokers) < MAX_SERVERS:
            broker = self.brokers[server] = Broker()
        return broker

    def _status(self, event: PacketEvent) -> None:
        """Take what a broker says it is."""
        packet = event.packet
        if event.direction is Direction.CLIENT_TO_SERVER or not isinstance(packet, Publish) or packet.missing:
            return
        if not _VERSION_TOPIC.fullmatch(event.topic or "") or not 0 < len(packet.payload) <= MAX_PRODUCT_BYTES:
            return
        broker = self._broker(event.connection.server)
        if broker is not None:
            broker.product = describe.name(packet.payload.decode("utf-8", "surrogateescape"))

    def _of_ends(self) -> Iterator[Fault]:
        for ends in self._ends.values():
            explanation, candidate = ends.first, ends.first.first
            is_bare = candidate.cause in PLAIN or candidate.certainty is Certainty.HYPOTHESIS
            alone = len(ends.clients) == 1 and not ends.has_more
            yield Fault(
                FaultKind.END, Rank.BARE_END if is_bare else Rank.NAMED_END, str(candidate.certainty),
                name_of(explanation) if alone else _number(len(ends.clients), "client", ends.has_more),
                candidate.headline,
                explanation.ended_frame, explanation.ended_ns, explanation.ended_capture, ends.count,
                explanation.connection, explanation.client_identifier if alone else None, title=TITLES[candidate.cause],
            )  # fmt: skip

    def _of_losses(self) -> Iterator[Fault]:
        rows: dict[tuple[str, Fate], _Losses] = {}
        for loss in self.messages.losses():
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
            yield Fault(
                FaultKind.LOSS, Rank.LOSS, "certain" if is_refused else "likely", first.client, first.text, first.frame,
                first.timestamp_ns, first.capture, row.count, first.connection, first.client, first.topic,
            )  # fmt: skip

    def _of_findings(self) -> Iterator[Fault]:
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
            yield Fault(
                FaultKind.FINDING, _rank(first), str(first.confidence), who, first.message, first.frame,
                first.timestamp_ns, first.capture, group.occurrences, first.connection,
                first.client_identifier if alone else None, rule=first.rule,
            )  # fmt: skip

    def _of_gaps(self) -> Iterator[Fault]:
        for reason, gaps in self._gaps.items():
            first = gaps.first
            owner = first.connection
            alone = len(gaps.connections) == 1 and not gaps.has_more
            name = describe.name(owner.client_identifier) or owner.client
            text = f"{counted(gaps.size, 'byte')} {GAPS.get(reason, reason)}"
            who = name if alone else _number(len(gaps.connections), "connection", gaps.has_more)
            yield Fault(
                FaultKind.GAP, Rank.GAP, "certain", who, text, first.frame, first.timestamp_ns, first.capture,
                connection=owner.number,
            )  # fmt: skip
        for capture, dropped in self._drops.items():
            text = f"{counted(dropped, 'frame')} dropped while capturing"
            yield Fault(FaultKind.GAP, Rank.GAP, "certain", "capture", text, 0, 0, capture)
        for step in self._steps:
            place = step.frame, step.timestamp_ns, step.capture
            certainty = "certain" if step.by_ns else "hypothesis"
            yield Fault(FaultKind.GAP, Rank.GAP, certainty, "capture", step.message, *place)


def name_of(explanation: Explanation) -> str:
    """The client of an explanation by its Client Identifier, or by its address where it has none."""
    return explanation.client_identifier or explanation.client


def _number(count: int, word: str, has_more: bool) -> str:
    return counted(count, word) + (" or more" if has_more else "")


def _rank(finding: Finding) -> Rank:
    if finding.severity is Severity.WARNING:
        return Rank.WARNING
    ranks = {Confidence.CERTAIN: Rank.CERTAIN_ERROR, Confidence.LIKELY: Rank.LIKELY_ERROR}
    return ranks.get(finding.confidence, Rank.HEURISTIC_ERROR)
