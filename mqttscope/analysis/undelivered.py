"""Subscriptions of clients over all their connections, and messages that did not reach a subscriber.

A client is a Client Identifier on the host of a server, or a connection without one.  Each relation is a query in an
engine's SQL over the tables of a lake.  `undelivered` takes the words of `explain --message` (`explain.fates.Fate`)
for its reasons.  Rows lack what only TCP shows, so a message is lost only if the rows prove it: in doubt the reason
is one that does not count as lost.

Deliveries are assigned to messages of equal content oldest first.  With P messages and D deliveries of one content
to one client in the order of time, D deliveries less the largest surplus of D over P have a message: a running
count, without a join of messages with deliveries.
"""

from __future__ import annotations

from mqttscope.analysis.dialects import Dialect
from mqttscope.analysis.joins import FAILURE, OWN, SECOND_NS, Relations, matching, subscribing
from mqttscope.mqtt.topics import SHARE

NEVER = 1 << 62
"""A time that does not come."""
RECEIVE_MAXIMUM = 65_535
"""Receive Maximum of a client without an announced one."""
LOST = ("not_sent", "too_large", "expired", "session_gone", "offline")
"""Reasons of messages that count as lost, since the client had reason to expect them."""


def client_timeline(packets: str, connections: str) -> str:
    """Accepted connections with client, session and following connection; ``end_ns`` is null for an open one.

    ``session_number`` counts the sessions of a client: Session Present 1 continues one.  A connection without a
    captured CONNACK begins a session, since nothing shows that it continues one.
    """
    return f"""
    with shown as (
        select connection_id,
            min(case when type = 'connack' and reason_code = 0 then timestamp_ns end) as accepted_ns,
            min(case when type = 'connack' then reason_code end) as code,
            min(case when type = 'disconnect' then timestamp_ns end) as disconnect_ns,
            max(case when type = 'connect' then properties.receive_maximum end) as receive_maximum,
            max(case when type = 'connect' then properties.maximum_packet_size end) as maximum_packet_size
        from {packets} where type in ('connect', 'connack', 'disconnect') group by connection_id
    ),
    known as (
        select connection_id, server, regexp_replace(server, ':[0-9]+$', '') as host, client, client_identifier,
            case when client_identifier != '' then client_identifier else connection_id end as who,
            coalesce(accepted_ns, timestamp_ns) as began_ns, receive_maximum, maximum_packet_size, session_present,
            least(disconnect_ns, case when closed_how not in ('open', 'capture_end') then closed_ns end) as end_ns,
            case when version = '5.0' then session_expiry_interval > 0 else not clean_start end as keeps,
            disconnect_by is null as was_cut,
            unacknowledged.server_to_client = 0 and coalesce(tcp.client_to_server.zero_windows, 0) = 0 as has_read,
            case when closed_by = 'server' then closed_ns end as server_closed_ns,
            unacknowledged.client_to_server as left_bytes,
            one_sided is not null or coalesce(late, false) or not coalesce(version_known, false) as is_partial
        from {connections} left join shown using (connection_id)
        where coalesce(code, 0) = 0
    )
    select *, sum(case when session_present then 0 else 1 end) over in_order as session_number,
        lead(began_ns) over in_order as next_ns, lead(session_present) over in_order as next_present,
        max(began_ns) over (partition by host, who) as last_began_ns
    from known
    window in_order as (partition by host, who order by began_ns, connection_id)
    """


def subscription_spans(words: Dialect, packets: str, timeline: str) -> str:
    """Subscriptions: one row for each Topic Filter of each SUBSCRIBE, from its SUBACK until it ends.

    ``ended`` is ``refused``, ``unanswered``, ``replaced`` (by a SUBSCRIBE), ``unsubscribe``, ``session`` (the client
    came back without it), ``connection`` (the session ended with it), or null.
    """
    return f"""
    with events as ({subscribing(words, packets)}),
    of_clients as (
        select events.*, host, who, session_number from events join {timeline} as timeline using (connection_id)
    ),
    followed as (
        select *, lead(timestamp_ns) over of_filter as following_ns, lead(begins) over of_filter as is_again,
            lag(granted) over of_filter as before,
            case when lag(granted) over of_filter < {FAILURE} then timestamp_ns else granted_ns end as from_ns
        from of_clients
        window of_filter as (partition by host, who, session_number, topic_filter
            order by timestamp_ns, packet_in_connection, position)
    ),
    last_ones as (
        select host, who, session_number, end_ns, keeps, was_cut, next_ns from {timeline}
        where next_ns is null or not coalesce(next_present, false)
    ),
    dated as (
        select followed.*, case when before < {FAILURE} then coalesce(granted, before) else granted end as held,
            case when granted >= {FAILURE} or (granted_ns is null and not coalesce(before < {FAILURE}, false)) then null
                when following_ns is not null then following_ns
                when keeps then next_ns else end_ns end as until_ns,
            case when granted >= {FAILURE} then 'refused' when granted_ns is null then 'unanswered'
                when is_again then 'replaced' when not is_again then 'unsubscribe'
                when keeps and next_ns is not null then 'session' when not keeps and end_ns is not null
                then 'connection' end as ended,
            case when following_ns is null and was_cut and next_ns is not null then next_ns end as missed_until_ns
        from followed left join last_ones using (host, who, session_number) where begins
    )
    select host, server, client, client_identifier, who, session_number, topic_filter, maximum_qos, granted, held,
        no_local, left(topic_filter, {len(SHARE) + 1}) = '{SHARE}/' as is_shared, timestamp_ns as asked_ns, granted_ns,
        from_ns, until_ns, ended, greatest(until_ns, missed_until_ns) as due_until_ns,
        lead(timestamp_ns) over (partition by host, who, topic_filter order by timestamp_ns, position) as again_ns,
        connection_id, packet_in_connection, capture, frame
    from dated
    """


def undelivered(words: Dialect, relations: Relations) -> str:
    """Messages that matched a subscription and were not sent to its client, with the reason and whether it is proven.

    Shared Subscriptions are left out: any member may have got the message, and the captures may lack it.
    """
    packets, messages, connections = (relations[name] for name in ("packets", "messages", "connections"))
    due_topics, due_filters = "(select topic from published)", "(select topic_filter from wanted)"
    return f"""
    with timeline as ({client_timeline(packets, connections)}),
    spans as ({subscription_spans(words, packets, "timeline")}),
    wanted as (
        select host, who, session_number, topic_filter, least(held, maximum_qos) as granted_qos, no_local, from_ns,
            coalesce(due_until_ns, {NEVER}) as until_ns, connection_id as asking_id,
            packet_in_connection as asked_number
        from spans where held < {FAILURE} and not is_shared
    ),
    own as (
        select connection_id, stream_offset, packet_in_connection, timestamp_ns, direction, server, client,
            client_identifier, topic, qos, retain, dup, payload_length, payload_sha256, length, state, acknowledged_ns,
            completed_ns, message_expiry_interval, capture, frame, regexp_replace(server, ':[0-9]+$', '') as host,
            packet_identifier, case when client_identifier != '' then client_identifier else connection_id end as who
        from {messages} where topic != ''
    ),
    sent as (
        select *, row_number() over (partition by host, who, topic, payload_sha256, qos, packet_identifier
            order by timestamp_ns, packet_in_connection) as times
        from own where {OWN}
    ),
    published as (select * from sent where times = 1 or not dup),
    delivered as (
        select own.host, timeline.who, session_number, topic, payload_sha256, timestamp_ns, own.connection_id
        from own join timeline on own.connection_id = timeline.connection_id where not ({OWN})
    ),
    pairs as ({matching(words, due_topics, due_filters)}),
    matched as (
        select published.connection_id, published.stream_offset, published.host, published.topic,
            published.payload_sha256, published.timestamp_ns, published.packet_in_connection, wanted.who,
            session_number, max(granted_qos) as granted_qos, min(topic_filter) as topic_filter,
            max(until_ns) as until_ns
        from published join pairs on published.topic = pairs.topic
        join wanted using (topic_filter, host)
        where timestamp_ns < until_ns and case when asking_id = published.connection_id
                then asked_number < packet_in_connection else from_ns <= timestamp_ns end
            and not (no_local and published.who = wanted.who)
        group by published.connection_id, published.stream_offset, published.host, published.topic,
            published.payload_sha256, published.timestamp_ns, published.packet_in_connection, wanted.who,
            session_number
    ),
    contents as (
        select host, who, session_number, topic, payload_sha256, timestamp_ns, 0 as kind, connection_id, stream_offset,
            packet_in_connection, granted_qos, topic_filter, until_ns
        from matched where payload_sha256 is not null
        union all
        select host, who, session_number, topic, payload_sha256, timestamp_ns, 1, null, null, null, null, null, null
        from delivered where payload_sha256 is not null
    ),
    counted as (
        select *, sum(1 - kind) over so_far as messages_before, sum(kind) over so_far as deliveries_before
        from contents
        window so_far as (partition by host, who, session_number, topic, payload_sha256
            order by timestamp_ns, kind, connection_id, packet_in_connection
            rows between unbounded preceding and current row)
    ),
    assigned as (
        select *, sum(kind) over of_content
                - greatest(0, max(deliveries_before - messages_before) over of_content) as with_message
        from counted window of_content as (partition by host, who, session_number, topic, payload_sha256)
    ),
    missing as (
        select host, who, connection_id, stream_offset, granted_qos, topic_filter, until_ns from assigned
        where kind = 0 and messages_before > with_message
        union all
        select host, who, connection_id, stream_offset, granted_qos, topic_filter, until_ns from matched
        where payload_sha256 is null
    ),
    given as (
        select published.*, missing.who as reader, granted_qos, topic_filter, until_ns,
            least(published.qos, granted_qos) as due_qos
        from missing join published using (connection_id, stream_offset)
    ),
    placed as (
        select given.*, timeline.connection_id as receiver_connection_id,
            coalesce(timeline.client_identifier, timeline.client) as subscriber, end_ns, keeps, was_cut, is_partial,
            has_read, next_ns, next_present, coalesce(receive_maximum, {RECEIVE_MAXIMUM}) as receive_maximum,
            maximum_packet_size, coalesce(end_ns > given.timestamp_ns, true) as is_online
        from given join timeline on given.host = timeline.host and given.reader = timeline.who
            and began_ns <= given.timestamp_ns and coalesce(next_ns, {NEVER}) > given.timestamp_ns
    ),
    points as (
        select receiver_connection_id as connection_id, timestamp_ns as at_ns, 0 as change, 0 as stays, 1 as place,
            connection_id as publisher_connection_id, stream_offset
        from placed where is_online
        union all
        select connection_id, timestamp_ns, 1, case when completed_ns is null then 1 else 0 end, 0, null, null
        from own where not ({OWN}) and qos > 0
        union all
        select connection_id, completed_ns, -1, 0, 2, null, null from own
        where not ({OWN}) and qos > 0 and completed_ns is not null
    ),
    flying as (
        select *, sum(change) over so_far as in_flight, sum(stays) over so_far as unanswered
        from points window so_far as (partition by connection_id order by at_ns, place
            rows between unbounded preceding and current row)
    ),
    waiting as (
        select connection_id as receiver_connection_id, publisher_connection_id as connection_id, stream_offset,
            max(in_flight) as in_flight, max(unanswered) as unanswered
        from flying where place = 1 group by connection_id, publisher_connection_id, stream_offset
    ),
    offered as (
        select host, who, topic, qos, payload_sha256, min(timestamp_ns) as first_ns, max(timestamp_ns) as last_ns,
            count(*) as times
        from published where payload_sha256 is not null group by host, who, topic, qos, payload_sha256
    ),
    came as (
        select host, who, connection_id, topic, payload_sha256, max(timestamp_ns) as came_ns from delivered
        group by host, who, connection_id, topic, payload_sha256
    ),
    alike as (
        select came.host, came.who, connection_id, offered.who as publisher_who, topic, qos, min(first_ns) as first_ns,
            max(case when came_ns >= last_ns then last_ns end) as last_ns
        from came join offered using (host, topic, payload_sha256) where came_ns >= first_ns
        group by came.host, came.who, connection_id, offered.who, topic, qos
    ),
    neighbours as (
        select *, min(first_ns) over (partition by host, who, publisher_who, topic, qos) as before_ns from alike
    ),
    recurring as (
        select host, topic, payload_sha256, sum(times) > 1 as repeated from offered group by host, topic, payload_sha256
    ),
    talking as (
        select connection_id, max(timestamp_ns) as sent_ns from {packets} where not ({OWN}) group by connection_id
    ),
    proofs as (
        select connection_id, max(packet_in_connection) as received_number from {messages}
        where {OWN} and acknowledged_ns is not null group by connection_id
    ),
    arrivals as (
        select connection_id, server_closed_ns, sent_bytes - left_bytes as received_bytes from timeline join (
            select connection_id, max(stream_offset + length) as sent_bytes from {packets} where {OWN}
            group by connection_id
        ) as ends using (connection_id)
    ),
    spread as (
        select distinct host, topic, payload_sha256, timestamp_ns, coalesce(acknowledged_ns, timestamp_ns) + {SECOND_NS}
            as at_ns, true as is_message
        from given
        union all
        select host, topic, payload_sha256, timestamp_ns, timestamp_ns, false from delivered
    ),
    ordered as (
        select *, max(case when not is_message then at_ns end) over (partition by host, topic, payload_sha256
                order by at_ns, is_message rows between unbounded preceding and current row) as before_ns,
            max(case when not is_message then at_ns end) over (partition by host, topic, payload_sha256) as arrived_ns
        from spread
    ),
    arrived as (
        select host, topic, payload_sha256, timestamp_ns, max(arrived_ns) as arrived_ns,
            max(case when before_ns >= timestamp_ns then before_ns else at_ns end) as due_ns
        from ordered where is_message group by host, topic, payload_sha256, timestamp_ns
    ),
    lacking as (
        select host, who, max(gaps.timestamp_ns) as gap_ns
        from {relations["gaps"]} as gaps join timeline on gaps.connection_id = timeline.connection_id
        where direction = 'server_to_client' and event != 'discarded' group by host, who
    ),
    judged as (
        select placed.*, coalesce(in_flight, 0) as in_flight, coalesce(unanswered, 0) as unanswered, ending.last_ns,
            due_ns,
            coalesce(repeated, false) as repeated,
            acknowledged_ns is not null or coalesce(arrived_ns >= placed.timestamp_ns, false)
                or coalesce(received_number > packet_in_connection, false)
                or coalesce(placed.qos = 0 and stream_offset + length <= received_bytes
                    and coalesce(server_closed_ns > placed.timestamp_ns + {SECOND_NS}, true), false) as is_received,
            coalesce(before_ns < placed.timestamp_ns and neighbours.last_ns > placed.timestamp_ns, false) as is_between,
            coalesce(sent_ns > placed.timestamp_ns, false) or coalesce(has_read, false) as is_reading,
            is_partial or payload_sha256 is null or coalesce(gap_ns >= placed.timestamp_ns - {SECOND_NS}, false)
                as has_gap
        from placed left join waiting using (receiver_connection_id, connection_id, stream_offset)
        left join proofs using (connection_id) left join arrivals using (connection_id)
        left join arrived using (host, topic, payload_sha256, timestamp_ns)
        left join recurring using (host, topic, payload_sha256)
        left join lacking on placed.host = lacking.host and reader = lacking.who
        left join neighbours on receiver_connection_id = neighbours.connection_id and placed.topic = neighbours.topic
            and placed.qos = neighbours.qos and placed.who = neighbours.publisher_who
        left join talking on receiver_connection_id = talking.connection_id
        cross join (
            select max(at_ns) as last_ns from (
                select max(timestamp_ns) as at_ns from {packets} union all
                select max(greatest(timestamp_ns, closed_ns)) from {connections}
            )
        ) as ending
    ),
    ended as (
        select host, who, topic_filter, held, until_ns, coalesce(again_ns, {NEVER}) as again_ns
        from spans where ended = 'session' and not is_shared
    ),
    forgotten as (
        select published.connection_id, published.stream_offset, ended.who, min(topic_filter) as topic_filter,
            max(held) as granted_qos
        from published join pairs on published.topic = pairs.topic join ended using (topic_filter, host)
        where ended.until_ns <= timestamp_ns and timestamp_ns < again_ns
        group by published.connection_id, published.stream_offset, ended.who
    ),
    without_session as (
        select published.*, forgotten.topic_filter, forgotten.granted_qos, coalesce(repeated, false) as repeated,
            coalesce(timeline.client_identifier, timeline.client) as subscriber,
            timeline.connection_id as receiver_connection_id
        from forgotten join published using (connection_id, stream_offset)
        join timeline on published.host = timeline.host and forgotten.who = timeline.who
            and began_ns <= published.timestamp_ns and coalesce(next_ns, {NEVER}) > published.timestamp_ns
        left join recurring on published.host = recurring.host and published.topic = recurring.topic
            and published.payload_sha256 = recurring.payload_sha256
        left join matched on forgotten.connection_id = matched.connection_id
            and forgotten.stream_offset = matched.stream_offset and forgotten.who = matched.who
        left join (select host, who, topic, payload_sha256, max(came_ns) as came_ns from came
            group by host, who, topic, payload_sha256) as got
            on published.host = got.host and forgotten.who = got.who and published.topic = got.topic
            and published.payload_sha256 = got.payload_sha256 and came_ns >= published.timestamp_ns
        where matched.who is null and got.who is null and last_began_ns > published.timestamp_ns
            and (keeps or (was_cut and end_ns <= published.timestamp_ns))
    ),
    explained as (select *, {_reason()} as reason from judged)
    select server, topic, timestamp_ns as published_ns, coalesce(client_identifier, client) as publisher, subscriber,
        reason,
        reason in ({", ".join(f"'{reason}'" for reason in LOST)}) and (is_online or next_ns is not null) as lost,
        repeated, qos, granted_qos, retain, topic_filter, payload_length, payload_sha256, connection_id, capture,
        frame, receiver_connection_id
    from explained where reason is not null
    union all
    select server, topic, timestamp_ns, coalesce(client_identifier, client), subscriber, 'session_gone', true, repeated,
        qos, granted_qos, retain, topic_filter, payload_length, payload_sha256, connection_id, capture, frame,
        receiver_connection_id
    from without_session
    """


def _reason() -> str:
    """Reason in the order of `explain.deliveries`; null if the client had no subscription then."""
    second = f"timestamp_ns + {SECOND_NS}"
    return f"""case
        when not is_online and not coalesce(keeps, false) and not (was_cut and next_ns is not null) then null
        when state = 'refused' then 'message_refused'
        when qos = 2 and state = 'received' and acknowledged_ns + {SECOND_NS} <= last_ns then 'not_released'
        when not is_received then 'not_received'
        when is_online and length > maximum_packet_size then 'too_large'
        when has_gap then 'not_captured'
        when is_online and in_flight >= receive_maximum then 'quota_full'
        when is_online and until_ns <= due_ns and until_ns < coalesce(end_ns, {NEVER})
            and receiver_connection_id != connection_id then 'unsubscribed'
        when is_online and is_between then 'not_sent'
        when is_online and end_ns <= due_ns and not (due_qos > 0 and coalesce(next_present, false)
            and next_ns + {SECOND_NS} <= last_ns) then 'connection_ended'
        when is_online and end_ns is null and last_ns < {second} then 'not_captured'
        when is_online and (not is_reading or (unanswered > 0 and due_qos > 0)) then 'stalled'
        when is_online then 'not_sent'
        when not coalesce(keeps, false) or (next_ns is not null and not coalesce(next_present, false))
            then 'session_gone'
        when due_qos = 0 or next_ns is null then 'offline'
        when next_ns - timestamp_ns >= message_expiry_interval * {SECOND_NS} then 'expired'
        when last_ns < next_ns + {SECOND_NS} then 'not_captured'
        else 'not_sent' end"""
