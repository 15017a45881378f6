"""The plan of a replay: for ``--dry-run``, and before something is sent to another host."""

from __future__ import annotations

from typing import Any

from mqttscope.mqtt.wire import counted
from mqttscope.replay.plan import Plan
from mqttscope.replay.script import Script
from mqttscope.report.page import Column, Page
from mqttscope.report.when import duration

MAX_ROWS = 50
"""Connections that are listed; further ones are counted."""


def write_plan(
    page: Page, plan: Plan, scripts: list[Script], *, broker: str, pace: str, length_ns: int, changes: list[str]
) -> None:
    """The plan in words, with the connections as a table."""
    packets = sum(plan.packets.values())
    page.line(
        [
            f"would replay to {page.safe(broker)}",
            f"pace {pace}",
            counted(plan.connections, "connection"),
            f"{counted(packets, 'packet')} of clients",
            f"at least {duration(length_ns)}" if length_ns else "as soon as possible",
        ],
        style="bold",
    )
    page.line([f"{count:,} {name.upper()}" for name, count in plan.packets.most_common()])
    for warning in plan.warnings:
        page.paragraph(page.safe(warning), "yellow", indent=2)
    if changes:
        page.title("Changed before it is played")
        for sentence in changes:
            page.paragraph(f"  {page.safe(sentence)}", indent=4)
    page.title("Connections")
    first = min((script.opened_ns for script in scripts), default=0)
    rows = scripts[:MAX_ROWS]
    page.table(
        Column("client", [script.name for script in rows], style="cyan"),
        [
            Column("#", [f"{script.connection.number}" for script in rows]),
            Column("version", [script.version.text for script in rows]),
            Column("opens after", [duration(script.opened_ns - first) for script in rows]),
            Column(
                "lasts", [duration(max(0, script.ending.timestamp_ns - script.opened_ns)) for script in rows], rank=1
            ),
            Column("packets", [f"{sum(one.from_client for one in script.entries):,}" for script in rows]),
            Column("ends", [_ending(script) for script in rows], rank=2, right=False),
        ],
    )
    if len(scripts) > MAX_ROWS:
        page.line([f"and {len(scripts) - MAX_ROWS:,} more"], style="dim")


def plan_document(
    plan: Plan, scripts: list[Script], *, broker: str, pace: str, length_ns: int, changes: list[str]
) -> dict[str, Any]:
    """The plan for programs."""
    return {
        "schema": 1,
        "event": "replay_plan",
        "broker": broker,
        "pace": pace,
        "duration_ns": length_ns,
        "changes": changes,
        "packets": dict(plan.packets),
        "retained_topics": plan.retained,
        "cleared_topics": plan.cleared,
        "wills": [{"client_identifier": client, "will_topic": topic} for client, topic in plan.wills],
        "shared_subscriptions": plan.shared,
        "system_topics": plan.system,
        "connections": [
            {
                "connection": script.connection.number,
                "client_identifier": script.connection.client_identifier,
                "client": script.connection.client,
                "version": script.version.text,
                "opened_ns": script.opened_ns,
                "ended": script.ending.how,
                "ended_by": script.ending.by,
                "packets": sum(one.from_client for one in script.entries),
            }
            for script in scripts
        ],
    }


def _ending(script: Script) -> str:
    how = {"fin": "closed", "reset": "reset", "open": "still open"}.get(script.ending.how, script.ending.how)
    return f"{how} by the {script.ending.by}" if script.ending.by else how
