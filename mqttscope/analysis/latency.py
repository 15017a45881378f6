"""Finds out how long messages take: to be acknowledged, and from the publisher to the subscribers."""

from __future__ import annotations

from mqttscope.analysis.dialects import Words
from mqttscope.analysis.joins import OWN, deliveries
from mqttscope.analysis.questions import Lake, Row, percentiles, spread
from mqttscope.report.fleet.model import AcknowledgeRow, DeliveryRow, FleetReport, Latency


def add_latency(report: FleetReport, lake: Lake) -> None:
    """Fill in latencies: of the messages, and deliveries, in the time that was asked for."""
    questions = lake.questions()
    words, selection = questions.words, questions.selection
    messages = selection.history(questions.table("messages"), "messages")
    live = selection.since(questions.view(live_deliveries(words, messages)))
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
    questions.collect()

    whole = questions.row("end to end")
    report.latency = Latency(
        [_acknowledge_row(row) for row in questions.rows("acknowledged")],
        percentiles(whole),
        whole["unknown"],
        whole["repeats"],
        questions.ranked("topics", lambda row: DeliveryRow(row["called"], percentiles(row))),
        questions.ranked("subscribers", lambda row: DeliveryRow(row["called"], percentiles(row))),
    )


def live_deliveries(words: Words, messages: str) -> str:
    """`deliveries` of messages that were not kept as retained ones, and not sent again."""
    return f"""
    select * from ({deliveries(words, messages)})
    where not (retain and (published is null or published.retain)) and not dup
    """


def acknowledged(words: Words, messages: str) -> str:
    """Latency of the answers to messages of QoS 1 and 2, by who sent them."""
    return f"""
    with answered as (select *, case when {OWN} then 'client' else 'server' end as sender from {messages})
    select sender, qos, {spread(words, "latency_ns")}, count(*) filter (where completed_ns is null) as unanswered,
        count(*) filter (where state = 'refused') as refused,
        count(*) filter (where retransmissions > 0) as retransmitted
    from answered where qos in (1, 2) group by sender, qos order by sender, qos
    """


def _acknowledge_row(row: Row) -> AcknowledgeRow:
    counts = row["unanswered"], row["refused"], row["retransmitted"]
    return AcknowledgeRow(row["sender"], row["qos"], percentiles(row), *counts)
