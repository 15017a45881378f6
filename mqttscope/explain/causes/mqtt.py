"""Causes that other packets show: a takeover, a violation, a refusal, a large packet, a server that went away."""

from __future__ import annotations

from collections.abc import Iterator

from mqttscope.explain import describe
from mqttscope.explain.advice import ADVICE, BY_VIOLATION
from mqttscope.explain.book import MAX_GRANTED, Arrival
from mqttscope.explain.causes.case import (
    AT_ONCE_NS,
    MEANING,
    SECOND,
    SHORTLY_NS,
    SLEEP,
    Case,
    advice_of,
    candidate,
    code_of,
    exceeded,
    lost_before,
    other_side,
    ran_on,
    twin,
    twin_sentence,
)
from mqttscope.explain.causes.timing import PATIENT_NS, first_of
from mqttscope.explain.model import Broken, Candidate, Cause, Certainty, Evidence
from mqttscope.explain.story import CONTROLS, SPACE
from mqttscope.explain.unread_bytes import MAX_STRAY, Misread
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.strings import has_controls
from mqttscope.mqtt.codec import reserved
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.repair import Intruder, Misreading
from mqttscope.mqtt.wire import counted
from mqttscope.session.connection import host_of

LEAST_FILTERS = 8
"""Topic Filters of a SUBSCRIBE that AWS IoT Core takes, the lowest limit of a service that is known."""
OF_MANY_FILTERS = (
    f"Spread the Topic Filters over several SUBSCRIBE packets (AWS IoT Core takes {LEAST_FILTERS} in each).",
    "Name the broker or service with --profile NAME: its limits are compared then.",
)
LARGE = 16_384
"""Bytes of a packet that may be over a limit although it is hardly larger than one before."""
LEAST_LIMIT = 1_024
"""Bytes of a packet; brokers with a lower limit are rare."""
MOSQUITTO_LEVELS = 201
"""Levels of a topic that mosquitto takes; it ends the connection at more than 200 slashes (its source:
TOPIC_HIERARCHY_LIMIT)."""
LEAST_LEVELS = 8
"""Levels of a topic that AWS IoT Core takes, the lowest limit of a service that is known."""
LEAST_AGAIN = 2
"""Connections that the same message ended."""
LEAST_TOGETHER = 3
"""Minimum number of common ends while other connections stay open."""
_LENGTH_ADVICE = (
    "Write the Remaining Length as a Variable Byte Integer: seven bits a byte, the lowest first, with the highest bit"
    " set in all but the last byte."
)
_COUNT_ADVICE = "Count the bytes of all fields for the Remaining Length, and not the characters of a text."
NO_CAUSE = ("KAL", "PRF", "WSK")
"""Families of rules that other detectors look at."""
OF_PROFILE = {
    "PRF102": Cause.PACKET_TOO_LARGE,
    "PRF103": Cause.PACKET_TOO_LARGE,
    "PRF109": Cause.CLIENT_IDENTIFIER_REJECTED,
    "PRF111": Cause.UNSUPPORTED_VERSION,
}
"""Rules of profiles, and which cause an end is that follows them; for all others a feature is not supported."""
CONTROL_RULE = "ENC103"
"""The rule of the linter about control characters."""
FRAMING = frozenset(("ENC106", "ENC107", "HDR101", "HDR102", "HDR104"))
"""Rules about packets that hide the beginning of the next packet."""
ANSWERS = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP)
"""Packets with an identifier of an exchange in their first two bytes."""
GONE_NS = 60 * SECOND
"""Maximum time for which a restarting server refuses connections."""
REFUSED = ", and refused new ones"
"""End of the sentence about a stop of a broker that refused connections."""
MANY_TAKEOVERS = 3
"""Minimum number of CONNECT packets of one Client Identifier that show a fight for it."""


def taken_over(case: Case) -> Iterator[Candidate]:
    """Another connection took the session over, and the server did not report it."""
    story = case.story
    other = twin(case)
    if other is None:
        return
    apart = abs(case.ended_ns - other.timestamp_ns)
    certainty = Certainty.LIKELY if apart <= AT_ONCE_NS else Certainty.HYPOTHESIS
    same_host = host_of(other.client) == host_of(case.connection.client)
    reasons: list[Evidence | None] = [twin_sentence(case, other)]
    if other.accepted:
        reasons.append(
            Evidence(f"the broker accepted it; a broker then ends the older connection (#{story.connection.number})")
        )
    doubts = []
    if other.accepted is None:
        doubts.append(Evidence("no CONNACK of that connection was captured"))
    if other.server != case.connection.server:
        doubts.append(Evidence(f"it went to another port of the broker: {other.server}"))
    advice: tuple[str, ...] = ()
    silent = story.silent_ns or 0
    lost = lost_before(case, other.timestamp_ns)
    rivals = case.book.other_arrivals(story, case.ended_ns - GONE_NS, case.ended_ns + GONE_NS)
    if not same_host:
        heard_ns = _last_heard_ns(case, rivals)
        lost = lost if lost is not None and heard_ns <= lost.since_ns else None
        headline = (
            f"The session was taken over: a connection from another address, {other.client}, has the same Client"
            " Identifier."
        )
        addresses = f"{case.connection.client} and {other.client}"
        advice = (f"Find out whether {addresses} are two devices, or one device with a new address.",)
        if heard_ns > other.timestamp_ns:
            headline = (
                f"The session was taken over: another host, {other.client}, connected with the same Client Identifier."
            )
            advice = (f"Two hosts use one Client Identifier: {addresses}.",)
    else:
        headline = f"The session was taken over by a new connection from the same host, {other.client}."
        if silent > 10 * SECOND:
            advice = (SLEEP,)
            reasons.append(
                Evidence(
                    f"the old connection had been silent for {describe.span(silent)}: the device may have given it up"
                    " without an end that arrived"
                )
            )
    if lost is not None:
        advice = ADVICE[Cause.TAKEN_OVER][1:]
    number = len(rivals) + 1
    hosts = {host_of(case.connection.client), *(host_of(rival.client) for rival in rivals)}
    if number > MANY_TAKEOVERS and len(hosts) > 1:
        many = f"at least {number:,}" if case.book.dropped["CONNECT packets"] else f"{number:,}"
        reasons.append(
            Evidence(f"this Client Identifier connected {many} times within two minutes: they displace each other")
        )
    disconnect = story.disconnects.get("server")
    if disconnect is not None:
        code = describe.reason(PacketType.DISCONNECT, disconnect.code, case.connection.version)
        text = f"the broker sent DISCONNECT {code}, which names no reason; 5.0 has 0x8E for this [5.0 MQTT-3.1.4-3]"
        reasons.append(Evidence(text, disconnect.frame, disconnect.timestamp_ns))
    reasons.append(case.closing())
    yield candidate(
        Cause.TAKEN_OVER, certainty, headline, reasons, doubts, advice=advice, usual=lost is None,
        weight=90 if lost is None else 70,
    )  # fmt: skip


def _last_heard_ns(case: Case, arrivals: list[Arrival]) -> int:
    """Time of the last segment from the client's address on this connection, or of its last CONNECT in ``arrivals``.

    An RST does not count: the next owner of the address, or a NAT, answers with RST.
    """
    client, host = case.half("client"), host_of(case.connection.client)
    times = [arrival.timestamp_ns for arrival in arrivals if host_of(arrival.client) == host]
    times += [] if client is None or client.last is None else [client.last.timestamp_ns]
    return max(times, default=0)


def violation(case: Case) -> Iterator[Candidate]:
    """A side broke the protocol, and the other one closed soon after."""
    story = case.story
    if case.by is None:
        return
    blamed = other_side(case.by)
    violations = [
        broken
        for broken in case.violations(blamed)
        if broken.rule[:3] not in NO_CAUSE and not _is_about_end(broken, case)
    ]
    if not violations:
        return
    # Servers end connections for violations that have a reason code, and mostly ignore others.
    violations.sort(key=lambda broken: (-broken.timestamp_ns, code_of(broken) is None))
    # After a packet with a wrong length the rest of the stream is read at wrong places: the first fault counts.
    broken = [broken for broken in violations if broken.rule in FRAMING]
    first = min(broken, key=lambda broken: (broken.timestamp_ns, broken.frame)) if broken else violations[0]
    violations = [first, *(other for other in violations if other is not first and not broken)]
    apart = case.ended_ns - first.timestamp_ns
    before = [
        broken for broken in story.broken if broken.rule == first.rule and broken.by == blamed and broken is not first
    ]
    borne = any(broken.timestamp_ns < first.timestamp_ns and _went_on(case, broken) for broken in before)
    at_once = apart <= AT_ONCE_NS and not borne and not _went_on(case, first)
    code = code_of(first)
    cause = BY_VIOLATION.get(code or 0, Cause.PROTOCOL_VIOLATION)
    certainty = Certainty.LIKELY if at_once and first.confidence == "certain" else Certainty.HYPOTHESIS
    doubts = []
    if borne:
        doubts.append(Evidence(f"{MEANING[case.by]} had borne the same before on this connection"))
    elif not at_once:
        doubts.append(
            Evidence(f"{describe.span(apart)} passed between the violation and the end, or answers came after it")
        )
    reasons = [
        Evidence(
            f"{MEANING[blamed]} broke the protocol: {first.message} [{first.rule}]", first.frame, first.timestamp_ns
        ),
        case.closing(),
    ]
    headline = (
        f"{MEANING[case.by].capitalize()} closed {case.apart(first.timestamp_ns)}after {MEANING[blamed]} had broken the"
        f" protocol: {first.message}."
    )
    last = story.last_of(blamed)
    is_trigger = at_once and last is not None and last.frame == first.frame and last.what == story.trigger
    alike = case.book.triggered_again(story) if is_trigger else []
    if len(alike) >= LEAST_TOGETHER and certainty is not Certainty.LIKELY:
        certainty = Certainty.LIKELY
        reasons.append(Evidence(f"{len(alike)} connections of the client ended right after the same packet"))
    weight = 85 if certainty is Certainty.LIKELY else 61 if is_trigger else 45
    if certainty is Certainty.LIKELY and story.connack is None and story.connect is not None:
        # A fault of the CONNECT itself explains more than the missing answer.
        weight += 5 * (first.frame == story.connect.frame)
    yield candidate(
        cause, certainty, headline, reasons, doubts, violations[:3],
        advice=advice_of(first), weight=weight, reason_code=code,
    )  # fmt: skip


def wrong_length(case: Case) -> Iterator[Candidate]:
    """A packet has a wrong Remaining Length, as another one that fits all its bytes proves, and the end followed."""
    story, connection = case.story, case.connection
    for side, other in (("client", "server"), ("server", "client")):
        misread = story.misread.get(side)
        sent = connection.client_side if side == "client" else connection.server_side
        reading = None if misread is None else misread.reading(-1 if sent.gapped else sent.stream_offset)
        if misread is None or reading is None:
            continue
        if reading.intruder is not None and not (sent.gapped and story.gaps.get(side) == "missing"):
            yield _intruder(case, misread, reading, reading.intruder, side)
            return
        repair = reading.repair
        if repair is None:
            continue
        who, place = MEANING[side], misread.place(reading)
        kind = PacketType(reading.packet[0] >> 4).name
        fault = f"the Remaining Length of {who}'s {kind} is wrong: {repair.what}"
        yield candidate(
            Cause.PROTOCOL_VIOLATION, Certainty.LIKELY, f"{fault[0].upper()}{fault[1:]}.",
            [
                story.evidence(place, f"{fault}; read so, it ends where it should"),
                Evidence(f"{MEANING[other]} read other packets out of its bytes, or waited for more of them"),
                case.closing(),
            ],
            broken=_framing(case, side), advice=(_COUNT_ADVICE if repair.left_out else _LENGTH_ADVICE,), usual=False,
            weight=95,
        )  # fmt: skip
        return


def stray_bytes(case: Case) -> Iterator[Candidate]:
    """The broker sent bytes after a whole packet that are not a packet, then nothing, and the client gave up."""
    story, server, stray = case.story, case.half("server"), case.story.stray
    connection = case.connection
    if case.by != "client" or stray is None or server is None or connection.transport != "tcp":
        return
    if connection.gaps or connection.unseen_bytes or connection.one_sided:
        return
    sent = [seen for seen in server.recent if seen.length and seen.timestamp_ns <= case.ended_ns]
    answer = story.last_of("client")
    if not sent or sent[-1].frame != stray.before.frame or sent[-1].capture != stray.before.capture:
        return  # the bytes came in another segment than the packet before them, or others came after them
    if answer is not None and answer.timestamp_ns > sent[-1].timestamp_ns:
        return
    length = connection.server_side.stream_offset - stray.offset
    most = 1 if stray.is_beginning or connection.doubtful else MAX_STRAY
    many = f"{counted(length, 'byte')} ({stray.data[:most].hex(' ')}{' …' if length > most else ''})"
    kind = stray.before.what.split(" ")[0]
    at_once = case.ended_ns - sent[-1].timestamp_ns <= AT_ONCE_NS
    doubts = []
    if stray.is_beginning:
        doubts.append(Evidence("they may be the beginning of a packet of which the rest was not sent"))
    if not at_once:
        doubts.append(Evidence(f"{case.apart(sent[-1].timestamp_ns)}passed until the client closed"))
    yield candidate(
        Cause.PROTOCOL_VIOLATION, Certainty.HYPOTHESIS if doubts else Certainty.LIKELY,
        f"The client closed {case.apart(sent[-1].timestamp_ns)}after the broker had sent {many} outside of any"
        f" whole packet after its {kind}.",
        [
            Evidence.at(f"the broker sent {stray.before.what}, and after it {many}", sent[-1]),
            Evidence("no more came before the client closed"), case.closing(),
        ],
        doubts, [broken for broken in case.violations("server") if broken.rule in FRAMING],
        advice=(f"Look where the broker, or a proxy before it, adds bytes to its {kind}.",), usual=False,
        weight=50 if stray.is_beginning else 92,
    )  # fmt: skip


def unreadable_bytes(case: Case) -> Iterator[Candidate]:
    """The client sent bytes that begin no packet, its last ones, and gave up when nothing answered them."""
    story, connection, client, server = case.story, case.connection, case.half("client"), case.half("server")
    bad, last = story.misread.get("client"), story.last_of("client")
    if case.by != "client" or bad is None or last is None or client is None or server is None:
        return
    if bad.frame != last.frame or not bad.data or not reserved(bad.data[0] >> 4, bad.version):
        return
    if case.lacks_bytes or connection.one_sided or connection.doubtful or connection.transport != "tcp":
        return
    waited = case.ended_ns - bad.timestamp_ns
    is_answered = any(seen.length and seen.timestamp_ns > bad.timestamp_ns for seen in server.recent)
    if is_answered or waited < PATIENT_NS or client.outstanding_bytes or story.clock_set:
        return
    shown = f"{counted(len(bad.data), 'byte')} ({bad.data[:MAX_STRAY].hex(' ')}{' …' * (len(bad.data) > MAX_STRAY)})"
    before = list(story.last["client"])[:-1]
    # A ping is due once nothing was sent for a good part of the Keep Alive.
    due_ns = (connection.keep_alive or 0) * SECOND // 2
    is_due = bool(before) and 0 < due_ns <= bad.timestamp_ns - before[-1].timestamp_ns
    is_ping = is_due and len(bad.data) <= MAX_STRAY and PacketType.PINGREQ << 4 in bad.data
    what = f"{shown} that begin no packet" + (", most probably meant as PINGREQ (c0 00)" if is_ping else "")
    yield candidate(
        Cause.PROTOCOL_VIOLATION, Certainty.LIKELY,
        f"The client sent {what}: the broker cannot read them, and the client gave up {describe.span(waited)} later"
        " without an answer.",
        [
            Evidence(f"the client sent {what}", bad.frame, bad.timestamp_ns),
            Evidence("the broker's TCP acknowledged them, and the broker sent nothing after them"), case.closing(),
        ],
        broken=[fault for fault in story.broken if fault.by == "client" and fault.rule in FRAMING],
        advice=(f"Correct what the client writes there{': a PINGREQ is the bytes c0 00' * is_ping}.",), usual=False,
        weight=94,
    )  # fmt: skip


def _framing(case: Case, side: str) -> list[Broken]:
    """Findings of the linter about the framing of a side."""
    return [fault for fault in case.story.broken if fault.by == side and fault.rule in FRAMING]


def _intruder(case: Case, misread: Misread, reading: Misreading, intruder: Intruder, side: str) -> Candidate:
    """A packet that begins inside another one: another thread wrote it there, or the rest of the other was lost."""
    place, who, kind = misread.place(reading), MEANING[side], PacketType(intruder.raw[0] >> 4)
    if intruder.is_inserted:
        identifier = int.from_bytes(intruder.raw[2:4], "big") if kind in ANSWERS else None
        peer = case.connection.server_side if side == "client" else case.connection.client_side
        owed = f" for identifier {identifier}, which it owed," if identifier in peer.exchanges else ""
        what = f"{who} wrote a {kind.name}{owed} into the middle of a PUBLISH, after {intruder.at:,} of its bytes"
        advice = "Let one thread write at a time: lock the connection from the first byte of a packet to its last."
    else:
        what = f"a PUBLISH of {who} was cut short and swallows the next packet: after {intruder.at:,} of its"
        what += f" {intruder.size:,} bytes a {kind.name} begins"
        advice = "Send packets whole: look where bytes are lost, as when a buffer or a write takes a part of them only."
    reasons = [case.story.evidence(place, f"{what}; read so, whole packets fill all bytes"), case.closing()]
    if place.frame != misread.frame or not intruder.is_inserted:
        reader, at = MEANING[other_side(side)], (misread.frame, misread.timestamp_ns)
        reasons.append(Evidence(f"{reader} read the rest of these bytes as a {misread.kind}, which nobody sent", *at))
    return candidate(
        Cause.PROTOCOL_VIOLATION, Certainty.LIKELY, f"{what[0].upper()}{what[1:]}.", reasons,
        broken=_framing(case, side), advice=(advice,), usual=False, weight=96,
    )  # fmt: skip


def not_authorized(case: Case) -> Iterator[Candidate]:
    """Something was refused shortly before the end."""
    story = case.story
    if not story.refusals:
        return
    last = story.refusals[-1]
    apart = case.ended_ns - last.timestamp_ns
    if apart > 6 * SHORTLY_NS or (case.by == "server" and apart > SHORTLY_NS):
        return
    version = case.connection.version
    text = describe.reason(last.kind, last.code, version)
    limit = exceeded(case, "server", last.code, None if last.kind == PacketType.SUBACK else last.in_flight)
    cause = Cause.QUOTA_EXCEEDED if limit else Cause.NOT_AUTHORIZED
    denied = last.code in (0x80, 0x87, 0x97)
    certainty = Certainty.LIKELY if apart <= AT_ONCE_NS and denied else Certainty.HYPOTHESIS
    who = MEANING.get(case.by or "", "one side").capitalize()
    reasons = [
        Evidence(
            f"the broker refused {refusal.what}: {describe.reason(refusal.kind, refusal.code, version)}",
            refusal.frame,
            refusal.timestamp_ns,
        )
        for refusal in list(story.refusals)[-3:]
    ]
    doubts = []
    if last.code == 0x80:
        doubts.append(Evidence("the code says only that it failed; the usual reason is an access rule"))
    yield candidate(
        cause, certainty, f"{who} closed {describe.span(apart)} after the broker had refused {last.what}: {text}"
        + (f"; {limit}." if limit else "."),
        [*reasons, case.closing()], doubts, weight=70, reason_code=last.code,
    )  # fmt: skip


def closed_on_packet(case: Case) -> Iterator[Candidate]:
    """The server closed right after a packet of the client, without a word: its size, or what it asks for."""
    story = case.story
    last = story.last_of("client")
    over = _over_limit(case)
    if over is not None:
        yield over
        return
    if case.by == "server" and last is not None and story.connack is not None and case.arrived:
        if story.latest_kind == PacketType.PUBLISH and story.idle_ns is not None and story.idle_ns <= AT_ONCE_NS:
            begun = story.last["client"][-1]
            yield from _too_large(
                case, [story.evidence(begun, f"the client sent {begun.what}"), *again(case)[0], case.closing()]
            )
        return
    if case.by != "server" or last is None or story.connack is None or case.ended_ns - last.timestamp_ns > AT_ONCE_NS:
        return
    answered = story.last_of("server")
    is_answered = answered is not None and answered.timestamp_ns > last.timestamp_ns
    if story.latest_kind not in (PacketType.PUBLISH, PacketType.SUBSCRIBE) or is_answered:
        return
    if story.last["client"][-1] is not last:
        return
    seen = story.evidence(last, f"the client's last packet: {last.what}")
    apart = case.apart(last.timestamp_ns)
    repeated, often = again(case)
    about: list[Evidence | None] = [
        seen, *repeated, Evidence(f"the broker closed {apart}later, and sent nothing before"), case.closing(),
    ]  # fmt: skip
    odd = odd_text(case)
    if odd:
        yield candidate(
            Cause.PROTOCOL_VIOLATION, Certainty.LIKELY,
            f"The broker closed {apart}after a {odd}{often}: a receiver may close for that.",
            [*about, Evidence("such characters are invisible in logs, and brokers may take the packet for malformed")],
            advice=of_odd_text(), usual=False, weight=86,
        )  # fmt: skip
    if story.latest_kind == PacketType.PUBLISH:
        yield from _too_large(case, about)
        yield from _unsupported(case, about)
    if any(other.certainty.rank for other in violation(case)):
        return
    doubts = [Evidence(_unsaid(case, story.latest_kind or PacketType.PUBLISH))]
    what, subject = last.what if often else last.what.split(" (")[0], "it"
    if story.latest_kind == PacketType.SUBSCRIBE:
        yield from _many_filters(case, about)
        what, subject = _filters(case) if len(story.subscribing[1]) > 1 else (what, subject)
    asks = story.latest_kind == PacketType.SUBSCRIBE or last.what.startswith(("PUBLISH q1", "PUBLISH q2"))
    yield candidate(
        Cause.NOT_AUTHORIZED, Certainty.HYPOTHESIS,
        f"The broker closed {apart}after {what}{often}: {subject} may not be allowed for this client.",
        about, doubts, weight=60 if asks or often else 40,
    )  # fmt: skip


def odd_text(case: Case) -> str:
    """The last request of the client if a topic or filter in it has a control character, as words; else empty.

    A server that bore one does not mind it.
    """
    story, known = case.story, case.book.of(case.connection.server)
    if story.latest_kind == PacketType.PUBLISH and story.asked is not None:
        is_odd = CONTROLS in story.asked.features - known.borne - story.borne
        return f"PUBLISH with {CONTROLS}" if is_odd else ""
    if story.latest_kind != PacketType.SUBSCRIBE or any(map(has_controls, known.granted)):
        return ""
    return "SUBSCRIBE with a control character in a filter" if any(map(has_controls, story.subscribing[1])) else ""


def of_odd_text() -> tuple[str, ...]:
    """Advice about control characters."""
    return (all_rules()[CONTROL_RULE].paragraphs()[-1],)


def _filters(case: Case) -> tuple[str, str]:
    """The number of Topic Filters of the last SUBSCRIBE, and the ones that the broker may refuse.

    A filter that others were granted may be refused to this client, too, but one that nobody was granted is likelier.
    """
    filters, known = case.story.subscribing[1], case.book.of(case.connection.server)
    what, others = (
        f"a SUBSCRIBE with {len(filters):,} Topic Filters",
        [name for name in filters if name not in known.granted],
    )
    if len(known.granted) >= MAX_GRANTED or len(others) == len(filters) or case.connection.doubtful:
        return what, "one of them"
    if not others:
        return what, "others were granted each of them, but one"
    shown = ", ".join(describe.name(name) for name in others[:3]) + (", …" if len(others) > 3 else "")
    return what, f"{shown}, which nobody was granted,"


def _many_filters(case: Case, about: list[Evidence | None]) -> Iterator[Candidate]:
    """A SUBSCRIBE with more Topic Filters than any that the server has granted."""
    count, most = len(case.story.subscribing[1]), case.book.of(case.connection.server).most_filters
    if count <= max(most, LEAST_FILTERS):
        return
    than = f"more than in any that it has accepted ({most:,})" if most else "and it has accepted no other"
    alike = case.book.triggered_again(case.story)
    again_ = f"{len(alike)} connections of the client ended right after the same packet"
    yield candidate(
        Cause.NOT_SUPPORTED, Certainty.HYPOTHESIS,
        f"The broker closed on a SUBSCRIBE with {count:,} Topic Filters, {than}: it may limit their number.",
        [*about, Evidence(again_) if len(alike) > 1 else None], [Evidence(_unsaid(case, PacketType.SUBSCRIBE))],
        advice=OF_MANY_FILTERS, usual=False, weight=62,
    )  # fmt: skip


def beyond_profile(case: Case) -> Iterator[Candidate]:
    """The client went beyond a limit that the chosen profile has for its broker, and the broker closed."""
    broken = [broken for broken in case.violations("client") if broken.rule.startswith("PRF")]
    if not broken or case.by != "server":
        return
    first = broken[0]
    if any(_went_on(case, other) for other in case.story.broken if other.rule == first.rule):
        return  # it bore an equal packet before
    yield candidate(
        OF_PROFILE.get(first.rule, Cause.NOT_SUPPORTED), Certainty.LIKELY,
        f"The broker closed {case.apart(first.timestamp_ns)}after something beyond its limits: {first.message}.",
        [Evidence(f"{first.message} [{first.rule}]", first.frame, first.timestamp_ns), case.closing()],
        advice=advice_of(first), weight=87,
    )  # fmt: skip


def _over_limit(case: Case) -> Candidate | None:
    """Connections of the client end with messages of several sizes, each larger than all that the broker took.

    The messages have the topic and the features of one that the broker acknowledged.
    """
    story, connection, facts, message = case.story, case.connection, case.story.facts, case.ended_on
    if case.by != "server" or not case.is_closed or story.connack is None or message is None or story.refusals:
        return None
    is_sending = facts is not None and not facts.is_mixed and facts.data_ns >= case.ended_ns - AT_ONCE_NS
    keep_alive_ns, before = (connection.keep_alive or 0) * SECOND, list(story.last["client"])[-2:][0]
    if not is_sending or story.clock_set or 0 < keep_alive_ns <= case.ended_ns - before.timestamp_ns:
        return None
    server, ends = case.book.of(connection.server), case.book.ended_on(story, "server")
    others = case.book.open.get(connection.server, {}).values()
    sizes = {end.size for _, end in ends}
    largest = max(server.borne_bytes, story.borne_bytes, story.largest, *(other.largest for other in others))
    limit = connection.server_side.maximum_packet_size or 0
    if len(sizes) < LEAST_TOGETHER or min(sizes) <= max(largest, limit) or message.topic not in story.accepted:
        return None
    if case.together or not message.features <= server.borne | story.borne:
        return None
    answers = sum(moment.what.startswith(("PUBACK", "PUBREC")) for moment in story.last["server"])
    last, least = story.last["client"][-1], min(sizes)
    return candidate(
        Cause.PACKET_TOO_LARGE, Certainty.LIKELY if answers >= LEAST_AGAIN else Certainty.HYPOTHESIS,
        f"The broker ended {len(ends)} connections with a PUBLISH larger than each that it took: most probably its"
        f" limit is between {largest:,} and {least:,} bytes.",
        [
            story.evidence(last, f"the client sent {last.what}"),
            Evidence(f"the broker ended {first_of(number for number, _ in ends)} with a PUBLISH of {least:,} to"
                     f" {max(sizes):,} bytes, and took all of up to {largest:,} bytes, also to this topic"),
            case.closing(),
        ],
        weight=66,
    )  # fmt: skip


def _too_large(case: Case, about: list[Evidence | None]) -> Iterator[Candidate]:
    """A PUBLISH much larger than all before it; hardly a broker refuses less than `LEAST_LIMIT`."""
    story, limit = case.story, case.connection.server_side.maximum_packet_size
    if story.latest <= 4 * max(story.largest, 64):
        if story.latest > max(story.largest, LARGE) and story.latest > case.book.of(case.connection.server).borne_bytes:
            yield candidate(
                Cause.PACKET_TOO_LARGE, Certainty.HYPOTHESIS,
                f"The broker closed on a PUBLISH of {story.latest:,} bytes, the largest of this client: it may be over"
                " the broker's limit.",
                [*about, Evidence(f"the broker took {story.largest:,} bytes on this connection before")],
                [Evidence(_unsaid(case))], weight=61,
            )  # fmt: skip
        return
    size = f"it has {story.latest:,} bytes; the largest one before it had {story.largest:,}"
    arrived, keep_alive = case.arrived, case.connection.keep_alive
    if arrived:
        size += f"; the broker closed when {arrived:,} bytes of it had come"
    doubts = []
    if limit is not None and story.latest <= limit:
        doubts.append(Evidence(f"the broker announced to take {limit:,} bytes"))
    elif story.latest <= case.book.of(case.connection.server).borne_bytes:
        doubts.append(Evidence("this broker has acknowledged a message of this size or a larger one"))
    elif story.latest < LEAST_LIMIT:
        doubts.append(Evidence("few brokers have a limit as low as that"))
    silent = case.ended_ns - list(story.last["client"])[-2:][0].timestamp_ns
    if arrived and keep_alive and silent >= keep_alive * SECOND:
        doubts.append(Evidence(f"no whole packet had come for {describe.span(silent)}, longer than the Keep Alive"))
    is_single = arrived and not doubts and not again(case)[0]
    if is_single:
        doubts.append(Evidence("a broker that stops may close in the middle of a packet, too"))
    yield candidate(
        Cause.PACKET_TOO_LARGE, Certainty.HYPOTHESIS if doubts else Certainty.LIKELY,
        f"The broker closed {'inside' if arrived else 'on'} a PUBLISH of {story.latest:,} bytes, by far the largest of"
        f" this client: {'it may be' if doubts else 'most probably it is'} over the broker's limit.",
        [*about, Evidence(size)], doubts, weight=61 if is_single else 45 if doubts else 64,
    )  # fmt: skip


def _unsupported(case: Case, about: list[Evidence | None]) -> Iterator[Candidate]:
    """A PUBLISH that asks for what not every broker supports, and what this one has acknowledged to nobody."""
    asked, known = case.story.asked, case.book.of(case.connection.server)
    if asked is None:
        return
    if asked.levels > max(MOSQUITTO_LEVELS, known.borne_levels):
        yield candidate(
            Cause.NOT_SUPPORTED, Certainty.LIKELY,
            f"The broker closed on a topic of {asked.levels} levels: brokers limit them (mosquitto:"
            f" {MOSQUITTO_LEVELS}).",
            about, advice=("Publish to topics of fewer levels.",), usual=False, weight=70,
        )  # fmt: skip
        return
    features, borne = asked.features - {CONTROLS}, known.borne | case.story.borne
    if case.connection.version == ProtocolVersion.V5:
        features &= {SPACE}  # the CONNACK says which of the others the broker supports
    open_ = sorted(features - borne - {"QoS 1"})
    reasons = [
        f"{feature} has been acknowledged to no client in this capture" + "; NATS refuses it" * (feature == SPACE)
        for feature in open_
    ]
    if asked.levels > LEAST_LEVELS:
        open_.append(f"{asked.levels} topic levels")
        reasons.append(f"the topic has {asked.levels} levels; AWS IoT Core takes {LEAST_LEVELS}, EMQX 128")
    if not open_:
        return
    what = " and ".join(open_)
    is_only_difference = asked.topic in case.story.accepted
    if is_only_difference:
        reasons.append(f"the broker has acknowledged a message of this client to the same topic without {what}")
    yield candidate(
        Cause.NOT_SUPPORTED, Certainty.HYPOTHESIS,
        f"The broker closed on a PUBLISH with {what}, which it may not support.",
        [*about, *(Evidence(reason) for reason in reasons)],
        [Evidence(_unsaid(case))],
        advice=(f"Try the same message without {what}.",), usual=False,
        weight=62 if "QoS 2" in open_ or SPACE in open_ or is_only_difference else 58 if "RETAIN" in open_ else 50,
    )  # fmt: skip


def _unsaid(case: Case, kind: int = PacketType.PUBLISH) -> str:
    """Doubt that no packet states a refusal; ``kind``: the request that may have been refused."""
    text, version = "nothing in the capture says so", case.connection.version
    if kind == PacketType.SUBSCRIBE:
        if version == ProtocolVersion.V3_1:
            return f"{text}: in 3.1 a broker cannot refuse a SUBSCRIBE"
        return f"{text}, and a SUBACK could have refused the subscription"
    return text + (": before 5.0 a broker cannot refuse a PUBLISH" if version != ProtocolVersion.V5 else "")


def again(case: Case) -> tuple[list[Evidence], str]:
    """That one side sends the same message on each connection, and the other side ends each; and how often."""
    message = case.ended_on
    numbers = [number for number, other in case.book.ended_on(case.story, case.by) if other == message]
    if len(numbers) < LEAST_AGAIN or message is None:
        return [], ""
    shown = ", ".join(f"#{number}" for number in numbers[:8]) + (", …" if len(numbers) > 8 else "")
    text = (
        f"{MEANING[other_side(case.by or '')]} sent the same message on {len(numbers)} connections ({shown}), and each"
        f" ended in this way: {len(numbers) * message.size:,} bytes so far"
    )
    return [Evidence(text)], f", the same on each of {len(numbers)} connections"


def server_restart(case: Case) -> Iterator[Candidate]:
    """The server ended several connections together, or refused new ones afterwards."""
    story, server = case.story, case.connection.server
    if case.by != "server" or case.how not in ("fin", "reset") or story.own:
        return
    # With bytes missing it may have had a DISCONNECT of the client to answer, as it has all day.
    unclear = case.connection.client_side.gapped or story.is_silence_unclear
    together = [] if unclear else case.together
    refused = case.watch.unanswered(server, case.ended_ns, case.ended_ns + GONE_NS)
    if refused and case.book.begun_in(server, case.ended_ns + 1, refused[0].timestamp_ns):
        # The server accepted clients in the meantime: a later refusal is another event.
        refused = []
    stayed = len(case.book.open.get(server, ()))
    count = len(together) + 1
    whole = count >= 2 and count > stayed - len(case.book.begun_in(server, case.ended_ns, case.ended_ns + GONE_NS))
    if not refused and (unclear or (count < LEAST_TOGETHER and not whole)):
        return
    reasons: list[Evidence | None] = []
    if together:
        reasons.append(_with_others(case))
    if refused:
        knock = refused[0]
        reasons.append(
            Evidence.at(
                f"{describe.span(knock.timestamp_ns - case.ended_ns)} later it refused a connection of {knock.client}"
                " (RST to its SYN): nothing listened on the port",
                knock,
            )
        )
    back = case.book.begun_in(server, refused[-1].timestamp_ns, case.ended_ns + 10 * GONE_NS) if refused else []
    if back:
        reasons.append(
            Evidence.at(
                f"it accepted clients again {describe.span(back[0].timestamp_ns - case.ended_ns)} after the end",
                back[0],
            )
        )  # fmt: skip
    reasons += [case.goodbye, case.closing()]
    special = story.special and not refused
    sure = (bool(refused) or count >= LEAST_TOGETHER) and not special
    headline = "The broker stopped or restarted: " + (
        f"it ended {_number(case, count)} connections together" if together else "it ended the connection"
    )
    headline += f"{REFUSED}." if refused else "."
    yield candidate(
        Cause.SERVER_RESTART, Certainty.LIKELY if sure else Certainty.HYPOTHESIS, headline, reasons,
        weight=45 if special else 88 if refused and together else 82,
    )  # fmt: skip


def not_all(case: Case) -> list[Evidence]:
    """Connections that the server ended together while it ran on: an operator or a rule chose them."""
    proof = ran_on(case) if len(case.together) + 1 >= LEAST_TOGETHER else None
    return [] if proof is None else [_with_others(case), proof]


def _with_others(case: Case) -> Evidence:
    together, (first, last) = case.together, case.first_and_last
    names = ", ".join(f"#{end.connection}" for end in together[:8]) + (", …" if len(together) > 8 else "")
    number = _number(case, len(together) + 1)
    return Evidence(
        f"the broker ended {number} connections within {describe.span(last - first)}: this one and {names}",
        together[0].frame, together[0].timestamp_ns,
    )  # fmt: skip


def _number(case: Case, count: int) -> str:
    """A number of ends; there may be more if some are forgotten, or come after this explanation."""
    dropped = case.book.dropped
    return f"at least {count:,}" if dropped["ends"] or dropped["waiting ends"] else f"{count:,}"


def _went_on(case: Case, broken: Broken) -> bool:
    """Whether the closing side answered after the violation: it had not minded."""
    last = case.story.last_of(case.by or "server")
    return last is not None and last.timestamp_ns > broken.timestamp_ns + AT_ONCE_NS // 10


def _is_about_end(broken: Broken, case: Case) -> bool:
    return broken.frame == case.story.ended_frame and not any(
        moment.frame == broken.frame for moment in (*case.story.last["client"], *case.story.last["server"])
    )
