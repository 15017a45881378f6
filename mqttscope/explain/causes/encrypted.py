"""Causes that encrypted traffic lets one infer, from the times and sizes of its records; never more than hypotheses."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import groupby, pairwise
from operator import itemgetter

from mqttscope.explain import describe
from mqttscope.explain.book import Arrival, End
from mqttscope.explain.causes.case import (
    AT_ONCE_NS,
    MAX_ALERT_BYTES,
    MEANING,
    SECOND,
    Case,
    candidate,
    other_side,
    records_of,
)
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence
from mqttscope.explain.segments import Half, Seen
from mqttscope.net.segment import ACK, distance
from mqttscope.session.connection import host_of

MAX_PING_BYTES = 64
"""Bytes of a segment with a PINGREQ or PINGRESP of two bytes in a TLS record."""
MAX_ANSWER_BYTES = 128
"""Bytes of a CONNACK in a TLS record, with a session ticket of TLS 1.3 not among them."""
ALERT_BYTES = 24
"""Bytes of a TLS 1.3 record with an alert, such as the close_notify before an end: no CONNACK is as short."""
MAX_REASON_BYTES = 3
"""Minimum bytes that a DISCONNECT with a reason code is longer than an alert."""
_REFUSED_FLIGHTS = ["client", "server", "client", "server"]
"""Senders of a handshake that the server refuses at last: hello, its answer, the client's part, an alert."""
MOST_OF_HANDSHAKE = 4
"""Maximum number of encrypted records of the client's part: Certificate, CertificateVerify, Finished, and CONNECT."""
LEAST_REFUSED = 3
"""Minimum number of connections, one after the other, that end on the same record."""
MOST_RECORDS = 1
"""A client that is refused has sent its CONNECT and nothing else."""
LEAST_INTERVALS = 2
"""Equal intervals that show a rhythm."""
EVEN = 10
"""Equal: they differ by less than this part."""
PATIENT_NS = 2 * SECOND
LEAST_REPLACED = 2
"""Ends that each follow a new connection of their host."""
_ADVICE = (
    "Decrypt with --keylog FILE, or capture where MQTT is not encrypted.",
    "Look in the log of the broker at that time.",
)
_ENCRYPTED = "encrypted record"
INFERRED = "inferred from encrypted traffic"


def of_encrypted(case: Case) -> Iterator[Candidate]:
    """Causes that the last records of a connection without keys suggest."""
    connection = case.connection
    client, server = case.half("client"), case.half("server")
    if connection.transport != "tls" or connection.decrypted or not connection.details.get("server_hello"):
        return
    if client is None or server is None or not case.is_closed or connection.one_sided or case.story.clock_set:
        return
    yield from _overlong_record(case)
    yield from _handshake_given_up(case, client, server)
    yield from _silent_client(case, client)
    yield from _no_answer(case, client, server)
    yield from _refused(case, client, server)
    yield from _refused_next(case)
    yield from _handshake_refused(case, client, server)
    yield from _closed(case, client)


def _handshake_given_up(case: Case, client: Half, server: Half) -> Iterator[Candidate]:
    """The client closed a while after the server's part of the handshake, without its own last part."""
    if case.by != "client" or records_of(case, "client", "change_cipher_spec", "application_data"):
        return
    answers = [seen for seen in server.recent if seen.length and seen.timestamp_ns <= case.ended_ns]
    if not answers or case.ended_ns - answers[-1].timestamp_ns < PATIENT_NS:
        return
    end = answers[-1].sequence + answers[-1].length
    heard = [*client.recent, *filter(None, [client.finished])]
    if not any(seen.flags & ACK and distance(end, seen.acknowledgment) >= 0 for seen in heard):
        return
    waited = describe.span(case.ended_ns - answers[-1].timestamp_ns)
    yield candidate(
        Cause.TLS_FAILURE, Certainty.LIKELY,
        f"The client gave up the TLS handshake: the broker had answered, and the client closed {waited} later without"
        " its part.",
        [
            Evidence.at("the broker's last answer, which the client's TCP acknowledged", answers[-1]),
            Evidence("the client sent no ChangeCipherSpec and no encrypted record"), case.closing(),
        ],
        advice=(
            "Measure how long the device computes in a handshake: RSA keys take seconds on small processors.",
            "Give the device a longer time-out for the handshake, or a key of another kind (ECDSA).",
        ),
        usual=False, weight=90,
    )  # fmt: skip


def _overlong_record(case: Case) -> Iterator[Candidate]:
    """A side sent a TLS record longer than both hellos agree on, and the other one closed.

    The lengths of records are in clear, and no cipher suite adds as much.  Which record came last is not known: only an
    end at once after data of that side is likely to be its answer.
    """
    record, limit = (
        case.connection.details.get("overlong_record"),
        case.connection.details.get("maximum_fragment_bytes"),
    )
    if not isinstance(record, dict) or case.by is None or record["from"] != other_side(case.by):
        return
    half, who = case.half(record["from"]), MEANING[record["from"]]
    data = [] if half is None else [seen for seen in half.recent if seen.length]
    sent = [seen for seen in data if seen.timestamp_ns <= case.ended_ns]
    near = (sent[-1:] or data)[:1]  # the last segments that are kept may all be later than the end
    is_at_once = bool(near) and abs(case.ended_ns - near[0].timestamp_ns) <= AT_ONCE_NS
    fault = f"{who} sent a TLS record of {record['length']:,} bytes, and both sides had agreed on {limit:,}"
    last = (
        Evidence.at(f"the last data of {who}, {case.apart(sent[-1].timestamp_ns)}before the end", sent[-1])
        if sent
        else None
    )
    yield candidate(
        Cause.TLS_FAILURE, Certainty.LIKELY if is_at_once else Certainty.HYPOTHESIS,
        f"{fault[0].upper()}{fault[1:]} (max_fragment_length): {MEANING[case.by]} closed.",
        [Evidence(f"{fault} in their hellos (RFC 6066 section 4)"), last, case.closing()],
        [] if is_at_once else [Evidence("the end did not follow at once")],
        advice=(
            f"Let {who} keep the max_fragment_length that it confirms, or not confirm it.",
            "Until then send smaller messages, or give the other side a receive buffer for records of 16 KiB.",
        ),
        usual=False, weight=92,
    )  # fmt: skip


def _closed(case: Case, client: Half) -> Iterator[Candidate]:
    """The server closed long after the last record of the client, which was not a DISCONNECT then."""
    sent = [seen for seen in client.recent if seen.length and seen.timestamp_ns <= case.ended_ns]
    if case.by != "server" or case.how != "fin" or not sent or case.ended_ns - sent[-1].timestamp_ns <= AT_ONCE_NS:
        return
    last = Evidence.at(
        f"the last record of the client, {describe.span(case.ended_ns - sent[-1].timestamp_ns)} before the end",
        sent[-1],
    )
    yield candidate(
        Cause.SERVER_CLOSED, Certainty.HYPOTHESIS,
        f"The broker closed the connection and not as an answer to the client ({INFERRED}); why cannot be read.",
        [last, case.goodbye, case.closing()], advice=_ADVICE, usual=False, weight=10,
    )  # fmt: skip
    replaced = _replaced(case)
    if len(replaced) < LEAST_REPLACED:
        return
    shown = ", ".join(f"#{end.connection} by #{other.connection}" for end, other in replaced[-8:])
    yield candidate(
        Cause.TAKEN_OVER, Certainty.HYPOTHESIS,
        f"The session may have been taken over ({INFERRED}): the broker closed {len(replaced)} connections of this"
        " host, each just after the host had opened another one.",
        [last, *(Evidence.at(f"the client opened connection #{other.connection}", other) for end, other in replaced
                 if end.connection == case.connection.number),
         case.closing(), Evidence(f"so ended {shown}")],
        [Evidence("no Client Identifier can be read")], advice=_ADVICE[:1], weight=61,
    )  # fmt: skip


def _replaced(case: Case) -> list[tuple[End, Arrival]]:
    """Ends of this host's connections by the server, each with a connection that had begun just before it.

    Empty if one of these ends had no such connection.
    """
    mine, server = host_of(case.connection.client), case.book.of(case.connection.server)
    begun = sorted(
        (arrival.timestamp_ns, arrival.connection, arrival)
        for arrival in server.answered_syns
        if host_of(arrival.client) == mine
    )
    replaced = []
    for end in server.ends:
        if end.by != "server" or end.explained or host_of(end.client) != mine:
            continue
        at = bisect_left(begun, (end.timestamp_ns, -1))
        before_ns, number, other = begun[at - 1] if at else (0, end.connection, None)
        if other is None or number == end.connection or end.timestamp_ns - before_ns > AT_ONCE_NS:
            return []
        replaced.append((end, other))
    return replaced


def _silent_client(case: Case, client: Half) -> Iterator[Candidate]:
    """The server closed when the client had missed its own rhythm by half."""
    pings = _pings(client, case.ended_ns)
    interval = _rhythm(pings)
    if case.by != "server" or interval is None:
        return
    silent = case.ended_ns - pings[-1].timestamp_ns
    if not 3 * interval <= 2 * silent + interval // EVEN or 2 * silent > 4 * interval:
        return
    yield candidate(
        Cause.KEEP_ALIVE, Certainty.HYPOTHESIS,
        f"The Keep Alive may have run out ({INFERRED}): the client sent a small record every"
        f" {describe.span(interval)}, and then nothing for {describe.span(silent)} until the broker closed.",
        [Evidence.at("the client's last record of this size", pings[-1]), case.closing()], weight=62,
    )  # fmt: skip


def _no_answer(case: Case, client: Half, server: Half) -> Iterator[Candidate]:
    """The client closed when a small record of its rhythm had no answer."""
    pings = _pings(client, case.ended_ns)
    interval = _rhythm(pings)
    if case.by != "client" or interval is None:
        return
    asked = pings[-1]
    waited = case.ended_ns - asked.timestamp_ns
    if waited < PATIENT_NS or any(seen.length and seen.timestamp_ns > asked.timestamp_ns for seen in server.recent):
        return
    yield candidate(
        Cause.NO_PING_RESPONSE, Certainty.HYPOTHESIS,
        f"A PINGREQ may have had no answer ({INFERRED}): the client sent a small record as every"
        f" {describe.span(interval)}, the broker sent nothing for {describe.span(waited)}, and the client closed.",
        [Evidence.at("the client's record without an answer", asked), case.closing()], weight=62,
    )  # fmt: skip


def _refused(case: Case, client: Half, server: Half) -> Iterator[Candidate]:
    """The server closed with the first small record after the handshake: a CONNACK that refuses looks so."""
    details = case.connection.details
    # With TLS 1.3 the end of the client's handshake is encrypted too.
    sent = MOST_RECORDS + (details.get("version") == "TLS 1.3")
    if case.by != "server" or records_of(case, "client", "application_data") != sent:
        return
    asked = [seen for seen in client.recent if seen.length and seen.timestamp_ns <= case.ended_ns]
    spoken = [seen for seen in server.recent if seen.length > ALERT_BYTES and seen.timestamp_ns <= case.ended_ns]
    # The CONNECT may have been sent again.
    first = next((seen for seen in asked if seen.sequence == asked[-1].sequence), None)
    answers = [seen for seen in spoken if first is not None and seen.timestamp_ns >= first.timestamp_ns]
    # A server that answered long before the end served the client.
    if not answers or case.ended_ns - answers[0].timestamp_ns > AT_ONCE_NS:
        return
    answer = answers[-1]
    if answer.length > MAX_ANSWER_BYTES:
        return
    yield candidate(
        Cause.CONNECT_REFUSED, Certainty.HYPOTHESIS,
        f"The broker may have refused the CONNECT ({INFERRED}): it sent {answer.length} bytes and closed"
        f" {describe.span(case.ended_ns - answer.timestamp_ns)} later.",
        [
            Evidence.at("the client's last record", asked[-1]), Evidence.at("the broker's answer", answer),
            case.closing(),
        ],
        weight=61,
    )  # fmt: skip


def trigger(case: Case) -> str:
    """The record of the client that the server closed on; empty if unknown, or if it may be its DISCONNECT."""
    pair, number = _ending(case), records_of(case, "client", "application_data")
    if pair is None or number <= MOST_RECORDS:
        return ""
    asked, alert = pair
    # A DISCONNECT has two bytes at least, as an alert has.
    is_longer = asked.length > alert.length + MAX_REASON_BYTES
    is_at_once = 0 <= case.ended_ns - asked.timestamp_ns <= AT_ONCE_NS
    return f"{_ENCRYPTED} {number}" if is_longer and is_at_once else ""


def _ending(case: Case) -> tuple[Seen, Seen] | None:
    """The client's last segment before the alert that ended TLS, and that alert."""
    client, server, connection = case.half("client"), case.half("server"), case.connection
    if case.by != "server" or client is None or server is None or not connection.details.get("server_hello"):
        return None
    sent = [seen for seen in server.recent if seen.length and seen.timestamp_ns <= case.ended_ns]
    if connection.decrypted or case.story.clock_set or not sent or sent[-1].length > MAX_ALERT_BYTES:
        return None
    asked = [seen for seen in client.recent if seen.length and seen.timestamp_ns <= sent[-1].timestamp_ns]
    return (asked[-1], sent[-1]) if asked else None


def _refused_next(case: Case) -> Iterator[Candidate]:
    """The server ended each connection of a client at once after the same record, which is not its first one."""
    pair = _ending(case)
    alike = case.book.triggered_again(case.story) if case.story.trigger.startswith(_ENCRYPTED) else []
    if pair is None or len(alike) < LEAST_REFUSED:
        return
    asked, alert = pair
    yield candidate(
        Cause.NOT_AUTHORIZED, Certainty.HYPOTHESIS,
        f"The broker may refuse what the client sends after its CONNECT ({INFERRED}): it ended each of"
        f" {len(alike)} connections right after the same record.",
        [
            Evidence.at(f"the client's {case.story.trigger}", asked),
            Evidence.at(f"the broker ended TLS {describe.span(alert.timestamp_ns - asked.timestamp_ns)} later", alert),
            case.closing(), Evidence(f"so ended {', '.join(f'#{number}' for number in alike[:8])}"),
        ],
        [Evidence("what the records contain cannot be read")], advice=_ADVICE, weight=62,
    )  # fmt: skip


def _handshake_refused(case: Case, client: Half, server: Half) -> Iterator[Candidate]:
    """With TLS 1.3 the server answered the end of the client's handshake with a short record, and ended."""
    number = records_of(case, "client", "application_data")
    if (
        case.by != "server"
        or case.connection.details.get("version") != "TLS 1.3"
        or not 0 < number <= MOST_OF_HANDSHAKE
    ):
        return
    until_ns = case.ended_ns
    sent = [(seen.timestamp_ns, side, seen) for side, half in (("client", client), ("server", server))
            for seen in half.recent if seen.length and seen.timestamp_ns <= until_ns]  # fmt: skip
    flights = [
        (side, [row[2] for row in rows]) for side, rows in groupby(sorted(sent, key=itemgetter(0)), itemgetter(1))
    ]
    # The hello may be among the segments that are no longer remembered, and a server may ask for another hello.
    if flights and flights[-1][0] == "client":
        del flights[-1]  # a CONNECT that was on its way when the server refused
    senders = [side for side, _ in flights]
    if records_of(case, "client", "handshake") > 1 and len(senders) > len(_REFUSED_FLIGHTS):
        senders = senders[2:]
    if senders not in (_REFUSED_FLIGHTS, _REFUSED_FLIGHTS[1:]):
        return
    asked, answers = flights[-2][1], flights[-1][1]
    if len(answers) != 1 or answers[0].length > ALERT_BYTES:
        return
    yield candidate(
        Cause.TLS_FAILURE, Certainty.HYPOTHESIS,
        f"The broker may have refused the TLS handshake ({INFERRED}): it answered the client's part with a record of"
        f" {answers[0].length} bytes, as an alert has, and ended.",
        [
            Evidence.at("the client's part of the handshake", asked[-1]),
            Evidence.at("the broker's answer", answers[0]),
            case.closing(),
        ],
        advice=("Look in the log of the broker for the alert: the client's certificate may be expired or unknown.",),
        weight=63,
    )  # fmt: skip


def _pings(client: Half, until_ns: int) -> list[Seen]:
    """Small segments with data that a client sent last, all of one size."""
    sent = [seen for seen in client.recent if seen.length and seen.timestamp_ns <= until_ns]
    if not sent or sent[-1].length > MAX_PING_BYTES:
        return []
    return [seen for seen in sent if seen.length == sent[-1].length]


def _rhythm(pings: list[Seen]) -> int | None:
    """The interval of segments that come evenly; ``None`` where they do not."""
    times = [seen.timestamp_ns for seen in pings]
    intervals = [later - earlier for earlier, later in pairwise(times)][-LEAST_INTERVALS:]
    if len(intervals) < LEAST_INTERVALS or min(intervals) < SECOND:
        return None
    return max(intervals) if (max(intervals) - min(intervals)) * EVEN <= max(intervals) else None
