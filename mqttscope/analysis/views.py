"""Ready-made views of any lake, which combine several tables, in an engine's SQL.

They are named like tables in `pipeline sql`, with both engines, and in `mqttscope.lake.open`.  They use the queries of
the fleet report, so that a report and a query agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mqttscope.analysis.devices import captures, connect_refusals, devices, pings, takeovers
from mqttscope.analysis.dialects import PERCENTILES, Dialect
from mqttscope.analysis.joins import FAILURE, OWN, Relations, deliveries, retained_intervals
from mqttscope.analysis.questions import units_since_1970
from mqttscope.analysis.reconnects import MINUTE_NS, connecting, storms, with_endings
from mqttscope.analysis.rules import DAY_NS
from mqttscope.analysis.sparkplug import gaps as sparkplug_gaps
from mqttscope.analysis.sparkplug import nodes as sparkplug_nodes
from mqttscope.analysis.talk import LIVE, WHO, retained_topics
from mqttscope.analysis.undelivered import client_timeline, subscription_spans, undelivered


@dataclass(slots=True, frozen=True)
class LakeView:
    """A query over the tables of a lake, with a name."""

    name: str
    meaning: str
    tables: tuple[str, ...]
    """Tables that it reads."""
    columns: Mapping[str, str]
    """Meanings of its columns, in order."""
    query: Callable[[Dialect, Relations], str]


def _session_activity(words: Dialect, relations: Relations) -> str:
    members = words.unnested("connection_ids", "connection_id", "place")
    return f"""
    with members as (
        select server, client_identifier, session, connection_id from (select * from {relations["sessions"]}) {members}
    ),
    ended as ({with_endings(relations["connections"])}),
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
    from {relations["sessions"]} join counted using (server, client_identifier, session)
    """


def _deliveries(words: Dialect, relations: Relations) -> str:
    return f"""
    select server, topic, {WHO} as receiver, timestamp_ns,
        coalesce(published.client_identifier, published.client) as publisher, published.timestamp_ns as published_ns,
        waited_ns, repeated, {LIVE} as live, qos, published.qos as published_qos, retain, dup, payload_length,
        payload_sha256, connection_id, direction, stream_offset, capture, frame,
        published.connection_id as published_connection_id, published.capture as published_capture,
        published.frame as published_frame
    from ({deliveries(words, relations["messages"])})
    """


def _retained_messages(words: Dialect, relations: Relations) -> str:
    del words
    intervals = f"({retained_intervals(relations['messages'])})"
    return f"""
    with topics as ({retained_topics(relations["messages"], intervals)}),
    held as (select * from {intervals} where ended is null),
    stored as (
        select connection_id, packet_in_connection, payload from {relations["packets"]}
        where type = 'publish' and retain and {OWN}
    )
    select server, topic, state, since_ns, held.client_identifier, held.client, held.qos, held.payload_length,
        held.payload_sha256, stored.payload, held.message_expiry_interval, held.connection_id, held.capture, held.frame
    from topics left join held using (server, topic)
    left join stored on held.connection_id = stored.connection_id
            and held.packet_in_connection = stored.packet_in_connection
    """


def _reconnect_storms(words: Dialect, relations: Relations) -> str:
    return f"""
    with connects as ({connecting(words, relations["packets"])})
    select server, who as client_identifier, from_minute * {MINUTE_NS} as from_ns,
        (last_minute + 1) * {MINUTE_NS} as until_ns, connects, peak, usual, clients
    from ({storms("connects")})
    """


def _top_talkers(words: Dialect, relations: Relations) -> str:
    del words
    return f"""
    with counted as (
        select connection_id, count(*) filter (where {OWN}) as sent, count(*) filter (where not ({OWN})) as received,
            coalesce(sum(case when {OWN} then payload_length end), 0) as payload_sent,
            coalesce(sum(case when not ({OWN}) then payload_length end), 0) as payload_received
        from {relations["messages"]} group by connection_id
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
        from {relations["connections"]} left join counted using (connection_id) group by server, {WHO}
    )
    select cast(row_number() over
        (partition by server order by bytes_sent + bytes_received desc, client_identifier) as bigint) as place, *
    from summed
    """


def _payload_sizes(words: Dialect, relations: Relations) -> str:
    parts = ", ".join(f"get(spread, {place}) as p{round(part * 100)}" for place, part in enumerate(PERCENTILES))
    return f"""
    with dated as (
        select *, date_add(date '1970-01-01', cast({units_since_1970(words, DAY_NS)} as int)) as day
        from {relations["messages"]}
    ),
    measured as (
        select server, topic, direction, cast(day as date) as day, count(*) as messages,
            cast(sum(payload_length) as bigint) as payload_bytes,
            min(payload_length) as smallest, max(payload_length) as largest,
            {words.percentiles("payload_length")} as spread
        from dated where topic is not null and payload_length is not null group by server, topic, direction, day
    )
    select server, topic, direction, day, messages, payload_bytes, smallest, {parts}, largest from measured
    """


def _subscriptions(words: Dialect, relations: Relations) -> str:
    packets = relations["packets"]
    timeline = f"({client_timeline(packets, relations['connections'])})"
    return f"""
    select server, {WHO} as client_identifier, topic_filter, maximum_qos as requested_qos,
        case when granted < {FAILURE} then granted end as granted_qos, granted as reason_code, asked_ns,
        case when granted < {FAILURE} then from_ns end as from_ns, until_ns, ended, no_local, connection_id, capture,
        frame
    from ({subscription_spans(words, packets, timeline)})
    """


_PLACE = {
    "connection_id": "the connection",
    "capture": "the capture of the frame",
    "frame": "number of the frame, from 1",
}
VIEWS = {
    view.name: view
    for view in (
        LakeView("session_activity", "Activity of each MQTT Session, over all of its connections.",
            ("sessions", "connections"), {
            "server": "endpoint of the server", "client_identifier": "",
            "session": "number of the session of this client and server, from 0, as in `sessions`", "first_ns": "",
            "last_ns": "", "duration_ns": "from `first_ns` to `last_ns`",
            "clean_start": "Clean Start of its first connection",
            "begin_known": "whether the session began on its first connection",
            "session_expiry_interval": "interval of its last connection", "connections": "",
            "broken": "connections that ended without DISCONNECT", "packets_sent": "by the client",
            "packets_received": "by the client", "bytes_sent": "by the client", "bytes_received": "by the client",
        }, _session_activity),
        LakeView("deliveries", "Messages that servers sent, each with the last message that a client published with "
            "its topic and payload, and the time between them.", ("messages",), {
            "server": "endpoint of the server", "topic": "with its alias resolved; null if it is unknown",
            "receiver": "Client Identifier of the receiver, or its endpoint", "timestamp_ns": "time of the delivery",
            "publisher": "Client Identifier of the publisher, or its endpoint; null if no client published it",
            "published_ns": "", "waited_ns": "from the publication to the delivery, both as captured",
            "repeated": "the content was published before that too: the delivery may belong to an earlier message",
            "live": "neither stored as a retained message nor sent again", "qos": "QoS of the delivery",
            "published_qos": "", "retain": "RETAIN of the delivery", "dup": "DUP of the delivery",
            "payload_length": "",
            "payload_sha256": "first 32 hexadecimal digits; null if bytes of the payload are missing",
            "connection_id": "the connection of the receiver", "direction": "server_to_client",
            "stream_offset": "with `connection_id` and `direction`, identifies the row of `messages`",
            "capture": "the capture of the frame", "frame": "number of the frame, from 1",
            "published_connection_id": "the connection of the publisher", "published_capture": "",
            "published_frame": "",
        }, _deliveries),
        LakeView("retained_messages", "The retained message of each topic at the end of the captures.",
            ("messages", "packets"), {
            "server": "endpoint of the server", "topic": "",
            "state": "held, cleared, expired, refused, or unknown (delivered as retained, but set by no client)",
            "since_ns": "time of the last publication; null if no client published it",
            "client_identifier": "of the publisher; null, like all following columns, unless the message is held",
            "client": "endpoint of the client", "qos": "", "payload_length": "", "payload_sha256": "",
            "payload": "the bytes kept by the ingest (`--payload-limit`)", "message_expiry_interval": "", **_PLACE,
        }, _retained_messages),
        LakeView("reconnect_storms", "Consecutive minutes when a client, or all clients of a server, connect far more "
            "often than usual.", ("packets",), {
            "server": "endpoint of the server",
            "client_identifier": "or the address without one; null for all clients of the server together",
            "from_ns": "start of the first minute", "until_ns": "end of the last minute",
            "connects": "CONNECT packets in these minutes", "peak": "maximum in one minute",
            "usual": "median of the minutes with any CONNECT", "clients": "number of different clients",
        }, _reconnect_storms),
        LakeView("top_talkers", "Traffic of each client; `place` 1 is the client with most bytes on its server.",
            ("connections", "messages"), {
            "place": "rank by the bytes of both directions, on each server", "server": "endpoint of the server",
            "client_identifier": "or the endpoint without one", "connections": "", "packets_sent": "by the client",
            "packets_received": "by the client", "bytes_sent": "by the client", "bytes_received": "by the client",
            "messages_sent": "", "messages_received": "", "payload_bytes_sent": "", "payload_bytes_received": "",
        }, _top_talkers),
        LakeView("payload_sizes", "Payload lengths, by topic and day.", ("messages",), {
            "server": "endpoint of the server", "topic": "", "direction": "client_to_server or server_to_client",
            "day": "day of UTC", "messages": "", "payload_bytes": "bytes of all payloads", "smallest": "bytes",
            "p50": "bytes; each percentile is one of the lengths", "p90": "bytes", "p99": "bytes", "largest": "bytes",
        }, _payload_sizes),
        LakeView("subscriptions", "Topic Filters of each SUBSCRIBE, until they end: a session keeps them over its "
            "connections.", ("packets", "connections"), {
            "server": "endpoint of the server", "client_identifier": "or the endpoint without one", "topic_filter": "",
            "requested_qos": "", "granted_qos": "null if it was refused, or no SUBACK was captured",
            "reason_code": "of the SUBACK", "asked_ns": "time of the SUBSCRIBE",
            "from_ns": "time of the SUBACK, or of the SUBSCRIBE if the subscription existed before",
            "until_ns": "null if it lasts",
            "ended": "refused, unanswered, replaced, unsubscribe, session (the client came back without it), "
            "connection (the session ended with it); null if it lasts",
            "no_local": "", **_PLACE,
        }, _subscriptions),
        LakeView("undelivered", "Messages that matched a subscription in force and were not sent to its client, with "
            "the reason.", ("packets", "messages", "connections", "gaps"), {
            "server": "endpoint of the publisher's server", "topic": "", "published_ns": "",
            "publisher": "Client Identifier of the publisher, or its endpoint",
            "subscriber": "Client Identifier of the subscriber, or its endpoint",
            "reason": "as in `explain --message`",
            "lost": "the rows prove that the subscriber had reason to expect it and did not get it",
            "repeated": "the content was published more than once: another of these messages may be the lost one",
            "qos": "QoS of the publication", "granted_qos": "QoS of the subscription",
            "retain": "RETAIN of the publication", "topic_filter": "a matching filter of the subscriber",
            "payload_length": "", "payload_sha256": "", "connection_id": "the connection of the publisher",
            "capture": "the capture of the publication", "frame": "number of its frame, from 1",
            "receiver_connection_id": "the last connection of the subscriber before the publication",
        }, undelivered),
        LakeView("takeovers", "Connections that were open when their client connected again, or that the server ended "
            "for that.", ("packets", "connections"), {
            "server": "endpoint of the server", "client_identifier": "",
            "taken_ns": "time of the CONNACK of the new connection",
            "from_client": "endpoint of the client on the old connection",
            "to_client": "endpoint of the client on the new connection",
            "closed_ns": "end of the old connection: DISCONNECT, FIN or RST; null if it is open",
            "disconnect_reason": "142 is Session taken over", "connection_id": "the old connection",
            "next_connection_id": "the new connection",
        }, takeovers),
        LakeView("connect_refusals", "CONNECT packets that servers refused.", ("packets",), {
            "server": "endpoint of the server", "client_identifier": "", "client": "endpoint of the client",
            "timestamp_ns": "time of the CONNACK", "version": "3.1, 3.1.1 or 5.0", "reason_code": "",
            "reason": "name of the reason code", **_PLACE,
        }, connect_refusals),
        LakeView("pings", "PINGREQ packets with the time until the PINGRESP.", ("packets",), {
            "server": "endpoint of the server", "client_identifier": "", "client": "endpoint of the client",
            "timestamp_ns": "time of the PINGREQ", "round_trip_ns": "null without a PINGRESP before the next PINGREQ",
            **_PLACE,
        }, pings),
        LakeView("devices", "Client Identifiers with their last packet and usual period.",
            ("packets", "messages", "connections"), {
            "server": "endpoint of the server", "client_identifier": "", "first_ns": "begin of its first connection",
            "last_seen_ns": "time of its last packet", "silent_ns": "from its last packet to the end of the captures",
            "usual_period_ns": "median time between publications that are a second apart or more, else between all; "
            "null with less than two",
            "messages": "publications", "connections": "", "broken_ends": "connections that ended without DISCONNECT",
            "connected": "whether its last connection is open at the end of the captures",
            "keep_alive": "of its last connection, in seconds", "version": "3.1, 3.1.1 or 5.0, of its last connection",
            "firmware": "User Property `firmware`, `fw`, `version` or similar of its last CONNECT",
        }, devices),
        LakeView("sparkplug_nodes", "Edge nodes of Sparkplug with their births, deaths and last message.",
            ("sparkplug_metrics", "packets"), {
            "server": "endpoint of the server", "node": "group/node", "births": "NBIRTH messages",
            "deaths": "NDEATH messages, published or as wills", "data": "NDATA and DDATA messages",
            "devices": "names of devices in its messages", "bdseq": "of its last NBIRTH",
            "state": "online or offline by the last NBIRTH and the NDEATH with its bdSeq; unknown without both",
            "born_ns": "time of its last NBIRTH", "died_ns": "time of its last NDEATH",
            "first_ns": "its first message without NDEATH", "last_ns": "its last message without NDEATH",
            "silent_ns": "from that message to the end of the captures",
        }, sparkplug_nodes),
        LakeView("sparkplug_gaps", "Sequence numbers of Sparkplug that are not the next ones, without lost bytes.",
            ("sparkplug_metrics", "gaps"), {
            "server": "endpoint of the server", "node": "group/node", "device": "", "message_type": "",
            "previous_seq": "", "seq": "", "missing": "number of messages that may be missing; 255 for a repetition",
            "previous_ns": "time of the message before", "timestamp_ns": "",
            "direction": "client_to_server: as the edge node sent it; server_to_client: as a subscriber received it",
            "client_identifier": "of the connection", **_PLACE,
        }, sparkplug_gaps),
        LakeView("captures", "Ingested captures, with the packets that begin in each.",
            ("packets", "gaps", "connections", "ingest_errors"), {
            "capture": "name of the capture at its first ingest", "sha256": "SHA-256 of its uncompressed bytes",
            "first_ns": "time of its first frame with a packet, a gap or the begin of a connection; null without one",
            "last_ns": "time of its last frame with a packet, a gap or the end of a connection", "packets": "",
            "gaps": "", "errors": "", "capture_group": "`--group` of the ingest: the captures of one place or tap",
            "generation": "number of its ingest; null in lakes of earlier releases",
            "ingested_ns": "time of its ingest", "mqttscope_version": "version of mqttscope that ingested it",
        }, captures),
    )
}  # fmt: skip


def named_in(sql: str) -> list[str]:
    """Views that a statement may name; all views if it contains ``show``."""
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    return [name for name in VIEWS if name in words or "show" in words]
