"""``mqttscope pipeline sql``: SQL queries on the tables of a lake."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from mqttscope.cli.command import OUTPUT, argument, group, make_command, option, options
from mqttscope.cli.errors import ErrorTranslation
from mqttscope.cli.pipeline.asking import AskOptions, BadQuestionError, Steps, manifests_of, open_engine

if TYPE_CHECKING:
    from mqttscope.analysis.answer import QueryAnswer

TEXT_ROWS = 100
"""Default maximum number of rows in text."""
QUESTIONS = ("select", "with", "from", "table", "values", "describe", "desc", "show", "summarize", "explain")
"""First words of read-only statements."""


@options
class SqlOptions:
    """The options of ``pipeline sql``."""

    query: str = argument("QUERY")
    asking: AskOptions = group(AskOptions)
    form: str = option(
        OUTPUT, "--format", type=click.Choice(("text", "json", "csv")), default="text", show_default=True,
        help="Format of the result.",
    )  # fmt: skip
    limit: int | None = option(
        OUTPUT, "--limit", type=click.IntRange(1), metavar="N",
        help=f"Show at most N rows. [default: {TEXT_ROWS} in text, all else]",
    )  # fmt: skip


@make_command(
    SqlOptions,
    name="sql",
    epilog="""\b
Tables: packets, messages, connections, sessions, findings, topics, clients, gaps, ingest_errors,
sparkplug_metrics.
Views: session_activity, deliveries, retained_messages, reconnect_storms, top_talkers, payload_sizes,
subscriptions, undelivered, takeovers, connect_refusals, pings, devices, sparkplug_nodes,
sparkplug_gaps, captures.
Function: topic_matches(topic, topic_filter).
docs/lake.md has their columns, docs/questions.md examples; describe NAME lists them.

\b
Examples:
  mqttscope pipeline sql 'select type, count(*) from packets group by type' --lake lake
  mqttscope pipeline sql "select topic, messages from topics order by 2 desc" --lake lake --limit 5
  mqttscope pipeline sql 'select * from findings' --lake lake --format csv > findings.csv
  mqttscope pipeline sql 'describe messages' --lake lake
""",
)
def command(args: SqlOptions) -> int:
    """Query the tables of a lake with SQL.

    QUERY is one read-only statement in the SQL of DuckDB, or of Spark if Spark is the engine; other statements are
    refused. JSON output is one document with a line per row.
    """
    limit = args.limit
    _only_asks(args.query)
    manifests = manifests_of(args.asking)
    steps = Steps()
    try:
        with open_engine(args.asking, manifests, steps, question=True) as engine:
            # An extra row shows whether there are more.
            most = limit if args.form != "text" else (limit or TEXT_ROWS) + 1
            answer = engine.ask(args.query, most)
            _each_name_once(answer)
            first = next(answer.rows, None)
            steps.clear()
            _show(answer, first, args.form, limit or TEXT_ROWS)
    finally:
        steps.clear()
    return 0


def _only_asks(query: str) -> None:
    from mqttscope.analysis.answer import UnknownQueryError, without_comments

    with ErrorTranslation(BadQuestionError, UnknownQueryError):
        word = re.match(r"[\s(;]*(\w*)", without_comments(query))
    if word is None or word[1].lower() not in QUESTIONS:
        raise BadQuestionError(f"a query starts with {', '.join(QUESTIONS[:-1])} or {QUESTIONS[-1]}")


def _each_name_once(answer: QueryAnswer) -> None:
    names = Counter(name for name, _ in answer.columns)
    for name, count in names.items():
        if count > 1:
            raise BadQuestionError(f"{count} columns of the result are named {name!r}: rename them with AS")


def _show(answer: QueryAnswer, first: list[Any] | None, format_: str, most: int) -> None:
    from mqttscope.cli.output import Output, make_view, warn
    from mqttscope.report.fleet.answer import as_csv, as_json, as_text

    rows = () if first is None else _all_rows(first, answer)
    sink = Output()
    if format_ == "text":
        view = make_view(colour=False, payload="none", payload_limit=0)
        all_rows = list(rows)
        sink.write(as_text(answer.columns, all_rows[:most], view))
        sink.flush()
        if len(all_rows) > most:
            warn(f"the result has more than {most:,} rows: --limit N shows N")
        return
    for piece in (as_json if format_ == "json" else as_csv)(answer.columns, rows):
        sink.write(piece)
    sink.flush()


def _all_rows(first: list[Any], answer: QueryAnswer) -> Any:
    yield first
    yield from answer.rows
