"""Runs rules over events: the state before a packet, dispatch by packet type, findings in the order of the capture.

`Linter` takes the events of `dissect` one by one, each before the generator produces the next one: then the connection
is in the state before the packet, as rules expect.  Rules of every scope run here.  Their memories belong to the key of
their scope, so an engine that sees all events of a key gives the same findings as one that sees everything.

The engine completes the reports of rules: `place_of` locates the field in the packet.

Rules remember texts of packets and quote them in findings about others: the Authentication Method of a CONNECT, a
topic.  In a packet with a broken layout, such a text may contain a password.  So no message of a rule is trusted:
`WithheldBytes` keeps the secret bytes of the damaged packets of each connection, and every message is compared with
them before it is shown (`redact.findings`).
"""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from mqttscope.events import (
    ClockStep,
    ConnectionClosed,
    ConnectionDue,
    ConnectionOpened,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.context import (
    WIDE,
    BothSides,
    LintEvent,
    Memories,
    RuleContext,
    RuleStates,
    connection_key,
    place_of,
    place_of_fault,
)
from mqttscope.lint.dispatch import BoundChecks, Check, PacketPlans, PlanForSigns, checks_named, plans_of
from mqttscope.lint.finding import MAX_PLACES, Confidence, FieldPlace, Finding, Report, Severity, fingerprint
from mqttscope.lint.model import Model
from mqttscope.lint.quality import Quality, QualityLedger
from mqttscope.lint.rule import Findings, Needs, Rule, Specification, Standard, failure_text, reports_of
from mqttscope.lint.session_model import SessionModel
from mqttscope.lint.signs import signs_of
from mqttscope.mqtt.constants import Direction, MalformedReason, PacketType
from mqttscope.mqtt.declare import ControlPacket, FaultReport, Malformed
from mqttscope.mqtt.foreign import MAX_SIGNATURE, PREFACES, foreign_protocol
from mqttscope.net.frame import CaptureDrops
from mqttscope.secrets.packets import hidden_in_damaged, holds_secrets
from mqttscope.session.connection import C2S, S2C, Connection
from mqttscope.session.history import NEVER_NS, History, Violation

_INDEX = re.compile(r"\[\d+\]")
_new_finding: Final = Finding.__new__
_OPENING: Final[int] = Needs.OPENING.value
_SESSION_BIRTH: Final[int] = Needs.SESSION_BIRTH.value
_WHOLE_SENDER: Final[int] = Needs.WHOLE_SENDER.value
_WHOLE_RECEIVER: Final[int] = Needs.WHOLE_RECEIVER.value
_WHOLE: Final[int] = Needs.WHOLE.value
_BOTH_DIRECTIONS: Final[int] = Needs.BOTH_DIRECTIONS.value
"""As plain numbers, which are faster to compare."""
MAX_CITED = 10_000
"""Maximum number of kinds of findings with cached statements."""
MAX_REPORTED = 16
"""Maximum number of violations of a connection kept for later rules."""
MAX_INTERNAL_ERRORS = 100
"""Maximum number of internal errors kept with their text, besides the first one of each rule."""


@dataclass(slots=True)
class InternalError:
    """A failure of a rule: a bug of this program or of a third-party rule, not of the traffic."""

    rule: str
    capture: str
    frame: int
    error: str
    """Type and text of the exception, and for a third-party rule the line."""
    trace: str


class Linter:
    """Runs rules.  Feed it events, then read ``quality`` and ``internal_errors``."""

    def __init__(
        self,
        rules: Iterable[Rule],
        *,
        strict: bool = False,
        complete: frozenset[str] = frozenset(),
        thorough: bool = False,
        together: bool = False,
        end_ns: Callable[[str], int | None] | None = None,
    ) -> None:
        """``complete``: servers (``10.0.0.2:1883``) with all of their connections in the captures, as the user asserts.

        ``thorough``: ask rules about every packet, even if no finding is possible, for tests.
        ``together``: the captures are from several taps, read as one.
        ``end_ns`` returns the time of the latest segment read of a capture.
        """
        self.rules = sorted(rules, key=lambda rule: rule.code)
        self._silent = {rule.code: rule for rule in _unselected(self.rules)}
        """Rules that run only for rules about reactions to violations; their own findings are dropped."""
        running = tuple(sorted((*self.rules, *self._silent.values()), key=lambda rule: rule.code))
        self._running = running
        self._made_elsewhere = frozenset(rule.code for rule in running if not rule.is_ours())
        self.complete = complete
        self.met: set[str] = set()
        """Servers among them with a connection in the captures."""
        self.strict = strict
        """Raise the exceptions of rules, for tests."""
        self.ledger = QualityLedger()
        """Quality of each capture."""
        self.end_ns = end_ns
        self.internal_errors: list[InternalError] = []
        self.failures: Counter[str] = Counter()
        self.withheld: Counter[str] = Counter()
        """Findings withheld because of the quality of the capture, by rule."""
        self.awaited: Counter[str] = Counter()
        """Connections that ended before the timeout of a rule that was waiting for a packet, by rule."""
        self.ripe: set[str] = set()
        """Rules that reported something, or with a connection that lasted as long as their timeout."""
        self.dropping: set[str] = set()
        """Captures that report dropped frames."""
        self.clock_was_set = False
        """Whether durations may include a clock step of a capture."""
        self.memories = Memories(together=together)
        self._withheld = WithheldBytes()
        self._cited: dict[tuple[Any, ...], tuple[str, ...]] = {}
        """Statements with their version, by kind of finding."""
        self._folded: dict[tuple[object, ...], Finding] = {}
        """Findings of the current packet, by the properties that equal findings share."""
        self.models = sorted({model for rule in self.rules for model in rule.models}, key=attrgetter("code"))
        """Models that the rules read."""
        self._listening: dict[str, tuple[type[Model], ...]] = {
            what: tuple(model for model in self.models if getattr(model, what) is not getattr(Model, what))
            for what in ("opened", "gap", "unparsed", "damaged", "due", "closed")
        }
        """Models with a handler for these other events: for other models no state is created."""
        self._plans = plans_of(running, tuple(self.models), thorough=thorough)
        self._faults: dict[MalformedReason, Rule] = {reason: rule for rule in running for reason in rule.malformed}
        self._openings = checks_named(running, "check_opened")
        self._gaps = checks_named(running, "check_gap")
        self._dues = {rule.code: rule for rule, _ in checks_named(running, "check_due")}
        self._closes = checks_named(running, "check_close")
        self._leftovers = checks_named(running, "check_unparsed")
        self._damaged = checks_named(running, "check_damaged")
        self._misread = checks_named(running, "check_misread")
        self._foreign = checks_named(running, "check_foreign")
        self._readers = checks_named(running, "check_violation")
        ours = tuple(rule for rule in self.rules if rule.is_ours())
        self._awaiting = [(rule, call, rule.nanoseconds("timeout")) for rule, call in checks_named(ours, "awaits")]

    def failure_sentences(self) -> list[str]:
        """Sentences about the number of failures: of third-party rules by code, of built-in rules together."""
        rules: list[Rule | type[Model]] = [*self._running, *self.models]
        own = {rule.code for rule in rules if not rule.__module__.startswith(__package__)}
        sentences = [
            f"{code} failed {times:,} times: the findings are not complete"
            for code, times in sorted(self.failures.items())
            if code in own
        ]
        ours = sum(times for code, times in self.failures.items() if code not in own)
        if ours:
            sentences += [f"rules failed {ours:,} times: this is a bug in mqttscope, and the findings are not complete"]
        return sentences

    @property
    def pending(self) -> Counter[str]:
        """Rules that waited but judged nothing, because no connection lasted as long as their timeout."""
        return Counter({code: number for code, number in self.awaited.items() if number and code not in self.ripe})

    @property
    def quality(self) -> Quality:
        """Quality of all captures together, as far as they were read."""
        return self.ledger.total()

    def crowded_servers(self) -> dict[str, list[str]]:
        """Servers with more wills than can be followed, and the codes of the rules that may miss findings."""
        codes: dict[str, set[str]] = {}
        for key, memories in self.memories.states.items():
            full = {code for code, memory in memories.items() if isinstance(memory, Model) and not memory.has_room}
            if full:
                rules = (rule for rule in self.rules if full & {rule.code, *(model.code for model in rule.models)})
                codes.setdefault(str(key[0]), set()).update(rule.code for rule in rules)
        return {server: sorted(rules) for server, rules in sorted(codes.items())}

    def limit_sentences(self) -> list[str]:
        """Sentences about limits that were exceeded, so that findings may be missing."""
        limits = [
            f"limit: {server} has more wills than are followed: {', '.join(codes)} may miss findings"
            for server, codes in self.crowded_servers().items()
        ]
        if self.memories.forgotten:
            limits.append(f"limit: the linter forgot sessions to make room: {self.memories.forgotten:,}")
        return limits

    def adopt(self, connection: Connection) -> History:
        """Continue with a connection of another engine; returns its history."""
        history = connection.history = connection.history or History()
        self.memories.open[connection_key(connection)] = connection
        return history

    def remembered(self) -> RuleStates:
        """The state of the rules with wide scopes, without states that equal a new one."""
        fresh: dict[str, Any] = {rule.code: rule.Memory() for rule in self.rules if rule.Memory is not None}
        fresh |= {model.code: model() for model in self.models}
        states: RuleStates = {}
        for key, memories in self.memories.states.items():
            changed = {code: memory for code, memory in memories.items() if code in fresh and memory != fresh[code]}
            if changed:
                states[key] = changed
        return states

    def note_clock_step(self) -> None:
        """Handle a clock step of a capture: durations of the open connections may include it."""
        self.clock_was_set = True
        for connection in self.memories.open.values():
            if connection.history is not None:
                connection.history.clock_set = True

    def feed(self, event: Event) -> list[Finding]:
        """Findings of one event, sorted by code: they do not depend on the other rules."""
        if type(event) is PacketEvent:
            findings = self._packet(event)
        elif isinstance(event, MalformedEvent):
            findings = self._malformed(event)
        else:
            findings = self._other(event)
        if findings:
            self._folded.clear()
            if self._silent:
                findings = [finding for finding in findings if finding.rule not in self._silent]
            findings.sort(key=attrgetter("rule"))
            for finding in findings:
                if finding.count > 1:
                    finding.message += f", and {finding.count - 1:,} more"
        return findings

    def _other(self, event: Event) -> list[Finding]:
        if isinstance(event, ConnectionClosed):
            self.ledger.close(event, None if self.end_ns is None else self.end_ns(event.capture))
        elif not isinstance(event, UnparsedEvent):
            self.ledger.feed(event)
        if isinstance(event, CaptureDrops) and event.dropped:
            self.dropping.add(event.capture)
        elif isinstance(event, ClockStep):
            self.note_clock_step()
        findings: list[Finding] = []
        if isinstance(event, ConnectionOpened):
            event.connection.history = History()
            at = self._move(event, event.connection, C2S)
            self._run(self._openings, at, findings, event.connection)
            self._follow("opened", event.connection, at)
        elif isinstance(event, ConnectionClosed):
            at = self._move(event, event.connection, C2S)
            if not at.history.foreign:
                self._due(at, findings)
                self._note_awaited(at)
                self._run(self._closes, at, findings, event.connection)
                self._follow("closed", event.connection, at)
            elif at.history.greeting:
                self._after_greeting(at, findings)
            at.history.looked_at = None
            self._withheld.forget(event.connection)
            self.memories.closed(at)
        elif isinstance(event, ConnectionDue):
            at = self._move(event, event.connection, C2S)
            if not at.history.foreign:
                self._due(at, findings, passing=True)
                # The dissector remembers only one alarm time, and that one has passed.
                when_ns = at.history.next_due_ns(event.timestamp_ns)
                if when_ns < NEVER_NS and event.connection.alarm is not None:
                    event.connection.alarm(when_ns)
        elif isinstance(event, GapEvent):
            at = self._move(event, event.connection, event.direction)
            self._run(self._gaps, at, findings, event)
            self._follow("gap", event, at)
            at.history.gap(event.direction)
        elif isinstance(event, UnparsedEvent):
            at = self._move(event, event.connection, event.direction)
            if not self._is_foreign(event.unparsed.raw, at, findings):
                self.ledger.feed(event)
                self._run(self._leftovers, at, findings, event.unparsed)
                self._follow("unparsed", event.unparsed, at)
        return findings

    def _packet(self, event: PacketEvent) -> list[Finding]:
        findings: list[Finding] = []
        connection, direction, packet = event.connection, event.direction, event.packet
        at = self._move(event, connection, direction, event.topic)
        history = at.history
        if not history.foreign:
            if event.timestamp_ns >= history.due_ns:
                self._due(at, findings)
            self._judge(packet, at, findings)
            history.apply(
                packet, at.version, at.sender, at.receiver, at.from_client,
                event.number, event.frame, event.timestamp_ns, event.topic,
            )  # fmt: skip
        elif history.greeting and at.from_client:
            self._after_greeting(at, findings)
        at.release()
        return findings

    def _malformed(self, event: MalformedEvent) -> list[Finding]:
        findings: list[Finding] = []
        connection, direction, packet = event.connection, event.direction, event.malformed
        at = self._move(event, connection, direction, event.topic)
        if self._is_foreign(packet.raw, at, findings):
            return findings
        self._withheld.note(event)
        self._due(at, findings)
        party = at.party
        if at.is_misread(event):
            at.history.malformed(packet, direction, event.number, event.frame, event.timestamp_ns)
            return findings
        reading, misread = at.read_again(event), party.misread
        if reading is not None:
            misread = event.stream_offset + len(packet.raw) + len(packet.after)
        if reading is not None and (reading.is_before or reading.intruder is not None):
            self._run(self._misread, at, findings, reading)
        else:
            for rule, faults in self._grouped(packet, at):
                for finding in self._faulty(rule, at, findings, faults[0]):
                    for fault in faults[1:]:
                        _again(finding, fault.field, at, packet.raw, fault=fault)
            self._run(self._damaged, at, findings, packet)
        self._follow("damaged", packet, at)
        party.misread = misread
        if packet.packet is not None and packet.complete and misread < 0:
            self._judge(packet.packet, at, findings)
            at.history.apply(
                packet.packet, at.version, at.sender, at.receiver, at.from_client,
                event.number, event.frame, event.timestamp_ns, event.topic,
            )  # fmt: skip
        at.history.malformed(packet, direction, event.number, event.frame, event.timestamp_ns)
        return findings

    def _grouped(self, packet: Malformed, at: RuleContext) -> Iterator[tuple[Rule, list[FaultReport]]]:
        """Faults that have a rule: faults of one list together, and one fault per field."""
        groups: dict[tuple[str, str], tuple[Rule, dict[str, FaultReport]]] = {}
        for fault in packet.faults:
            rule = self._faults.get(fault.reason)
            if rule is not None and at.version in rule.versions:
                group = groups.setdefault((rule.code, _INDEX.sub("", fault.field)), (rule, {}))
                group[1].setdefault(fault.field, fault)
        for rule, faults in groups.values():
            yield rule, list(faults.values())

    def _is_foreign(self, raw: bytes, at: RuleContext, findings: list[Finding]) -> bool:
        """Whether the connection uses another protocol, or these bytes precede its MQTT: nothing is judged."""
        history = at.history
        if history.foreign:
            if history.greeting and at.from_client:
                self._after_greeting(at, findings)
            return True
        if not at.connection.handshake_seen or at.sender.packets or at.connection.gaps:
            return False
        protocol = foreign_protocol(raw, is_answer=not at.from_client)
        if protocol not in PREFACES:
            # A server may answer MQTT in another protocol; a client does not switch to one.
            if not protocol or (at.receiver.packets and at.from_client):
                return False
            history.foreign = protocol
            if not at.from_client and not at.receiver.packets:
                # Only the client's own bytes can show whether it expects a broker.
                history.greeting = raw[:MAX_SIGNATURE]
                return True
        self._run(self._foreign, at, findings, protocol)
        return True

    def _after_greeting(self, at: RuleContext, findings: list[Finding]) -> None:
        """Report that a server greeted its client in another protocol, once the client has sent something or closed."""
        self._run(self._foreign, at, findings, at.history.foreign)
        at.history.greeting = b""

    def _move(
        self, event: LintEvent, connection: Connection, direction: Direction, topic: str | None = None
    ) -> RuleContext:
        history = connection.history
        looked_at: BothSides | None = None if history is None else history.looked_at
        if looked_at is None or looked_at.memories is not self.memories:
            looked_at = self._look_at(connection)
        at = looked_at.client if direction is C2S else looked_at.server
        at.move(event, topic)
        return at

    def _look_at(self, connection: Connection) -> BothSides:
        """Start following a connection."""
        history = connection.history = connection.history or History()
        looked_at = history.looked_at = BothSides(self.memories, connection, history)
        self.memories.opened(looked_at.client)
        if connection.server in self.complete:
            self.met.add(connection.server)
        return looked_at

    def _judge(self, packet: ControlPacket, at: RuleContext, findings: list[Finding]) -> None:
        """Ask all rules about one packet, then update the models."""
        planned: PacketPlans | None = at.planned
        if planned is None or at.planned_version is not at.version or at.planned_settled is not at.history.settled:
            planned = at.planned = self._plans.plans_for(at)
            at.planned_version, at.planned_settled = at.version, at.history.settled
        memories = self.memories
        plan = planned.get(type(packet)) or self._plans.add_plan(type(packet), at)
        asked: PlanForSigns = plan.plan_for(signs_of(packet, at))
        history = at.history
        for question in asked.questions:
            if question.waiting and history.is_asked(question.waiting):
                continue
            if question.condition is None or question.condition(packet):
                self._ask(question.rule, question.check, packet, at, findings)
        for about in asked.topic_questions:
            known = memories.broker_state(about.code, about.model, at) if about.wide else at.model(about.model)
            for table in about.tables:
                if at.topic in table(known):
                    for question in about.questions:
                        if question.condition is None or question.condition(packet):
                            self._ask(question.rule, question.check, packet, at, findings)
                    break
        for follower in asked.followers:
            if follower.condition is None or follower.condition(packet):
                model = follower.model
                try:
                    state: Model = memories.broker_state(follower.code, model, at) if follower.wide else at.model(model)
                    state.follow(packet, at)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # SystemExit too: a model does not end the run
                    self._failed(model, at, error)

    def _ask(self, rule: Rule, check: Check, subject: Any, at: RuleContext, findings: list[Finding]) -> None:
        try:
            reports = check(subject, at)
            # An empty list reports nothing; any other value may come from a third-party rule and is checked.
            if reports or (reports is not None and rule.code in self._made_elsewhere):
                self._take(rule, reports, at, findings, None)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: a rule does not end the run
            self._failed(rule, at, error)

    def _run(self, checks: BoundChecks, at: RuleContext, findings: list[Finding], subject: Any) -> None:
        version = at.version
        for rule, check in checks:
            if version in rule.versions:
                self._ask(rule, check, subject, at, findings)

    def _due(self, at: RuleContext, findings: list[Finding], *, passing: bool = False) -> None:
        """Ask the rules with an expired timer, before the event itself is judged."""
        for code in at.history.due(at.timestamp_ns, passing=passing):
            rule = self._dues.get(code)
            if rule is not None:  # others run elsewhere
                self._ask(rule, rule.check_due, at.connection, at, findings)
            for model in self._listening["due"]:
                if model.code == code:
                    self._moved_on(model, "due", at.connection, at)

    def _note_awaited(self, at: RuleContext) -> None:
        """Count the rules that still wait at the end of a connection."""
        lasted_ns, ripe, version = at.timestamp_ns - at.connection.opened_ns, self.ripe, at.version
        for rule, awaits, timeout_ns in self._awaiting:
            if rule.code in ripe:
                continue
            if lasted_ns >= timeout_ns:
                ripe.add(rule.code)
            elif version in rule.versions:
                try:
                    self.awaited[rule.code] += bool(awaits(at) and not self._lacks(rule, rule.needs.value, at))
                except Exception as error:
                    self._failed(rule, at, error)

    def _follow(self, what: str, subject: Any, at: RuleContext) -> None:
        """Update models with an event other than a packet."""
        for model in self._listening[what]:
            self._moved_on(model, what, subject, at)

    def _moved_on(self, model: type[Model], what: str, subject: Any, at: RuleContext) -> None:
        try:
            getattr(at.model(model), what)(subject, at)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._failed(model, at, error)

    def _faulty(self, rule: Rule, at: RuleContext, findings: list[Finding], fault: FaultReport) -> list[Finding]:
        """New findings of a layout fault, and existing findings that now cover it too."""
        try:
            reports = rule.check_malformed(fault, at)
            return [] if reports is None else self._take(rule, reports, at, findings, fault)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._failed(rule, at, error)
            return []

    def _take(
        self, rule: Rule, reports: Findings, at: RuleContext, findings: list[Finding], fault: FaultReport | None
    ) -> list[Finding]:
        """Turn reports into findings: similar reports of one rule about one packet become one finding."""
        touched: list[Finding] = []
        event = at.event
        raw = event.packet.raw if isinstance(event, PacketEvent) else b""
        if isinstance(event, MalformedEvent):
            raw = event.malformed.raw
        withheld, needs = False, rule.needs.value
        if rule.code in self._made_elsewhere:
            reports = reports_of(rule, reports)
        is_folded = type(event) is PacketEvent and 0 <= event.stream_offset < at.party.misread
        for report in (reports,) if isinstance(reports, Report) else reports or ():
            if is_folded and not report.overdue:
                continue  # the finding about the fault before it stands for all that is read at wrong places
            alone = report.overdue or not raw
            if withheld or self._lacks(rule, needs, at):
                if rule.code not in self._silent:
                    self.withheld[rule.code] += alone or not withheld
                withheld = True
                continue
            statements = self._statements(rule, report, at)
            if not alone:
                key = (rule.code, report.severity, report.confidence, report.sender, report.reason_code, statements)
                known = self._folded.get(key)
                if known is not None:
                    _again(known, report.field, at, raw, report=report, fault=fault)
                    touched.append(known)
                    continue
            self.ripe.add(rule.code)
            finding = self._finding(rule, report, at, fault, statements)
            findings.append(finding)
            touched.append(finding)
            if not alone:
                self._folded[key] = finding
            # Rules about single connections cannot use what other connections show.
            if finding.severity is Severity.ERROR and finding.packet is not None and rule.scope not in WIDE:
                self._violated(finding, report.sender or at.direction, at, findings)
        return touched

    def _violated(self, finding: Finding, blamed: Direction, at: RuleContext, findings: list[Finding]) -> None:
        """Record a violation and pass it to the rules that judge reactions."""
        assert finding.packet is not None
        violation = Violation(
            finding.rule,
            blamed,
            finding.packet,
            finding.frame,
            finding.timestamp_ns,
            finding.packet_type or "",
            at.history.party(blamed).position,
            finding.reason_code or 0,
            finding.confidence is Confidence.CERTAIN,
        )
        reported = at.history.reported
        reported.append(violation)
        if len(reported) > MAX_REPORTED:
            del reported[0]
        self._run(self._readers, at, findings, violation)

    def _lacks(self, rule: Rule, needs: int, at: RuleContext) -> bool:
        """Whether the capture is missing something that a finding needs (`rule.Needs`)."""
        if not needs:
            return False
        connection, history = at.connection, at.history
        if needs & _OPENING:
            if connection.connect_packet is None and history.connect_sent is None:
                return True
            if history.connack is None and (
                at.server.packets > history.server.counts[PacketType.AUTH] or at.server.gapped or history.disordered
            ):
                # The server sent more than is allowed before its CONNACK, so the CONNACK was lost or is still to come.
                return True
        if needs & _SESSION_BIRTH and not _knows_session(rule, at):
            return True
        if needs & _WHOLE and (history.disordered or not at.party.in_step()):
            # Repeated bytes, and bytes held after a gap, were sent earlier than they are seen: the order is unknown.
            return True
        if needs & _WHOLE_SENDER and (at.sender.gapped or at.party.misread >= 0):
            return True
        if needs & _WHOLE_RECEIVER and (at.receiver.gapped or at.other.misread >= 0):
            return True
        return bool(needs & _BOTH_DIRECTIONS) and not (at.client.packets and at.server.packets)

    def _finding(
        self, rule: Rule, report: Report, at: RuleContext, fault: FaultReport | None, statements: tuple[str, ...]
    ) -> Finding:
        event, connection = at.event, at.connection
        raw, number, kind, missing = b"", None, None, 0
        if report.overdue:
            pass
        elif isinstance(event, PacketEvent):
            raw, number, kind, missing = event.packet.raw, event.number, event.type, event.packet.missing
        elif isinstance(event, MalformedEvent):
            raw, number, kind, missing = event.malformed.raw, event.number, event.type, event.malformed.missing
        confidence = report.confidence or rule.confidence
        if connection.server in self.complete and confidence is Confidence.LIKELY and rule.scope in WIDE:
            # The capture has all clients, so no other client can be the explanation.
            proved = report.confidence is None and event.capture not in self.dropping
            confidence = Confidence.CERTAIN if proved else confidence
        if confidence is Confidence.CERTAIN and not self._is_certain(rule, at):
            confidence = Confidence.LIKELY
        if confidence is Confidence.LIKELY and rule.scope in WIDE and event.capture in self.dropping:
            confidence = Confidence.HEURISTIC  # the dropped frames may be another client's
        blamed = _blamed(report, at)
        offset, length = place_of(report, raw, at, fault)
        # Without __init__: there may be one for each packet.
        finding: Finding = _new_finding(Finding)
        finding.rule = rule.code
        finding.slug = rule.slug
        finding.severity = report.severity or rule.severity
        finding.confidence = confidence
        finding.message = report.message
        finding.statements = statements
        finding.version = at.version.text
        finding.capture = event.capture
        finding.frame = event.frame
        finding.timestamp_ns = event.timestamp_ns
        finding.connection = connection.number
        finding.client = connection.client
        finding.server = connection.server
        finding.client_identifier = connection.client_identifier
        finding.direction = None if blamed is None else str(blamed)
        finding.packet = number
        finding.packet_type = kind
        finding.field = report.field
        finding.offset = offset
        finding.length = length
        finding.reason_code = report.reason_code if report.reason_code is not None else rule.reason_code
        finding.topic = topic = report.topic if report.overdue else at.topic
        finding.related = report.related
        finding.raw = raw
        finding.missing = missing
        finding.sender = str(at.direction) if _is_located(report, event) else None
        finding.clients = 1
        finding.count = 1
        finding.places = ()
        finding.doubt = at.sender.doubt
        finding.withheld = self._withheld.bytes_of(connection)
        finding.fingerprint = fingerprint(rule.code, finding.direction, _known_client(at), kind, report.field, topic)
        return finding

    def _is_certain(self, rule: Rule, at: RuleContext) -> bool:
        """Whether the bytes can prove the sides, the version, and where packets begin."""
        connection = at.connection
        if not connection.roles_known or (rule.version_matters and not connection.version_known):
            return False
        if at.event.capture in self.dropping and rule.needs.value & _WHOLE:
            return False
        if self.clock_was_set and rule.is_timed and (at.history.clock_set or rule.scope in WIDE):
            return False
        # After lost bytes the start of a packet is guessed; the first bytes of another protocol are not.
        return (not at.sender.gapped and at.party.misread < 0) or bool(at.history.foreign)

    def _statements(self, rule: Rule, report: Report, at: RuleContext) -> tuple[str, ...]:
        """Broken statements, with their version."""
        version, identifiers = at.version, report.statements
        if identifiers is not None:
            return _keys(version, identifiers)
        event = at.event
        kind = event.type if isinstance(event, (PacketEvent, MalformedEvent)) and not report.overdue else None
        sender = "server" if _blamed(report, at) is S2C else "client"
        key = rule.code, version, sender, kind, report.field
        known = self._cited.get(key)
        if known is None:
            identifiers = tuple(rule.statements_for(version, sender, kind, report.field))
            if not any(rule.statements.get(specification) for specification in (version, *Standard)):
                # The rule checks only the reaction to a violation: that statement is better than nothing.
                identifiers = tuple(name for each in (version, *Standard) for name in rule.also.get(each, ()))
            if len(self._cited) >= MAX_CITED:
                self._cited.clear()
            known = self._cited[key] = _keys(version, identifiers)
        return known

    def _failed(self, rule: Rule | type[Model], at: RuleContext, error: BaseException) -> None:
        if self.strict:
            raise error
        is_first = rule.code not in self.failures
        self.failures[rule.code] += 1
        if is_first or len(self.internal_errors) < MAX_INTERNAL_ERRORS:
            event = at.event
            self.internal_errors.append(
                InternalError(
                    rule.code,
                    event.capture,
                    event.frame,
                    failure_text(rule if isinstance(rule, type) else type(rule), error),
                    "".join(traceback.format_exception(error)),
                )
            )


def _keys(version: Specification, identifiers: tuple[str, ...]) -> tuple[str, ...]:
    """Statements with their version or standard."""
    return tuple([f"{(Standard.of(identifier) or version).text} {identifier}" for identifier in identifiers])


def _knows_session(rule: Rule, at: RuleContext) -> bool:
    """Whether the capture shows the session from its start: on this connection or, for some rules, an earlier one."""
    connection = at.connection
    if connection.connect_packet is None and at.history.connect_sent is None:
        return False
    if connection.clean_start or connection.session_present is False:
        return True
    return SessionModel in rule.models and at.model(SessionModel).has_all_filters(at)


def _unselected(rules: list[Rule]) -> Iterator[Rule]:
    """Unselected rules that a selected rule needs findings of."""
    if any(rule.reads_findings for rule in rules):
        known = {rule.code for rule in rules}
        for code, rule in select().items():
            if code not in known and rule.scope not in WIDE and not rule.reads_findings:
                yield usual_rule(rule)


def _is_located(report: Report, event: LintEvent) -> bool:
    """Whether a report is about a packet or bytes of one side."""
    return not (report.overdue or isinstance(event, (ConnectionOpened, ConnectionDue, ConnectionClosed)))


def _blamed(report: Report, at: RuleContext) -> Direction | None:
    return report.sender or (at.direction if _is_located(report, at.event) else None)


def _again(
    finding: Finding,
    field: str,
    at: RuleContext,
    raw: bytes,
    *,
    report: Report | None = None,
    fault: FaultReport | None = None,
) -> None:
    """Extend a finding by one more position."""
    finding.count += 1
    if not finding.places:
        finding.places = (FieldPlace(finding.field, finding.offset, finding.length),)
    if len(finding.places) < MAX_PLACES:
        if report is not None:
            offset, length = place_of(report, raw, at, fault)
        else:
            assert fault is not None
            offset, length = place_of_fault(at.spans, raw, fault)
        finding.places = (*finding.places, FieldPlace(field, offset, length))


def _known_client(at: RuleContext) -> str | None:
    """The Client Identifier for fingerprints; an identifier assigned by the server changes, so it is left out."""
    connect = at.history.connect
    if connect is not None and not connect.client_identifier:
        return "(assigned)"
    return at.connection.client_identifier


MAX_WITHHELD = 10_000
"""Maximum number of open connections with stored bytes of damaged packets."""
MAX_RUNS = 16
"""Maximum number of byte ranges per connection; the first and the last ones are kept."""
MAX_BYTES = 4_096
"""Maximum number of bytes per range: rules do not quote longer texts."""
LEAST = 4
"""Minimum length of a secret: shorter ones could not be distinguished from other text."""


class WithheldBytes:
    """The hidden bytes of damaged packets, by the identity of their connection while it is open."""

    def __init__(self) -> None:
        self._runs: dict[int, tuple[bytes, ...]] = {}

    def note(self, event: MalformedEvent) -> None:
        """Store the hidden bytes of a damaged packet."""
        connection, raw = event.connection, event.malformed.raw
        if not (holds_secrets(raw) or event.malformed.complete):
            return  # nothing from it is remembered
        spans = hidden_in_damaged(raw, connection.version, connection.side(event.direction).doubt)
        runs = [raw[start : min(end, start + MAX_BYTES)] for start, end in spans if end - start >= LEAST]
        if not runs:
            return
        key = id(connection)
        if key not in self._runs and len(self._runs) >= MAX_WITHHELD:
            del self._runs[next(iter(self._runs))]
        known = [*self._runs.get(key, ()), *runs]
        if len(known) > MAX_RUNS:
            known = [*known[: MAX_RUNS // 2], *known[-MAX_RUNS // 2 :]]
        self._runs[key] = tuple(known)

    def bytes_of(self, connection: Connection) -> tuple[bytes, ...]:
        return self._runs.get(id(connection), ())

    def forget(self, connection: Connection) -> None:
        self._runs.pop(id(connection), None)
