"""Requirements of each cause, as one table: the side that ended the connection, the highest certainty, contradictions.

Detectors look for evidence for a cause.  Contradictions are here, for all detectors alike: `possible`
drops a candidate that a fact of the connection or of its server contradicts.  A packet that names the cause outweighs
nearly all contradictions: a DISCONNECT with *Keep Alive timeout* proves it, whatever the measured times are.

Advice is in `advice.ADVICE`, also by cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from mqttscope.explain.causes.case import SECOND, Case, ran_on, served_beside_twin, took_over, twin
from mqttscope.explain.causes.hangs import accepted_all_along
from mqttscope.explain.causes.path import SILENCE_NS
from mqttscope.explain.causes.timing import (
    EARLY_NS,
    alike_of_client,
    is_counted_once,
    longest_pause_ns,
    silence_repeated,
)
from mqttscope.explain.causes.unread import UNREAD, is_one_of_many
from mqttscope.explain.model import PLAIN, Candidate, Cause, Certainty
from mqttscope.explain.story import ALIKE
from mqttscope.net.segment import distance
from mqttscope.net.tcp_clock import NO_STAMP, SLACK_NS

CERTAIN, LIKELY, HYPOTHESIS = Certainty.CERTAIN, Certainty.LIKELY, Certainty.HYPOTHESIS
CLOCK_ERROR = 50
"""A TCP clock that continues differs by less than this part from what its rate predicts."""
EXACT_SILENCE_NS = SECOND // 5
"""A silence that is longer by this much than one that ended a connection is longer than a time-out of that length."""
GOODBYE_NS = SECOND // 10
"""So soon after a DISCONNECT servers close."""

Contradiction = Callable[[Case], bool]


def is_open(case: Case) -> bool:
    """No end of the transport was captured."""
    return not case.is_closed


def has_disconnect(case: Case) -> bool:
    """A DISCONNECT before the end gives the reason."""
    return bool(case.story.disconnects)


def has_other_disconnect(case: Case) -> bool:
    """A DISCONNECT before the end gives a reason other than a takeover."""
    return has_disconnect(case) and took_over(case) is None


def was_refused(case: Case) -> bool:
    """The CONNACK gives the reason."""
    return case.story.refusal is not None


def lived_on(case: Case) -> bool:
    """The server served the client after the CONNACK that refused it."""
    return case.story.lived_on


def served_version(case: Case) -> bool:
    """The server accepted this version of MQTT on this port from others."""
    return case.story.version in case.book.of(case.connection.server).versions


def client_spoke(case: Case) -> bool:
    """The client sent a packet within the Keep Alive before the end, or the Keep Alive is off."""
    silent, keep_alive = case.story.silent_ns, case.connection.keep_alive
    if keep_alive is None or silent is None:
        return False
    return not keep_alive or silent < keep_alive * SECOND - EARLY_NS


def keep_alive_due(case: Case) -> bool:
    """The silence is as long as the Keep Alive allows, which explains the end."""
    idle, keep_alive = case.story.idle_ns, case.connection.keep_alive
    return bool(idle is not None and keep_alive and idle >= keep_alive * SECOND * 3 // 2 - EARLY_NS)


def silence_survived(case: Case) -> bool:
    """A connection to the same server stayed open after a longer silence."""
    idle = case.story.idle_ns
    if idle is None or case.connection.end_disowned or case.story.forgotten_ns or alike_of_client(case):
        return False
    return longest_pause_ns(case) - idle > min(idle // ALIKE, EXACT_SILENCE_NS)


def keep_alive_after_connect(case: Case) -> bool:
    """The end came 1.5 times the Keep Alive after the CONNECT: the server did not count what came since."""
    keep_alive, connect = case.connection.keep_alive, case.story.connect
    if not keep_alive or connect is None:
        return False
    return abs(case.ended_ns - connect.timestamp_ns - keep_alive * SECOND * 3 // 2) <= EARLY_NS


def is_due_to_keep_alive(case: Case) -> bool:
    """The server ended the connection when the Keep Alive had passed since the last packet, or since the CONNECT."""
    return case.by == "server" and (keep_alive_due(case) or keep_alive_after_connect(case))


def has_no_twin(case: Case) -> bool:
    """No other connection used the Client Identifier at that time, if it can be read."""
    return twin(case) is None and (case.connection.transport != "tls" or case.connection.decrypted)


def was_accepted_before(case: Case) -> bool:
    """The server acknowledged, or left alone, another message to the topic of the last one, and refused nothing."""
    asked = case.story.asked
    known = case.story.accepted | case.story.borne_topics
    return asked is not None and not case.story.refusals and asked.topic in known


def took_as_large(case: Case) -> bool:
    """The client took an equally large packet on another connection."""
    message = case.story.ended_on("client") if case.by == "client" else None
    return message is not None and case.book.took(case.story) >= message.size


def has_pingresp(case: Case) -> bool:
    """No PINGREQ waits for an answer, in packets that can be read."""
    return case.story.ping is None and sum(case.story.counts.values()) > 0


def lacks_server_bytes(case: Case) -> bool:
    """The bytes that the capture lacks of the server may contain the packet that seems to be missing."""
    return case.connection.server_side.gapped or case.connection.one_sided is not None


def lacks_bytes(case: Case) -> bool:
    """The bytes that the capture lacks may contain the packet that seems to be missing."""
    return case.lacks_bytes or case.connection.one_sided is not None


def server_answered(case: Case) -> bool:
    """A packet of the server was captured."""
    return case.story.connack is not None or case.story.counts["server"] > 0


def port_serves(case: Case) -> bool:
    """The server speaks with others on this port what the client spoke."""
    known, transport = case.book.of(case.connection.server), case.connection.transport
    if case.story.header is not None:
        return known.headed is not None
    if transport == "tcp":
        return known.plain is not None and server_answered(case) is False
    return (known.secure if transport == "tls" else known.web) is not None


def is_unheard(case: Case) -> bool:
    """The capture lacks all that the server sent on another connection: its answer may be missing, too."""
    server = case.connection.server
    return case.book.of(server).unheard or case.book.witnesses(server, case.watch).unheard


def served_others(case: Case) -> bool:
    """A server on this port sent to others before and after."""
    return case.served is not None


def server_ran_on(case: Case) -> bool:
    """The server served or accepted other connections at the time of its alleged stop."""
    return ran_on(case) is not None


def client_spoke_last(case: Case) -> bool:
    """Right before the end the client sent a record that cannot be read: it may be its DISCONNECT."""
    client, connection = case.half("client"), case.connection
    if client is None or connection.transport != "tls" or connection.decrypted or case.story.clock_set:
        return False
    sent = [seen.timestamp_ns for seen in client.recent if seen.length and seen.timestamp_ns <= case.ended_ns]
    return bool(sent) and case.ended_ns - sent[-1] <= GOODBYE_NS


def path_worked(case: Case) -> bool:
    """All that was sent had arrived, and the client had been heard of shortly before."""
    client, server = case.half("client"), case.half("server")
    if client is None or server is None or client.last is None or case.story.clock_set or case.story.origin is not None:
        return False
    for half in (client, server):
        if half.missed or half.unanswered or half.outstanding_bytes or half.probes:
            return False
    until = case.watch.now_ns if case.story.finished else case.ended_ns
    return until - client.last.timestamp_ns < SILENCE_NS


def clock_runs_on(case: Case) -> bool:
    """The TCP clock of the new connection continues the one of the old connection: the stack did not start again."""
    client, facts = case.half("client"), case.story.facts
    syn = None if facts is None else case.watch.next_syn(facts, case.connection.client)
    stamped = [] if client is None else [seen for seen in client.recent if seen.stamp != NO_STAMP]
    if syn is None or syn.stamp == NO_STAMP or not stamped or case.story.clock_set:
        return False
    first, last = stamped[0], stamped[-1]
    lasted, passed = last.timestamp_ns - first.timestamp_ns, syn.timestamp_ns - last.timestamp_ns
    ticks, gained = distance(first.stamp, last.stamp), distance(last.stamp, syn.stamp)
    if lasted < SLACK_NS or ticks <= 0 or passed <= 0:
        return False
    expected = ticks * passed // lasted
    return abs(gained - expected) * CLOCK_ERROR <= expected


def reset_fits_sender(case: Case) -> bool:
    """The RST has the TTL and the sequence number of the side that it names, and nothing of that side came after it."""
    sender = case.half(case.by or "")
    if sender is None or not sender.resets:
        return False
    reset = next((seen for seen in sender.resets if seen.frame == case.story.ended_frame), sender.resets[0])
    later = any(seen.length and seen.timestamp_ns > reset.timestamp_ns for seen in sender.recent)
    has_ttl = reset.ttl is not None and reset.ttl == sender.usual_ttl
    return has_ttl and distance(sender.end, reset.sequence) == 0 and not later


def was_unread(case: Case) -> bool:
    """The server had not received a byte when it ended the connection: nothing that the client sent is the reason."""
    return case.story.unread == UNREAD


@dataclass(slots=True, frozen=True)
class Declaration:
    """Requirements of a cause."""

    at_most: Certainty
    """Highest certainty of a candidate that no packet names."""
    by: str = ""
    """The side that ends the connection for this cause; empty where both do."""
    contradictions: tuple[Contradiction, ...] = ()
    """Facts that disprove the cause, unless a packet names it."""
    always: tuple[Contradiction, ...] = ()
    """Facts that disprove it even then."""


SILENT = (is_open, has_disconnect, was_refused, was_unread)
"""Contradictions of an end without a stated reason."""
OF_CONNACK = Declaration(LIKELY, "", SILENT)
DECLARATIONS: dict[Cause, Declaration] = {
    Cause.NORMAL: Declaration(CERTAIN),
    Cause.CLIENT_DISCONNECT: Declaration(CERTAIN),
    Cause.BAD_CREDENTIALS: OF_CONNACK,
    Cause.CLIENT_IDENTIFIER_REJECTED: OF_CONNACK,
    Cause.NOT_AUTHORIZED: Declaration(LIKELY, "", (*SILENT, was_accepted_before)),
    Cause.BANNED: OF_CONNACK,
    Cause.UNSUPPORTED_VERSION: Declaration(LIKELY, "", SILENT, (served_version,)),
    Cause.SERVER_UNAVAILABLE: Declaration(LIKELY, "", (*SILENT, served_others)),
    Cause.QUOTA_EXCEEDED: Declaration(LIKELY, "", (is_open, has_disconnect, was_refused)),
    Cause.USE_ANOTHER_SERVER: OF_CONNACK,
    Cause.CONNECT_REFUSED: OF_CONNACK,
    Cause.NOT_LISTENING: Declaration(CERTAIN, "", (served_others,)),
    Cause.UNREACHABLE: Declaration(LIKELY, "", (is_unheard,)),
    Cause.NO_MQTT: Declaration(CERTAIN, "", (is_open, lacks_bytes, is_one_of_many)),
    Cause.NO_CONNECT: Declaration(LIKELY, "server", (is_open, lacks_bytes)),
    Cause.TURNED_AWAY: Declaration(LIKELY, "server", (is_open, lacks_bytes)),
    Cause.WRONG_LISTENER: Declaration(CERTAIN, "", (port_serves, was_unread)),
    Cause.WRONG_PATH: OF_CONNACK,
    Cause.SERVER_HUNG: Declaration(LIKELY, "", SILENT),
    Cause.NO_CONNACK: Declaration(LIKELY, "", (is_open, server_answered, lacks_bytes, was_unread)),
    Cause.KEEP_ALIVE: Declaration(LIKELY, "server", (*SILENT, client_spoke)),
    Cause.TAKEN_OVER: Declaration(
        LIKELY, "server", (has_other_disconnect, was_refused, has_no_twin, served_beside_twin)
    ),
    Cause.PACKET_TOO_LARGE: Declaration(LIKELY, "", (*SILENT, took_as_large)),
    Cause.RECEIVE_MAXIMUM: OF_CONNACK,
    Cause.TOPIC_ALIAS: OF_CONNACK,
    Cause.NOT_SUPPORTED: OF_CONNACK,
    Cause.PROTOCOL_VIOLATION: OF_CONNACK,
    Cause.ADMINISTRATIVE_ACTION: OF_CONNACK,
    Cause.SERVER_RESTART: Declaration(
        LIKELY,
        "server",
        (has_disconnect, silence_repeated, is_counted_once, server_ran_on, client_spoke_last, accepted_all_along),
    ),
    Cause.PART_REPLACED: Declaration(LIKELY, "server", (*SILENT, silence_repeated, is_counted_once, client_spoke_last)),
    Cause.SERVER_DISCONNECT: OF_CONNACK,
    Cause.TLS_FAILURE: Declaration(CERTAIN),
    Cause.IDLE_TIMEOUT: Declaration(
        LIKELY,
        "",
        (
            is_open,
            has_disconnect,
            keep_alive_due,
            keep_alive_after_connect,
            silence_survived,
        ),
    ),
    Cause.FIXED_AGE: Declaration(LIKELY, "", (*SILENT, is_due_to_keep_alive)),
    Cause.NO_PING_RESPONSE: Declaration(LIKELY, "client", (*SILENT, has_pingresp, lacks_server_bytes)),
    Cause.HALF_OPEN: Declaration(LIKELY, "", (has_disconnect, path_worked)),
    Cause.DEVICE_RESTART: Declaration(LIKELY, "", (has_disconnect, clock_runs_on)),
    Cause.MIDDLEBOX_RESET: Declaration(LIKELY, "", (reset_fits_sender,)),
    Cause.CLIENT_CLOSED: Declaration(LIKELY, "client"),
    Cause.CLIENT_RESET: Declaration(LIKELY, "client"),
    Cause.SERVER_CLOSED: Declaration(HYPOTHESIS, "server"),
    Cause.SERVER_RESET: Declaration(HYPOTHESIS, "server"),
    Cause.STILL_OPEN: Declaration(CERTAIN),
    Cause.UNREADABLE: Declaration(CERTAIN),
    Cause.NOT_SHOWN: Declaration(CERTAIN),
}
"""Every cause."""


def possible(case: Case, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """Candidates without a contradiction, with at most the certainty that their cause allows."""
    for candidate in candidates:
        declared = DECLARATIONS[candidate.cause]
        against = (*declared.always, *((lived_on,) if candidate.stated_by == "CONNACK" else ()))
        if not candidate.stated_by:
            against += declared.contradictions
            # With one direction alone the capture shows how the connection ended, but not which side ended it.
            if declared.by not in ("", case.by) and (case.by is not None or candidate.cause not in PLAIN):
                continue
        if any(contradicts(case) for contradicts in against):
            continue
        if not candidate.stated_by and candidate.certainty.rank > declared.at_most.rank:
            candidate = replace(candidate, certainty=declared.at_most)
        yield candidate
