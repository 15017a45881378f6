"""Causes that encrypted traffic lets one infer, from the times and sizes of its records; never more than hypotheses."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

from mqttscope.explain import describe
from mqttscope.explain.book import Arrival, End, host
from mqttscope.explain.causes.case import AT_ONCE_NS, SECOND, Case, candidate
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence
from mqttscope.explain.segments import Half, Seen

MAX_PING_BYTES = 64
"""Bytes of a segment with a PINGREQ or PINGRESP of two bytes in a TLS record."""
MAX_ANSWER_BYTES = 128
"""Bytes of a CONNACK in a TLS record, with a session ticket of TLS 1.3 not among them."""
ALERT_BYTES = 24
"""Bytes of a TLS 1.3 record with an alert, such as the close_notify before an end: no CONNACK is as short."""
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
INFERRED = "inferred from encrypted traffic"


def of_encrypted(case: Case) -> Iterator[Candidate]:
    """What the records of a connection without keys look like at its end."""
    connection = case.connection
    client, server = case.half("client"), case.half("server")
    if connection.transport != "tls" or connection.decrypted or not connection.details.get("server_hello"):
        return
    if client is None or server is None or not case.is_closed or connection.one_sided or case.story.clock_set:
        return
    yield from _silent_client(case, client)
    yield from _no_answer(case, client, server)
    yield from _refused(case, client, server)
    yield from _closed(case, client)


def _closed(case: Case, client: Half) -> Iterator[Candidate]:
    """The server closed long after the last record of the client, which was not a DISCONNECT then."""
    sent = [one for one in client.recent if one.length and one.timestamp_ns <= case.ended_ns]
    if case.by != "server" or case.how != "fin" or not sent or case.ended_ns - sent[-1].timestamp_ns <= AT_ONCE_NS:
        return
    last = Evidence.at(
        f"the last record of the client, {describe.span(case.ended_ns - sent[-1].timestamp_ns)} before the end",
        sent[-1],
    )
    yield candidate(
        Cause.SERVER_CLOSED, Certainty.HYPOTHESIS,
        f"The broker closed the connection and not as an answer to the client ({INFERRED}); why cannot be read.",
        [last, case.closing()], advice=_ADVICE, usual=False, weight=10,
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
    mine, server = host(case.connection.client), case.book.of(case.connection.server)
    begun = sorted((one.timestamp_ns, one.connection, one) for one in server.answered_syns if host(one.client) == mine)
    found = []
    for end in server.ends:
        if end.by != "server" or end.explained or host(end.client) != mine:
            continue
        at = bisect_left(begun, (end.timestamp_ns, -1))
        before_ns, number, other = begun[at - 1] if at else (0, end.connection, None)
        if other is None or number == end.connection or end.timestamp_ns - before_ns > AT_ONCE_NS:
            return []
        found.append((end, other))
    return found


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
    if waited < PATIENT_NS or any(one.length and one.timestamp_ns > asked.timestamp_ns for one in server.recent):
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
    if case.by != "server" or _application_records(details.get("client")) != sent:
        return
    asked = [one for one in client.recent if one.length and one.timestamp_ns <= case.ended_ns]
    said = [one for one in server.recent if one.length > ALERT_BYTES and one.timestamp_ns <= case.ended_ns]
    # The CONNECT may have been sent again.
    first = next((one for one in asked if one.sequence == asked[-1].sequence), None)
    answers = [one for one in said if first is not None and one.timestamp_ns >= first.timestamp_ns]
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


def _application_records(side: object) -> int:
    """Records of a side that were encrypted as application data."""
    records = side.get("records") if isinstance(side, dict) else None
    return records.get("application_data", 0) if isinstance(records, dict) else 0


def _pings(client: Half, until_ns: int) -> list[Seen]:
    """Small segments with data that a client sent last, all of one size."""
    found = [one for one in client.recent if one.length and one.timestamp_ns <= until_ns]
    if not found or found[-1].length > MAX_PING_BYTES:
        return []
    return [one for one in found if one.length == found[-1].length]


def _rhythm(pings: list[Seen]) -> int | None:
    """The interval of segments that come evenly; ``None`` where they do not."""
    times = [one.timestamp_ns for one in pings]
    intervals = [later - earlier for earlier, later in pairwise(times)][-LEAST_INTERVALS:]
    if len(intervals) < LEAST_INTERVALS or min(intervals) < SECOND:
        return None
    return max(intervals) if (max(intervals) - min(intervals)) * EVEN <= max(intervals) else None
