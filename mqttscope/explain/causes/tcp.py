"""Causes that TCP shows: a path that was lost, a device that started again, a RST of neither side; and plain ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mqttscope.explain import describe
from mqttscope.explain.advice import ADVICE
from mqttscope.explain.book import host
from mqttscope.explain.causes.case import (
    MEANING,
    RETURN_NS,
    SECOND,
    Case,
    candidate,
    declined,
    framed,
    other_side,
    ran_on,
    twin,
)
from mqttscope.explain.causes.mqtt import again, not_all
from mqttscope.explain.causes.timing import LEAST_ALIKE, numbers_of, publish_uncounted
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence, Moment
from mqttscope.explain.segments import LEAST_REPEATS, MAX_SEEN, Half, Seen, Unanswered
from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.wire import counted
from mqttscope.net.segment import ACK, FIN, RST, SYN, distance

LEAST_LARGE = 537
"""Bytes of a segment that some paths do not carry: all carry 536 (RFC 9293, 3.7.1)."""
LEAST_PROBES = 3
"""TCP keep-alive probes without an answer that show the same; networks lose one or two."""
SILENCE_NS = 3 * SECOND
"""So long after the other side's last segment."""
LATE_NS = 5 * SECOND
"""How far beyond the Keep Alive a client of an open connection is silent before that is reported."""
BOOT_NS = SECOND // 2
"""Minimum time that a device or a server needs to lose its state and be on the network again."""
LONG_GONE_NS = 3600 * SECOND
"""After so long a silence the end of a connection was most probably not captured."""
FORGOTTEN_NS = 60 * SECOND
"""After so long a silence NATs, firewalls and load balancers forget connections."""
ANSWER_NS = 3 * SECOND
"""Maximum time between a segment and the RST that answers it: what TCP needs to send the segment again."""
ODD_NS = SECOND // 4
"""So soon after an unusual packet a client that closes most probably minds it."""
BOTH_NS = SECOND // 5
"""A RST of each side within this time, from one device between them."""


def without_packets(case: Case) -> Iterator[Candidate]:
    """The TCP connection was refused or not answered, or neither side sent anything on it."""
    story, connection = case.story, case.connection
    client, server = case.half("client"), case.half("server")
    if sum(story.counts.values()) or connection.transport != "tcp" or client is None or server is None:
        return
    if client.data or server.data or connection.one_sided == "server_to_client":
        return
    syn = next((one for one in client.recent if one.flags & SYN), None)
    asked = Evidence.at("the client sent SYN", syn) if syn is not None else None
    refused = asked is not None and not server.begun and bool(server.resets)
    if asked is not None and refused:
        one = server.resets[0]
        yield candidate(
            Cause.NOT_LISTENING, Certainty.CERTAIN,
            f"Nothing listened on {connection.server}: its host refused the TCP connection.",
            [asked, Evidence.at("the host answered with RST", one)], weight=100,
        )  # fmt: skip
        at = case.ended_ns
        listened = case.book.survivor(connection.server, case.watch, at, at, {connection.number})
        if listened is None:
            return
        yield candidate(
            Cause.UNREACHABLE, Certainty.HYPOTHESIS,
            f"The host of {connection.server} refused the TCP connection while a server on this port served others: a"
            " firewall may have refused it, or the queue of new connections was full.",
            [
                asked, Evidence.at("the host answered with RST", server.resets[0]),
                Evidence(
                    f"the server sent on connection #{listened.connection} before and after it", listened.frame,
                    listened.heard_ns, listened.capture,
                ),
            ],
            weight=100,
        )  # fmt: skip
    elif asked is not None and not server.begun:
        many = client.repeats
        again = Evidence(f"it sent SYN {many} times again, and nothing answered" if many else "nothing answered")
        yield candidate(
            Cause.UNREACHABLE, Certainty.LIKELY if many else Certainty.HYPOTHESIS,
            f"Nothing answered the client's attempt to connect to {connection.server}.", [asked, again], weight=100,
        )  # fmt: skip
    elif connection.handshake_seen:
        yield candidate(
            Cause.NO_MQTT, Certainty.CERTAIN,
            "The connection was opened and closed, and nobody sent anything, as health checks and port scans do.",
            [case.closing()], weight=100,
        )  # fmt: skip


def note_origin(case: Case) -> None:
    """Note the open connection whose numbers a connection without a SYN continues from another port of its client."""
    mine, client = case.connection, case.half("client")
    if client is None or case.by != "server" or case.how != "reset" or client.segments > MAX_SEEN or not client.recent:
        return
    first = client.recent[0]
    if first.flags & SYN or not first.flags & ACK:
        return
    for other in case.book.open.get(mine.server, {}).values():
        its = other.connection
        if its.number == mine.number or host(its.client) != host(mine.client):
            continue
        facts = case.watch.open_facts(its.flow_key, (its.frame, its.capture))
        if facts is None or not _continues(facts.half(its.client), facts.half(its.server), first):
            continue
        case.story.origin = its.number
        text = f"the client continued from another port as #{mine.number} ({mine.client}), and the broker answered with"
        other.moved = Evidence.at(f"{text} RST: a NAT had changed its port", first)
        return


def _continues(own: Half, answers: Half, seen: Seen) -> bool:
    """Whether a segment has the next number of a side, and acknowledges what the other side has sent."""
    if not own.begun or own.end != seen.sequence or not answers.is_acknowledged:
        return False
    return distance(answers.acknowledged, seen.acknowledgment) >= 0 <= distance(seen.acknowledgment, answers.end)


def half_open(case: Case) -> Iterator[Candidate]:
    """One side sent again and again, and the other one acknowledged nothing of it any more."""
    if case.story.origin is not None:
        yield _moved(case, case.story.origin)
        return
    for side in ("server", "client"):
        sender, silent = case.half(side), case.half(other_side(side))
        if sender is None or silent is None or not silent.segments or case.connection.one_sided:
            continue
        for lost in (sender.missed, sender.unanswered):
            if lost is None or lost.repeats < LEAST_REPEATS or lost.last.timestamp_ns - lost.since_ns < SECOND // 2:
                continue
            if silent.finished is not None and lost.since_ns > silent.finished.timestamp_ns:
                continue  # it had closed: nothing more was to come
            heard = [one for one in silent.recent if lost.since_ns < one.timestamp_ns <= case.story.ended_ns]
            if case.by == other_side(side):
                heard += [one for one in silent.resets[:1] if one.flags & ACK and one.frame == case.story.ended_frame]
            bare = [one for one in heard if not one.length and not one.flags & (FIN | RST)]
            duplicate = _duplicate(lost)
            if bare and (duplicate is None or not all(one.window for one in bare)):
                continue  # its TCP answers something: a part of what was sent has arrived, or it has no room
            heard = [one for one in heard if one not in bare]
            yield _half_open(case, side, lost, silent, heard[0] if heard else duplicate)
            return
        missing = _swallowed(case, side)
        if missing is not None:
            yield missing
            return
    probed = _probed(case)
    if probed is not None:
        yield probed
        return
    yield from _reset_at_last(case)
    yield from _overdue(case)


def _half_open(case: Case, side: str, lost: Unanswered, silent: Half, heard: Seen | None) -> Candidate:
    """``heard``: a segment of the silent side which shows that it had not received what was sent again."""
    story, sender = case.story, case.half(side) or Half()
    other = other_side(side)
    began = lost.since_ns
    last = silent.last
    waiting = f" {sender.outstanding_bytes:,} bytes" if sender.outstanding_bytes else " its FIN"
    waiting = "" if lost is sender.missed else waiting
    reasons: list[Evidence | None] = [
        Evidence(
            f"{MEANING[side]} sent segments {lost.repeats} times again for"
            f" {describe.span(lost.last.timestamp_ns - began)}, and nothing acknowledged{waiting or ' them'}",
            lost.since_frame, began,
        ),
    ]  # fmt: skip
    damaged = [segment for segment in sender.damaged if segment.timestamp_ns >= began]
    if damaged:
        most = "at least " if len(damaged) == MAX_SEEN else ""
        reasons.append(
            Evidence.at(
                f"{most}{counted(len(damaged), 'segment')} of {MEANING[side]} came damaged: the checksum is wrong",
                damaged[-1],
            )
        )  # fmt: skip
    if heard is not None:
        reasons.append(
            Evidence.at(
                f"{MEANING[other]} sent {_segment(heard)} {describe.span(heard.timestamp_ns - began)} later, which does"
                " not acknowledge them: they had not arrived",
                heard,
            )
        )
    elif last is not None and last.timestamp_ns <= story.ended_ns:
        reasons.append(
            Evidence.at(
                f"the last segment of {MEANING[other]} came {describe.span(story.ended_ns - last.timestamp_ns)} before"
                " the end",
                last,
            )
        )
    size = _too_long(lost, sender)
    if size:
        reasons.append(_carried(side, size, sender))
    reasons.append(_consequence(case, side))
    resets = [one for one in silent.resets if one.timestamp_ns > began]
    late = None
    if resets:
        late = Evidence.at(
            f"{MEANING[other]} answered at last with RST: it did not know the connection any more", resets[0]
        )
        reasons.append(late)
    back = case.story.moved or _returned(case, began)
    reasons += [case.story.moved, _returned(case, began)]
    reasons.append(case.closing())
    proofs = bool(back) + bool(late) + bool(heard)
    certainty = Certainty.LIKELY if proofs or lost.repeats >= 4 else Certainty.HYPOTHESIS
    doubts = []
    if side == "client" and not silent.resets and not back and heard is None:
        doubts.append(Evidence(f"{MEANING[other]} may have been down: that looks the same from here"))
    headline = (
        f"The path was lost while the connection was open: {MEANING[side]} sent, and nothing of {MEANING[other]} came"
        " any more (a dead link, or a NAT or firewall that forgot the connection)."
    )
    if heard is not None:
        sent = story.last_of(side)
        what = f"its {sent.what.split(' ')[0]}" if sent is not None and sent.timestamp_ns >= began else "what it sent"
        when = (
            f"when {MEANING[other]} closed"
            if case.by == other
            else f"{describe.span(heard.timestamp_ns - began)} later"
        )
        headline = (
            f"The path from {MEANING[side]} to {MEANING[other]} was lost: {MEANING[side]} sent {what} again"
            f" {_times(lost.repeats)}, and {when} it had not arrived."
        )
        if size:
            headline = (
                f"The path loses large segments: {MEANING[side]} sent one of {size:,} bytes {lost.repeats + 1} times,"
                f" and {MEANING[other]}'s TCP answered shorter ones and never acknowledged it (most probably the MTU)."
            )
    weight = 78 if case.by != "server" or proofs else 70
    return candidate(
        Cause.HALF_OPEN, certainty, headline, reasons, doubts, advice=_OF_MTU if size else (), usual=not size,
        weight=weight + 2 * proofs,
    )  # fmt: skip


_OF_MTU = (
    (
        "Find the largest packet that the path carries (ping with “do not fragment” in several sizes), and set the MTU"
        " or MSS of the VPN, tunnel or router to it."
    ),
    "Let ICMP “fragmentation needed” (IPv6: “packet too big”) pass the firewalls on the path.",
)


def _duplicate(lost: Unanswered) -> Seen | None:
    """An acknowledgment of nothing new that was not on its way before."""
    seen = lost.duplicate
    return None if seen is None or seen.timestamp_ns - lost.since_ns < SECOND // 2 else seen


def _too_long(lost: Unanswered, sender: Half) -> int:
    """Length of a segment that came again and again, while only shorter ones ever arrived; 0 for others."""
    last, duplicate = lost.last, _duplicate(lost)
    if duplicate is None or last.sequence != duplicate.acknowledgment or last.length < LEAST_LARGE:
        return 0
    return last.length if 0 < sender.carried < last.length else 0


def _carried(side: str, size: int, sender: Half) -> Evidence:
    return Evidence(
        f"the longest segment of {MEANING[side]} that is known to have arrived has {counted(sender.carried, 'byte')},"
        f" and this one {size:,}"
    )


def _consequence(case: Case, side: str) -> Evidence | None:
    """That the Keep Alive ran out because nothing of the client arrived."""
    client, keep_alive = case.half("client"), case.connection.keep_alive
    if side != "client" or case.by != "server" or client is None or not keep_alive or not client.advanced_ns:
        return None
    waited = case.ended_ns - client.advanced_ns
    if waited < keep_alive * SECOND * 3 // 2 - SECOND // 2:
        return None
    return Evidence(
        f"the broker acknowledged nothing new for {describe.span(waited)}, which is its limit: 1.5 × the Keep Alive of"
        f" {keep_alive} s"
    )


def _swallowed(case: Case, side: str) -> Candidate | None:
    """What a side sent last arrived without what came before it, and the other side still waited for that."""
    sender, silent = case.half(side) or Half(), case.half(other_side(side)) or Half()
    hole = sender.hole
    if hole is None or case.story.clock_set:
        return None
    waits = [
        seen
        for seen in silent.recent
        if seen.acknowledgment == sender.acknowledged and seen.timestamp_ns - hole.timestamp_ns >= SILENCE_NS
    ]
    if not waits or waits[0].timestamp_ns > case.ended_ns:
        return None
    size = distance(sender.acknowledged, hole.sequence)
    who, other = MEANING[side], MEANING[other_side(side)]
    waited = describe.span(waits[0].timestamp_ns - hole.timestamp_ns)
    is_large = sender.carried < size >= LEAST_LARGE
    return candidate(
        Cause.HALF_OPEN, Certainty.LIKELY,
        f"The path lost {size:,} bytes of {who}: {other} got what {who} sent after them, and {waited} later its TCP"
        " still waited for them.",
        [
            Evidence.at(f"{who} sent {_segment(hole)} after {size:,} bytes that are not in the capture", hole),
            Evidence.at(f"{other} still acknowledged only what came before them: it had not got them either", waits[0]),
            _carried(side, size, sender) if is_large else None, _consequence(case, side), case.closing(),
        ],
        advice=_OF_MTU if is_large else (), usual=not is_large, weight=80,
    )  # fmt: skip


def _moved(case: Case, origin: int) -> Candidate:
    """A connection that a NAT has given another port, of which the server knows nothing."""
    first = (case.half("client") or Half()).recent[0]
    return candidate(
        Cause.HALF_OPEN, Certainty.LIKELY,
        f"This is connection #{origin} through another port: a NAT on the path had forgotten it and chose a new one,"
        " and the broker, which has no connection with that port, answered with RST.",
        [
            Evidence.at(f"the first segment continues the numbers of both sides of connection #{origin}", first),
            case.closing(),
        ],
        weight=88,
    )  # fmt: skip


def _segment(seen: Seen) -> str:
    if seen.flags & (FIN | RST):
        return "FIN" if seen.flags & FIN else "RST"
    return counted(seen.length, "byte") if seen.length else "an acknowledgment"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _probed(case: Case) -> Candidate | None:
    """One side probed the connection again and again (TCP keep-alive), and nothing of the other one came any more."""
    if case.connection.one_sided:
        return None
    for side in ("server", "client"):
        sender, silent = case.half(side), case.half(other_side(side))
        if sender is None or silent is None or not silent.segments or sender.probes < LEAST_PROBES:
            continue
        first, last = sender.first_probe, sender.last_probe
        if first is None or last is None or silent.resets or last.timestamp_ns - first.timestamp_ns < SILENCE_NS:
            continue
        length = describe.span(last.timestamp_ns - first.timestamp_ns)
        return candidate(
            Cause.HALF_OPEN, Certainty.LIKELY,
            f"{MEANING[other_side(side)].capitalize()} or the path to it was gone: {MEANING[side]} probed the"
            " connection (TCP keep-alive), and nothing answered.",
            [
                *case.last_packet(other_side(side)),
                Evidence.at(
                    f"{MEANING[side]} sent {sender.probes} probes within {length}, and nothing answered", first
                ),
                case.closing(),
            ],
            weight=78,
        )  # fmt: skip
    return None


def _reset_at_last(case: Case) -> Iterator[Candidate]:
    """The client was silent, and answers the server's end with a RST alone: it had no connection any more."""
    client = case.half("client")
    if client is None or case.by != "server" or case.how != "fin" or case.story.clock_set:
        return
    resets = [one for one in client.resets if one.timestamp_ns >= case.ended_ns]
    before = [one for one in client.recent if one.timestamp_ns <= case.ended_ns]
    last = before[-1] if before else None
    if not resets or last is None or case.ended_ns - last.timestamp_ns < SILENCE_NS:
        return
    yield candidate(
        Cause.HALF_OPEN, Certainty.HYPOTHESIS,
        "The path may have been lost before the end: the client had given the connection up or lost it when the"
        " broker closed, and nothing had told the broker.",
        [
            Evidence.at(
                f"the client's last segment came {describe.span(case.ended_ns - last.timestamp_ns)} before the end",
                last,
            ),
            case.closing(),
            Evidence.at("the client answered with RST alone: it did not know the connection any more", resets[0]),
            _returned(case, last.timestamp_ns),
        ],
        weight=58,
    )  # fmt: skip


def _overdue(case: Case) -> Iterator[Candidate]:
    """Open at the end of the capture, with a client that is silent for longer than it may be."""
    story, keep_alive = case.story, case.connection.keep_alive
    last = story.last_of("client")
    if not story.finished or not keep_alive or last is None or case.connection.one_sided == "server_to_client":
        return
    silent = case.watch.now_ns - last.timestamp_ns
    if story.clock_set:
        return
    if silent <= keep_alive * SECOND * 3 // 2 + LATE_NS:
        return
    yield candidate(
        Cause.HALF_OPEN, Certainty.HYPOTHESIS,
        f"The client has been silent for {describe.span(silent)} where the capture ends, longer than one and a half"
        f" times its Keep Alive of {keep_alive} s: it or the path may be gone.",
        [
            story.evidence(last, f"the client's last packet: {last.what}"),
            _returned(case, last.timestamp_ns),
            case.closing(),
        ],
        [Evidence("no end of the connection was captured")], weight=60,
    )  # fmt: skip


def _returned(case: Case, since_ns: int) -> Evidence | None:
    """The client's new connection while the old one was lost."""
    found = case.book.other_arrivals(case.story, since_ns, case.ended_ns + RETURN_NS)
    if not found:
        return None
    one = found[0]
    whence = "from another port" if host(one.client) == host(case.connection.client) else "from another address"
    if one.client == case.connection.client:
        whence = "from the same port"
    return Evidence.at(f"the client came back {whence} as #{one.connection} ({one.client})", one)


_SAME_PORT = (
    "The client opened a new connection from the same port without ending this one: it had lost its state, as after a"
    " reset or a loss of power."
)


def device_restart(case: Case) -> Iterator[Candidate]:
    """A side did not know the connection any more."""
    story = case.story
    if case.how == "port_reused":
        limit = (case.connection.keep_alive or 0) * SECOND * 3 // 2 or LONG_GONE_NS
        silent = story.silent_ns
        doubts = []
        if silent is not None and silent > max(limit, FORGOTTEN_NS):
            doubts.append(
                Evidence("after so long a silence the connection may have ended before: the capture lacks that")
            )
        yield candidate(
            Cause.DEVICE_RESTART, Certainty.HYPOTHESIS if doubts else Certainty.LIKELY, _SAME_PORT,
            [*case.last_packet("client"), case.closing()], doubts, weight=86,
        )  # fmt: skip
        return
    if case.how != "reset" or not case.connection.end_disowned or case.by is None:
        return
    heard = (case.half(case.by) or Half()).last
    if heard is not None and not story.clock_set and 0 <= case.ended_ns - heard.timestamp_ns < BOOT_NS:
        return  # it has just reset the connection: its first RST, which acknowledges something, was lost
    syn = case.watch.next_syn(story.facts, case.connection.client) if story.facts is not None else None
    again = case.by == "client" and syn is not None and syn.timestamp_ns <= story.ended_ns
    asked = _answered_by_reset(case)
    if asked is None and not again:
        return
    reasons: list[Evidence | None] = []
    if again and syn is not None:
        reasons.append(Evidence.at("the client sent SYN from the same port", syn))
    if asked is not None:
        sender = MEANING[other_side(case.by)]
        reasons.append(Evidence(f"{sender} sent a segment of the connection", asked.frame, asked.timestamp_ns))
    who = MEANING[case.by]
    reasons.append(
        Evidence(
            f"{who} answered with a RST that acknowledges nothing: its stack did not know the connection",
            story.ended_frame, story.ended_ns,
        )
    )  # fmt: skip
    if again:
        yield candidate(Cause.DEVICE_RESTART, Certainty.LIKELY, _SAME_PORT, reasons, weight=86)
    elif case.by == "client":
        yield candidate(
            Cause.DEVICE_RESTART, Certainty.LIKELY,
            "The client had lost the connection's state, as after a reset or a loss of power: it answered the broker's"
            " segment with a RST.",
            reasons,
            [Evidence("a NAT or firewall that forgot the connection can answer in the place of the client, too")],
            weight=70,
        )  # fmt: skip
    else:
        silent = story.facts.pause_ns if story.facts is not None else 0
        forgotten = silent >= FORGOTTEN_NS and asked is not None
        doubts = [] if ran_on(case) else [Evidence("a broker that had restarted answers in the same way")]
        if forgotten:
            yield candidate(
                Cause.IDLE_TIMEOUT, Certainty.HYPOTHESIS,
                f"After {describe.span(silent)} of silence the connection was not known any more: a NAT, firewall or"
                " load balancer between the two may have forgotten it.",
                reasons, doubts, weight=72,
            )  # fmt: skip
        yield candidate(
            Cause.SERVER_RESTART, Certainty.HYPOTHESIS if forgotten else Certainty.LIKELY,
            "The broker did not know the connection any more: it or its machine had restarted, or a load balancer"
            " before it had forgotten the connection.",
            reasons, weight=70,
        )  # fmt: skip


def _answered_by_reset(case: Case) -> Seen | None:
    """The segment that the RST at the end answers; one in order that only acknowledges is not answered."""
    half = case.half(other_side(case.by or "")) or Half()
    asked = next((one for one in reversed(half.recent) if one.timestamp_ns <= case.ended_ns), None)
    if asked is None or (case.ended_ns - asked.timestamp_ns > ANSWER_NS and not case.story.clock_set):
        return None
    asks = asked.length or asked.flags & (SYN | FIN) or asked.sequence != half.end
    return asked if asks else None


def middlebox(case: Case) -> Iterator[Candidate]:
    """The RST does not look like the segments of the side that it names as its sender."""
    if case.how != "reset" or case.by is None:
        return
    sender, peer = case.half(case.by), case.half(other_side(case.by))
    if sender is None or peer is None or not sender.resets:
        return
    reset = next((one for one in sender.resets if one.frame == case.story.ended_frame), sender.resets[0])
    strong, weak = list(_oddities(case, sender, peer, reset)), list(_weak_oddities(sender, reset))
    if not strong:
        return
    certainty = Certainty.LIKELY if len(strong) + len(weak) > 1 else Certainty.HYPOTHESIS
    place = (reset.frame, reset.timestamp_ns, reset.capture)
    who = MEANING[case.by]
    doubts = []
    if reset.ttl is not None and reset.ttl == sender.usual_ttl:
        doubts.append(Evidence(f"its TTL is that of the other segments of {who}", *place))
    yield candidate(
        Cause.MIDDLEBOX_RESET, certainty,
        f"The RST names {who} as its sender, and does not look like {who}'s other segments: a firewall, a load"
        " balancer or another device between the two most probably sent it.",
        [*(Evidence(one, *place) for one in (*strong, *weak)), case.closing()], doubts,
        weight=84 if len(strong) > 1 else 76,
    )  # fmt: skip


def _oddities(case: Case, sender: Half, peer: Half, reset: Seen) -> Iterator[str]:
    """What distinguishes the RST from its alleged sender's segments."""
    usual = sender.usual_ttl
    who = MEANING[case.by or ""]
    if reset.ttl is not None and usual is not None and reset.ttl != usual and len(sender.ttls) <= 2:
        yield f"the RST has TTL {reset.ttl}; all other segments of {who} have {usual}"
    if (
        distance(sender.end, reset.sequence) < -1
        and not sender.outstanding
        and not case.connection.end_disowned
        and not sender.finished
        and (reset.flags & ACK or all(one.acknowledgment != reset.sequence for one in peer.recent))
    ):
        # A stack that answers a segment of a connection that is over takes what that acknowledges.
        yield f"its sequence number is {-distance(sender.end, reset.sequence):,} bytes before where {who} stood"
    # Data from before the reset may come after it, where the network changes the order.
    after = [
        one
        for one in sender.recent
        if one.timestamp_ns > reset.timestamp_ns and one.length and distance(reset.sequence, one.sequence) >= 0
    ]
    if after:
        yield f"{who} sent data after its RST, as if it knew nothing of it (frame {after[0].frame})"
    both = [one for one in peer.resets if abs(one.timestamp_ns - reset.timestamp_ns) <= BOTH_NS]
    # A reset without an acknowledgment is the answer of a stack to what came after an end.
    if both and reset.flags & both[0].flags & ACK and distance(peer.end, both[0].sequence) == 0:
        yield f"both sides were reset at the same time (frame {both[0].frame})"


def _weak_oddities(sender: Half, reset: Seen) -> Iterator[str]:
    """What adds to that, and proves little alone."""
    ahead = distance(sender.end, reset.sequence)
    if ahead > 1 and not sender.finished:
        # The network may have lost these bytes.
        yield f"its sequence number is {ahead:,} bytes after where its sender stood"
    known = [one.identification for one in sender.recent if one.identification is not None]
    before = [one for one in known if one]
    if reset.identification is not None and len(before) >= 2:
        nearest = min((reset.identification - one) & 0xFFFF for one in before)
        if reset.identification and nearest > 4_096:
            yield f"its IP identification {reset.identification} is far from those of the other segments ({before[-1]})"
    windows = {one.window for one in sender.recent}
    if reset.window and reset.window not in windows and len(windows) == 1:
        yield f"its window {reset.window:,} is not the one of the other segments ({next(iter(windows)):,})"


_BUFFER = (
    "Raise the buffer of the client for packets (PubSubClient: setBufferSize, esp-mqtt: buffer.size).",
    "Send it smaller messages; where the message is retained, replace or remove it.",
    "In 5.0 announce a Maximum Packet Size: the broker does not send what exceeds it.",
)


def closed_on_delivery(case: Case) -> Iterator[Candidate]:
    """The client closed right after a PUBLISH that is much larger than all that it took before, without a word."""
    story, message, last = case.story, case.story.ended_on("client"), case.story.last_of("server")
    answer, server, is_cut = story.last_of("client"), case.half("server"), "server" in story.cut
    if is_cut and server is not None:  # the end came inside the message, whose last bytes count
        sent = [seen for seen in server.recent if seen.length and seen.timestamp_ns <= case.ended_ns]
        last = replace(story.last["server"][-1], timestamp_ns=sent[-1].timestamp_ns) if sent else None
    if case.by != "client" or message is None or last is None or case.ended_ns - last.timestamp_ns > ODD_NS:
        return
    is_answered = answer is not None and answer.timestamp_ns > last.timestamp_ns and not is_cut
    if message.size <= 4 * max(story.taken, 64) or is_answered:
        return
    left = 0 if server is None else server.outstanding_bytes
    is_part = is_cut or 0 < left < message.size
    taken = max(story.taken, case.book.took(story))
    size = f"it has {message.size:,} bytes; the largest other packet that the client took has {taken:,}"
    repeated, often = again(case)
    limit = case.connection.client_side.maximum_packet_size
    doubts = [] if is_part else [Evidence("the client's TCP acknowledged all of it")]
    if limit is not None and message.size <= limit:
        doubts.append(Evidence(f"the client announced to take {limit:,} bytes"))
    part = Evidence("the client did not take all of it before it closed") if is_part else None
    yield candidate(
        Cause.PACKET_TOO_LARGE, Certainty.LIKELY if often and not doubts else Certainty.HYPOTHESIS,
        f"The client closed {'inside' if is_cut else case.apart(last.timestamp_ns) + 'after'} a PUBLISH of"
        f" {message.size:,} bytes, by far the largest that it was sent{often}: it may be larger than its buffer.",
        [story.evidence(last, f"the broker's last packet: {last.what}"), Evidence(size), part, *repeated,
         case.closing()],
        doubts, advice=_BUFFER, usual=False, weight=62,
    )  # fmt: skip


def plain_end(case: Case) -> Iterator[Candidate]:
    """The explanation where nothing shows a cause."""
    story, connection = case.story, case.connection
    if connection.transport == "tls" and not connection.decrypted:
        if case.is_closed and case.how == "reset":
            yield _plain(case)
        else:
            why = connection.details.get("undecrypted")
            yield candidate(
                Cause.UNREADABLE, Certainty.CERTAIN,
                "What was said is encrypted, so that only the end of the transport can be seen"
                + (f"; not decrypted: {why}." if why else "."), [case.closing()],
                weight=5,
            )  # fmt: skip
        return
    if not case.is_closed:
        last = case.last_packet("client") + case.last_packet("server")
        told = {
            "capture_end": "The connection is open where the capture ends: how it ended is unknown.",
            "idle": "Nothing more was captured of the connection: whether and how it ended is unknown.",
            "evicted": "Too many connections were open to follow this one: whether and how it ended is unknown.",
        }
        how = "capture_end" if story.finished else case.how
        headline = told.get(how, "How the connection ended was not captured.")
        if connection.one_sided and not any(story.counts.values()):
            headline = "The capture has one direction of the connection without a packet: what came of it is unknown."
        yield candidate(Cause.STILL_OPEN, Certainty.CERTAIN, headline, [*last, case.closing()], weight=5)
        return
    yield _plain(case)


def _plain(case: Case) -> Candidate:
    unknown = case.unknown("its DISCONNECT may be")
    if case.connection.transport == "tls" and not case.connection.decrypted:
        unknown = Evidence("what the client sent is encrypted: its DISCONNECT may be among it")
    before = filter(None, (case.goodbye, case.answered))
    reasons = [*case.last_packet("client"), *case.last_packet("server"), *before, case.closing()]
    connection = case.connection
    repeated, often = again(case)
    alike = case.book.triggered_again(case.story)
    if len(alike) >= LEAST_ALIKE:
        often = ""
    reasons[-1:-1] = [*declined(case), *repeated]
    message = case.story.last_of(other_side(case.by or "client"))
    is_last = message is not None and message is case.story.last[other_side(case.by or "client")][-1]
    after = f" {case.apart(message.timestamp_ns)}after {message.what}{often}" if often and message and is_last else ""
    if connection.one_sided == "server_to_client":
        return candidate(
            Cause.NOT_SHOWN, Certainty.CERTAIN,
            "Nothing that the client sent was captured: whether it said goodbye with DISCONNECT is unknown.", reasons,
            weight=10,
        )  # fmt: skip
    if case.by is None:
        cause = Cause.CLIENT_CLOSED if case.connection.closed_by == "client" else Cause.SERVER_CLOSED
        headline = (
            "The connection was closed; the capture has one direction alone, so that it does not show by whom first."
        )
        return candidate(cause, Certainty.HYPOTHESIS, headline, reasons, weight=10)
    if case.by == "server":
        headline = f"The broker closed the connection{after}, and nothing in the capture says why."
        cause = Cause.SERVER_CLOSED
        if case.how == "reset":
            headline = f"The broker reset the connection (RST){after}, and nothing in the capture says why."
            cause = Cause.SERVER_RESET
        uncounted, keep_alive = publish_uncounted(case), connection.keep_alive or 0
        if uncounted:
            quiet = describe.span(case.story.quiet_ns or 0)
            headline = (
                f"The broker may not count PUBLISH for the Keep Alive: it closed {quiet} (1.5 × {keep_alive} s) after"
                f" the client's last packet of another kind, so on {len(uncounted)} connections"
                f" ({numbers_of(uncounted)})."
            )
        if len(alike) >= LEAST_ALIKE:
            headline = headline.partition(", and")[0] + f" {_on_each(case, alike)}, most probably because of it."
        return candidate(
            cause, Certainty.HYPOTHESIS, headline, [*reasons, *not_all(case)], [unknown], weight=10,
            advice=(_OF_TRIGGER.format("broker", case.story.trigger),) if len(alike) >= LEAST_ALIKE else (),
        )  # fmt: skip
    sure = Certainty.LIKELY
    if case.how == "reset":
        did, cause = "The client reset the connection (RST)", Cause.CLIENT_RESET
    else:
        did, cause = "The client closed the connection", Cause.CLIENT_CLOSED
    story = case.story
    cut = story.cut.get("client")
    odd = _closed_on(case)
    advice: tuple[str, ...] = ()
    if cut is not None:
        kind, length, total = cut
        inside = (
            f"{PacketType(kind).name if kind in tuple(PacketType) else 'packet'}: {length:,} of its {total:,} bytes"
        )
        headline = f"{did} inside a {inside} were sent."
        advice = ("Send as many bytes as the Remaining Length of a packet says before anything else is sent.",)
    elif odd is not None:
        headline = f"{did} {case.apart(odd.timestamp_ns)}after a {odd.what}, without a DISCONNECT."
        reasons.insert(-1, story.evidence(odd, f"the broker sent a {odd.what}, which some clients do not expect"))
        if len(alike) > 1:
            shown = ", ".join(f"#{one}" for one in alike[:8])
            reasons.insert(-1, Evidence(f"{len(alike)} connections of the client ended after the same ({shown})"))
        advice = (f"Look what the client does with a {odd.what}.",)
        if odd.what.endswith("topic_name"):
            advice += ("Look who publishes to that topic, and use names without such characters.", *ADVICE[cause])
        if "had not used" in odd.what:
            advice = (
                "Let the client store its QoS 2 state over restarts, or connect with Clean Start when it is lost.",
            )
    elif len(alike) >= LEAST_ALIKE:
        headline = f"{did} {_on_each(case, alike)}, perhaps because of it, and without a DISCONNECT."
        advice = (_OF_TRIGGER.format("client", story.trigger),)
    else:
        headline = f"{did}{after}{',' if after else ''} without a DISCONNECT."
    reasons[-1:-1] = framed(case, "server")
    if unknown is not None:
        sure, headline = Certainty.HYPOTHESIS, f"{did}; no DISCONNECT was captured."
    back = twin(case)
    if back is not None:
        reasons.insert(-1, Evidence.at(f"the client connected again as #{back.connection} ({back.client})", back))
    return candidate(
        cause, sure, headline, reasons, [unknown], case.violations("server"), advice=advice, usual=not advice,
        weight=20,
    )  # fmt: skip


_OF_TRIGGER = "Look what the {} does with this packet, in its log at that time: {}."


def _on_each(case: Case, numbers: list[int]) -> str:
    """That connections ended after the same packet."""
    shown = ", ".join(f"#{number}" for number in numbers[:8]) + (", …" if len(numbers) > 8 else "")
    last = case.story.last_of(other_side(case.by or ""))
    apart = "" if last is None else case.apart(last.timestamp_ns)
    return f"{apart}after {case.story.trigger}, as each of {len(numbers)} connections ({shown})"


def trigger(case: Case) -> str:
    """What the other side sent right before one side ended the connection, without a word since then."""
    odd, by = _closed_on(case), case.by
    if by is None or case.story.disconnects or not case.is_closed:
        return ""
    if odd is not None and by == "client":
        return odd.what
    last, own = case.story.last_of(other_side(by)), case.story.last_of(by)
    if last is None or own is None or own.timestamp_ns > last.timestamp_ns or last.what.startswith("CONN"):
        return ""
    if any(one is not last and one.what == last.what for one in case.story.last[other_side(by)]):
        return ""  # it comes again and again, and was borne
    if by == "client" and not last.what.startswith("PUBLISH "):
        return ""  # an answer, with which the client may have had all that it wanted
    return last.what if 0 <= case.ended_ns - last.timestamp_ns <= ODD_NS else ""


def _closed_on(case: Case) -> Moment | None:
    """An unusual packet of the server, after which the client closed at once."""
    odd = case.story.odd
    if odd is None or odd.what in case.story.borne_odd or case.story.last_of("server") is None:
        return None
    if not 0 <= case.ended_ns - odd.timestamp_ns <= ODD_NS:
        return None
    last = case.story.last_of("client")
    return None if last is not None and last.timestamp_ns > odd.timestamp_ns else odd
