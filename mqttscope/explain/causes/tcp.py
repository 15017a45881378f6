"""Causes that TCP shows: a path that was lost, a device that started again, a RST of neither side; and plain ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mqttscope.explain import describe
from mqttscope.explain.advice import ADVICE, OF_UNUSED_IDENTIFIER
from mqttscope.explain.book import MOMENT_NS, Arrival
from mqttscope.explain.causes.case import (
    MEANING,
    ODD_NS,
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
from mqttscope.explain.causes.timing import (
    LEAST_ALIKE,
    numbers_of,
    publish_uncounted,
)
from mqttscope.explain.model import PLAIN, Candidate, Cause, Certainty, Evidence, Moment
from mqttscope.explain.segments import Half, Seen
from mqttscope.explain.story import ALIKE
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.wire import counted
from mqttscope.net.segment import ACK, FIN, SYN, distance
from mqttscope.session.connection import host_of

UNUSED_NS = 5 * SECOND
"""Minimum duration of an unused connection that shows that the server waited for a CONNECT."""
OUTAGE_NS = 600 * SECOND
"""Maximum time from the stop of a server to an attempt to connect that its stop explains."""
BOOT_NS = SECOND // 2
"""Minimum time that a device or a server needs to lose its state and be on the network again."""
LONG_GONE_NS = 3600 * SECOND
"""Minimum silence that shows that the end of a connection was most probably not captured."""
FORGOTTEN_NS = 60 * SECOND
"""Minimum silence that makes NATs, firewalls and load balancers forget connections."""
ANSWER_NS = 3 * SECOND
"""Maximum time between a segment and the RST that answers it: TCP sends the segment again within it."""
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
    syn = next((seen for seen in client.recent if seen.flags & SYN), None)
    asked = Evidence.at("the client sent SYN", syn) if syn is not None else None
    refused = asked is not None and not server.begun and bool(server.resets)
    if asked is not None and refused:
        answer = server.resets[0]
        yield candidate(
            Cause.NOT_LISTENING, Certainty.CERTAIN,
            f"Nothing listened on {connection.server}: its host refused the TCP connection.",
            [asked, Evidence.at("the host answered with RST", answer)], weight=100,
        )  # fmt: skip
        listened = case.served
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
        again = Evidence(
            f"it sent SYN again {'once' if many == 1 else f'{many} times'}, and nothing answered"
            if many
            else "nothing answered"
        )
        stop = stopped_before(case)
        if stop is not None:
            ended, back = stop
            apart = describe.span(case.connection.opened_ns - (ended.timestamp_ns or 0))
            yield candidate(
                Cause.UNREACHABLE, Certainty.LIKELY,
                f"Nothing answered the client's attempt to connect to {connection.server}: the broker had ended its"
                f" connections {apart} before, and was not back.",
                [ended, asked, again, back], advice=ADVICE[Cause.SERVER_RESTART], usual=False, weight=100,
            )  # fmt: skip
            return
        yield candidate(
            Cause.UNREACHABLE, Certainty.LIKELY if many else Certainty.HYPOTHESIS,
            f"Nothing answered the client's attempt to connect to {connection.server}.", [asked, again], weight=100,
        )  # fmt: skip
    elif connection.handshake_seen and case.by == "server" and case.is_closed and _lasted(case) >= UNUSED_NS:
        near = [arrival for arrival in case.book.of(connection.server).accepted if _is_host_of(case, arrival)]
        served = None
        if near:
            text = f"the broker accepted a client of this host, as connection #{near[-1].connection}"
            served = Evidence.at(text, near[-1])
        yield candidate(
            Cause.NO_CONNECT, Certainty.LIKELY,
            f"No CONNECT came: the client opened the connection and sent nothing, and the server gave up after"
            f" {describe.span(_lasted(case))}.",
            [asked, Evidence("the TCP connection came about, and neither side sent a byte on it"), served,
             case.closing()],
            weight=100,
        )  # fmt: skip
    elif connection.handshake_seen:
        yield candidate(
            Cause.NO_MQTT, Certainty.CERTAIN,
            "The connection was opened and closed, and nobody sent anything, as health checks and port scans do.",
            [case.closing()], weight=100,
        )  # fmt: skip


def _lasted(case: Case) -> int:
    return case.ended_ns - case.connection.opened_ns


def _is_host_of(case: Case, arrival: Arrival) -> bool:
    return host_of(arrival.client) == host_of(case.connection.client)


def stopped_before(case: Case) -> tuple[Evidence, Evidence] | None:
    """The last ends of a server before a SYN without an answer, and its return: it was stopped in between.

    The server ended two connections or more together, or its host refused others meanwhile.  It sent nothing on
    connections from before these ends, answered no SYN until its return, and had clients on the host of this one.
    """
    server, opened_ns = case.connection.server, case.connection.opened_ns
    known = case.book.of(server)
    ends = [end for end in known.ends if end.by == "server" and not end.explained and end.timestamp_ns < opened_ns]
    if not ends or opened_ns - ends[-1].timestamp_ns > OUTAGE_NS:
        return None
    last_ns = ends[-1].timestamp_ns
    together = [end for end in ends if last_ns - end.timestamp_ns <= MOMENT_NS]
    answered = [arrival for arrival in known.answered_syns if arrival.timestamp_ns > last_ns]
    is_known = any(_is_host_of(case, other) for other in (*known.answered_syns, *known.accepted))
    if not answered or answered[0].timestamp_ns < case.ended_ns or not is_known:
        return None
    back, stopped = answered[0], {end.connection for end in together}
    if len(together) == 1 and not case.watch.unanswered(server, last_ns, back.timestamp_ns):
        return None
    if case.book.survivor(server, case.watch, together[0].timestamp_ns, last_ns, stopped) is not None:
        return None
    return (
        Evidence(f"the broker ended {counted(len(together), 'connection')}", ends[-1].frame, last_ns),
        Evidence.at(f"it answered again as connection #{back.connection}", back),
    )


_SAME_PORT = (
    "The client opened a new connection from the same port without ending this one: it had lost its state, as after a"
    " reset or a loss of power."
)


def device_restart(case: Case) -> Iterator[Candidate]:
    """A side had lost its state of the connection."""
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
    asked = next((seen for seen in reversed(half.recent) if seen.timestamp_ns <= case.ended_ns), None)
    if asked is None or (case.ended_ns - asked.timestamp_ns > ANSWER_NS and not case.story.clock_set):
        return None
    asks = asked.length or asked.flags & (SYN | FIN) or asked.sequence != half.end
    return asked if asks else None


def forgotten_ns(case: Case) -> int:
    """Silence before the segment that a RST at the end answered; 0 if that was short, or something else happened."""
    asked = _answered_by_reset(case) if case.how == "reset" and case.by is not None else None
    if asked is None or case.story.clock_set or case.connection.one_sided:
        return 0
    half, other = case.half(other_side(case.by or "")) or Half(), case.half(case.by or "") or Half()
    copies = [seen.timestamp_ns for seen in half.recent if seen.sequence == asked.sequence and seen.length]
    first_ns = min(copies, default=asked.timestamp_ns)
    before = [seen.timestamp_ns for seen in (*half.recent, *other.recent) if seen.timestamp_ns < first_ns]
    silent = first_ns - max(before, default=first_ns)
    return silent if silent >= FORGOTTEN_NS else 0


def forgotten(case: Case) -> Iterator[Candidate]:
    """Connections were answered with RST after the same silence: a device between the two had forgotten them.

    The RST is not like the other segments of the side that it names, or comes of a stack without the connection, three
    times or more.  A longer silence that a connection of the same host survived disproves it.
    """
    silent, server, client = case.story.forgotten_ns, case.connection.server, host_of(case.connection.client)
    sender, peer = case.half(case.by or ""), case.half(other_side(case.by or ""))
    asked = _answered_by_reset(case) if silent else None
    if asked is None or sender is None or peer is None or not sender.resets:
        return
    known = case.book.of(server)
    ends = [end for end in known.ends if end.forgotten_ns and host_of(end.client) == client]
    alike = [end for end in ends if abs(end.forgotten_ns - silent) * ALIKE <= silent]
    pauses = [known.pauses.get(client, 0)]
    for story in case.book.open.get(server, {}).values():
        mine = story.connection
        if mine is not case.connection and host_of(mine.client) == client:
            facts = case.watch.open_facts(mine.flow_key, (mine.frame, mine.capture))
            pauses.append(0 if facts is None else facts.pause_ns)
    if any((pause - silent) * ALIKE > silent for pause in pauses):
        return
    reset = next((seen for seen in sender.resets if seen.frame == case.story.ended_frame), sender.resets[0])
    odd = list(_oddities(case, sender, peer, reset))
    if len(alike) < (2 if odd else LEAST_ALIKE) or not (odd or case.connection.end_disowned):
        return
    who, length = MEANING[other_side(case.by or "")], describe.span(silent)
    own = f" that is not of {MEANING[case.by or '']}" if odd else ""
    last = case.story.last_of(other_side(case.by or ""))
    what = f"the {last.what.split(' ')[0]} of {who}" if last is not None and last.frame == asked.frame else f"{who}"
    yield candidate(
        Cause.IDLE_TIMEOUT, Certainty.LIKELY,
        f"A device between the two (NAT, firewall or load balancer) had forgotten the connection after {length} of"
        f" silence: it answered {what} with a RST{own}.",
        [
            Evidence.at(f"{who} sent the first segment after {length} of silence", asked),
            *(Evidence.at(sign, reset) for sign in odd), case.closing(),
            Evidence(f"{len(alike)} connections of this host ended so after the same silence ({numbers_of(alike)})"),
        ],
        advice=(f"Choose a Keep Alive well below {length}, or raise the idle time-out of that device.",), usual=False,
        weight=FORGOTTEN_WEIGHT,
    )  # fmt: skip


FORGOTTEN_WEIGHT = 89
SETTLED = PLAIN | {Cause.MIDDLEBOX_RESET, Cause.SERVER_RESTART, Cause.DEVICE_RESTART}
"""Causes that a device that forgot the connection rules out."""


def middlebox(case: Case) -> Iterator[Candidate]:
    """The RST does not look like the segments of the side that it names as its sender."""
    if case.how != "reset" or case.by is None:
        return
    sender, peer = case.half(case.by), case.half(other_side(case.by))
    if sender is None or peer is None or not sender.resets:
        return
    reset = next((seen for seen in sender.resets if seen.frame == case.story.ended_frame), sender.resets[0])
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
        [*(Evidence(sign, *place) for sign in (*strong, *weak)), case.closing()], doubts,
        weight=84 if len(strong) > 1 else 76,
    )  # fmt: skip


def _oddities(case: Case, sender: Half, peer: Half, reset: Seen) -> Iterator[str]:
    """Differences between the RST and its alleged sender's segments."""
    usual = sender.usual_ttl
    who = MEANING[case.by or ""]
    if reset.ttl is not None and usual is not None and reset.ttl != usual and len(sender.ttls) <= 2:
        yield f"the RST has TTL {reset.ttl}; all other segments of {who} have {usual}"
    if (
        distance(sender.end, reset.sequence) < -1
        and not sender.outstanding
        and not case.connection.end_disowned
        and not sender.finished
        and (reset.flags & ACK or all(seen.acknowledgment != reset.sequence for seen in peer.recent))
    ):
        # A stack that answers a segment of a connection that is over takes what that acknowledges.
        yield f"its sequence number is {-distance(sender.end, reset.sequence):,} bytes before where {who} stood"
    # Data from before the reset may come after it, where the network changes the order.
    after = [
        seen
        for seen in sender.recent
        if seen.timestamp_ns > reset.timestamp_ns and seen.length and distance(reset.sequence, seen.sequence) >= 0
    ]
    if after:
        yield f"{who} sent data after its RST, as if it knew nothing of it (frame {after[0].frame})"
    both = [seen for seen in peer.resets if abs(seen.timestamp_ns - reset.timestamp_ns) <= BOTH_NS]
    # A reset without an acknowledgment is the answer of a stack to what came after an end.
    if both and reset.flags & both[0].flags & ACK and distance(peer.end, both[0].sequence) == 0:
        yield f"both sides were reset at the same time (frame {both[0].frame})"


def _weak_oddities(sender: Half, reset: Seen) -> Iterator[str]:
    """Further differences, which prove little alone."""
    ahead = distance(sender.end, reset.sequence)
    if ahead > 1 and not sender.finished:
        # The network may have lost these bytes.
        yield f"its sequence number is {ahead:,} bytes after where its sender stood"
    known = [seen.identification for seen in sender.recent if seen.identification is not None]
    before = [identification for identification in known if identification]
    if reset.identification is not None and len(before) >= 2:
        nearest = min((reset.identification - identification) & 0xFFFF for identification in before)
        if reset.identification and nearest > 4_096:
            yield f"its IP identification {reset.identification} is far from those of the other segments ({before[-1]})"
    windows = {seen.window for seen in sender.recent}
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
    if is_cut and server is not None:  # the end came inside the message: only its last bytes are recent
        sent = [seen for seen in server.recent if seen.length and seen.timestamp_ns <= case.ended_ns]
        last = replace(story.last["server"][-1], timestamp_ns=sent[-1].timestamp_ns) if sent else None
    if case.by != "client" or message is None or last is None or case.ended_ns - last.timestamp_ns > ODD_NS:
        return
    is_answered = answer is not None and answer.timestamp_ns > last.timestamp_ns and not is_cut
    if message.size <= 4 * max(story.server_largest, 64) or is_answered:
        return
    left = 0 if server is None else server.outstanding_bytes
    is_part = is_cut or 0 < left < message.size
    largest = max(story.server_largest, case.book.took(story))
    size = f"it has {message.size:,} bytes; the largest other packet that the client took has {largest:,}"
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
    """The explanation if nothing shows a cause."""
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
        headlines = {
            "capture_end": "The connection is open where the capture ends: how it ended is unknown.",
            "idle": "Nothing more was captured of the connection: whether and how it ended is unknown.",
            "evicted": "Too many connections were open to follow this one: whether and how it ended is unknown.",
        }
        how = "capture_end" if story.finished else case.how
        headline = headlines.get(how, "How the connection ended was not captured.")
        if connection.one_sided and not any(story.counts.values()):
            headline = "The capture has one direction of the connection without a packet: what came of it is unknown."
        yield candidate(Cause.STILL_OPEN, Certainty.CERTAIN, headline, [*last, case.closing()], weight=5)
        return
    yield _plain(case)


def _plain(case: Case) -> Candidate:
    unknown = case.unknown("its DISCONNECT may be")
    if case.connection.transport == "tls" and not case.connection.decrypted:
        unknown = Evidence("what the client sent is encrypted: its DISCONNECT may be among it")
    before = filter(None, (case.goodbye or case.close_frame, case.answered))
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
        first = (_OF_TRIGGER.format("broker", case.story.trigger),) if len(alike) >= LEAST_ALIKE else ()
        later = () if connection.version == ProtocolVersion.V5 or case.how == "reset" else (_OF_VERSION,)
        return candidate(
            cause, Certainty.HYPOTHESIS, headline, [*reasons, *not_all(case)], [unknown], weight=10,
            advice=(*first, *ADVICE[cause], *later), usual=False,
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
            shown = ", ".join(f"#{number}" for number in alike[:8])
            reasons.insert(-1, Evidence(f"{len(alike)} connections of the client ended after the same ({shown})"))
        advice = (f"Look what the client does with a {odd.what}.",)
        if odd.what.endswith("topic_name"):
            advice += ("Look who publishes to that topic, and use names without such characters.", *ADVICE[cause])
        if "had not used" in odd.what:
            advice = (OF_UNUSED_IDENTIFIER[odd.what.startswith("PUBACK")],)
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


_OF_VERSION = "Use MQTT 5.0 if both sides can: a broker states the reason in its DISCONNECT there."
_OF_TRIGGER = "Look what the {} does with this packet, in its log at that time: {}."


def _on_each(case: Case, numbers: list[int]) -> str:
    """That connections ended after the same packet."""
    shown = ", ".join(f"#{number}" for number in numbers[:8]) + (", …" if len(numbers) > 8 else "")
    last = case.story.last_of(other_side(case.by or ""))
    apart = "" if last is None else case.apart(last.timestamp_ns)
    return f"{apart}after {case.story.trigger}, as each of {len(numbers)} connections ({shown})"


def trigger(case: Case) -> str:
    """Packet of the other side right before one side ended the connection without sending anything else."""
    odd, by = _closed_on(case), case.by
    if by is None or case.story.disconnects or not case.is_closed:
        return ""
    if odd is not None and by == "client":
        return odd.what
    last, own = case.story.last_of(other_side(by)), case.story.last_of(by)
    if last is None or own is None or own.timestamp_ns > last.timestamp_ns or last.what.startswith("CONN"):
        return ""
    if any(moment is not last and moment.what == last.what for moment in case.story.last[other_side(by)]):
        return ""  # it comes again and again, and was borne
    if by == "client" and not last.what.startswith(("PUBLISH ", "PUBREL ")):
        return ""  # an answer: the client may have been finished
    return last.what if 0 <= case.ended_ns - last.timestamp_ns <= ODD_NS else ""


def _closed_on(case: Case) -> Moment | None:
    """The server sent an unusual packet, and the client closed at once."""
    odd = case.story.odd
    if odd is None or odd.what in case.story.borne_odd or case.story.last_of("server") is None:
        return None
    if not 0 <= case.ended_ns - odd.timestamp_ns <= ODD_NS:
        return None
    last = case.story.last_of("client")
    return None if last is not None and last.timestamp_ns > odd.timestamp_ns else odd
