"""Clients that publish and receive on each topic, latencies of messages, and states of retained messages.

`add_talk` counts publishers, subscribers by matching filters, and clients that really receive messages.  `add_latency`
measures how long messages take to be acknowledged, and from the publisher to the subscribers.  `add_retained` follows
retained messages, and messages that expire.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqttscope.analysis.dialects import Dialect
from mqttscope.analysis.joins import (
    FAILURE,
    OWN,
    deliveries,
    expiring,
    matching,
    message_expiry,
    retained_intervals,
    subscriptions,
)
from mqttscope.analysis.questions import ReportSource, Row, percentiles, spread
from mqttscope.report.fleet import model

NAMED = 5
"""Maximum number of clients named per topic."""
WHO = "coalesce(client_identifier, client)"
"""Client Identifier of a client, or its endpoint without one."""


def add_talk(report: model.FleetReport, lake: ReportSource) -> None:
    """Fill in topics and filters.

    A subscription counts if it was requested before the end of the time, and not refused: sessions keep subscriptions.
    """
    questions, asked = lake.questions(), lake.asked
    words, selection = questions.words, questions.selection
    history = selection.since(selection.history(questions.table("messages"), "messages"))
    messages = f"(select * from {history} where topic is not null and topic != '')"
    # A topic condition does not restrict filters; a client condition does not restrict other clients of the topic.
    packets = selection.history(questions.table("packets"), "packets")
    listening = questions.keep(listeners(words, packets))
    topics, chosen = spoken(words, messages), listening
    if asked.client:
        named = f"select distinct server, topic from {selection.clients(messages)}"
        topics = f"select * from ({topics}) join ({named}) using (server, topic)"
        filters = f"select distinct server, topic_filter from {selection.clients(listening, 'who')}"
        chosen = questions.view(f"select * from {listening} join ({filters}) using (server, topic_filter)")
    topics = questions.keep(topics)
    pairs = questions.keep(matching(words, topics, listening))
    whole = questions.keep(_with_subscribers(words, topics, pairs, listening))
    filters = questions.keep(_filters(words, topics, pairs, chosen, heard=bool(asked.topic)))
    questions.top("topics", whole, "published + delivered desc, server nulls first, topic nulls first")
    questions.add(
        "counts",
        f"""select count(*) filter (where published > 0 and coalesce(subscribers, 0) = 0) as unheard,
        count(*) filter (where receivers > 0 and coalesce(subscribers, 0) = 0) as unexplained from {whole}""",
    )
    questions.top("filters", filters, "subscribers desc, topics desc, topic_filter nulls first, server nulls first")
    questions.add("idle", f"select count(*) filter (where topics = 0) as idle from {filters}")
    questions.collect()

    report.talk = model.TopicReport(
        questions.ranked("topics", _topic_row),
        questions.ranked("filters", _filter_row),
        questions.row("counts")["unheard"],
        questions.row("idle")["idle"],
        questions.row("counts")["unexplained"],
    )


def spoken(words: Dialect, messages: str) -> str:
    """Topics of each server: messages, bytes, and the clients at both ends."""
    return f"""
    with ends as (
        select server, topic, direction, payload_length, case when {OWN} then {WHO} end as publisher,
            case when not ({OWN}) then {WHO} end as receiver
        from {messages}
    )
    select server, topic, count(*) filter (where {OWN}) as published, count(*) filter (where not ({OWN})) as delivered,
        coalesce(sum(case when {OWN} then payload_length end), 0) as payload_bytes,
        {_who(words, "publisher", "publishers")}, {_who(words, "receiver", "receivers")}
    from ends group by server, topic
    """


def listeners(words: Dialect, packets: str) -> str:
    """Clients with a subscription that was not refused, once per server and Topic Filter."""
    return f"""
    select distinct server, topic_filter, {WHO} as who from ({subscriptions(words, packets)})
    where coalesce(granted, 0) < {FAILURE}
    """


def _with_subscribers(words: Dialect, topics: str, pairs: str, listening: str) -> str:
    return f"""
    with heard as (
        select server, topic, {_who(words, "who", "subscribers")}
        from (select server, topic from {topics}) join {pairs} using (topic) join {listening}
            using (server, topic_filter)
        group by server, topic
    )
    select * from {topics} left join heard using (server, topic)
    """


def _filters(words: Dialect, topics: str, pairs: str, chosen: str, *, heard: bool) -> str:
    """Topic Filters with their subscribers and number of matching topics; ``heard``: only filters with a match."""
    return f"""
    with matched as (
        select server, topic_filter, topic from {pairs} join (select server, topic from {topics}) using (topic)
    ),
    counted as (
        select server, topic_filter, {_who(words, "who", "subscribers")}, count(distinct topic) as topics
        from {chosen} left join matched using (server, topic_filter) group by server, topic_filter
    )
    select * from counted {"where topics > 0" if heard else ""}
    """


def _who(words: Dialect, column: str, name: str) -> str:
    """Number of different names, and the first few."""
    return f"count(distinct {column}) as {name}, {words.names(column, NAMED)} as {name}_names"


def _names(row: Row, name: str) -> model.ClientNames:
    return model.ClientNames(row[name] or 0, row[f"{name}_names"] or [])


def _topic_row(row: Row) -> model.FleetTopicRow:
    counts = row["published"], row["delivered"], row["payload_bytes"]
    people = (_names(row, name) for name in ("publishers", "subscribers", "receivers"))
    return model.FleetTopicRow(row["server"], row["topic"], *counts, *people)


def _filter_row(row: Row) -> model.FilterRow:
    return model.FilterRow(row["server"], row["topic_filter"], _names(row, "subscribers"), row["topics"])


def add_latency(report: model.FleetReport, lake: ReportSource) -> None:
    """Fill in latencies of the messages and deliveries within the time."""
    questions = lake.questions()
    words, selection = questions.words, questions.selection
    messages = selection.history(questions.table("messages"), "messages")
    live = selection.since(questions.view(f"select * from ({deliveries(words, messages)}) where {LIVE}"))
    live = selection.clients(live, "client_identifier", "published.client_identifier")
    delivered = questions.keep(f"select topic, client_identifier, client, waited_ns, repeated from {live}")
    counted = selection.clients(selection.since(messages))
    questions.add("acknowledged", acknowledged(words, counted))
    questions.add(
        "end to end",
        f"""select {spread(words, "waited_ns")}, count(*) filter (where waited_ns is null) as unknown,
        count(*) filter (where repeated and waited_ns is not null) as repeats from {delivered}""",
    )
    for name, column in (("topics", "topic"), ("subscribers", "coalesce(client_identifier, client)")):
        slow = questions.view(
            f"""select {column} as called, {spread(words, "waited_ns")} from {delivered}
            where waited_ns is not null group by {column}"""
        )
        questions.top(name, slow, "get(percentiles, 1) desc nulls last, called nulls first")
    questions.add("answered in", bucketed("latency_ns", f"(select * from {counted} where qos in (1, 2))"))
    questions.add("delivered in", bucketed("waited_ns", delivered))
    questions.collect()

    whole = questions.row("end to end")
    report.latency = model.Latency(
        [_acknowledge_row(row) for row in questions.rows("acknowledged")],
        percentiles(whole),
        whole["unknown"],
        whole["repeats"],
        questions.ranked("topics", lambda row: model.DeliveryRow(row["called"], percentiles(row))),
        questions.ranked("subscribers", lambda row: model.DeliveryRow(row["called"], percentiles(row))),
        buckets(questions.rows("answered in"), questions.rows("delivered in")),
    )


BOUNDS_NS = tuple(factor * 10**power for power in range(4, 12) for factor in (1, 2, 5))
"""Upper bounds of the latency buckets: from 10 microseconds to 500 seconds, in steps of 1, 2 and 5."""


def bucketed(value: str, relation: str) -> str:
    """Number of values in each bucket, by the bucket's number."""
    cases = " ".join(f"when {value} < {bound} then {place}" for place, bound in enumerate(BOUNDS_NS))
    return f"""
    with placed as (select case {cases} else {len(BOUNDS_NS)} end as bucket from {relation} where {value} is not null)
    select bucket, count(*) as number from placed group by bucket
    """


def buckets(answered: Sequence[Row], delivered: Sequence[Row]) -> list[model.LatencyBucket]:
    """The buckets of two answers to `bucketed`, without empty ones at both ends."""
    counts = [{row["bucket"]: row["number"] for row in rows} for rows in (answered, delivered)]
    known = [place for by_bucket in counts for place in by_bucket]
    ends = (*BOUNDS_NS, None)
    return [
        model.LatencyBucket(ends[place], *(by_bucket.get(place, 0) for by_bucket in counts))
        for place in (range(min(known), max(known) + 1) if known else ())
    ]


LIVE = "not (retain and (published is null or published.retain)) and not dup"
"""Condition on `deliveries`: live messages, neither stored as retained messages nor sent again."""


def acknowledged(words: Dialect, messages: str) -> str:
    """Latency of acknowledgements of QoS 1 and 2 messages, by sender."""
    return f"""
    with answered as (select *, case when {OWN} then 'client' else 'server' end as sender from {messages})
    select sender, qos, {spread(words, "latency_ns")}, count(*) filter (where completed_ns is null) as unanswered,
        count(*) filter (where state = 'refused') as refused,
        count(*) filter (where retransmissions > 0) as retransmitted
    from answered where qos in (1, 2) group by sender, qos order by sender, qos
    """


def _acknowledge_row(row: Row) -> model.AcknowledgeRow:
    counts = row["unanswered"], row["refused"], row["retransmitted"]
    return model.AcknowledgeRow(row["sender"], row["qos"], percentiles(row), *counts)


VERDICTS = ("right", "not_reduced", "missing", "expired")


def add_retained(report: model.FleetReport, lake: ReportSource) -> None:
    """Fill in retained messages and expiry.

    The retained messages at the end depend on all earlier messages, before the time too; counts cover only the time.
    """
    questions = lake.questions()
    words, selection = questions.words, questions.selection
    messages = selection.history(questions.table("messages"), "messages")
    counted = selection.clients(selection.since(messages))
    by_topic = questions.keep(retained_topics(counted, questions.view(retained_intervals(messages))))
    sums = [f"coalesce(sum({name}_number), 0) as {name}_number" for name in ("set", "cleared", "refused", "delivered")]
    states = [f"count(*) filter (where state = '{name}') as {name}_number" for name in ("held", "expired", "unknown")]
    questions.add("retained", f"select {', '.join((*sums, *states))} from {by_topic}")
    questions.top(
        "topics", by_topic, "set_number + cleared_number + delivered_number desc, server nulls first, topic nulls first"
    )
    with_interval = f"(select * from {counted} where message_expiry_interval is not null)"
    questions.add(
        "with interval",
        f"""select count(*) filter (where {OWN}) as published, count(*) filter (where not ({OWN})) as delivered
        from {with_interval}""",
    )
    left = f"case when not ({OWN}) then message_expiry_interval end"
    questions.add("remaining", f"select {spread(words, left)} from {with_interval}")
    sent = selection.since(questions.view(deliveries(words, messages)))
    sent = selection.clients(sent, "client_identifier", "published.client_identifier")
    packets = selection.history(questions.table("packets"), "packets")
    delivered = questions.keep(expiring(sent))
    asking = questions.keep(subscriptions(words, packets))
    pairs = questions.keep(matching(words, f"(select topic from {delivered} where retain)", asking))
    judged = message_expiry(delivered, packets, questions.table("gaps"), asking, pairs)
    counts = [f"count(*) filter (where verdict = '{name}') as {name}_number" for name in VERDICTS]
    questions.add(
        "judged",
        f"select {', '.join(counts)}, count(*) filter (where verdict is null) as unknown_number from ({judged})",
    )
    questions.collect()

    topics = questions.ranked("topics", _topic)
    report.retained = model.RetainedReport(**_counts(questions.row("retained")), topics=topics)
    report.expiry = model.Expiry(
        **questions.row("with interval"), remaining_s=percentiles(questions.row("remaining")),
        **_counts(questions.row("judged")),
    )  # fmt: skip


def retained_topics(counted: str, intervals: str) -> str:
    """Counts for the retained message of each topic, and its state at the end.

    ``set`` and ``right`` are SQL keywords: the counts are called ``set_number``, and so on.
    """
    return f"""
    with happened as (
        select server, topic,
            count(*) filter (where {OWN} and state != 'refused' and payload_length != 0) as set_number,
            count(*) filter (where {OWN} and state != 'refused' and payload_length = 0) as cleared_number,
            count(*) filter (where {OWN} and state = 'refused') as refused_number,
            count(*) filter (where not ({OWN})) as delivered_number
        from {counted} where retain and topic is not null and topic != '' group by server, topic
    ),
    numbered as (
        select server, topic, from_ns, ended,
            row_number() over (partition by server, topic
                order by from_ns desc, capture desc, frame desc, packet_in_connection desc) as place
        from {intervals}
    ),
    latest as (select server, topic, from_ns, coalesce(ended, 'held') as ended from numbered where place = 1)
    select server, topic, set_number, cleared_number, refused_number, delivered_number,
        case when ended is not null then ended when cleared_number > 0 then 'cleared'
        when delivered_number > 0 then 'unknown' else 'refused' end as state, from_ns as since_ns
    from happened left join latest using (server, topic)
    """


def _counts(row: dict[str, int]) -> dict[str, int]:
    return {name.removesuffix("_number"): value for name, value in row.items()}


def _topic(row: dict[str, int]) -> model.RetainedRow:
    return model.RetainedRow(**{name: value for name, value in _counts(row).items() if name != "refused"})  # type: ignore[arg-type]
