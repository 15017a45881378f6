"""Finds out who talks on which topic: publishers, subscribers by the filters that match, those that get messages."""

from __future__ import annotations

from mqttscope.analysis.dialects import Words
from mqttscope.analysis.joins import FAILURE, OWN, matching, subscriptions
from mqttscope.analysis.questions import Lake, Row
from mqttscope.report.fleet.model import FilterRow, FleetReport, Names, Talk, TopicRow

NAMED = 5
"""Clients that are named of those that have to do with a topic."""
_WHO = "coalesce(client_identifier, client)"


def add_talk(report: FleetReport, lake: Lake) -> None:
    """Fill in topics and filters.

    A subscription counts if it was asked for before the end of the time, and not refused: sessions keep them.
    """
    questions, asked = lake.questions(), lake.asked
    words, selection = questions.words, questions.selection
    history = selection.since(selection.history(questions.table("messages"), "messages"))
    messages = f"(select * from {history} where topic is not null and topic != '')"
    # A condition on topics is none on filters, and one on clients is none on who else has to do with their topics.
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

    report.talk = Talk(
        questions.ranked("topics", _topic_row),
        questions.ranked("filters", _filter_row),
        questions.row("counts")["unheard"],
        questions.row("idle")["idle"],
        questions.row("counts")["unexplained"],
    )


def spoken(words: Words, messages: str) -> str:
    """Topics of each server: messages, bytes, and the clients at both ends."""
    return f"""
    with told as (
        select server, topic, direction, payload_length, case when {OWN} then {_WHO} end as publisher,
            case when not ({OWN}) then {_WHO} end as receiver
        from {messages}
    )
    select server, topic, count(*) filter (where {OWN}) as published, count(*) filter (where not ({OWN})) as delivered,
        coalesce(sum(case when {OWN} then payload_length end), 0) as payload_bytes,
        {_who(words, "publisher", "publishers")}, {_who(words, "receiver", "receivers")}
    from told group by server, topic
    """


def listeners(words: Words, packets: str) -> str:
    """Who subscribed to which Topic Filter of which server, each once; refused ones are left out."""
    return f"""
    select distinct server, topic_filter, {_WHO} as who from ({subscriptions(words, packets)})
    where coalesce(granted, 0) < {FAILURE}
    """


def _with_subscribers(words: Words, topics: str, pairs: str, listening: str) -> str:
    return f"""
    with heard as (
        select server, topic, {_who(words, "who", "subscribers")}
        from (select server, topic from {topics}) join {pairs} using (topic) join {listening}
            using (server, topic_filter)
        group by server, topic
    )
    select * from {topics} left join heard using (server, topic)
    """


def _filters(words: Words, topics: str, pairs: str, chosen: str, *, heard: bool) -> str:
    """Topic Filters with who asked for them, and how many topics each matches; ``heard``: those that match any."""
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


def _who(words: Words, column: str, name: str) -> str:
    """How many different names there are, and the first few."""
    return f"count(distinct {column}) as {name}, {words.names(column, NAMED)} as {name}_names"


def _names(row: Row, name: str) -> Names:
    return Names(row[name] or 0, row[f"{name}_names"] or [])


def _topic_row(row: Row) -> TopicRow:
    counts = row["published"], row["delivered"], row["payload_bytes"]
    people = (_names(row, name) for name in ("publishers", "subscribers", "receivers"))
    return TopicRow(row["server"], row["topic"], *counts, *people)


def _filter_row(row: Row) -> FilterRow:
    return FilterRow(row["server"], row["topic_filter"], _names(row, "subscribers"), row["topics"])
