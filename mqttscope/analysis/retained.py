"""Finds out what becomes of retained messages, and of messages that expire."""

from __future__ import annotations

from mqttscope.analysis.joins import (
    OWN,
    deliveries,
    expiring,
    matching,
    message_expiry,
    retained_intervals,
    subscriptions,
)
from mqttscope.analysis.questions import Lake, percentiles, spread
from mqttscope.report.fleet.model import Expiry, FleetReport, Retained, RetainedRow

VERDICTS = ("right", "not_reduced", "missing", "expired")


def add_retained(report: FleetReport, lake: Lake) -> None:
    """Fill in retained messages and expiry.

    What is held depends on all that came before, whatever time was asked for; counts are those of the time.
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
    told = f"(select * from {counted} where message_expiry_interval is not null)"
    questions.add(
        "told",
        f"""select count(*) filter (where {OWN}) as published, count(*) filter (where not ({OWN})) as delivered
        from {told}""",
    )
    left = f"case when not ({OWN}) then message_expiry_interval end"
    questions.add("remaining", f"select {spread(words, left)} from {told}")
    found = selection.since(questions.view(deliveries(words, messages)))
    found = selection.clients(found, "client_identifier", "published.client_identifier")
    packets = selection.history(questions.table("packets"), "packets")
    delivered = questions.keep(expiring(found))
    asking = questions.keep(subscriptions(words, packets))
    pairs = questions.keep(matching(words, f"(select topic from {delivered} where retain)", asking))
    judged = message_expiry(delivered, packets, questions.table("gaps"), asking, pairs)
    counts = [f"count(*) filter (where verdict = '{name}') as {name}_number" for name in VERDICTS]
    questions.add(
        "judged",
        f"select {', '.join(counts)}, count(*) filter (where verdict is null) as unknown_number from ({judged})",
    )
    questions.collect()

    report.retained = Retained(**_counts(questions.row("retained")), topics=questions.ranked("topics", _topic))
    report.expiry = Expiry(
        **questions.row("told"), remaining_s=percentiles(questions.row("remaining")),
        **_counts(questions.row("judged")),
    )  # fmt: skip


def retained_topics(counted: str, intervals: str) -> str:
    """What happened to the retained message of each topic, and what is held at the end.

    ``set`` and ``right`` are words of SQL: what is counted is called ``set_number``, and so on.
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


def _topic(row: dict[str, int]) -> RetainedRow:
    return RetainedRow(**{name: value for name, value in _counts(row).items() if name != "refused"})  # type: ignore[arg-type]
