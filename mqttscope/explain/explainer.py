"""Puts events together: stories of connections while they last, and explanations some time after their ends."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from mqttscope import events
from mqttscope.budget import Budget
from mqttscope.explain import describe
from mqttscope.explain.assigned_identifiers import AssignedIdentifiers
from mqttscope.explain.book import Book
from mqttscope.explain.causes import (
    encrypted,
    generations,
    handshake,
    hangs,
    lifetimes,
    listener,
    mqtt,
    path,
    reason_codes,
    tcp,
    timing,
    unread,
)
from mqttscope.explain.causes.case import MEANING, RETURN_NS, SECOND, Case, in_frames, replaced_state, returned, twin
from mqttscope.explain.causes.declarations import client_spoke_last, possible
from mqttscope.explain.lookups import unresolved
from mqttscope.explain.lost_messages import LostMessages
from mqttscope.explain.model import PLAIN, QUIET, Candidate, Cause, Certainty, Evidence, Explanation, Moment, Totals
from mqttscope.explain.segments import SegmentWatch
from mqttscope.explain.story import MAX_REREAD_BYTES, ODD_TEXT, Story
from mqttscope.lint.finding import Finding, Severity
from mqttscope.mqtt import packets
from mqttscope.mqtt.wire import counted
from mqttscope.secrets.findings import HidingOptions, conceal
from mqttscope.session.connection import C2S, Connection, host_of

if TYPE_CHECKING:
    from mqttscope.explain.broker_log import BrokerLog
    from mqttscope.lint.rule import Rule

MAX_WAITING = 5_000
"""Maximum number of ended connections that wait for later evidence; beyond it the oldest is explained at once."""
WITNESS_NS = 1_800 * SECOND
"""Maximum time until the next packet of an open connection may disprove a stop of its server: one and a half times
the Keep Alive of 20 minutes that services allow."""
AGAIN_NS = 10 * SECOND
"""Time between two looks at an end that waits for a witness."""
EARLY_NS = 2 * SECOND
"""Time from the end of a connection to its first explanation in live traffic."""
MAX_COMPETING = 4
"""Maximum number of causes of one end that are shown."""

Detector = Callable[[Case], Iterator[Candidate]]
DETECTORS: tuple[Detector, ...] = (
    unread.turned_away, tcp.without_packets,
    listener.answered_in_another_protocol, listener.refused_upgrade, listener.to_a_plain_port, listener.other_protocol,
    listener.broken_websocket, listener.unanswered_web_ping, listener.plain_to_a_tls_port, listener.proxy_header,
    listener.health_check, reason_codes.normal, reason_codes.server_disconnect, listener.websocket_close,
    reason_codes.connack_refusal, reason_codes.no_connack, reason_codes.other_version, reason_codes.authentication_cut,
    handshake.tls_alert, handshake.handshake_cut, handshake.without_protocol,
    timing.keep_alive, timing.closed_unread, timing.no_ping_response, timing.closed_on_own_ping,
    timing.unanswered_request, lifetimes.token_expired, mqtt.taken_over,
    mqtt.wrong_length, mqtt.stray_bytes, mqtt.unreadable_bytes, mqtt.violation,
    mqtt.not_authorized, mqtt.beyond_profile, mqtt.closed_on_packet,
    mqtt.server_restart, hangs.hung, generations.part_replaced,
    timing.idle_timeout, timing.client_timeout, timing.without_keep_alive, path.half_open, tcp.closed_on_delivery,
    tcp.forgotten, tcp.device_restart, encrypted.of_encrypted, tcp.middlebox, tcp.plain_end,
)  # fmt: skip
"""All that look at an end."""
OWN: tuple[Detector, ...] = (
    tcp.without_packets,
    listener.broken_websocket,
    path.half_open,
    timing.keep_alive,
    mqtt.taken_over,
    mqtt.wrong_length,
    mqtt.violation,
)
"""Detectors that look at one connection alone."""
SPECIAL: tuple[Detector, ...] = (
    mqtt.not_authorized,
    mqtt.beyond_profile,
    mqtt.closed_on_packet,
)
"""Detectors that look at the last request of one connection, which a server that stops may have received by chance."""
REPEATED: tuple[Detector, ...] = (
    timing.idle_timeout,
    timing.client_timeout,
    timing.without_keep_alive,
    lifetimes.fixed_age,
    lifetimes.own_timer,
    tcp.forgotten,
)
"""Detectors that look for ends like this one, which may come later."""
SAID = 100
"""Minimum weight of a cause that a packet names: no other cause competes with it."""
STRONG = 60
"""Minimum weight of a hypothesis that precedes the bare fact."""
PLAIN_WEIGHT = 20
ANSWERS = frozenset((packets.Puback, packets.Pubrec, packets.Suback, packets.Pingresp))
"""Packets of a server that prove what it bears."""
REMARKED = ("OPS331",)
"""Rules of practice about ends that need no explanation one by one, and that become remarks."""
HEARD = frozenset((*REMARKED, *ODD_TEXT))
"""Rules with findings that are used although they are not errors."""
MAX_REMARKS = 8
"""Maximum number of remarks of one run."""
PRECEDED = frozenset(
    (
        Cause.BAD_CREDENTIALS, Cause.KEEP_ALIVE, Cause.NOT_AUTHORIZED, Cause.NOT_SUPPORTED, Cause.NO_CONNACK,
        Cause.PACKET_TOO_LARGE, Cause.PROTOCOL_VIOLATION, Cause.RECEIVE_MAXIMUM, Cause.TAKEN_OVER, Cause.TOPIC_ALIAS,
        Cause.WRONG_LISTENER, Cause.WRONG_PATH,
    )
)  # fmt: skip
"""Causes with evidence that precedes the end.  Other likely causes depend on what happens later: whether the client or
other clients come back, or whether more connections end the same way."""
NEVER = QUIET | {Cause.CLIENT_DISCONNECT}


def is_used(rule: type[Rule]) -> bool:
    """Whether the findings of a rule change an explanation: errors, and the findings of a few other rules."""
    return rule.worst() is Severity.ERROR or rule.code in HEARD


class Explainer:
    """Feed it each event with the linter's findings before the next event is taken; it yields explanations.

    ``watch`` has to see the segments before the dissector does.  ``is_live``: do not wait for hours whether further
    connections end after the same silence or at the same age; the third such end is recognised by those before it.
    """

    def __init__(
        self, watch: SegmentWatch | None = None, log: BrokerLog | None = None, *, is_live: bool = False
    ) -> None:
        self.is_live = is_live
        self.watch = watch or SegmentWatch()
        self.log = log
        """The log of the broker, which confirms or contradicts causes."""
        self.book = Book()
        self.totals = Totals()
        self.lost = LostMessages()
        self.assigned = AssignedIdentifiers()
        self.stories: dict[int, Story] = {}
        """Open connections by number."""
        self.reread = Budget(MAX_REREAD_BYTES)
        """Bytes of packets of open connections and of ends that are not explained yet."""
        self._still_open: set[str] = set()
        """Hosts of clients with connections that are open at the end."""
        self._waiting: OrderedDict[int, Story] = OrderedDict()
        """Ended ones."""
        self._pending: deque[tuple[int, Case, Explanation]] = deque()
        """Explanations in the order of the ends, each with the time until which further ends may repeat its silence."""
        self._ended: deque[tuple[int, int]] = deque(maxlen=MAX_WAITING)
        """Times and numbers of the latest ended connections, for `early`."""
        self._now_ns = 0
        self._again_ns = 0
        """When the first of them, which waits for a witness, is looked at again."""

    def feed(self, event: events.Event, findings: Iterable[Finding] = ()) -> list[Explanation]:
        """Take one event; returns the explanations that are complete."""
        kind = type(event)
        if kind is events.PacketEvent:
            self._packet(event, findings)  # type: ignore[arg-type]
        elif kind is events.ConnectionOpened:
            self._opened(event.connection)  # type: ignore[union-attr]
            self._findings(findings)
        elif isinstance(event, events.MalformedEvent | events.UnparsedEvent):
            self._story(event.connection).damaged(event)
            self._hidden(event)
            self._findings(findings)
            if isinstance(event, events.MalformedEvent) and event.malformed.packet is not None:
                self._identified(event, event.malformed.packet)
        elif isinstance(event, events.GapEvent):
            self._story(event.connection).gap(event.direction)
            self._hidden(event)
            self._findings(findings)
        elif isinstance(event, events.ConnectionClosed):
            self._findings(findings)
            self._closed(event)
        elif isinstance(event, events.ClockStep):
            for story in self.stories.values():
                story.clock_step(event)
        else:
            self._findings(findings)
        now = getattr(event, "timestamp_ns", None)
        return self.pass_time(self._now_ns if now is None else now)

    def pass_time(self, now_ns: int) -> list[Explanation]:
        """Take the time, also of a silent interface; returns the explanations that are complete."""
        self._now_ns = max(self._now_ns, now_ns)
        return list(self._due()) if self._waiting or self._pending else []

    @property
    def undecided(self) -> int:
        """Number of ended connections that wait for later evidence."""
        return len(self._waiting) + len(self._pending)

    def early(self) -> Iterator[tuple[Explanation, bool]]:
        """First explanations of the connections that ended `EARLY_NS` ago, for live traffic.

        Each comes with whether it is complete; if not, `feed` or `pass_time` returns the connection later, possibly
        with another cause.
        """
        while self._ended and self._now_ns - self._ended[0][0] >= EARLY_NS:
            _, number = self._ended.popleft()
            story = self._waiting.get(number)
            if story is None:
                continue
            case = Case(story, self.book, self.watch)
            explanation = self._explanation(case, ranked(candidates(case, DETECTORS)))
            is_complete = is_settled(explanation)
            if is_complete:
                del self._waiting[number]
                self._explain(story)
                _, _, explanation = self._pending.pop()
                self._count(explanation)
            yield explanation, is_complete

    def close(self) -> list[Explanation]:
        """The capture has ended: explain what is left."""
        self.book.close()
        for story in sorted(self._waiting.values(), key=lambda story: story.ended_ns):
            self._explain(story)
        self._waiting.clear()
        left = list(self._released(1 << 63))
        names = [server.name for server in self.book.servers.values() if server.name]
        hosts = {host for server in self.book.servers.values() for host in server.pauses}
        hosts |= {endpoint.rpartition(":")[0].strip("[]") for endpoint in self.book.servers}
        lost = unresolved(self.watch.lookups, names, hosts, self._still_open, self.watch.now_ns)
        self.totals.unresolved = list(islice(lost, MAX_REMARKS))
        self.totals.remarks += [row.sentence for row in self.totals.unresolved] + self.watch.lookups.limits
        self.totals.remarks += filter(None, (self.lost.sentence(), *islice(self.assigned.sentences(), MAX_REMARKS)))
        self.totals.dropped = dict(self.book.dropped + self.book.voices.dropped + self.watch.dropped)
        return left

    def _story(self, connection: Connection) -> Story:
        story = self.stories.get(connection.number)
        if story is None:
            story = self._opened(connection)
        return story

    def _opened(self, connection: Connection) -> Story:
        story = self.stories[connection.number] = Story(connection, budget=self.reread)
        self.watch.begin(connection.flow_key, connection.opened_ns, connection.frame, connection.capture)
        self.totals.connections += 1
        facts = self.watch.open_facts(connection.flow_key, (connection.frame, connection.capture))
        is_answered = facts is None or facts.half(connection.server).begun or bool(facts.undecided)
        self.book.opened(story, is_answered=is_answered)
        return story

    def _packet(self, event: events.PacketEvent, findings: Iterable[Finding]) -> None:
        connection = event.connection
        story = self.stories.get(connection.number) or self._opened(connection)
        story.packet(event)
        for finding in findings:
            self._finding(finding)
        packet = event.packet
        if event.direction is not C2S:
            self.book.voices.spoke(connection.server, event.timestamp_ns, event.frame)
            if type(packet) in ANSWERS:
                self.book.acknowledged(story)
        if type(packet) is packets.Subscribe and connection.client_identifier and story.filters:
            self.book.noted(story, connection.client_identifier, event.timestamp_ns, event.frame, event.capture)
        if type(packet) is packets.Publish:
            if event.direction is not C2S and event.topic:
                self.book.published(story, event.topic, packet, event.timestamp_ns, event.frame, event.capture)
        else:
            self._identified(event, packet)

    def _hidden(self, event: events.MalformedEvent | events.UnparsedEvent | events.GapEvent) -> None:
        """Bytes of a server that may contain a packet."""
        if event.direction is not C2S:
            self.book.voices.spoke(event.connection.server, event.timestamp_ns, event.frame)

    def _identified(self, event: events.PacketEvent | events.MalformedEvent, packet: object) -> None:
        """CONNECT and CONNACK identify the client."""
        connection = event.connection
        if isinstance(packet, packets.Connect) and event.direction is C2S:
            if packet.will is not None and packet.will.will_topic:
                self.book.arm(packet.will.will_topic)
            if connection.client_identifier:
                story = self._story(connection)
                self.book.arrived(story, connection.client_identifier, event.timestamp_ns, event.frame, event.capture)
                self.book.noted(story, connection.client_identifier, event.timestamp_ns, event.frame, event.capture)
        elif isinstance(packet, packets.Connack) and event.direction is not C2S:
            story = self._story(connection)
            self.book.answered(story, connection.client_identifier, accepted=not packet.reason_code)
            if self.log is not None and not packet.reason_code:
                self.log.accepted(
                    connection.client_identifier or "", connection.client, connection.server, event.timestamp_ns
                )

    def _findings(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self._finding(finding)

    def _finding(self, finding: Finding) -> None:
        story = self.stories.get(finding.connection) or self._waiting.get(finding.connection)
        if story is not None:
            story.finding(finding)
        self.lost.note(finding)
        if finding.rule in REMARKED and finding.severity is Severity.WARNING:
            self._remark(
                f"{finding.confidence}: {conceal(finding, HidingOptions()).message} (frame {finding.frame:,})."
            )

    def _remark(self, text: str) -> None:
        """Describe a connection with an end that needs no explanation."""
        if len(self.totals.remarks) < MAX_REMARKS:
            self.totals.remarks.append(text)
        else:
            self.book.dropped["remarks"] += 1

    def _closed(self, event: events.ConnectionClosed) -> None:
        connection = event.connection
        story = self._story(connection)
        del self.stories[connection.number]
        until = (event.frame, event.capture) if connection.closed_how == "port_reused" else None
        first = connection.frame, connection.capture
        story.facts = self.watch.facts(connection.flow_key, connection.opened_ns, first, until)
        story.end(event.timestamp_ns, event.frame, event.capture)
        story.finished = connection.closed_how == "capture_end"
        self.assigned.note(story)
        case = Case(story, self.book, self.watch)
        for remark in timing.held_back(case):
            self._remark(remark)
        for summary, remark in timing.loops(case):
            self._remark(remark)
            self.totals.loop = self.totals.loop or summary
        path.note_origin(case)
        story.forgotten_ns = tcp.forgotten_ns(case)
        story.unread = unread.unread(case)
        request = hangs.asked(story, case.half("client"))
        if request is not None:
            self.book.left_unanswered(request)
        story.trigger = tcp.trigger(case) or encrypted.trigger(case)
        if not story.disconnects and not story.finished and case.by == "server":
            story.own = any(candidate.certainty.rank for candidate in candidates(case, OWN))
            story.special = any(candidate.certainty.rank for candidate in candidates(case, SPECIAL))
        explained = story.own or story.special or bool(story.unread) or client_spoke_last(case)
        self.book.ended(story, case.by, case.ended_on, explained=explained)
        self._waiting[connection.number] = story
        self._waiting.move_to_end(connection.number)
        self._ended.append((event.timestamp_ns, connection.number))

    def _due(self) -> Iterator[Explanation]:
        """Explanations of connections that ended long enough ago."""
        self._explain_due()
        yield from self._released(self._now_ns)

    def _explain_due(self) -> None:
        while self._waiting:
            number, story = next(iter(self._waiting.items()))
            is_early = self._now_ns - story.ended_ns <= RETURN_NS
            if len(self._waiting) <= MAX_WAITING:
                if is_early or self._now_ns < self._again_ns:
                    return
                if self._now_ns - story.ended_ns <= self._patience_ns(story):
                    self._again_ns = self._now_ns + AGAIN_NS
                    return
            del self._waiting[number]
            if is_early:
                self.book.dropped["waiting ends"] += 1
            self._explain(story)

    def _released(self, now_ns: int) -> Iterator[Explanation]:
        """Explanations that no later end can change, with the evidence of the ends since."""
        while self._pending:
            until_ns, case, explanation = self._pending[0]
            if now_ns <= until_ns and len(self._pending) <= MAX_WAITING:
                return
            self._pending.popleft()
            causes = explanation.candidates
            repeated = tuple(candidates(case, REPEATED)) if until_ns else ()
            if repeated:
                causes = ranked((*causes, *repeated))[:MAX_COMPETING]
            if until_ns:
                causes = (lifetimes.asleep(case, causes[0]), *causes[1:])
                explanation = replace(explanation, candidates=causes)
            self._count(explanation)
            yield explanation

    def _patience_ns(self, story: Story) -> int:
        """Maximum silence of an open connection until its next packet would show that its server did not stop."""
        stories = self.book.open.get(story.connection.server, {}).values()
        before = (other.connection for other in stories if other.connection.opened_ns < story.ended_ns)
        longest_ns = max((connection.keep_alive or 0 for connection in before), default=0) * SECOND * 3 // 2
        if longest_ns <= RETURN_NS:
            return 0
        first = ranked(candidates(Case(story, self.book, self.watch), DETECTORS))[0]
        return min(longest_ns, WITNESS_NS) if first.cause is Cause.SERVER_RESTART and not first.stated_by else 0

    def _explain(self, story: Story) -> None:
        if story.facts is not None:
            self.watch.settle(story.facts)
        case = Case(story, self.book, self.watch)
        # Nothing competes with an ordinary DISCONNECT of a client that was served, and most connections end with one.
        was_served = story.connack is not None and not story.connack.code
        causes = tuple(candidates(case, (reason_codes.normal,))) if was_served else ()
        if not any(candidate.cause is Cause.NORMAL for candidate in causes):
            # Later ends may contradict a fixed age: it is looked for when the explanation is released.
            late = (lifetimes.fixed_age, lifetimes.own_timer) if self.log is not None or self.is_live else ()
            causes = ranked(candidates(case, (*DETECTORS, *late)))
        if self.log is not None:
            causes = self.log.judged(case, causes)
        if story.back is not None:
            causes = (returned(case, causes[0]), *causes[1:])
        causes = (lifetimes.asleep(case, causes[0]), *causes[1:])
        if story.clock_set:
            causes = tuple(replace(cause, reasons=in_frames(cause.reasons)) for cause in causes)
        explanation = self._explanation(case, causes)
        story.release()
        if story.facts is not None:
            self.watch.forget(story.facts)
        is_open = explanation.first.certainty is Certainty.HYPOTHESIS
        is_open = is_open or explanation.cause in (Cause.CLIENT_RESET, Cause.CLIENT_CLOSED)
        is_open = is_open and self.log is None and not story.clock_set and not self.is_live
        patience_ns = max(timing.patience_ns(case), lifetimes.patience_ns(case)) if is_open else 0
        if not self.is_live:
            patience_ns = max(patience_ns, lifetimes.sleep_patience_ns(case, causes[0]))
        self._pending.append((case.ended_ns + patience_ns if patience_ns else 0, case, explanation))

    def _count(self, explanation: Explanation) -> None:
        totals = self.totals
        if explanation.cause is Cause.STILL_OPEN:
            totals.open += 1
            self._still_open.add(host_of(explanation.client))
        elif explanation.cause is Cause.UNREADABLE:
            totals.unreadable += 1
        elif explanation.cause is Cause.NOT_SHOWN:
            totals.not_shown += 1
        elif explanation.is_quiet:
            totals.quiet += 1
            totals.empty += explanation.cause is Cause.NO_MQTT
        else:
            totals.causes[str(explanation.cause)] = totals.causes.get(str(explanation.cause), 0) + 1

    def _explanation(self, case: Case, candidates: tuple[Candidate, ...]) -> Explanation:
        story, connection = case.story, case.connection
        return Explanation(
            connection=connection.number,
            capture=connection.capture,
            client=connection.client,
            server=connection.server,
            client_identifier=None
            if connection.client_identifier is None
            else describe.name(connection.client_identifier),
            version=(story.accepted_version or connection.version).text,
            version_known=connection.version_known,
            transport=connection.transport,
            opened_ns=connection.opened_ns,
            opened_frame=connection.frame,
            ended_ns=story.ended_ns,
            ended_frame=story.ended_frame,
            ended_capture=story.ended_capture or connection.capture,
            ended_by=connection.closed_by,
            ended_how=case.how,
            candidates=candidates[:MAX_COMPETING],
            timeline=tuple(timeline(case)),
            left_out=sum(story.counts.values()) - sum(len(moments) for moments in story.last.values()),
            afterwards=tuple(self._afterwards(case, candidates[0].cause)),
            came_back=_came_back(case, candidates[0].cause),
            notes=(*notes(case), *_not_shown(candidates)),
            clock_set=bool(story.clock_set),
            server_name=connection.server_name,
            of_stop=candidates[0].cause is Cause.UNREACHABLE and tcp.stopped_before(case) is not None,
        )

    def _afterwards(self, case: Case, cause: Cause) -> Iterator[Evidence]:
        will = self.book.wills.get(case.connection.number)
        if will is not None:
            yield will
        if will is not None and case.story.back is not None:
            late = replaced_state(case)
            replaced = "" if late is None else ", and the will replaced its newer retained message"
            yield Evidence(
                f"{case.story.back_who} was connected as {case.story.back_as} when the will was published{replaced}"
            )
        back = _came_back(case, cause)
        if back is not None:
            yield back


def _came_back(case: Case, cause: Cause) -> Evidence | None:
    back = None if cause in NEVER else case.came_back()
    other = twin(case) if cause is Cause.TAKEN_OVER else None
    if other is not None and host_of(other.client) == host_of(case.connection.client):
        return Evidence.at(f"the client continued with connection #{other.connection} ({other.client})", other)
    if back is None:
        return None
    after = describe.span(back.timestamp_ns - case.ended_ns)
    return Evidence.at(f"the client came back {after} later as #{back.connection} ({back.client})", back)


def candidates(case: Case, detectors: Iterable[Detector]) -> Iterator[Candidate]:
    """Candidates of detectors that no fact contradicts."""
    return possible(case, chain.from_iterable(detect(case) for detect in detectors))


def ranked(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Candidates, most probable first; each cause once.

    How a connection ended (`PLAIN`) goes before weak hypotheses about why, and after everything better.
    """
    by_cause: dict[Cause, Candidate] = {}
    for candidate in sorted(candidates, key=_rank, reverse=True):
        by_cause.setdefault(candidate.cause, candidate)
    best = list(by_cause.values())
    first = best[0]
    if first.cause in (Cause.NORMAL, Cause.NO_MQTT, Cause.UNREADABLE, Cause.UNREACHABLE) or first.weight >= SAID:
        return (first,)
    settled = tcp.SETTLED if first.cause is Cause.IDLE_TIMEOUT and first.weight == tcp.FORGOTTEN_WEIGHT else PLAIN
    settled = hangs.CONSEQUENCES if first.cause is Cause.SERVER_HUNG else settled
    return tuple(candidate for candidate in best if candidate is first or candidate.cause not in settled)


def is_settled(explanation: Explanation) -> bool:
    """Whether no later evidence changes the cause: a packet states it, or its evidence precedes the end."""
    first = explanation.first
    is_likely = first.certainty is Certainty.LIKELY and first.cause in PRECEDED
    return is_likely or bool(first.stated_by) or first.certainty is Certainty.CERTAIN


def _not_shown(candidates: tuple[Candidate, ...]) -> Iterator[str]:
    more = len(candidates) - MAX_COMPETING
    if more > 0:
        yield f"{counted(more, 'less probable cause')} not shown."


def _rank(candidate: Candidate) -> tuple[float, int]:
    if candidate.cause in PLAIN and candidate.weight <= PLAIN_WEIGHT:
        return (0.5 if candidate.cause is not Cause.STILL_OPEN else -1, candidate.weight)
    return (2 * candidate.certainty.rank + (candidate.weight >= STRONG), candidate.weight)


def timeline(case: Case) -> Iterator[Moment]:
    """The last packets of both sides, and what TCP did after them."""
    story, connection = case.story, case.connection
    moments = list(story.moments())
    if case.how in ("fin", "reset"):
        what = "FIN" if case.how == "fin" else "RST"
        moments.append(
            Moment(story.ended_ns, story.ended_frame, connection.closed_by or "", f"TCP {what}", story.ended_capture)
        )
        also = connection.also_closed
        if also is not None and connection.closed_by:
            other = "server" if connection.closed_by == "client" else "client"
            what = "FIN" if also.how == "fin" else "RST"
            moments.append(Moment(also.timestamp_ns, also.frame, other, f"TCP {what}", also.capture))
    for side in ("client", "server"):
        half = case.half(side)
        if half is not None and half.last_repeat is not None and half.repeats:
            repeat = half.last_repeat
            times = "once" if half.repeats == 1 else f"{half.repeats} times"
            moments.append(
                Moment(
                    repeat.timestamp_ns,
                    repeat.frame,
                    side,
                    f"TCP: sent again {times} without an acknowledgement",
                    repeat.capture,
                )
            )
    return iter(story.in_order(moments))


def notes(case: Case) -> Iterator[str]:
    """Missing data of the connection."""
    connection = case.connection
    if connection.one_sided:
        side = "client" if connection.one_sided == "client_to_server" else "server"
        yield f"The capture has only what {MEANING[side]} sent."
    if connection.gap_bytes:
        yield f"The capture lacks {connection.gap_bytes:,} bytes of the connection."
    if not connection.handshake_seen and connection.connect_packet is None:
        yield "The connection was open when the capture began."
    if case.story.clock_set:
        step = case.story.step or f"the clock was set back at frame {case.story.clock_set:,}"
        yield f"In the capture {step}: no duration is given across that place."
