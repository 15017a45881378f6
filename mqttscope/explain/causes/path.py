"""Causes of a path that was lost: segments without an answer, or too large, and a NAT that changed a port."""

from __future__ import annotations

from collections.abc import Iterator

from mqttscope.explain import describe
from mqttscope.explain.advice import OF_MTU
from mqttscope.explain.causes.case import MEANING, RETURN_NS, SECOND, Case, candidate, other_side
from mqttscope.explain.causes.timing import closed_while_repeated, path_advice
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence
from mqttscope.explain.segments import LEAST_REPEATS, MAX_SEEN, Half, Seen, Unanswered
from mqttscope.mqtt.wire import counted
from mqttscope.net.segment import ACK, FIN, RST, SYN, distance
from mqttscope.session.connection import host_of

LEAST_LARGE = 537
"""Bytes of a segment that some paths do not carry: all carry 536 (RFC 9293, 3.7.1)."""
LEAST_PROBES = 3
"""Minimum number of unanswered TCP keep-alive probes that show a lost path; networks lose one or two."""
SILENCE_NS = 3 * SECOND
"""Minimum silence of the other side before a lost path."""
LATE_NS = 5 * SECOND
"""How far beyond the Keep Alive a client of an open connection is silent before that is reported."""


def note_origin(case: Case) -> None:
    """Note the open connection that a connection without a SYN continues from another port of its client."""
    mine, client = case.connection, case.half("client")
    if client is None or case.by != "server" or case.how != "reset" or client.segments > MAX_SEEN or not client.recent:
        return
    first = client.recent[0]
    if first.flags & SYN or not first.flags & ACK:
        return
    for other in case.book.open.get(mine.server, {}).values():
        its = other.connection
        if its.number == mine.number or host_of(its.client) != host_of(mine.client):
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
    """One side sent again and again, and the other side no longer acknowledged anything."""
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
            heard = [seen for seen in silent.recent if lost.since_ns < seen.timestamp_ns <= case.story.ended_ns]
            if case.by == other_side(side):
                heard += [
                    seen for seen in silent.resets[:1] if seen.flags & ACK and seen.frame == case.story.ended_frame
                ]
            bare = [seen for seen in heard if not seen.length and not seen.flags & (FIN | RST)]
            duplicate = _duplicate(lost)
            if bare and (duplicate is None or not all(seen.window for seen in bare)):
                continue  # its TCP answers something: a part of what was sent has arrived, or it has no room
            heard = [seen for seen in heard if seen not in bare]
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
    size, limit = _too_long(lost, sender), _announced_limit(lost, silent, heard)
    if size and sender.carried:
        reasons.append(_carried(side, size, sender))
    if limit:
        text = f"the SYN of {MEANING[other]} announced that it takes at most {limit:,} bytes in a segment (MSS)"
        reasons.append(Evidence(f"{text}, and {MEANING[side]} sends {lost.last.length:,}"))
    reasons.append(_consequence(case, side))
    resets = [seen for seen in silent.resets if seen.timestamp_ns > began]
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
        elif limit:
            headline = (
                f"{MEANING[side].capitalize()} sends larger segments than {MEANING[other]} takes: it sent one of"
                f" {lost.last.length:,} bytes {lost.repeats + 1} times, which never arrived, and the limit (MSS) is"
                f" {limit:,}."
            )
    weight = 78 if case.by != "server" or proofs else 70
    reasons.append(hasty := closed_while_repeated(case, side))
    advice = path_advice(case, began, hasty) if not (size or limit) else (*_of_limit(side, limit), *OF_MTU)
    return candidate(
        Cause.HALF_OPEN, certainty, headline, reasons, doubts,
        advice=advice, usual=False, weight=weight + 2 * proofs,
    )  # fmt: skip


def _duplicate(lost: Unanswered) -> Seen | None:
    """An acknowledgment of nothing new that was not on its way before, or that reports missing bytes."""
    seen = lost.duplicate
    return None if seen is None or (seen.timestamp_ns - lost.since_ns < SECOND // 2 and not seen.lacks) else seen


def _too_long(lost: Unanswered, sender: Half) -> int:
    """Length of a segment that came again and again, while only shorter ones ever arrived; 0 for others."""
    last, duplicate = lost.last, _duplicate(lost)
    if duplicate is None or last.sequence != duplicate.acknowledgment or last.length < LEAST_LARGE:
        return 0
    return last.length if 0 < sender.carried < last.length else 0


def _announced_limit(lost: Unanswered, silent: Half, heard: Seen | None) -> int:
    """The MSS of a receiver, if its sender repeats a longer segment that has not arrived; 0 without such a segment.

    A capture at the sender may show segments that the network interface divides later, but TCP repeats a lost segment
    in its true size.
    """
    limit, last = silent.handshake.maximum_segment, lost.last
    if heard is None or heard.acknowledgment != last.sequence or not 0 < limit < last.length:
        return 0
    return limit


def _of_limit(side: str, limit: int) -> tuple[str, ...]:
    if not limit:
        return ()
    return (f"Let {MEANING[side]} keep the MSS of the other side: segments of at most {limit:,} bytes on this path.",)


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
    """The last bytes of a side arrived without the bytes before them, and the other side still waited for these."""
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
        advice=OF_MTU if is_large else (), usual=not is_large, weight=80,
    )  # fmt: skip


def _moved(case: Case, origin: int) -> Candidate:
    """A connection that a NAT has given another port, unknown to the server."""
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
    """One side probed the connection again and again (TCP keep-alive), and the other side no longer answered."""
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
    """The client was silent, and answers the server's end with a RST alone: it had lost the connection."""
    client = case.half("client")
    if client is None or case.by != "server" or case.how != "fin" or case.story.clock_set:
        return
    resets = [seen for seen in client.resets if seen.timestamp_ns >= case.ended_ns]
    before = [seen for seen in client.recent if seen.timestamp_ns <= case.ended_ns]
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
    arrivals = case.book.other_arrivals(case.story, since_ns, case.ended_ns + RETURN_NS)
    if not arrivals:
        return None
    arrival = arrivals[0]
    whence = (
        "from another port" if host_of(arrival.client) == host_of(case.connection.client) else "from another address"
    )
    if arrival.client == case.connection.client:
        whence = "from the same port"
    return Evidence.at(f"the client came back {whence} as #{arrival.connection} ({arrival.client})", arrival)
