"""One ended connection with all that is known around it, and the sentences that several causes need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mqttscope.explain import describe
from mqttscope.explain.advice import ADVICE, OF_CLOSE
from mqttscope.explain.book import DISORDER_NS, MOMENT_NS, Arrival, Book, End, Life
from mqttscope.explain.model import Broken, Candidate, Cause, Certainty, Evidence
from mqttscope.explain.segments import LEAST_REPEATS, Half, Seen, SegmentWatch, Unanswered
from mqttscope.explain.story import LastPublish, Story
from mqttscope.lint.catalogue import all_rules
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.wire import counted
from mqttscope.net.segment import ACK, distance
from mqttscope.session.connection import Connection
from mqttscope.session.history import PeerHistory

SECOND = 1_000_000_000
SHORTLY_NS = 5 * SECOND
"""Maximum time between a fault and an end that it may have caused."""
AT_ONCE_NS = SECOND
"""So soon after something an end is most probably its answer."""
ODD_NS = SECOND // 4
"""So soon after an unusual packet a client that closes most probably minds it."""
RETURN_NS = 120 * SECOND
"""Maximum time until a client returns because of an end."""
RECEIVE_MAXIMUM_EXCEEDED, QUOTA_EXCEEDED = 0x93, 0x97
NAMELESS = (0x00, 0x80)
"""Reason codes of a DISCONNECT that name no reason: Normal disconnection, Unspecified error."""
MAX_ALERT_BYTES = 70
"""Maximum number of bytes of a segment with an alert in a TLS record; session tickets are longer."""
RETURNING = frozenset((Cause.KEEP_ALIVE, Cause.HALF_OPEN, Cause.IDLE_TIMEOUT, Cause.SERVER_CLOSED, Cause.SERVER_RESET))
"""Causes of ends of connections that their client had left."""
MEANING = {"client": "the client", "server": "the broker"}


@dataclass(slots=True)
class Case:
    """A connection that has ended, or the capture."""

    story: Story
    book: Book
    watch: SegmentWatch
    _together: list[End] | None = None
    _by: tuple[str | None] | None = None
    _halves: dict[str, Half | None] | None = None

    @property
    def connection(self) -> Connection:
        return self.story.connection

    @property
    def by(self) -> str | None:
        """Who closed first; ``None`` where the capture has one direction, which does not show that."""
        if self._by is None:
            self._by = (self._closed_by(),)
        return self._by[0]

    def _closed_by(self) -> str | None:
        if self.connection.one_sided:
            return None
        if self.answered is not None or self.goodbye is not None:
            return other_side(self.connection.closed_by or "")
        return self.connection.closed_by

    @property
    def answered(self) -> Evidence | None:
        """A FIN of the other side that the capture lacks, and that the first FIN which it has acknowledges."""
        by = self.connection.closed_by
        if by is None or self.connection.closed_how != "fin":
            return None
        closing, other = self.half(by), self.half(other_side(by))
        if closing is None or other is None or closing.finished is None or other.finished is not None:
            return None
        seen = closing.finished
        # Later segments may continue after the FIN: only the end of the data is relevant.
        ends = [(seen.sequence + seen.length) & 0xFFFFFFFF for seen in other.recent if seen.length]
        if not seen.flags & ACK or not ends or min(distance(end, seen.acknowledgment) for end in ends) != 1:
            return None
        text = f"it acknowledges a FIN of {MEANING[other_side(by)]} that the capture lacks"
        return Evidence.at(text, seen)

    @property
    def goodbye(self) -> Evidence | None:
        """Evidence that a side had ended WebSocket or TLS before the first FIN, of the other side, answered that."""
        connection, by = self.connection, self.connection.closed_by
        if by is None or connection.closed_how != "fin":
            return None
        other = other_side(by)
        if self.closing_party == other:
            return self.close_frame
        if not connection.decrypted and connection.details.get("encrypted_alert_from") == other:
            return Evidence(f"{MEANING[other]} ended TLS first (an encrypted alert)")
        alert, closing = self._alert(other), self.half(by)
        answer = self._alert(by) or (None if closing is None else closing.finished)
        if alert is None or answer is None:
            return None
        if distance(alert.sequence + alert.length, answer.acknowledgment) < 0:
            return None  # it was on its way when the side with the FIN ended TLS or the connection
        return Evidence.at(f"{MEANING[other]} ended TLS (a record without a packet)", alert)

    @property
    def close_frame(self) -> Evidence | None:
        """The first Close frame of a WebSocket before the end, as a sentence."""
        sender = self.closing_party
        if sender is None:
            return None
        party = self._parties[sender]
        text = f"{MEANING[sender]} sent a Close frame"
        if party.closing_code is not None:
            name = OF_CLOSE.get(party.closing_code, (None, ""))[1]
            text += f" with status {party.closing_code}{f' ({name})' if name else ''}"
        if party.closing_reason and not self.connection.doubtful:
            text += f", and the reason “{describe.name(party.closing_reason)}”"
        return Evidence(text, party.closing_frame, party.closing_ns)

    @property
    def closing_party(self) -> str | None:
        """The side that sent the first Close frame of a WebSocket before the end."""
        sent = [side for side, party in self._parties.items() if 0 < party.closing_ns <= self.ended_ns]
        return min(sent, key=lambda side: self._parties[side].closing_ns, default=None)

    def party(self, side: str) -> PeerHistory:
        """History of a side, empty in a run without histories."""
        return self._parties.get(side) or PeerHistory()

    @property
    def _parties(self) -> dict[str, PeerHistory]:
        history = self.connection.history
        return {} if history is None else {"client": history.client, "server": history.server}

    def _alert(self, side: str) -> Seen | None:
        """The TLS alert of a side before the first FIN.

        With the keys all packets are known, but not alerts; close_notify is the alert of an ordinary end.
        """
        half, last = self.half(side), self.story.last_of(side)
        if half is None or last is None or not self.connection.decrypted or half.repeats:
            return None
        sent = [seen for seen in half.recent if seen.length and seen.timestamp_ns <= self.ended_ns]
        if not sent or sent[-1].frame <= last.frame or sent[-1].length > MAX_ALERT_BYTES:
            return None
        return None if any(seen.sequence == sent[-1].sequence for seen in sent[:-1]) else sent[-1]

    @property
    def how(self) -> str:
        return self.connection.closed_how or "capture_end"

    @property
    def ended_ns(self) -> int:
        return self.story.ended_ns

    @property
    def is_closed(self) -> bool:
        return self.how in ("fin", "reset") and not self.story.finished

    @property
    def lacks_bytes(self) -> bool:
        """Whether the capture lacks bytes: a side acknowledged them, or sent later ones."""
        connection = self.connection
        is_gapped = connection.client_side.gapped or connection.server_side.gapped
        return bool(connection.gaps or connection.unseen_bytes or is_gapped)

    @property
    def together(self) -> list[End]:
        """Other connections that the server ended at the same time, without a reason of their own.

        One that began after the first of these ends was not ended by the same stop.
        """
        if self._together is None:
            near = self.book.ends_near(self.connection.server, self.ended_ns, MOMENT_NS, MOMENT_NS)
            number, opened = self.connection.number, self.connection.opened_ns
            others = [
                end
                for end in near
                if end.by == "server" and not end.explained and end.connection != number and end.timestamp_ns > opened
            ]
            first = min([self.ended_ns, *(end.timestamp_ns for end in others)])
            self._together = [end for end in others if end.opened_ns < first]
        return self._together

    @property
    def served(self) -> Life | None:
        """A connection that got packets of the server before and after this end."""
        at, server = self.ended_ns, self.connection.server
        return self.book.survivor(server, self.watch, at, at, {self.connection.number})

    @property
    def is_authenticating(self) -> bool:
        """Whether the last packet of the client before the end is an AUTH without an answer of the server."""
        last, answer = self.story.last_of("client"), self.story.last_of("server")
        is_answered = last is not None and answer is not None and last.timestamp_ns < answer.timestamp_ns
        is_goodbye = is_answered and answer is not None and answer.what.startswith("DISCONNECT")
        return last is not None and last.what.startswith("AUTH") and (not is_answered or is_goodbye)

    @property
    def first_and_last(self) -> tuple[int, int]:
        """Times of the first and the last of the ends that are `together` with this one."""
        times = [self.ended_ns, *(end.timestamp_ns for end in self.together)]
        return min(times), max(times)

    def half(self, side: str) -> Half | None:
        """TCP facts about one direction."""
        if self._halves is None:
            self._halves = {side: self.story.half(side) for side in MEANING}
        return self._halves.get(side)

    @property
    def arrived(self) -> int:
        """Bytes of the client's last packet that the server's host had at the end, if it had a part of it; else 0.

        The rest may have been on its way then: such a packet is complete only after the end.
        """
        client, server, sent = self.half("client"), self.half("server"), self.connection.client_side
        is_known = not sent.gapped or self.story.gaps.get("client") == "cut"
        if client is None or server is None or not is_known or self.connection.transport != "tcp":
            return 0
        last = server.finished if self.how == "fin" else next(iter(server.resets), None)
        if last is None or not last.flags & ACK:
            last = next((seen for seen in reversed(server.recent) if seen.timestamp_ns < self.ended_ns), None)
        if last is None or self.story.latest_offset < 0:
            return 0
        left = distance(last.acknowledgment, client.end) - bool(client.finished)
        count = sent.stream_offset - left - self.story.latest_offset
        return count if 0 < count < self.story.latest else 0

    @property
    def ended_on(self) -> LastPublish | None:
        """The message that a side closed on: received within the last second, or in part."""
        if self.by is None:
            return None
        is_cut = self.by == "server" and self.arrived
        return self.story.ended_on(self.by) or (self.story.asked if is_cut else None)

    def closing(self) -> Evidence:
        """How the transport ended, as a sentence."""
        story = self.story
        who = MEANING.get(self.connection.closed_by or "", "one side")
        shown = {
            "fin": f"{who} closed the connection (FIN)",
            "reset": f"{who} reset the connection (RST)",
            "port_reused": "a new connection began between the same endpoints, without an end of this one",
            "idle": "nothing was captured of the connection any more",
            "evicted": "the connection was not followed any more: too many others were open",
        }.get(self.how, "the capture ends, and the connection is open")
        if story.finished:
            last = self.watch.last
            return Evidence(shown) if last is None else Evidence(shown, *last)
        return Evidence(shown, story.ended_frame, story.ended_ns, story.ended_capture or None)

    def came_back(self) -> Arrival | None:
        """The client's next connection after this one ended."""
        later = self.book.other_arrivals(self.story, self.ended_ns + 1, self.ended_ns + RETURN_NS)
        return later[0] if later else None

    def violations(self, by: str, within_ns: int | None = None) -> list[Broken]:
        """Violations of a side shortly before the end, the last one first."""
        start = self.ended_ns - (SHORTLY_NS if within_ns is None else within_ns)
        return [
            broken
            for broken in reversed(self.story.broken)
            if broken.by == by and start <= broken.timestamp_ns and self.story.is_before(broken, by)
        ]

    def unknown(self, what: str) -> Evidence | None:
        """Why what the client sent may not be known; ``what`` may be among the bytes that are missing or in doubt."""
        why = self.story.gaps.get("client")
        if not self.connection.client_side.gapped or why == "cut":
            return None
        bytes_are = "missing in the capture" if why == "missing" else "in doubt"
        return Evidence(f"bytes of the client are {bytes_are}: {what} among them")

    def apart(self, timestamp_ns: int) -> str:
        """Time from something to the end, with a blank; empty if it was complete in the capture only after the end."""
        apart = self.ended_ns - timestamp_ns
        return f"{describe.span(apart)} " if apart >= 0 else ""

    def sent_connect(self) -> list[Evidence]:
        """The CONNECT, where it was captured."""
        first = next((moment for moment in self.story.moments() if moment.what.startswith("CONNECT ")), None)
        if first is not None:
            return [self.story.evidence(first, f"the client sent {first.what}")]
        connect = self.story.connect
        return [] if connect is None else [Evidence("the client sent CONNECT", connect.frame, connect.timestamp_ns)]

    def last_packet(self, side: str) -> list[Evidence]:
        """The last packet of a side, where there is one."""
        last = self.story.last_of(side)
        if last is None:
            return []
        length = self.story.until_end(last)
        if self.story.finished and length is not None and self.watch.last is not None:
            length = self.watch.last[1] - last.timestamp_ns
        before = "" if length is None or length < 0 else f", {describe.span(length)} before the end"
        return [self.story.evidence(last, f"the last packet of {MEANING[side]}{before}: {last.what}")]


def candidate(
    cause: Cause,
    certainty: Certainty,
    headline: str,
    reasons: Iterable[Evidence | None] = (),
    doubts: Iterable[Evidence | None] = (),
    broken: Iterable[Broken] = (),
    *,
    advice: tuple[str, ...] = (),
    usual: bool = True,
    weight: int = 50,
    reason_code: int | None = None,
    stated_by: str = "",
    event_ns: tuple[int, int] = (0, 0),
) -> Candidate:
    """A cause with its advice; ``advice`` comes first, and is alone if the ``usual`` advice is of no use."""
    return Candidate(
        cause, certainty, headline, in_order(reasons), tuple(doubt for doubt in doubts if doubt),
        tuple(dict.fromkeys(broken)), (*advice, *(ADVICE[cause] if usual else ())), weight, reason_code,
        stated_by, event_ns,
    )  # fmt: skip


SLEEP = (
    "Send DISCONNECT before the device sleeps, restarts or connects again: the broker then drops the will, and need not"
    " end a connection that nobody uses."
)
ONE_IDENTIFIER = (
    "Keep one Client Identifier for each device: its new connection then ends the old one at once, and not the Keep"
    " Alive."
)


def returned(case: Case, end: Candidate) -> Candidate:
    """A cause, with a connection of the client under another Client Identifier before this end.

    It is most probably one device if the host is the same, the will topic or the subscriptions are equal, and no other
    client of the host had them at that time (`Book._note_return`).  The same holds for
    an equal will with equal credentials.
    """
    story, back = case.story, case.story.back
    last = story.last_of("client")
    if back is None or back.timestamp_ns is None or last is None or end.cause not in RETURNING:
        return end
    apart = describe.span(back.timestamp_ns - last.timestamp_ns)
    headline = (
        f"{end.headline.removesuffix('.')}; {story.back_who} was back as {story.back_as} {apart} after its last packet"
    )
    late = replaced_state(case)
    headline += ", and the late will replaced its retained message." if late is not None else "."
    advice = (ONE_IDENTIFIER, *((_OF_LATE_WILL,) if late is not None else ()), *end.advice)
    return replace(end, headline=headline, reasons=in_order((*end.reasons, back, late)), advice=advice)


_OF_LATE_WILL = "Let the device publish its state again later than a late will of its earlier connection can come."


def replaced_state(case: Case) -> Evidence | None:
    """The newer retained message of the client, under its other Client Identifier, that the will replaced."""
    story, will = case.story, case.book.wills.get(case.connection.number)
    state = None if story.back_story is None else story.back_story.state
    if state is None or will is None or will.timestamp_ns is None or not story.is_will_retained:
        return None
    if state.timestamp_ns > will.timestamp_ns:
        return None  # the client published its state again
    return Evidence.at(f"{story.back_as} published its state to the topic of the will: {state.what}", state)


def in_order(reasons: Iterable[Evidence | None]) -> tuple[Evidence, ...]:
    """Evidence by time; a sentence without a time stays after the one before it."""
    placed: list[tuple[int, int, Evidence]] = []
    at = -(1 << 63)
    for number, reason in enumerate(each for each in reasons if each is not None):
        at = at if reason.timestamp_ns is None else reason.timestamp_ns
        placed.append((at, number, reason))
    return tuple(reason for _, _, reason in sorted(placed, key=lambda each: each[:2]))


def in_frames(reasons: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Evidence in the order of the capture, if its times go back."""
    placed: list[tuple[int, Evidence]] = []
    at = 0
    for reason in reasons:
        at = at if reason.frame is None else reason.frame
        placed.append((at, reason))
    return tuple(reason for _, reason in sorted(placed, key=lambda each: each[0]))


def records_of(case: Case, side: str, *kinds: str) -> int:
    """Number of TLS records of these content types that a side sent."""
    summary = case.connection.details.get(side)
    records = summary.get("records") if isinstance(summary, dict) else None
    return sum(records.get(kind, 0) for kind in kinds) if isinstance(records, dict) else 0


def other_side(side: str) -> str:
    return "server" if side == "client" else "client"


def lost_before(case: Case, at_ns: int) -> Unanswered | None:
    """Data that the broker sent again without an acknowledgment, for a second or more before a time."""
    server = case.half("server")
    lost = None if server is None else server.missed or server.unanswered
    if lost is None or lost.repeats < LEAST_REPEATS or at_ns - lost.since_ns < AT_ONCE_NS:
        return None
    return lost


def twin(case: Case) -> Arrival | None:
    """The connection that took the session over: a CONNECT with the same Client Identifier just before the end."""
    ended = case.ended_ns
    arrivals = case.book.other_arrivals(case.story, ended - SHORTLY_NS, ended + DISORDER_NS)
    return next(
        (arrival for arrival in reversed(arrivals) if arrival.accepted is not False and _is_later(case, arrival)), None
    )


def _is_later(case: Case, arrival: Arrival) -> bool:
    connect = case.story.connect
    return connect is None or arrival.timestamp_ns > connect.timestamp_ns


def took_over(case: Case) -> Arrival | None:
    """The connection accepted just before the server sent a DISCONNECT without a reason on this one."""
    disconnect, other = case.story.disconnects.get("server"), twin(case)
    if (
        disconnect is None
        or other is None
        or case.connection.version != ProtocolVersion.V5
        or disconnect.code not in NAMELESS
    ):
        return None
    if not other.accepted or served_beside_twin(case):
        return None
    return other if 0 <= disconnect.timestamp_ns - other.timestamp_ns <= AT_ONCE_NS else None


def served_beside_twin(case: Case) -> bool:
    """The server read and answered the older connection after the newer one had begun."""
    other, asked, answered = twin(case), case.story.last_of("client"), case.story.last_of("server")
    if other is None or asked is None or answered is None:
        return False
    return other.timestamp_ns < asked.timestamp_ns < answered.timestamp_ns


def twin_sentence(case: Case, other: Arrival) -> Evidence:
    """The connection that took over, as a sentence."""
    ago = describe.span(abs(case.ended_ns - other.timestamp_ns))
    order = "before" if other.timestamp_ns <= case.ended_ns else "after"
    return Evidence.at(
        f"connection #{other.connection} from {other.client} sent CONNECT with the same Client Identifier {ago}"
        f" {order} the end",
        other,
    )


def framed(case: Case, sender: str) -> list[Evidence]:
    """That the last WebSocket frame of a side did not hold one packet, which some receivers rely on."""
    history = case.connection.history
    if history is None:
        return []
    odd = (history.client if sender == "client" else history.server).odd_frame
    if not odd:
        return []
    return [
        Evidence(
            f"the last WebSocket frame of {MEANING[sender]} {odd}: a receiver that takes each frame for one packet"
            " fails here"
        )
    ]


def exceeded(case: Case, owner: str, code: int, in_flight: int | None = None) -> str:
    """The exceeded limit that a reason code of its owner, ``client`` or ``server``, names; empty for other codes.

    ``in_flight``: messages without a final answer then, by default the maximum of the connection.
    """
    connection = case.connection
    sides = connection.client_side, connection.server_side
    own, other = sides if owner == "client" else sides[::-1]
    who, whose = MEANING[other_side(owner)], MEANING[owner]
    count = other.in_flight_peak if in_flight is None else in_flight
    if code == RECEIVE_MAXIMUM_EXCEEDED:
        text = (
            f"{who} had more messages unacknowledged than {whose}'s Receive Maximum of {own.receive_maximum:,} allows"
        )
        is_seen = count > own.receive_maximum or case.lacks_bytes or connection.one_sided
        return text if is_seen else f"{text}, although the capture shows at most {count:,}"
    if code == QUOTA_EXCEEDED:
        if in_flight is None:
            return f"a quota of {whose} was used up"
        most = f"{counted(count, 'message')} unacknowledged and a Receive Maximum of {own.receive_maximum:,}"
        return f"{who} has exceeded a quota of {whose}, with {most}"
    shown = {0x94: f"a Topic Alias of {who} was 0 or above the maximum of {whose}, {own.topic_alias_maximum:,}",
             0x95: f"{who} sent a packet that is larger than {whose} accepts",
             0x96: f"{who} sent messages faster than {whose} allows"}  # fmt: skip
    return shown.get(code, "")


def declined(case: Case) -> list[Evidence]:
    """The last message of the broker that the client refused."""
    refusal, version = case.story.declined, case.connection.version
    if refusal is None or not case.story.is_before(refusal, "client"):
        return []
    who = exceeded(case, "client", refusal.code, refusal.in_flight)
    text = f"the client refused {refusal.what}: {describe.reason(refusal.kind, refusal.code, version)}"
    return [Evidence(f"{text}; {who}" if who else text, refusal.frame, refusal.timestamp_ns)]


def code_of(broken: Broken) -> int | None:
    """The reason code that the specification has for a violation."""
    rule = all_rules().get(broken.rule)
    return None if rule is None else rule.reason_code


def advice_of(broken: Broken) -> tuple[str, ...]:
    """Advice of a rule."""
    rule = all_rules().get(broken.rule)
    return () if rule is None else (rule.paragraphs()[-1],)


def ran_on(case: Case) -> Evidence | None:
    """Evidence that the server ran on when it ended connections: a restart ends all of them and accepts no others."""
    server, book = case.connection.server, case.book
    read = _read_after_end(case)
    if read:
        return Evidence(f"the broker acknowledged {counted(read, 'byte')} that came after its FIN: it did not stop")
    # If bytes of the client are missing, a DISCONNECT may have come before the end of the server.
    first, last = (case.ended_ns,) * 2 if case.connection.client_side.gapped else case.first_and_last
    ended = {case.connection.number, *(end.connection for end in case.together)}
    life = book.survivor(server, case.watch, first, last, ended)
    if life is not None:
        text = f"the broker kept sending on connection #{life.connection}, which was open before: it did not restart"
        return Evidence(text, life.frame, life.heard_ns, life.capture)
    _, life = book.witnesses(server, case.watch).before(first)
    if life is not None and life.heard_ns > last:
        text = f"its host sent segments on connection #{life.connection}, which was open before: it did not restart"
        return Evidence(text, life.frame, life.heard_ns, life.capture)
    accepted = [arrival for arrival in book.begun_in(server, first, last) if arrival.connection not in ended]
    accepted += book.answered_in(server, first, last)
    if accepted:
        text = f"the broker accepted connection #{accepted[0].connection} in that time: it did not restart"
        return Evidence.at(text, accepted[0])
    return None


def _read_after_end(case: Case) -> int:
    """Bytes that the server acknowledged after its own FIN: a host answers them with RST once nobody reads."""
    client, server = case.half("client"), case.half("server")
    if client is None or server is None or server.finished is None or case.how != "fin" or server.resets:
        return 0
    gained = distance(server.finished.acknowledgment, client.acknowledged)
    return max(0, gained - bool(client.finished)) if client.is_acknowledged else 0
