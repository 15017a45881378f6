"""``mqttscope pipeline sql``: questions in SQL over the tables of a lake."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from mqttscope.cli.command import OUTPUT, argument, group, make_command, option, options
from mqttscope.cli.errors import ErrorTranslation
from mqttscope.cli.pipeline.asking import AskOptions, BadQuestionError, Steps, asked, lake_of

if TYPE_CHECKING:
    from mqttscope.analysis.answer import Answer

TEXT_ROWS = 100
"""Rows of a table for people, unless they ask for more."""
QUESTIONS = ("select", "with", "from", "table", "values", "describe", "desc", "show", "summarize", "explain")
"""What begins a statement that only asks."""


@options
class SqlOptions:
    """The options of ``pipeline sql``."""

    query: str = argument("QUERY")
    asking: AskOptions = group(AskOptions)
    form: str = option(
        OUTPUT, "--format", type=click.Choice(("text", "json", "csv")), default="text", show_default=True,
        help="Format of the answer.",
    )  # fmt: skip
    limit: int | None = option(
        OUTPUT, "--limit", type=click.IntRange(1), metavar="N",
        help=f"Show at most N rows. [default: {TEXT_ROWS} in text, all else]",
    )  # fmt: skip


@make_command(
    SqlOptions,
    name="sql",
    epilog="""\b
Tables: packets, messages, connections, sessions, findings, topics, clients, gaps, ingest_errors.
Views: session_activity, deliveries, retained_messages, reconnect_storms, top_talkers, payload_sizes.
docs/lake.md has their columns; describe NAME lists them.

\b
Examples:
  mqttscope pipeline sql 'select type, count(*) from packets group by type' --lake lake
  mqttscope pipeline sql "select topic, messages from topics order by 2 desc" --lake lake --limit 5
  mqttscope pipeline sql 'select * from findings' --lake lake --format csv > findings.csv
  mqttscope pipeline sql 'describe messages' --lake lake
""",
)
def command(given: SqlOptions) -> int:
    """Query the tables of a lake with SQL.

    QUERY is one statement that reads, in the SQL of DuckDB, or of Spark where Spark asks; statements that change
    something are refused. JSON output is one document with a line for each row.
    """
    limit = given.limit
    _only_asks(given.query)
    manifest = lake_of(given.asking.place)
    steps = Steps()
    try:
        with asked(given.asking, manifest, steps, question=True) as engine:
            # One row more shows whether there are more.
            most = limit if given.form != "text" else (limit or TEXT_ROWS) + 1
            answer = engine.ask(given.query, most)
            _each_name_once(answer)
            first = next(answer.rows, None)
            steps.clear()
            _show(answer, first, given.form, limit or TEXT_ROWS)
    finally:
        steps.clear()
    return 0


def _only_asks(query: str) -> None:
    from mqttscope.analysis.answer import UnknownQueryError, without_comments

    with ErrorTranslation(BadQuestionError, UnknownQueryError):
        word = re.match(r"[\s(;]*(\w*)", without_comments(query))
    if word is None or word[1].lower() not in QUESTIONS:
        raise BadQuestionError(f"a question begins with {', '.join(QUESTIONS[:-1])} or {QUESTIONS[-1]}")


def _each_name_once(answer: Answer) -> None:
    names = Counter(name for name, _ in answer.columns)
    for name, count in names.items():
        if count > 1:
            raise BadQuestionError(f"{count} columns of the answer are called {name!r}: give them names with AS")


def _show(answer: Answer, first: list[Any] | None, format_: str, most: int) -> None:
    from mqttscope.cli.output import Output, make_view, warn
    from mqttscope.report.fleet.answer import as_csv, as_json, as_text

    rows = () if first is None else _chained(first, answer)
    sink = Output()
    if format_ == "text":
        view = make_view(colour=False, payload="none", payload_limit=0)
        found = list(rows)
        sink.write(as_text(answer.columns, found[:most], view))
        sink.flush()
        if len(found) > most:
            warn(f"there are more than {most:,} rows: --limit N shows N")
        return
    for piece in (as_json if format_ == "json" else as_csv)(answer.columns, rows):
        sink.write(piece)
    sink.flush()


def _chained(first: list[Any], answer: Answer) -> Any:
    yield first
    yield from answer.rows
