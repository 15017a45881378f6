"""Puts events together: stories of connections while they last, and explanations some time after their ends."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from mqttscope import events
from mqttscope.explain import describe
from mqttscope.explain.book import Book, host
from mqttscope.explain.causes import encrypted, listener, mqtt, said, tcp, timing
from mqttscope.explain.causes.case import MEANING, RETURN_NS, SECOND, Case, in_frames, twin
from mqttscope.explain.causes.declarations import client_spoke_last, possible
from mqttscope.explain.model import PLAIN, QUIET, Candidate, Cause, Certainty, Evidence, Explanation, Moment, Totals
from mqttscope.explain.segments import SegmentWatch
from mqttscope.explain.story import Story
from mqttscope.lint.finding import Finding
from mqttscope.mqtt import packets
from mqttscope.mqtt.wire import counted
from mqttscope.session.connection import C2S, Connection

if TYPE_CHECKING:
    from mqttscope.explain.broker_log import BrokerLog

MAX_WAITING = 5_000
"""Ended connections that wait for what comes of them; beyond these the oldest is explained with what is known."""
WITNESS_NS = 1_800 * SECOND
"""Maximum time in which the next packet of an open connection may disprove a stop of its server: one and a half times
the Keep Alive of 20 minutes that services allow."""
AGAIN_NS = 10 * SECOND
"""Time between two looks at an end that waits for a witness."""
MAX_COMPETING = 4
"""Maximum number of causes of one end that are shown."""

Detector = Callable[[Case], Iterator[Candidate]]
DETECTORS: tuple[Detector, ...] = (
    tcp.without_packets,
    listener.answered_in_another_protocol, listener.refused_upgrade, listener.to_a_plain_port,
    listener.broken_websocket, listener.plain_to_a_tls_port, listener.proxy_header,
    said.normal, said.server_disconnect, said.connack_refusal, said.no_connack, said.other_version, said.tls_alert,
    timing.keep_alive, timing.no_ping_response, mqtt.taken_over, mqtt.wrong_length, mqtt.stray_bytes,
    mqtt.unreadable_bytes, mqtt.violation, mqtt.not_authorized, mqtt.beyond_profile, mqtt.closed_on_packet,
    mqtt.server_restart, timing.idle_timeout, timing.client_timeout, tcp.half_open, tcp.closed_on_delivery,
    tcp.device_restart, encrypted.of_encrypted, tcp.middlebox, tcp.plain_end,
)  # fmt: skip
"""All that look at an end."""
OWN: tuple[Detector, ...] = (
    tcp.without_packets,
    listener.broken_websocket,
    tcp.half_open,
    timing.keep_alive,
    mqtt.taken_over,
    mqtt.wrong_length,
    mqtt.violation,
)
"""Those of them that look at what one connection alone did."""
SPECIAL: tuple[Detector, ...] = (
    mqtt.not_authorized,
    mqtt.beyond_profile,
    mqtt.closed_on_packet,
)
"""Those that look at what one connection asked for, and what a server that stops may have met by chance."""
REPEATED: tuple[Detector, ...] = (timing.idle_timeout, timing.client_timeout)
"""Those that look for ends like this one, which may come later."""
SAID = 100
"""The weight from which on a packet names the cause: nothing competes with it."""
STRONG = 60
"""The weight from which on a hypothesis goes before the bare fact."""
PLAIN_WEIGHT = 20
NEVER = QUIET | {Cause.CLIENT_DISCONNECT}


class Explainer:
    """Feed it each event with the linter's findings before the next event is taken; it yields explanations.

    ``watch`` has to see the segments before the dissector does.
    """

    def __init__(self, watch: SegmentWatch | None = None, log: BrokerLog | None = None) -> None:
        self.watch = watch or SegmentWatch()
        self.log = log
        """The log of the broker, which confirms or contradicts causes."""
        self.book = Book()
        self.totals = Totals()
        self.stories: dict[int, Story] = {}
        """Open connections by number."""
        self._waiting: OrderedDict[int, Story] = OrderedDict()
        """Ended ones."""
        self._pending: deque[tuple[int, Case, Explanation]] = deque()
        """Explanations in the order of the ends, each with the time until which further ends may repeat its silence."""
        self._now_ns = 0
        self._again_ns = 0
        """When the first of them, which waits for a witness, is looked at again."""

    def feed(self, event: events.Event, findings: Iterable[Finding] = ()) -> list[Explanation]:
        """Take one event; returns the explanations for which nothing more is waited for."""
        kind = type(event)
        if kind is events.PacketEvent:
            self._packet(event, findings)  # type: ignore[arg-type]
        elif kind is events.ConnectionOpened:
            self._opened(event.connection)  # type: ignore[union-attr]
            self._findings(findings)
        elif isinstance(event, events.MalformedEvent | events.UnparsedEvent):
            self._story(event.connection).damaged(event)
            self._findings(findings)
            if isinstance(event, events.MalformedEvent) and event.malformed.packet is not None:
                self._identified(event, event.malformed.packet)
        elif isinstance(event, events.GapEvent):
            self._story(event.connection).gap(event.direction)
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
        if now is not None and now > self._now_ns:
            self._now_ns = now
        return list(self._due()) if self._waiting or self._pending else []

    def close(self) -> list[Explanation]:
        """The capture has ended: explain what is left."""
        self.book.close()
        for story in sorted(self._waiting.values(), key=lambda one: one.ended_ns):
            self._explain(story)
        self._waiting.clear()
        left = list(self._released(1 << 63))
        self.totals.dropped = dict(self.book.dropped + self.watch.dropped)
        return left

    def _story(self, connection: Connection) -> Story:
        story = self.stories.get(connection.number)
        if story is None:
            story = self._opened(connection)
        return story

    def _opened(self, connection: Connection) -> Story:
        story = self.stories[connection.number] = Story(connection)
        self.watch.begin(connection.flow_key, connection.opened_ns, connection.frame, connection.capture)
        self.totals.connections += 1
        self.book.opened(story)
        return story

    def _packet(self, event: events.PacketEvent, findings: Iterable[Finding]) -> None:
        connection = event.connection
        story = self.stories.get(connection.number) or self._opened(connection)
        story.packet(event)
        for one in findings:
            self._finding(one)
        found = event.packet
        if type(found) in (packets.Puback, packets.Pubrec) and event.direction is not C2S:
            self.book.acknowledged(story)
        if type(found) is packets.Publish:
            if event.direction is not C2S:
                self.book.published(event.topic, connection.number, event.timestamp_ns, event.frame, event.capture)
        else:
            self._identified(event, found)

    def _identified(self, event: events.PacketEvent | events.MalformedEvent, found: object) -> None:
        """CONNECT and CONNACK identify the client."""
        connection = event.connection
        if isinstance(found, packets.Connect) and event.direction is C2S:
            if found.will is not None and found.will.will_topic:
                self.book.arm(found.will.will_topic)
            if connection.client_identifier:
                story = self._story(connection)
                self.book.arrived(story, connection.client_identifier, event.timestamp_ns, event.frame, event.capture)
        elif isinstance(found, packets.Connack) and event.direction is not C2S:
            story = self._story(connection)
            self.book.answered(story, connection.client_identifier, accepted=not found.reason_code)
            if self.log is not None and not found.reason_code:
                self.log.accepted(
                    connection.client_identifier or "", connection.client, connection.server, event.timestamp_ns
                )

    def _findings(self, findings: Iterable[Finding]) -> None:
        for one in findings:
            self._finding(one)

    def _finding(self, finding: Finding) -> None:
        story = self.stories.get(finding.connection) or self._waiting.get(finding.connection)
        if story is not None:
            story.finding(finding)

    def _closed(self, event: events.ConnectionClosed) -> None:
        connection = event.connection
        story = self._story(connection)
        del self.stories[connection.number]
        until = (event.frame, event.capture) if connection.closed_how == "port_reused" else None
        first = connection.frame, connection.capture
        story.facts = self.watch.facts(connection.flow_key, connection.opened_ns, first, until)
        story.end(event.timestamp_ns, event.frame, event.capture)
        story.finished = connection.closed_how == "capture_end"
        case = Case(story, self.book, self.watch)
        tcp.note_origin(case)
        story.trigger = tcp.trigger(case)
        if not story.disconnects and not story.finished and case.by == "server":
            story.own = any(one.certainty.rank for one in candidates(case, OWN))
            story.special = any(one.certainty.rank for one in candidates(case, SPECIAL))
        explained = story.own or story.special or client_spoke_last(case)
        self.book.ended(story, case.by, case.ended_on, explained=explained)
        self._waiting[connection.number] = story
        self._waiting.move_to_end(connection.number)

    def _due(self) -> Iterator[Explanation]:
        """Explanations of connections whose ends lie far enough back."""
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
        """Explanations for which no further end is waited for, with what the ends since have shown."""
        while self._pending:
            until_ns, case, explanation = self._pending[0]
            if now_ns <= until_ns and len(self._pending) <= MAX_WAITING:
                return
            self._pending.popleft()
            repeated = tuple(candidates(case, REPEATED)) if until_ns else ()
            if repeated:
                found = ranked((*explanation.candidates, *repeated))
                explanation = replace(explanation, candidates=found[:MAX_COMPETING])
            self._count(explanation)
            yield explanation

    def _patience_ns(self, story: Story) -> int:
        """How long a connection may be silent whose next packet would show that its server did not stop."""
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
        found = tuple(candidates(case, (said.normal,))) if was_served else ()
        if not any(candidate.cause is Cause.NORMAL for candidate in found):
            found = ranked(candidates(case, DETECTORS))
        if self.log is not None:
            found = self.log.judged(case, found)
        if story.clock_set:
            found = tuple(replace(one, reasons=in_frames(one.reasons)) for one in found)
        made = self._made(case, found)
        if story.facts is not None:
            self.watch.forget(story.facts)
        is_open = made.first.certainty is Certainty.HYPOTHESIS and self.log is None and not story.clock_set
        self._pending.append((case.ended_ns + timing.patience_ns(case) if is_open else 0, case, made))

    def _count(self, made: Explanation) -> None:
        totals = self.totals
        if made.cause is Cause.STILL_OPEN:
            totals.open += 1
        elif made.cause is Cause.UNREADABLE:
            totals.unreadable += 1
        elif made.cause is Cause.NOT_SHOWN:
            totals.not_shown += 1
        elif made.is_quiet:
            totals.quiet += 1
            totals.empty += made.cause is Cause.NO_MQTT
        else:
            totals.causes[str(made.cause)] = totals.causes.get(str(made.cause), 0) + 1

    def _made(self, case: Case, found: tuple[Candidate, ...]) -> Explanation:
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
            candidates=found[:MAX_COMPETING],
            timeline=tuple(timeline(case)),
            left_out=sum(story.counts.values()) - sum(len(one) for one in story.last.values()),
            afterwards=tuple(self._afterwards(case, found[0].cause)),
            came_back=_came_back(case, found[0].cause),
            notes=(*notes(case), *_not_shown(found)),
            clock_set=bool(story.clock_set),
            server_name=connection.server_name,
        )

    def _afterwards(self, case: Case, cause: Cause) -> Iterator[Evidence]:
        will = self.book.wills.get(case.connection.number)
        if will is not None:
            yield will
        back = _came_back(case, cause)
        if back is not None:
            yield back


def _came_back(case: Case, cause: Cause) -> Evidence | None:
    back = None if cause in NEVER else case.came_back()
    other = twin(case) if cause is Cause.TAKEN_OVER else None
    if other is not None and host(other.client) == host(case.connection.client):
        return Evidence.at(f"the client continued with connection #{other.connection} ({other.client})", other)
    if back is None:
        return None
    after = describe.span(back.timestamp_ns - case.ended_ns)
    return Evidence.at(f"the client came back {after} later as #{back.connection} ({back.client})", back)


def candidates(case: Case, detectors: Iterable[Detector]) -> Iterator[Candidate]:
    """What detectors say, as far as nothing contradicts it."""
    return possible(case, chain.from_iterable(detect(case) for detect in detectors))


def ranked(found: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Candidates, most probable first; each cause once.

    How a connection ended (`PLAIN`) goes before weak hypotheses about why, and after everything better.
    """
    by_cause: dict[Cause, Candidate] = {}
    for one in sorted(found, key=_rank, reverse=True):
        by_cause.setdefault(one.cause, one)
    kept = list(by_cause.values())
    first = kept[0]
    if first.cause in (Cause.NORMAL, Cause.NO_MQTT, Cause.UNREADABLE, Cause.UNREACHABLE) or first.weight >= SAID:
        return (first,)
    return tuple(one for one in kept if one is first or one.cause not in PLAIN)


def _not_shown(candidates: tuple[Candidate, ...]) -> Iterator[str]:
    more = len(candidates) - MAX_COMPETING
    if more > 0:
        yield f"{counted(more, 'less probable cause')} not shown."


def _rank(one: Candidate) -> tuple[float, int]:
    if one.cause in PLAIN and one.weight <= PLAIN_WEIGHT:
        return (0.5 if one.cause is not Cause.STILL_OPEN else -1, one.weight)
    return (2 * one.certainty.rank + (one.weight >= STRONG), one.weight)


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
            one = half.last_repeat
            times = "once" if half.repeats == 1 else f"{half.repeats} times"
            moments.append(
                Moment(
                    one.timestamp_ns,
                    one.frame,
                    side,
                    f"TCP: sent again {times} without an acknowledgement",
                    one.capture,
                )
            )
    return iter(story.in_order(moments))


def notes(case: Case) -> Iterator[str]:
    """What the capture lacks of the connection."""
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
