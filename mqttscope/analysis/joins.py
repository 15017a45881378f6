"""Joins of tables without a common column: topics with filters, deliveries with their messages.

Each function takes names of relations and returns a query in an engine's SQL.  What a capture cannot show is null: it
may begin late, and messages are stored inside the server.
"""

from __future__ import annotations

from collections.abc import Mapping

from mqttscope.analysis.dialects import Dialect
from mqttscope.mqtt.topics import MAX_TOPIC_BYTES, SHARE

Relations = Mapping[str, str]
"""Relations of the tables of a lake, by table name."""
SECOND_NS = 1_000_000_000
EXPIRY_TOLERANCE_S = 2
"""Seconds of tolerance for a Message Expiry Interval: clocks and rounding."""
FAILURE = 0x80
"""Lowest reason code of a failure."""
OWN = "direction = 'client_to_server'"
"""Condition: a client sent it."""


def topic_matches(words: Dialect, topic: str, topic_filter: str) -> str:
    """Condition: a Topic Filter matches a Topic Name, both in SQL, as in `mqttscope.mqtt.topics.matches`."""
    share = f"^\\\\{SHARE}/[^/+#]+/" if words.spark else f"^\\{SHARE}/[^/+#]+/"
    plain = f"regexp_replace({topic_filter}, '{share}', '')"
    levels, wanted = f"split({topic}, '/')", f"split({plain}, '/')"
    # A user's query has this condition too, without the macros: only names that the engine has.
    size, slice_ = ("size", "slice") if words.spark else ("len", "list_slice")
    open_ended = f"({plain} = '#' or right({plain}, 2) = '/#')"
    fixed = f"{slice_}({wanted}, 1, {size}({wanted}) - cast({open_ended} as int))"
    equal = words.mapped(fixed, lambda level, place: f"{level} = '+' or {level} = {words.at(levels, place)}")
    wrong = words.chosen(fixed, lambda level: f"contains({level}, '#') or (contains({level}, '+') and {level} != '+')")
    return f"""({topic} != '' and {plain} != '' and {words.octets(topic_filter)} <= {MAX_TOPIC_BYTES}
        and not contains({topic_filter}, chr(0)) and {size}({wrong}) = 0
        and not ({topic_filter} = {plain} and ({plain} = '{SHARE}' or left({plain}, 7) = '{SHARE}/'))
        and case when {open_ended} then {size}({levels}) >= {size}({wanted}) - 1
            else {size}({levels}) = {size}({wanted}) end
        and not (left({topic}, 1) = '$' and left({plain}, 1) in ('+', '#'))
        and not array_contains({equal}, false))"""


def matching(words: Dialect, topics: str, filters: str) -> str:
    """Pairs of ``topic`` and ``topic_filter`` that match, each once; a filter that is not valid matches nothing.

    ``topics`` has a column ``topic``, ``filters`` a column ``topic_filter``.  The result agrees with
    `mqttscope.mqtt.topics.matches`.  Filters have few shapes (number of levels, places of ``+``, ``#`` at the end).
    For each shape a topic has one filter that would match it, found by an equi-join: its cost grows with topics times
    shapes, not with topics times filters.
    """
    head = words.mapped(
        "slice(levels, 1, number)",
        lambda level, place: f"case when array_contains(plus, {place}) then '+' else {level} end",
    )
    return f"""
    with shaped as ({_shaped(words, filters)}),
    shapes as (select distinct number, open_ended, plus from shaped),
    named as (select distinct topic, split(topic, '/') as levels from {topics} where topic != ''),
    asked as (
        select /*+ broadcast(shapes) */ topic, number, open_ended, plus, {words.joined(head)} as head
        from named cross join shapes
        where case when open_ended then size(levels) >= number else size(levels) = number end
        and not (left(topic, 1) = '$' and (array_contains(plus, 0) or (open_ended and number = 0)))
    ),
    looked as (
        select topic, number, open_ended, plus,
            case when open_ended and number = 0 then '#' when open_ended then concat(head, '/#') else head end as plain
        from asked
    )
    select topic, topic_filter from looked join shaped using (number, open_ended, plus, plain)
    """


def _shaped(words: Dialect, filters: str) -> str:
    """Valid filters, without ``$share/name/``, and their shapes."""
    wrong = words.chosen(
        "fixed", lambda level: f"contains({level}, '#') or (contains({level}, '+') and {level} != '+')"
    )
    plus = words.chosen(
        words.mapped("fixed", lambda level, place: f"case when {level} = '+' then {place} end"),
        lambda place: f"{place} is not null",
    )
    return f"""
    with named as (
        select distinct topic_filter, topic_filter = '{SHARE}' or left(topic_filter, 7) = '{SHARE}/' as shared,
            coalesce(get(split(topic_filter, '/'), 1), '') as share_name
        from {filters}
        where {words.octets("topic_filter")} <= {MAX_TOPIC_BYTES} and not contains(topic_filter, chr(0))
    ),
    plain as (
        select topic_filter,
            case when shared then substring(topic_filter, length(share_name) + 9) else topic_filter end as plain
        from named
        where not shared
        or (share_name != '' and not contains(share_name, '+') and not contains(share_name, '#'))
    ),
    ending as (
        select topic_filter, plain, split(plain, '/') as levels, plain = '#' or right(plain, 2) = '/#' as open_ended
        from plain where plain != ''
    ),
    counted as (
        select topic_filter, plain, levels, open_ended, size(levels) - cast(open_ended as int) as number from ending
    ),
    cut as (select topic_filter, plain, open_ended, number, slice(levels, 1, number) as fixed from counted)
    select topic_filter, plain, number, open_ended, {plus} as plus from cut where size({wrong}) = 0
    """


_HEAD = "server, client, client_identifier, connection_id, capture, frame, timestamp_ns, packet_in_connection"
_ORDER = "timestamp_ns, capture, frame, packet_in_connection"


def subscribing(words: Dialect, packets: str) -> str:
    """Topic Filters of SUBSCRIBE (``begins``) and UNSUBSCRIBE packets, one row each.

    ``granted`` is the QoS or the reason code of the SUBACK and ``granted_ns`` its time, null without a captured SUBACK.
    """
    return f"""
    with kinds as (
        select {_HEAD}, type, packet_identifier, subscriptions, topic_filters, reason_codes
        from {packets} where type in ('subscribe', 'suback', 'unsubscribe')
    ),
    answered as (
        select {_HEAD}, type, subscriptions, topic_filters, lead(type) over by_identifier as answer,
            lead(reason_codes) over by_identifier as codes, lead(timestamp_ns) over by_identifier as answered_ns
        from kinds
        window by_identifier as (partition by connection_id, packet_identifier order by packet_in_connection)
    ),
    begun as (select * from answered where type = 'subscribe'),
    ended as (select * from answered where type = 'unsubscribe'),
    listed as (select * from begun {words.unnested("subscriptions", "asked", "position")}),
    named as (select * from ended {words.unnested("topic_filters", "topic_filter", "position")})
    select {_HEAD}, asked.topic_filter as topic_filter, asked.maximum_qos as maximum_qos,
        asked.retain_handling as retain_handling, coalesce(asked.no_local, false) as no_local,
        get(case when answer = 'suback' then codes end, position) as granted,
        case when answer = 'suback' then answered_ns end as granted_ns, position, true as begins
    from listed
    union all
    select {_HEAD}, topic_filter, null, null, null, null, null, position, false from named
    """


def subscriptions(words: Dialect, packets: str) -> str:
    """Subscriptions of clients: one row for each Topic Filter of each SUBSCRIBE.

    ``granted`` is the QoS or the reason code of its SUBACK, null if no SUBACK was captured.  ``until_ns`` is the time
    of the next SUBSCRIBE or UNSUBSCRIBE of the filter on the connection, or null.
    """
    return f"""
    with followed as (
        select *, lead(timestamp_ns) over
            (partition by connection_id, topic_filter order by packet_in_connection, position) as until_ns
        from ({subscribing(words, packets)})
    )
    select {_HEAD}, topic_filter, maximum_qos, retain_handling, granted, until_ns from followed where begins
    """


def retained_intervals(messages: str) -> str:
    """The times when a server held retained messages of clients.

    A row has ``from_ns`` and ``until_ns`` (null if it is held at the end of the captures), and ``ended``:
    ``replaced``, ``cleared`` (by an empty payload), ``expired``, or null.  A refused message sets nothing.
    The retained message before the first row of a topic is unknown, and a server retains wills invisibly.
    """
    return f"""
    with accepted as (
        select {_HEAD}, topic, qos, payload_length, payload_sha256, message_expiry_interval,
            lead(timestamp_ns) over (partition by server, topic order by {_ORDER}) as next_ns,
            lead(payload_length) over (partition by server, topic order by {_ORDER}) as next_length,
            try_add(timestamp_ns, message_expiry_interval * {SECOND_NS}) as expires
        from {messages}
        where {OWN} and retain and topic is not null and topic != '' and state != 'refused'
    ),
    known as (
        select *, expires is not null and (next_ns is null or expires < next_ns) and expires <= last_ns as expired
        from accepted cross join (select max(timestamp_ns) as last_ns from {messages})
        where payload_length > 0
    )
    select server, client, client_identifier, connection_id, capture, frame, timestamp_ns as from_ns,
        packet_in_connection, topic, qos, payload_length, payload_sha256, message_expiry_interval,
        case when expired then expires else next_ns end as until_ns,
        case when expired then 'expired' when next_length = 0 then 'cleared' when next_ns is not null then 'replaced'
        end as ended
    from known
    """


def deliveries(words: Dialect, messages: str) -> str:
    """Messages that servers sent, each with the last message that a client published with its topic and payload.

    ``published`` is a struct of that message, null if the captures lack it; ``waited_ns`` is the time from it to the
    delivery, both as captured; ``repeated`` is true if the content was published before that too, so that the
    delivery may belong to an earlier message.  Messages of unknown topic, or with missing bytes, have no publisher.
    One sort by topic and content; no join.
    """
    source = words.struct(
        "timestamp_ns", "client", "client_identifier", "connection_id", "capture", "frame", "qos", "retain",
        "message_expiry_interval",
    )  # fmt: skip
    by_content = f"""(
        partition by server, topic, payload_sha256
        order by timestamp_ns, case when {OWN} then 0 else 1 end, capture, frame, packet_in_connection
        rows between unbounded preceding and current row
    )"""
    return f"""
    with paired as (
        select *, {words.last(f"case when {OWN} then {source} end")} over {by_content} as published,
            sum(case when {OWN} then 1 else 0 end) over {by_content} > 1 as repeated
        from {messages} where topic is not null and payload_sha256 is not null
    ),
    delivered as (
        select * from paired where not ({OWN})
        union all
        select *, null as published, false as repeated
        from {messages} where not ({OWN}) and (topic is null or payload_sha256 is null)
    )
    select *, try_subtract(timestamp_ns, published.timestamp_ns) as waited_ns from delivered
    """


def expiring(delivered: str) -> str:
    """`deliveries` of messages that were published with an interval, for `message_expiry`."""
    return f"""
    select server, {_NAME}, topic, retain, dup, repeated, timestamp_ns, message_expiry_interval, published
    from {delivered} where published.message_expiry_interval is not null
    """


_NAME = "connection_id, direction, stream_offset"
"""Columns that identify a message."""


def message_expiry(expiring: str, packets: str, gaps: str, asking: str, pairs: str) -> str:
    """How servers treat the Message Expiry Interval.

    ``expiring`` is the relation `expiring`, ``asking`` the `subscriptions` in ``packets``, ``pairs`` the relation
    `matching` of the topics and filters of both.

    A message certainly waited in the server (``stored_ns``) until the receiver's connection was accepted, or, if it is
    retained, until a SUBSCRIBE requested it; any later wait may be in the network.  ``verdict`` is ``right``,
    ``not_reduced`` (the interval is larger than what was left), ``missing`` (no interval), ``expired`` (delivered
    although nothing was left), or null: the message did not wait, or the capture cannot show it, since the content came
    more than once or bytes of clients were lost meanwhile.
    """
    stored_long = f"stored_ns > {EXPIRY_TOLERANCE_S * SECOND_NS}"
    return f"""
    with accepted as (
        select connection_id, min(timestamp_ns) as accepted_ns from {packets} where type = 'connack'
        group by connection_id
    ),
    asked as (
        select connection_id, topic, min(timestamp_ns) as asked_ns from {pairs} join {asking} using (topic_filter)
        group by connection_id, topic
    ),
    lost as ({_behind_gaps(expiring, gaps)}),
    known as (
        select expiring.*, behind_gap,
            case when retain then greatest(accepted_ns, asked_ns) else accepted_ns end as since_ns
        from {expiring} as expiring
        left join accepted on expiring.connection_id = accepted.connection_id
        left join asked on expiring.connection_id = asked.connection_id and expiring.topic = asked.topic
        left join lost on expiring.connection_id = lost.connection_id and expiring.direction = lost.direction
            and expiring.stream_offset = lost.stream_offset
    ),
    stored as (
        select *, case when since_ns is not null
            then greatest(0, try_subtract(since_ns, published.timestamp_ns)) end as stored_ns
        from known
    ),
    judged as (select *, published.message_expiry_interval - stored_ns / {SECOND_NS} as left_of_it from stored)
    select *, cast(floor(left_of_it) as bigint) as left_s,
        case when stored_ns is null or not ({stored_long}) or repeated or dup or behind_gap then null
        when left_of_it + {EXPIRY_TOLERANCE_S} < 0 then 'expired'
        when message_expiry_interval is null then 'missing'
        when message_expiry_interval > left_of_it + {EXPIRY_TOLERANCE_S} then 'not_reduced'
        else 'right' end as verdict
    from judged
    """


def _behind_gaps(delivered: str, gaps: str) -> str:
    """Whether bytes of any client of the server were lost between the publication and the delivery of messages.

    Gaps are counted up to both times, in one sort by server.  Comparing times with times would join all rows with all.
    """
    return f"""
    with points as (
        select server, {_NAME}, published.timestamp_ns as at_ns, 0 as gap from {delivered}
        union all
        select server, {_NAME}, timestamp_ns, 0 from {delivered}
        union all
        select server, null, null, null, timestamp_ns, 1 from {gaps} where {OWN}
    ),
    counted as (
        select *, sum(gap) over
            (partition by server order by at_ns, gap rows between unbounded preceding and current row) as so_far
        from points
    )
    select {_NAME}, max(so_far) > min(so_far) as behind_gap from counted where gap = 0 group by {_NAME}
    """
