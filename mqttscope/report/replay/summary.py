"""A replay in words."""

from __future__ import annotations

from typing import Any

from mqttscope.mqtt.wire import counted
from mqttscope.replay.player.actions import Kind
from mqttscope.replay.player.room import MAX_BEYOND_BYTES, MAX_BEYOND_BYTES_OF_ALL
from mqttscope.report.page import Page
from mqttscope.report.replay.outcome import Outcome
from mqttscope.report.when import duration

MAX_ROWS = 20
"""Rows of a list that may be as long as there are clients; further ones are counted."""
_TITLES = {
    Kind.ADAPTED: "Adapted to the live broker",
    Kind.SESSION: "Sessions",
    Kind.ADDED: "Sent beside the recording",
    Kind.SKIPPED: "Not sent",
    Kind.ENDED: "Ended otherwise",
}


def write_summary(page: Page, outcome: Outcome) -> None:
    """What was done, and what was done otherwise than recorded."""
    performed = f"{outcome.performed:,} of {counted(len(outcome.recorded), 'connection')}"
    page.line(
        [
            f"replayed to {page.safe(outcome.broker)}",
            f"pace {outcome.pace}",
            performed,
            f"{counted(outcome.sent, 'packet')} sent, {outcome.received:,} received",
            f"{duration(int(outcome.seconds * 1e9))} for {duration(int(outcome.recorded_seconds * 1e9))}",
        ],
        style="bold",
    )
    if outcome.stopped:
        page.line(["stopped before its end"], style="yellow")
    if outcome.not_compared:
        page.paragraph(f"not compared: {outcome.not_compared}", "yellow", indent=2)
    if outcome.not_kept:
        page.paragraph(
            f"{outcome.not_kept:,} {'packet' if outcome.not_kept == 1 else 'packets'} beyond the recording "
            "not kept, compared or measured: the limit is "
            f"{MAX_BEYOND_BYTES >> 20} MiB of a connection, and {MAX_BEYOND_BYTES_OF_ALL >> 20} MiB of all",
            "yellow",
            indent=2,
        )
    for why, count in outcome.failures.most_common():
        page.paragraph(f"{_times(count)}{page.safe(why)}", "red", indent=2)
    for why, count in outcome.left_out.most_common():
        page.paragraph(f"{counted(count, 'connection')} not played: {page.safe(why)}", "yellow", indent=2)
    if outcome.too_long:
        passed = f"{outcome.too_long:,} expir{'y' if outcome.too_long == 1 else 'ies'}"
        page.paragraph(f"{passed} of more than a minute in the recording not waited for", "yellow", indent=2)
    if outcome.missed:
        page.paragraph(f"waited in vain {_times(outcome.missed)}for what the recording has", "yellow")
    for sentence, count in outcome.shortfalls.most_common():
        page.paragraph(f"{_times(count)}{page.safe(sentence)}", "red", indent=2)
    _write_silence(page, outcome)
    if outcome.changes:
        page.title("Changed before it was played")
        for sentence in outcome.changes:
            page.paragraph(f"  {page.safe(sentence)}", indent=4)
    for kind, title in _TITLES.items():
        rows = outcome.noted(kind)
        if rows:
            page.title(title)
            for text, count in rows:
                page.paragraph(f"{count:>7,}  {page.safe(text)}", indent=9)


def _write_silence(page: Page, outcome: Outcome) -> None:
    """What was waited for and never came, and what was therefore waited for less."""
    rows = outcome.never_came.most_common()
    if rows:
        page.title("Never came")
    for text, count in rows[:MAX_ROWS]:
        page.paragraph(f"{count:>7,}  {page.safe(text)}", indent=9)
    if len(rows) > MAX_ROWS:
        page.line([f"and {len(rows) - MAX_ROWS:,} more; --format jsonl has all of them"])
    waited = outcome.not_awaited.most_common()
    for (client, topic_filter), count in waited[:MAX_ROWS]:
        told = f"{counted(count, 'message')} of {topic_filter!r} for {client} not waited for in full: earlier ones"
        page.paragraph(page.safe(f"{told} had not come"), "yellow", indent=2)


def summary_document(outcome: Outcome) -> dict[str, Any]:
    """The same for programs."""
    return {
        "schema": 1,
        "event": "replay",
        "broker": outcome.broker,
        "pace": outcome.pace,
        "connections": len(outcome.recorded),
        "connected": outcome.performed,
        "packets_sent": outcome.sent,
        "packets_received": outcome.received,
        "seconds": round(outcome.seconds, 6),
        "recorded_seconds": round(outcome.recorded_seconds, 6),
        "stopped": outcome.stopped,
        "missed": outcome.missed,
        "not_kept": outcome.not_kept,
        "not_compared": outcome.not_compared or None,
        "expiries_not_waited_for": outcome.too_long,
        "failures": [{"reason": why, "connections": count} for why, count in outcome.failures.most_common()],
        "shortfalls": [{"reason": why, "connections": count} for why, count in outcome.shortfalls.most_common()],
        "never_came": [{"what": what, "times": count} for what, count in outcome.never_came.most_common()],
        "not_waited_for": [
            {"name": name, "topic_filter": asked, "messages": count}
            for (name, asked), count in outcome.not_awaited.most_common()
        ],
        "left_out": [{"reason": why, "connections": count} for why, count in outcome.left_out.most_common()],
        "changes": outcome.changes,
        "notes": [{"kind": str(note.kind), "note": note.text, "times": count} for note, count in outcome.notes.items()],
    }


def _times(count: int) -> str:
    return "" if count == 1 else f"{count:,} times "
