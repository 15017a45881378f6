"""Differences between a recording and its replay as JSON Lines, schema 1.

A line per difference (``"event":"difference"``) with both packets in the form that they have in `report.jsonl`, one
per connection (``"verified_connection"``) with its counts, and one for the whole (``"verification"``).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson

from mqttscope.events import PacketEvent
from mqttscope.mqtt.view import text
from mqttscope.replay.script import Entry, Script
from mqttscope.replay.verify.difference import Difference, Tally, Verification
from mqttscope.report.base import Sink, View
from mqttscope.report.jsonl import SCHEMA, JsonLines, PacketLines, dumps, harmless
from mqttscope.report.replay.text import concealed, event_of, plain


class ReplayJson:
    """Writes differences as lines, and at the end the counts."""

    def __init__(self, sink: Sink, view: View) -> None:
        self.sink = sink
        self.view = view

    def feed(self, difference: Difference) -> None:
        self._write(self.difference(difference))

    def close(self, found: Verification) -> None:
        for tally in found.tallies:
            self._write(self.connection(tally))
        self._write(totals(found))

    def difference(self, one: Difference) -> dict[str, Any]:
        """The object of a difference."""
        view = self.view
        return {
            "schema": SCHEMA,
            "event": "difference",
            "kind": str(one.kind),
            "connection": one.number,
            "name": concealed(text(one.name), view),
            "version": one.version.text,
            "field": one.field or None,
            "expected": plain(one.field, one.expected, view),
            "found": plain(one.field, one.found, view),
            "message": concealed(text(one.message), view),
            "follows": one.follows,
            "because_of": {"option": one.option, "certain": one.certain} if one.option else None,
            "cause": one.cause or None,
            "recorded": self.packet(one.recorded, one.script),
            "live": self.packet(one.live, one.live_script or one.script),
        }

    def packet(self, entry: Entry | None, script: Script) -> Any:
        """A packet as `inspect` would write it, without secrets."""
        if entry is None:
            return None
        view, event = self.view, event_of(entry, script)
        # Made again each time: they keep what names a connection, and a recorded and a live one may share a number.
        if isinstance(event, PacketEvent):
            line: str | None = PacketLines(view.payload_limit, show_secrets=view.show_secrets).line(event)
        else:
            line = JsonLines(self.sink, payload_limit=view.payload_limit, show_secrets=view.show_secrets).other(event)
        return concealed(orjson.loads(line or "null"), view)

    def connection(self, tally: Tally) -> dict[str, Any]:
        """The object of a connection."""
        return {
            "schema": SCHEMA,
            "event": "verified_connection",
            "connection": tally.script.connection.number,
            "name": concealed(text(tally.script.name), self.view),
            **counts([tally]),
        }

    def _write(self, value: dict[str, Any]) -> None:
        self.sink.write(harmless(dumps(value) + b"\n"))


def counts(tallies: list[Tally]) -> dict[str, Any]:
    """Sums over connections."""
    reasons: Counter[str] = Counter()
    for one in tallies:
        reasons.update(one.reasons)
    return {
        "compared": sum(one.compared for one in tallies),
        "equal": sum(one.equals for one in tallies),
        "different": sum(one.differing for one in tallies),
        "follow": sum(one.following for one in tallies),
        "not_judged": sum(one.unjudged for one in tallies),
        "reasons": dict(reasons),
    }


def totals(found: Verification) -> dict[str, Any]:
    """The object of the whole comparison."""
    kinds = Counter(str(one.kind) for one in found.differences)
    return {
        "schema": SCHEMA,
        "event": "verification",
        "connections": len(found.tallies),
        "connections_judged": found.judged,
        "nothing": found.nothing or None,
        "differences": len(found.differences),
        "counting": len(found.counting),
        "kinds": dict(kinds),
        "causes": {cause: len(those) for cause, those in found.by_cause.items() if cause},
        **counts(found.tallies),
    }
