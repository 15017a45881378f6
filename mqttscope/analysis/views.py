"""Views that are ready to be asked of any lake: what several tables hold together, in the words of an engine.

They are named like tables: in `pipeline sql` with both engines, and in `mqttscope.lake.open`.  Each is made of the
queries of the fleet report, so that a report and a question say the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mqttscope.analysis.dialects import PERCENTILES, Words
from mqttscope.analysis.joins import OWN, deliveries, retained_intervals
from mqttscope.analysis.reconnects import MINUTE_NS, connecting, storms, with_endings
from mqttscope.analysis.talk import LIVE, WHO, retained_topics

Relations = Mapping[str, str]
"""Relations of the tables of a lake, by the names of the tables."""


@dataclass(slots=True, frozen=True)
class View:
    """A query over the tables of a lake, with a name."""

    name: str
    meaning: str
    tables: tuple[str, ...]
    """Tables that it reads."""
    columns: Mapping[str, str]
    """Meanings of its columns, in their order."""
    query: Callable[[Words, Relations], str]


def _session_activity(words: Words, given: Relations) -> str:
    members = words.unnested("connection_ids", "connection_id", "place")
    return f"""
    with members as (
        select server, client_identifier, session, connection_id from (select * from {given["sessions"]}) {members}
    ),
    ended as ({with_endings(given["connections"])}),
    counted as (
        select members.server, members.client_identifier, members.session,
            count(*) filter (where ended not in ('open', 'disconnect')) as broken,
            sum(packets.client_to_server) as packets_sent, sum(packets.server_to_client) as packets_received,
            sum(bytes.client_to_server) as bytes_sent, sum(bytes.server_to_client) as bytes_received
        from members join ended on members.connection_id = ended.connection_id
        group by members.server, members.client_identifier, members.session
    )
    select server, client_identifier, session, first_ns, last_ns, last_ns - first_ns as duration_ns, clean_start,
        begin_known, session_expiry_interval, connections, broken, cast(packets_sent as bigint) as packets_sent,
        cast(packets_received as bigint) as packets_received, cast(bytes_sent as bigint) as bytes_sent,
        cast(bytes_received as bigint) as bytes_received
    from {given["sessions"]} join counted using (server, client_identifier, session)
    """


def _deliveries(words: Words, given: Relations) -> str:
    return f"""
    select server, topic, {WHO} as receiver, timestamp_ns,
        coalesce(published.client_identifier, published.client) as publisher, published.timestamp_ns as published_ns,
        waited_ns, repeated, {LIVE} as live, qos, published.qos as published_qos, retain, dup, payload_length,
        payload_sha256, connection_id, direction, stream_offset, capture, frame,
        published.connection_id as published_connection_id, published.capture as published_capture,
        published.frame as published_frame
    from ({deliveries(words, given["messages"])})
    """


def _retained_messages(words: Words, given: Relations) -> str:
    del words
    intervals = f"({retained_intervals(given['messages'])})"
    return f"""
    with topics as ({retained_topics(given["messages"], intervals)}),
    held as (select * from {intervals} where ended is null),
    kept as (
        select connection_id, packet_in_connection, payload from {given["packets"]}
        where type = 'publish' and retain and {OWN}
    )
    select server, topic, state, since_ns, held.client_identifier, held.client, held.qos, held.payload_length,
        held.payload_sha256, kept.payload, held.message_expiry_interval, held.connection_id, held.capture, held.frame
    from topics left join held using (server, topic)
    left join kept on held.connection_id = kept.connection_id
        and held.packet_in_connection = kept.packet_in_connection
    """


def _reconnect_storms(words: Words, given: Relations) -> str:
    return f"""
    with connects as ({connecting(words, given["packets"])})
    select server, who as client_identifier, from_minute * {MINUTE_NS} as from_ns,
        (last_minute + 1) * {MINUTE_NS} as until_ns, connects, peak, usual, clients
    from ({storms("connects")})
    """


def _top_talkers(words: Words, given: Relations) -> str:
    del words
    return f"""
    with told as (
        select connection_id, count(*) filter (where {OWN}) as sent, count(*) filter (where not ({OWN})) as received,
            coalesce(sum(case when {OWN} then payload_length end), 0) as payload_sent,
            coalesce(sum(case when not ({OWN}) then payload_length end), 0) as payload_received
        from {given["messages"]} group by connection_id
    ),
    summed as (
        select server, {WHO} as client_identifier, count(*) as connections,
            cast(sum(packets.client_to_server) as bigint) as packets_sent,
            cast(sum(packets.server_to_client) as bigint) as packets_received,
            cast(sum(bytes.client_to_server) as bigint) as bytes_sent,
            cast(sum(bytes.server_to_client) as bigint) as bytes_received,
            cast(coalesce(sum(sent), 0) as bigint) as messages_sent,
            cast(coalesce(sum(received), 0) as bigint) as messages_received,
            cast(coalesce(sum(payload_sent), 0) as bigint) as payload_bytes_sent,
            cast(coalesce(sum(payload_received), 0) as bigint) as payload_bytes_received
        from {given["connections"]} left join told using (connection_id) group by server, {WHO}
    )
    select cast(row_number() over
        (partition by server order by bytes_sent + bytes_received desc, client_identifier) as bigint) as place, *
    from summed
    """


def _payload_sizes(words: Words, given: Relations) -> str:
    parts = ", ".join(f"get(spread, {place}) as p{round(part * 100)}" for place, part in enumerate(PERCENTILES))
    return f"""
    with measured as (
        select server, topic, direction, count(*) as messages, cast(sum(payload_length) as bigint) as payload_bytes,
            min(payload_length) as smallest, max(payload_length) as largest,
            {words.percentiles("payload_length")} as spread
        from {given["messages"]} where topic is not null and payload_length is not null
        group by server, topic, direction
    )
    select server, topic, direction, messages, payload_bytes, smallest, {parts}, largest from measured
    """


_PLACE = {
    "connection_id": "the connection",
    "capture": "the capture of the frame",
    "frame": "number of the frame, from 1",
}
VIEWS = {
    one.name: one
    for one in (
        View(
            "session_activity",
            "What each MQTT Session did, over all of its connections.",
            ("sessions", "connections"),
            {
                "server": "endpoint of the server",
                "client_identifier": "",
                "session": "counts the sessions of this client and server from 0, as in `sessions`",
                "first_ns": "",
                "last_ns": "",
                "duration_ns": "from the first to the last of what was captured of it",
                "clean_start": "of its first connection",
                "begin_known": "whether the session began on its first connection",
                "session_expiry_interval": "of its last connection",
                "connections": "",
                "broken": "connections that ended without DISCONNECT",
                "packets_sent": "by the client",
                "packets_received": "by the client",
                "bytes_sent": "by the client",
                "bytes_received": "by the client",
            },
            _session_activity,
        ),
        View(
            "deliveries",
            "Messages that servers sent, each with the last one that a client had published with that topic and "
            "payload, and the time in between.",
            ("messages",),
            {
                "server": "endpoint of the server",
                "topic": "with its alias resolved; null where it cannot be known",
                "receiver": "Client Identifier, the endpoint where there is none",
                "timestamp_ns": "of the delivery",
                "publisher": "Client Identifier, the endpoint where there is none; null where nobody published it",
                "published_ns": "",
                "waited_ns": "from the publication to the delivery, both where the capture was made",
                "repeated": "the same content was published before that too: it may be of an earlier one",
                "live": "not kept as a retained message, and not sent again",
                "qos": "of the delivery",
                "published_qos": "",
                "retain": "of the delivery",
                "dup": "of the delivery",
                "payload_length": "",
                "payload_sha256": "null where bytes of it are missing",
                "connection_id": "the connection of the receiver",
                "direction": "server_to_client",
                "stream_offset": "with these three a delivery is a row of `messages`",
                "capture": "the capture of the frame",
                "frame": "number of the frame, from 1",
                "published_connection_id": "the connection of the publisher",
                "published_capture": "",
                "published_frame": "",
            },
            _deliveries,
        ),
        View(
            "retained_messages",
            "The retained message of each topic at the end of what was captured.",
            ("messages", "packets"),
            {
                "server": "endpoint of the server",
                "topic": "",
                "state": "held, cleared, expired, refused, or unknown: delivered as retained, and set by nobody here",
                "since_ns": "when the last one was published; null where no client did",
                "client_identifier": "of who published it; this and what follows is null unless it is held",
                "client": "endpoint of the client",
                "qos": "",
                "payload_length": "",
                "payload_sha256": "",
                "payload": "as far as the ingest kept it (`--payload-limit`)",
                "message_expiry_interval": "",
                **_PLACE,
            },
            _retained_messages,
        ),
        View(
            "reconnect_storms",
            "Consecutive minutes in which a client, or all clients of a server, connect far more often than usual.",
            ("packets",),
            {
                "server": "endpoint of the server",
                "client_identifier": "the address where there is none; null for all clients of the server together",
                "from_ns": "begin of the first minute",
                "until_ns": "end of the last minute",
                "connects": "CONNECT packets in these minutes",
                "peak": "the most in one minute",
                "usual": "median of the minutes that have any",
                "clients": "different clients",
            },
            _reconnect_storms,
        ),
        View(
            "top_talkers",
            "Who sends and receives how much; `place` 1 is who has most bytes on a server.",
            ("connections", "messages"),
            {
                "place": "by the bytes of both directions, on each server",
                "server": "endpoint of the server",
                "client_identifier": "the endpoint where there is none",
                "connections": "",
                "packets_sent": "by the client",
                "packets_received": "by the client",
                "bytes_sent": "by the client",
                "bytes_received": "by the client",
                "messages_sent": "",
                "messages_received": "",
                "payload_bytes_sent": "",
                "payload_bytes_received": "",
            },
            _top_talkers,
        ),
        View(
            "payload_sizes",
            "How long payloads are, by topic.",
            ("messages",),
            {
                "server": "endpoint of the server",
                "topic": "",
                "direction": "client_to_server or server_to_client",
                "messages": "",
                "payload_bytes": "of all of them",
                "smallest": "bytes",
                "p50": "bytes; percentiles are values that are there",
                "p90": "bytes",
                "p99": "bytes",
                "largest": "bytes",
            },
            _payload_sizes,
        ),
    )
}


def named_in(sql: str) -> list[str]:
    """Views that a statement may name; one that lists what there is names all."""
    words = {one.lower() for one in re.findall(r"\w+", sql)}
    return [name for name in VIEWS if name in words or "show" in words]
