"""Connections that a server ends before it can have read the first bytes of the client.

Proof: the FIN or RST of the server acknowledges no byte of the client, within a second of the handshake, and the server
has sent nothing.  A RST right after the first bytes is what TCP sends for a program that closes without reading them
(RFC 9293 section 3.6); it is a sign only if it happens again and again while others are served.

Nothing in the CONNECT can be the reason then: credentials, version, protocol and listener are contradicted.

A limit of connections fits if a client that was turned away gets in right after another connection had ended.  It is
contradicted if the server accepted a connection while as many were open as when it turned others away.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from mqttscope.explain import describe
from mqttscope.explain.book import Arrival, End
from mqttscope.explain.causes.case import SECOND, Case, candidate
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence
from mqttscope.explain.segments import Half, Seen
from mqttscope.net.segment import ACK, SYN, distance
from mqttscope.session.connection import host_of

UNREAD, AT_ARRIVAL = "unread", "at arrival"
"""Values of `Story.unread`."""
SOON_NS = SECOND
"""Maximum time from the handshake to an end before a byte was read; no server has so short a time-out."""
ARRIVAL_NS = SECOND // 500
"""Maximum time from the first bytes of a client to a RST that a program causes by closing without reading them."""
LEAST_TURNED_AWAY = 3
"""Minimum number of such ends of a server that shows a rule."""


@dataclass(slots=True, frozen=True)
class Vacancy:
    """A host that a server turned away, and accepted after another connection had ended."""

    left: End
    arrival: Arrival
    limit: int
    """Minimum number of accepted connections that were open when the server turned others away."""


def unread(case: Case) -> str:
    """`UNREAD` if the server ended before it received a byte, `AT_ARRIVAL` if it reset right after the first bytes."""
    story, connection = case.story, case.connection
    if case.by != "server" or not case.is_closed or story.counts["server"] or not connection.handshake_seen:
        return ""
    client, server, facts = case.half("client"), case.half("server"), story.facts
    if client is None or server is None or facts is None or facts.syn is None or case.lacks_bytes or story.clock_set:
        return ""
    end = _end(case, server)
    if server.data or end is None or not end.flags & ACK or facts.syn.length or connection.one_sided:
        return ""
    if end.timestamp_ns - _accepted_ns(case, server) > SOON_NS:
        return ""
    received = distance(facts.syn.sequence + 1, end.acknowledgment)
    if received <= 0:
        return UNREAD
    sent = [seen for seen in client.recent if seen.length]
    if case.how != "reset" or not sent or not 0 <= end.timestamp_ns - sent[0].timestamp_ns <= ARRIVAL_NS:
        return ""
    return AT_ARRIVAL if distance(facts.syn.sequence + 1, sent[0].sequence) == 0 else ""


def _end(case: Case, server: Half) -> Seen | None:
    return server.finished if case.how == "fin" else next(iter(server.resets), None)


def _accepted_ns(case: Case, server: Half) -> int:
    """Time of the SYN-ACK."""
    answer = next((seen for seen in server.recent if seen.flags & SYN), None)
    return case.connection.opened_ns if answer is None else answer.timestamp_ns


def is_one_of_many(case: Case) -> bool:
    """The server ends connections in this way again and again while it serves others."""
    many = len(case.book.of(case.connection.server).turned_away) >= LEAST_TURNED_AWAY
    return bool(case.story.unread) and many and case.served is not None


def turned_away(case: Case) -> Iterator[Candidate]:
    """The server ended the connection without looking at the CONNECT."""
    story, connection = case.story, case.connection
    client, server = case.half("client"), case.half("server")
    if not story.unread or client is None or server is None:
        return
    alike, at, served = case.book.of(connection.server).turned_away, case.ended_ns, case.served
    is_rule = len(alike) >= LEAST_TURNED_AWAY and served is not None
    if not is_rule and (not client.data or story.unread == AT_ARRIVAL):
        return
    is_often = is_rule or len(alike) >= LEAST_TURNED_AWAY
    after = describe.span(at - _accepted_ns(case, server))
    did = "reset" if case.how == "reset" else "closed"
    first = {"tls": "ClientHello", "websocket": "HTTP request"}.get(connection.transport, "CONNECT")
    count = f", so on {len(alike):,} connections" if len(alike) > 1 else ""
    others = " while it served others on this port" if served is not None else ""
    what = "a limit or filter of the server, or of a proxy before it,"
    if served is None:
        what = "a proxy without its broker, a limit or a filter"
    sent = next((seen for seen in client.recent if seen.length), None)
    proof = "its end acknowledges no byte of the client: it had not received any"
    if story.unread == AT_ARRIVAL:
        proof = f"it sent RST right after the {first}, as TCP does for a program that closes without reading"
    vacancy = _vacancy(case)
    yield candidate(
        Cause.TURNED_AWAY, Certainty.LIKELY if is_often else Certainty.HYPOTHESIS,
        f"The server {did} the connection {after} after the TCP handshake without looking at the {first}{count}{others}"
        f": {what} {'most probably' if is_often else 'may have'} turned the client away.",
        [
            case.closing(), Evidence(proof),
            None if sent is None else Evidence.at(f"the client sent its {first}", sent),
            None if served is None else Evidence(
                f"the server sent on connection #{served.connection} before and after this end", served.frame,
                served.heard_ns, served.capture,
            ),
            Evidence(f"so ended {_numbers(list(alike))}") if len(alike) > 1 else None,
        ],
        advice=OF_LIMIT if vacancy is not None else (), weight=95 if is_often else 64,
    )  # fmt: skip
    if vacancy is None or not is_rule:
        return
    who = host_of(vacancy.arrival.client)
    apart = describe.span(vacancy.arrival.timestamp_ns - vacancy.left.timestamp_ns)
    yield candidate(
        Cause.QUOTA_EXCEEDED, Certainty.HYPOTHESIS,
        f"The server may have had its maximum number of connections: {who} had been turned away, and got in {apart}"
        f" after connection #{vacancy.left.connection} had ended.",
        [
            Evidence(f"connection #{vacancy.left.connection} ended", vacancy.left.frame, vacancy.left.timestamp_ns),
            Evidence.at(f"{who} was accepted as #{vacancy.arrival.connection}", vacancy.arrival),
            Evidence(f"no connection began while {vacancy.limit:,} others of the capture were open"),
        ],
        advice=OF_LIMIT, usual=False, weight=66,
    )  # fmt: skip


OF_LIMIT = (
    (
        "Compare the number of connections with the limit of the listener (mosquitto, EMQX: max_connections) and with"
        " the open files that its process may have."
    ),
)


def _numbers(alike: list[Arrival]) -> str:
    shown = ", ".join(f"#{arrival.connection}" for arrival in alike[:8])
    return shown + (f" and {len(alike) - 8:,} more" if len(alike) > 8 else "")


def _vacancy(case: Case) -> Vacancy | None:
    """That clients get in only after others have left; looked up at most once for each second of the capture."""
    known, second = case.book.of(case.connection.server), case.watch.now_ns // SECOND
    if "vacancy" not in known.answers or known.answers["vacancy"][0] != (second,):
        known.answers["vacancy"] = (second,), _find_vacancy(case)
    return cast("Vacancy | None", known.answers["vacancy"][1])


def _find_vacancy(case: Case) -> Vacancy | None:
    known = case.book.of(case.connection.server)
    begun = {arrival.connection: arrival for arrival in known.accepted}
    ends = [end for end in known.ends if end.connection in begun]
    opened = sorted(arrival.timestamp_ns for arrival in begun.values())
    ended = sorted(end.timestamp_ns for end in ends)

    def occupied(at_ns: int) -> int:
        return bisect_left(opened, at_ns) - bisect_left(ended, at_ns)

    limit = min((occupied(arrival.timestamp_ns) for arrival in known.turned_away), default=0)
    if limit <= 0 or any(occupied(at_ns) >= limit for at_ns in opened):
        return None
    last: dict[str, int] = {}
    moments = sorted((*known.turned_away, *begun.values()), key=lambda arrival: arrival.timestamp_ns)
    for arrival in moments:
        host = host_of(arrival.client)
        if arrival.connection not in begun:
            last[host] = arrival.timestamp_ns
            continue
        left = [end for end in ends if host in last and last[host] < end.timestamp_ns < arrival.timestamp_ns]
        if left:
            return Vacancy(left[-1], arrival, limit)
    return None
