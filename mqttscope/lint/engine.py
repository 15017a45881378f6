"""Runs rules over events: the state before a packet, dispatch by packet type, findings in the order of the capture.

`Linter` takes the events of `dissect` one by one, each before the next is taken from the generator: then the connection
is in the state before the packet, as rules expect.  Rules of every scope run here; what they remember belongs to the
key of their scope, so that an engine that sees all events of a key gives the same findings as one that sees everything.

The engine completes what rules report: `place_of` locates the field in the packet.

Rules remember texts of packets and quote them in findings about others: the Authentication Method of a CONNECT, a
topic.  Where the layout of a packet is broken, such a text may hold a password.  The messages of rules are therefore
not trusted one by one: `Withheld` keeps the secret bytes of the damaged packets of each connection, and every message
is compared with them before it is shown (`redact.findings`).
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
from mqttscope.lint.context import WIDE, BothSides, Kept, Looked, Memories, RuleContext, connection_key, scope_key
from mqttscope.lint.dispatch import Asked, Check, Group, Planned, checks_named, plans_of
from mqttscope.lint.finding import MAX_PLACES, Confidence, Finding, Place, Report, Severity, fingerprint
from mqttscope.lint.model import Model
from mqttscope.lint.quality import Quality, QualityLedger
from mqttscope.lint.rule import Findings, Needs, Rule, reports_of, told_failure
from mqttscope.lint.session_model import SessionModel
from mqttscope.lint.signs import signs_of
from mqttscope.mqtt.codec import SpanIndex
from mqttscope.mqtt.constants import Direction, MalformedReason, PacketType
from mqttscope.mqtt.declare import ControlPacket, FaultReport, Malformed
from mqttscope.mqtt.foreign import MAX_SIGNATURE, PREFACES, foreign_protocol
from mqttscope.net.frame import CaptureDrops
from mqttscope.secrets.packets import hidden_in_damaged, holds_secrets
from mqttscope.session.connection import C2S, S2C, Connection
from mqttscope.session.history import NEVER_NS, History, Violation

__all__ = ["InternalError", "Linter", "scope_key"]

_INDEX = re.compile(r"\[\d+\]")
_new_finding: Final = Finding.__new__
_OPENING: Final[int] = Needs.OPENING.value
_SESSION_BIRTH: Final[int] = Needs.SESSION_BIRTH.value
_WHOLE_SENDER: Final[int] = Needs.WHOLE_SENDER.value
_WHOLE_RECEIVER: Final[int] = Needs.WHOLE_RECEIVER.value
_WHOLE: Final[int] = Needs.WHOLE.value
_BOTH_DIRECTIONS: Final[int] = Needs.BOTH_DIRECTIONS.value
"""As plain numbers, which are compared more quickly."""
MAX_CITED = 10_000
"""Kinds of findings of which the statements are remembered."""
MAX_REPORTED = 16
"""Violations of a connection that later rules can look back at."""
MAX_INTERNAL_ERRORS = 100
"""Internal errors that are kept with their text, beside the first one of each rule."""


@dataclass(slots=True)
class InternalError:
    """A rule failed: a bug of this program or of a rule made elsewhere, not of the traffic."""

    rule: str
    capture: str
    frame: int
    error: str
    """Type and text of the exception, and the line of a rule that is made elsewhere."""
    trace: str


class Linter:
    """Rules at work.  Feed it events, then look at ``quality`` and ``internal_errors``."""

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
        """``complete``: servers (``10.0.0.2:1883``) whose every connection the captures hold, as the user asserts.

        ``thorough``: ask rules about every packet, also where nothing can come of it, for tests.
        ``together``: the captures are those of several taps, read as one.
        ``end_ns`` returns the time of the latest segment of a capture, as far as it was read.
        """
        self.rules = sorted(rules, key=lambda rule: rule.code)
        self._silent = {rule.code: rule for rule in _unselected(self.rules)}
        """Rules that run only for those which judge the reaction to a violation; their own findings are dropped."""
        running = tuple(sorted((*self.rules, *self._silent.values()), key=lambda rule: rule.code))
        self._running = running
        self._made_elsewhere = frozenset(rule.code for rule in running if not rule.is_ours())
        self.complete = complete
        self.met: set[str] = set()
        """Those of them that connections were seen of."""
        self.strict = strict
        """Let exceptions of rules through, for tests."""
        self.ledger = QualityLedger()
        """What each capture lacks."""
        self.end_ns = end_ns
        self.internal_errors: list[InternalError] = []
        self.failures: Counter[str] = Counter()
        self.withheld: Counter[str] = Counter()
        """Findings that the capture is not good enough for, by rule."""
        self.awaited: Counter[str] = Counter()
        """Connections that ended before the time-out of a rule, while it waited for a packet of them, by rule."""
        self.ripe: set[str] = set()
        """Rules that have found something, or whose time-out is no longer than a connection."""
        self.dropping: set[str] = set()
        """Captures that report dropped frames."""
        self.clock_was_set = False
        """Durations may include a step of the clock of a capture."""
        self.memories = Memories()
        self.memories.together = together
        self._withheld = Withheld()
        self._cited: dict[tuple[Any, ...], tuple[str, ...]] = {}
        """Statements with their version that a rule names for findings alike."""
        self._folded: dict[tuple[object, ...], Finding] = {}
        """Findings of the packet at hand, by what those have in common that are one."""
        self.models = sorted({model for rule in self.rules for model in rule.models}, key=attrgetter("code"))
        """What rules read beyond the connection."""
        self._told: dict[str, tuple[type[Model], ...]] = {
            what: tuple(model for model in self.models if getattr(model, what) is not getattr(Model, what))
            for what in ("opened", "gap", "unparsed", "damaged", "due", "closed")
        }
        """Models that mind something else than packets: for others no state is made where there is none yet."""
        self._plans = plans_of(running, tuple(self.models), thorough=thorough)
        self._faults: dict[MalformedReason, Rule] = {reason: rule for rule in running for reason in rule.malformed}
        self._openings = checks_named(running, "check_opened")
        self._gaps = checks_named(running, "check_gap")
        self._dues = {rule.code: rule for rule, _ in checks_named(running, "check_due")}
        self._closes = checks_named(running, "check_close")
        self._leftovers = checks_named(running, "check_unparsed")
        self._damaged = checks_named(running, "check_damaged")
        self._foreign = checks_named(running, "check_foreign")
        self._readers = checks_named(running, "check_violation")
        self._awaiting = checks_named(tuple(rule for rule in self.rules if rule.is_ours()), "awaits")

    def failures_told(self) -> list[str]:
        """How often rules failed: those that come with this program, and those that are made elsewhere."""
        rules: list[Rule | type[Model]] = [*self._running, *self.models]
        own = {one.code for one in rules if not one.__module__.startswith(__package__)}
        told = [
            f"{code} failed {times:,} times: the findings are not complete"
            for code, times in sorted(self.failures.items())
            if code in own
        ]
        ours = sum(times for code, times in self.failures.items() if code not in own)
        if ours:
            told.append(f"rules failed {ours:,} times: this is a bug in mqttscope, and the findings are not complete")
        return told

    @property
    def pending(self) -> Counter[str]:
        """Rules that judged nothing although they waited, since no connection lasts as long as their time-outs."""
        return Counter({code: number for code, number in self.awaited.items() if number and code not in self.ripe})

    @property
    def quality(self) -> Quality:
        """How good all captures together are, as far as they were read."""
        return self.ledger.total()

    def crowded_servers(self) -> dict[str, list[str]]:
        """Servers with more wills than are followed, and the codes of the rules that may miss findings about them."""
        codes: dict[str, set[str]] = {}
        for key, memories in self.memories.kept.items():
            full = {code for code, memory in memories.items() if isinstance(memory, Model) and not memory.has_room}
            if full:
                rules = (rule for rule in self.rules if full & {rule.code, *(model.code for model in rule.models)})
                codes.setdefault(str(key[0]), set()).update(rule.code for rule in rules)
        return {server: sorted(rules) for server, rules in sorted(codes.items())}

    def limits_told(self) -> list[str]:
        """Sentences about what was more than can be followed, so that findings may be missing."""
        limits = [
            f"limit: {server} has more wills than are followed: {', '.join(codes)} may miss findings"
            for server, codes in self.crowded_servers().items()
        ]
        if self.memories.forgotten:
            limits.append(f"limit: the linter forgot sessions to make room: {self.memories.forgotten:,}")
        return limits

    def adopt(self, connection: Connection) -> History:
        """Know a connection that another engine has begun with; returns its history."""
        history = connection.history = connection.history or History()
        self.memories.open[connection_key(connection)] = connection
        return history

    def remembered(self) -> Kept:
        """What the rules of wide scopes remember, as far as that is anything."""
        fresh: dict[str, Any] = {rule.code: rule.Memory() for rule in self.rules if rule.Memory is not None}
        fresh |= {model.code: model() for model in self.models}
        kept: Kept = {}
        for key, memories in self.memories.kept.items():
            told = {code: memory for code, memory in memories.items() if memory != fresh[code]}
            if told:
                kept[key] = told
        return kept

    def note_clock_step(self) -> None:
        """The clock of a capture was set: durations of the connections that are open may include the step."""
        self.clock_was_set = True
        for connection in self.memories.open.values():
            if connection.history is not None:
                connection.history.clock_set = True

    def feed(self, event: Event) -> list[Finding]:
        """Findings of one event, in the order of their codes, so that it does not matter which rules run together."""
        if type(event) is PacketEvent:
            findings = self._packet(event)
        elif isinstance(event, MalformedEvent):
            findings = self._malformed(event)
        else:
            findings = self._other(event)
        if findings:
            self._folded.clear()
            if self._silent:
                findings = [one for one in findings if one.rule not in self._silent]
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
                # Whoever dissects remembers one time alone, and that has come.
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
        return findings

    def _malformed(self, event: MalformedEvent) -> list[Finding]:
        findings: list[Finding] = []
        connection, direction, found = event.connection, event.direction, event.malformed
        at = self._move(event, connection, direction, event.topic)
        if self._is_foreign(found.raw, at, findings):
            return findings
        self._withheld.note(event)
        self._due(at, findings)
        for rule, faults in self._grouped(found, at):
            for finding in self._faulty(rule, at, findings, faults[0]):
                for fault in faults[1:]:
                    _again(finding, fault.field, at, found.raw, fault=fault)
        self._run(self._damaged, at, findings, found)
        self._follow("damaged", found, at)
        if found.packet is not None and found.complete:
            self._judge(found.packet, at, findings)
            at.history.apply(
                found.packet, at.version, at.sender, at.receiver, at.from_client,
                event.number, event.frame, event.timestamp_ns, event.topic,
            )  # fmt: skip
        at.history.malformed(found, direction, event.number, event.frame, event.timestamp_ns)
        return findings

    def _grouped(self, found: Malformed, at: RuleContext) -> Iterator[tuple[Rule, list[FaultReport]]]:
        """The faults that have a rule, those of one list together; of each field the first one."""
        groups: dict[tuple[str, str], tuple[Rule, dict[str, FaultReport]]] = {}
        for fault in found.faults:
            rule = self._faults.get(fault.reason)
            if rule is not None and at.version in rule.versions:
                group = groups.setdefault((rule.code, _INDEX.sub("", fault.field)), (rule, {}))
                group[1].setdefault(fault.field, fault)
        for rule, faults in groups.values():
            yield rule, list(faults.values())

    def _is_foreign(self, raw: bytes, at: RuleContext, findings: list[Finding]) -> bool:
        """Whether the connection speaks another protocol, or these bytes stand before its MQTT: nothing is judged."""
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
                # Whether the client expects a broker, only its own bytes tell.
                history.greeting = raw[:MAX_SIGNATURE]
                return True
        self._run(self._foreign, at, findings, protocol)
        return True

    def _after_greeting(self, at: RuleContext, findings: list[Finding]) -> None:
        """Report the other protocol in which a server greeted its client, after the client did something."""
        self._run(self._foreign, at, findings, at.history.foreign)
        at.history.greeting = b""

    def _move(
        self, event: Looked, connection: Connection, direction: Direction, topic: str | None = None
    ) -> RuleContext:
        history = connection.history
        looked_at: BothSides | None = None if history is None else history.looked_at
        if looked_at is None or looked_at.memories is not self.memories:
            looked_at = self._look_at(connection)
        at = looked_at.client if direction is C2S else looked_at.server
        at.move(event, topic)
        return at

    def _look_at(self, connection: Connection) -> BothSides:
        """Begin with a connection."""
        history = connection.history = connection.history or History()
        looked_at = history.looked_at = BothSides(self.memories, connection, history)
        self.memories.opened(looked_at.client)
        if connection.server in self.complete:
            self.met.add(connection.server)
        return looked_at

    def _judge(self, packet: ControlPacket, at: RuleContext, findings: list[Finding]) -> None:
        """Ask all rules about one packet, then move the models on."""
        planned: Planned | None = at.planned
        if planned is None or at.planned_version is not at.version or at.planned_settled is not at.history.settled:
            planned = at.planned = self._plans.of(at)
            at.planned_version, at.planned_settled = at.version, at.history.settled
        memories = self.memories
        plan = planned.get(type(packet)) or self._plans.plan(type(packet), at)
        asked: Asked = plan.asked(signs_of(packet, at))
        history = at.history
        for one in asked.questions:
            if one.waiting and history.is_asked(one.waiting):
                continue
            if one.condition is None or one.condition(packet):
                self._ask(one.rule, one.check, packet, at, findings)
        for about in asked.abouts:
            known = memories.of_broker(about.code, about.model, at) if about.wide else at.model(about.model)
            for table in about.tables:
                if at.topic in table(known):
                    for one in about.questions:
                        if one.condition is None or one.condition(packet):
                            self._ask(one.rule, one.check, packet, at, findings)
                    break
        for follower in asked.followers:
            if follower.condition is None or follower.condition(packet):
                model = follower.model
                try:
                    state: Model = memories.of_broker(follower.code, model, at) if follower.wide else at.model(model)
                    state.follow(packet, at)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # SystemExit too: a model does not end the run
                    self._failed(model, at, error)

    def _ask(self, rule: Rule, check: Check, subject: Any, at: RuleContext, findings: list[Finding]) -> None:
        try:
            found = check(subject, at)
            if found is not None:
                self._take(rule, found, at, findings, None)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: a rule does not end the run
            self._failed(rule, at, error)

    def _run(self, checks: Group, at: RuleContext, findings: list[Finding], subject: Any) -> None:
        version = at.version
        for rule, check in checks:
            if version in rule.versions:
                self._ask(rule, check, subject, at, findings)

    def _due(self, at: RuleContext, findings: list[Finding], *, passing: bool = False) -> None:
        """Ask the rules whose time has come, before the event itself is judged."""
        for code in at.history.due(at.timestamp_ns, passing=passing):
            rule = self._dues.get(code)
            if rule is not None:  # others run elsewhere
                self._ask(rule, rule.check_due, at.connection, at, findings)
            for model in self._told["due"]:
                if model.code == code:
                    self._moved_on(model, "due", at.connection, at)

    def _note_awaited(self, at: RuleContext) -> None:
        """Take note of the rules that still wait at the end of a connection."""
        lasted_ns = at.timestamp_ns - at.connection.opened_ns
        for rule, awaits in self._awaiting:
            if rule.code in self.ripe:
                continue
            if lasted_ns >= rule.nanoseconds("timeout"):
                self.ripe.add(rule.code)
            elif at.version in rule.versions:
                try:
                    self.awaited[rule.code] += bool(awaits(at) and not self._lacks(rule, rule.needs.value, at))
                except Exception as error:
                    self._failed(rule, at, error)

    def _follow(self, what: str, subject: Any, at: RuleContext) -> None:
        """Move models on by something else than a packet."""
        for model in self._told[what]:
            self._moved_on(model, what, subject, at)

    def _moved_on(self, model: type[Model], what: str, subject: Any, at: RuleContext) -> None:
        try:
            getattr(at.model(model), what)(subject, at)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._failed(model, at, error)

    def _faulty(self, rule: Rule, at: RuleContext, findings: list[Finding], fault: FaultReport) -> list[Finding]:
        """The findings that came of a fault of the layout, and those that now stand for more."""
        try:
            found = rule.check_malformed(fault, at)
            return [] if found is None else self._take(rule, found, at, findings, fault)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._failed(rule, at, error)
            return []

    def _take(
        self, rule: Rule, found: Findings, at: RuleContext, findings: list[Finding], fault: FaultReport | None
    ) -> list[Finding]:
        """Make findings of reports: those of one rule about one packet that count alike are one finding."""
        touched: list[Finding] = []
        event = at.event
        raw = event.packet.raw if isinstance(event, PacketEvent) else b""
        if isinstance(event, MalformedEvent):
            raw = event.malformed.raw
        withheld, needs = False, rule.needs.value
        if rule.code in self._made_elsewhere:
            found = reports_of(rule, found)
        for report in (found,) if isinstance(found, Report) else found or ():
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
            # What other connections show is not known where rules look at one alone.
            if finding.severity is Severity.ERROR and finding.packet is not None and rule.scope not in WIDE:
                self._violated(finding, report.sender or at.direction, at, findings)
        return touched

    def _violated(self, finding: Finding, blamed: Direction, at: RuleContext, findings: list[Finding]) -> None:
        """Take note of a violation, and let those know that judge what becomes of it."""
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
        """Whether the capture lacks something of what a finding needs (`rule.Needs`)."""
        if not needs:
            return False
        connection, history = at.connection, at.history
        if needs & _OPENING:
            if connection.connect_packet is None and history.connect_sent is None:
                return True
            if history.connack is None and (
                at.server.packets > history.server.counts[PacketType.AUTH] or at.server.gapped or history.disordered
            ):
                # The server has said more than it may before its CONNACK, so that was lost or is still to come.
                return True
        if needs & _SESSION_BIRTH and not _knows_session(rule, at):
            return True
        if needs & _WHOLE and (history.disordered or not at.party.in_step()):
            # Bytes that came again or waited after a hole were sent before they are seen: who knows what is seen
            # between.
            return True
        if (needs & _WHOLE_SENDER and at.sender.gapped) or (needs & _WHOLE_RECEIVER and at.receiver.gapped):
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
            # Nobody whom the capture does not have can have done what would explain it.
            proved = report.confidence is None and event.capture not in self.dropping
            confidence = Confidence.CERTAIN if proved else confidence
        if confidence is Confidence.CERTAIN and not self._sure(rule, at):
            confidence = Confidence.LIKELY
        if confidence is Confidence.LIKELY and rule.scope in WIDE and event.capture in self.dropping:
            confidence = Confidence.HEURISTIC  # what was dropped may be another client's
        blamed = _blamed(report, at)
        offset, length = place_of(report, raw, at, fault)
        # Without __init__: there may be one for each packet.
        made: Finding = _new_finding(Finding)
        made.rule = rule.code
        made.slug = rule.slug
        made.severity = report.severity or rule.severity
        made.confidence = confidence
        made.message = report.message
        made.statements = statements
        made.version = at.version.text
        made.capture = event.capture
        made.frame = event.frame
        made.timestamp_ns = event.timestamp_ns
        made.connection = connection.number
        made.client = connection.client
        made.server = connection.server
        made.client_identifier = connection.client_identifier
        made.direction = None if blamed is None else str(blamed)
        made.packet = number
        made.packet_type = kind
        made.field = report.field
        made.offset = offset
        made.length = length
        made.reason_code = report.reason_code if report.reason_code is not None else rule.reason_code
        made.topic = report.topic if report.overdue else at.topic
        made.related = report.related
        made.raw = raw
        made.missing = missing
        made.sender = str(at.direction) if _is_located(report, event) else None
        made.clients = 1
        made.count = 1
        made.places = ()
        made.doubt = at.sender.doubt
        made.withheld = self._withheld.of(connection)
        made.fingerprint = fingerprint(rule.code, made.direction, _known_client(at), kind, report.field, made.topic)
        return made

    def _sure(self, rule: Rule, at: RuleContext) -> bool:
        """Whether the bytes can prove anything: who is who, which version, where packets begin."""
        connection = at.connection
        if not connection.roles_known or (rule.version_matters and not connection.version_known):
            return False
        if at.event.capture in self.dropping and rule.needs.value & _WHOLE:
            return False
        if self.clock_was_set and rule.is_timed and (at.history.clock_set or rule.scope in WIDE):
            return False
        # After lost bytes packets are found again by their looks; the first bytes of another protocol are no such.
        return not at.sender.gapped or bool(at.history.foreign)

    def _statements(self, rule: Rule, report: Report, at: RuleContext) -> tuple[str, ...]:
        """Statements that are broken, with their version."""
        version, found = at.version, report.statements
        if found is not None:
            return tuple([f"{version.text} {identifier}" for identifier in found])
        event = at.event
        kind = event.type if isinstance(event, (PacketEvent, MalformedEvent)) and not report.overdue else None
        sender = "server" if _blamed(report, at) is S2C else "client"
        key = rule.code, version, sender, kind, report.field
        known = self._cited.get(key)
        if known is None:
            found = tuple(rule.statements_for(version, sender, kind, report.field))
            if not rule.statements.get(version):
                # The rule sees only what one has to do about a violation: that sentence is better than none.
                found = rule.also.get(version, ())
            if len(self._cited) >= MAX_CITED:
                self._cited.clear()
            known = self._cited[key] = tuple([f"{version.text} {identifier}" for identifier in found])
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
                    told_failure(rule if isinstance(rule, type) else type(rule), error),
                    "".join(traceback.format_exception(error)),
                )
            )


def _knows_session(rule: Rule, at: RuleContext) -> bool:
    """Whether the capture shows a session from its beginning, on this connection or, for the rule, on earlier ones."""
    connection = at.connection
    if connection.connect_packet is None and at.history.connect_sent is None:
        return False
    if connection.clean_start or connection.session_present is False:
        return True
    return SessionModel in rule.models and at.model(SessionModel).has_all_filters(at)


def _unselected(rules: list[Rule]) -> Iterator[Rule]:
    """Rules that are not selected but whose findings selected rules need."""
    if any(rule.reads_findings for rule in rules):
        known = {rule.code for rule in rules}
        for code, rule in select().items():
            if code not in known and rule.scope not in WIDE and not rule.reads_findings:
                yield usual_rule(rule)


def _is_located(report: Report, event: Looked) -> bool:
    """Whether a report is about something that one side sent here."""
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
    """Let a finding stand for one place more."""
    finding.count += 1
    if not finding.places:
        finding.places = (Place(finding.field, finding.offset, finding.length),)
    if len(finding.places) < MAX_PLACES:
        if report is not None:
            offset, length = place_of(report, raw, at, fault)
        else:
            assert fault is not None
            offset, length = place_of_fault(at.spans, raw, fault)
        finding.places = (*finding.places, Place(field, offset, length))


def _known_client(at: RuleContext) -> str | None:
    """The Client Identifier for fingerprints, which one that the server assigns does not enter: it changes."""
    connect = at.history.connect
    if connect is not None and not connect.client_identifier:
        return "(assigned)"
    return at.connection.client_identifier


def place_of(report: Report, raw: bytes, at: RuleContext, fault: FaultReport | None) -> tuple[int | None, int | None]:
    """Offset and length in bytes of what a report blames; ``None`` where it is no part of a packet."""
    if not raw:
        return None, None
    if report.span is not None:
        return report.span
    if fault is not None:
        return place_of_fault(at.spans, raw, fault)
    event = at.event
    if not report.field:
        return 0, len(raw)
    packet = event.packet if isinstance(event, PacketEvent) else None
    if isinstance(event, MalformedEvent):
        packet = event.malformed.packet
    if packet is not None:
        span = at.spans.of(packet, report.field)
        if span is not None:
            return span.start, span.end - span.start
    return 0, len(raw)


def place_of_fault(spans: SpanIndex, raw: bytes, fault: FaultReport) -> tuple[int, int]:
    """The field that holds the fault; where a byte is missing, the place after the last one."""
    start = min(fault.offset, len(raw))
    for span in spans.spans:
        if span.start <= start < span.end and (span.field == fault.field or not fault.field):
            return span.start, span.end - span.start
    return start, min(1, len(raw) - start)


MAX_WITHHELD = 10_000
"""Open connections with damaged packets of which this is kept."""
MAX_RUNS = 16
"""Ranges of bytes of one connection; the first and the last ones are kept."""
MAX_BYTES = 4_096
"""Bytes of a range: rules do not quote more of a text."""
LEAST = 4
"""Shorter secrets could not be distinguished from other text."""


class Withheld:
    """The hidden bytes of damaged packets, by the identity of their connection while it is open."""

    def __init__(self) -> None:
        self._runs: dict[int, tuple[bytes, ...]] = {}

    def note(self, event: MalformedEvent) -> None:
        """Take note of what is hidden in a damaged packet."""
        connection, raw = event.connection, event.malformed.raw
        if not (holds_secrets(raw) or event.malformed.complete):
            return  # nothing of it is remembered
        found = hidden_in_damaged(raw, connection.version, connection.side(event.direction).doubt)
        runs = [raw[start : min(end, start + MAX_BYTES)] for start, end in found if end - start >= LEAST]
        if not runs:
            return
        key = id(connection)
        if key not in self._runs and len(self._runs) >= MAX_WITHHELD:
            del self._runs[next(iter(self._runs))]
        known = [*self._runs.get(key, ()), *runs]
        if len(known) > MAX_RUNS:
            known = [*known[: MAX_RUNS // 2], *known[-MAX_RUNS // 2 :]]
        self._runs[key] = tuple(known)

    def of(self, connection: Connection) -> tuple[bytes, ...]:
        return self._runs.get(id(connection), ())

    def forget(self, connection: Connection) -> None:
        self._runs.pop(id(connection), None)
