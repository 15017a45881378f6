"""A broker that did not work for a while, although its TCP answered: one event for all ends in that time.

Proof: three requests or more (CONNECT, PINGREQ) of two hosts or more that TCP acknowledged had no answer, and the
server sent no MQTT packet to any client from the last packet before them on.  The missing answers, and the resets of
the server in that time, are consequences.

It is contradicted by any packet of the server, by lost bytes that may have held a packet (`hushes`), and by a refused
connection in that time: then nothing listened.  A stop of the broker is contradicted if the port accepted connections
in that time and at once after the last end, and did not refuse any until a minute later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from mqttscope.explain import describe
from mqttscope.explain.book import MOMENT_NS, Arrival
from mqttscope.explain.causes.case import SECOND, Case, candidate
from mqttscope.explain.causes.mqtt import GONE_NS
from mqttscope.explain.hushes import LEAST_HUSH_NS, Hush
from mqttscope.explain.model import PLAIN, Candidate, Cause, Certainty, Evidence
from mqttscope.explain.segments import Half
from mqttscope.explain.story import Story
from mqttscope.session.connection import host_of

LEAST_ASKED = 3
"""Minimum number of connections with a request without an answer."""
LEAST_HOSTS = 2
"""Minimum number of hosts with such a connection."""
CONSEQUENCES = PLAIN | {Cause.NO_PING_RESPONSE, Cause.NO_CONNACK, Cause.KEEP_ALIVE, Cause.IDLE_TIMEOUT}
"""Causes of ends that a broker that does not work explains."""
_ADVICE = (
    (
        "Look in the log of the broker, and in the metrics of its machine, for what blocked it at that time: a slow"
        " disk (saving the database, swapping), an authentication service or plugin that it waits for, or load."
    ),
    "If a proxy accepts the connections, look at the broker that it forwards to.",
)


@dataclass(slots=True, frozen=True)
class Hang:
    """A time when a server worked for no client."""

    hush: Hush
    requests: list[Arrival]
    """Requests without an answer, in order of time."""
    accepted: list[Arrival]
    """Connections that its TCP accepted in that time."""


def asked(story: Story, client: Half | None) -> Arrival | None:
    """The request of a client that TCP acknowledged, and that has no answer."""
    connection, moment = story.connection, story.ping or (None if story.counts["server"] else story.connect)
    if moment is None or client is None or not client.is_acknowledged or client.outstanding_bytes or client.repeats:
        return None
    if connection.one_sided or connection.server_side.gapped or (connection.transport == "tls") > connection.decrypted:
        return None
    return Arrival(
        connection.number, connection.client, connection.server, moment.timestamp_ns, moment.frame, connection.capture
    )


def find_hang(case: Case) -> Hang | None:
    """The time without work that the end of a connection is part of."""
    connection, story, book = case.connection, case.story, case.book
    request = asked(story, case.half("client")) if case.is_closed else None
    if not case.is_closed or story.clock_set or (request is None and case.by != "server"):
        return None
    at_ns = case.ended_ns if request is None else request.timestamp_ns
    hush = book.voices.hush(connection.server, at_ns, case.watch.now_ns)
    if hush is None or case.ended_ns > hush.until_ns + MOMENT_NS:
        return None
    hang = _of_hush(case, hush)
    if hang is None or case.ended_ns < hang.requests[0].timestamp_ns:
        return None
    return hang


def _of_hush(case: Case, hush: Hush) -> Hang | None:
    """The requests without an answer in an interval; looked up at most once for each second of the capture."""
    server, second = case.connection.server, case.watch.now_ns // SECOND
    known = case.book.of(server)
    answer = known.answers.get("hang")
    if answer is not None and answer[0] == (second, hush.from_ns):
        return cast("Hang | None", answer[1])
    requests = [request for request in known.unanswered if hush.from_ns <= request.timestamp_ns <= hush.until_ns]
    for story in case.book.open.get(server, {}).values():
        connection = story.connection
        facts = case.watch.open_facts(connection.flow_key, (connection.frame, connection.capture))
        request = None if facts is None or story.finished else asked(story, facts.half(connection.client))
        if request is not None and hush.from_ns <= request.timestamp_ns <= hush.until_ns:
            requests.append(request)
    requests.sort(key=lambda request: request.timestamp_ns)
    hang = None
    if len(requests) >= LEAST_ASKED and len({host_of(request.client) for request in requests}) >= LEAST_HOSTS:
        first_ns = requests[0].timestamp_ns
        is_long = hush.until_ns - first_ns >= LEAST_HUSH_NS
        if is_long and not case.watch.unanswered(server, first_ns, hush.until_ns):
            hang = Hang(hush, requests, case.book.answered_in(server, first_ns, hush.until_ns))
    known.answers["hang"] = (second, hush.from_ns), hang
    return hang


def hung(case: Case) -> Iterator[Candidate]:
    """The broker did not work, and the connection ended because of that."""
    hang = find_hang(case)
    if hang is None:
        return
    hush, first, server = hang.hush, hang.requests[0], case.connection.server
    hosts = len({host_of(request.client) for request in hang.requests})
    lasted, silent = describe.span(hush.until_ns - first.timestamp_ns), describe.span(hush.until_ns - hush.from_ns)
    accepts = f" and accepted {len(hang.accepted)} connections" if len(hang.accepted) > 1 else ""
    asking = {request.connection for request in hang.requests}
    unserved = [arrival for arrival in hang.accepted if arrival.connection in asking]
    again = Evidence("it had not sent another packet when the capture ended, or this end was explained")
    if hush.until_frame:
        again = Evidence("the first packet after that", hush.until_frame, hush.until_ns)
    yield candidate(
        Cause.SERVER_HUNG, Certainty.LIKELY,
        f"The broker did not work for at least {lasted}: it left requests on {len(hang.requests)} connections of"
        f" {hosts} hosts without an answer and sent no MQTT packet to any client for {silent}, while its TCP"
        f" acknowledged everything{accepts}.",
        [
            Evidence(f"the last MQTT packet of {server} to any client", hush.from_frame, hush.from_ns),
            Evidence.at("the first request without an answer; TCP acknowledged it", first),
            *(Evidence.at(f"it accepted connection #{arrival.connection}, and answered nothing", arrival)
              for arrival in unserved[:1]),
            again,
        ],
        advice=_ADVICE, usual=False, weight=96, event_ns=(hush.from_ns, hush.until_ns),
    )  # fmt: skip


def accepted_all_along(case: Case) -> bool:
    """The server hung, and its port accepted connections all the time: its process had not stopped."""
    hang = find_hang(case)
    if hang is None or not hang.accepted:
        return False
    server, until_ns = case.connection.server, hang.hush.until_ns
    _, last_ns = case.first_and_last
    next_syns = case.book.answered_in(server, last_ns, last_ns + MOMENT_NS)
    return bool(next_syns) and not case.watch.unanswered(server, hang.hush.from_ns, until_ns + GONE_NS)
