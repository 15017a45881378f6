"""Differences between a recording and its replay as JSON Lines, schema 1.

A line per difference (``"event":"difference"``) with both packets as `report.jsonl` writes them, one per connection
(``"verified_connection"``) with its counts, and one for the whole replay (``"verification"``).
"""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import orjson

from mqttscope.events import PacketEvent
from mqttscope.mqtt.view import text
from mqttscope.replay.script import Script, ScriptEntry
from mqttscope.replay.verify.difference import DeviceKind, Difference, DifferenceKind, Tally, Verification
from mqttscope.report import documents as doc
from mqttscope.report.base import Sink, View
from mqttscope.report.jsonl import EventJsonLines, PacketLines, dumps, harmless
from mqttscope.report.replay.text import concealed, event_of, plain


class ReplayJson:
    """Writes differences as lines, and the counts at the end."""

    def __init__(self, sink: Sink, view: View) -> None:
        self.sink = sink
        self.view = view

    def feed(self, difference: Difference) -> None:
        self._write(self.difference(difference))

    def close(self, verification: Verification) -> None:
        for tally in verification.tallies:
            self._write(self.connection(tally))
        self._write(VERIFICATION.view(verification))

    def difference(self, difference: Difference) -> dict[str, Any]:
        """The object of a difference."""
        view = self.view
        shown: dict[str, Any] = DIFFERENCE.view(SimpleNamespace(
            kind=difference.kind, number=difference.number, name=concealed(text(difference.name), view),
            version=difference.version, field=difference.field, follows=difference.follows, cause=difference.cause,
            expected=plain(difference.field, difference.expected, view),
            found=plain(difference.field, difference.actual, view), message=concealed(text(difference.message), view),
            because_of=difference if difference.option else None,
            recorded=self.packet(difference.recorded, difference.script),
            live=self.packet(difference.live, difference.live_script or difference.script),
        ))  # fmt: skip
        return shown

    def packet(self, entry: ScriptEntry | None, script: Script) -> Any:
        """A packet as `inspect` would write it, without secrets."""
        if entry is None:
            return None
        view, event = self.view, event_of(entry, script)
        # New objects each time: they cache connections by number, and a recorded and a live one may share a number.
        if isinstance(event, PacketEvent):
            line: str | None = PacketLines(view.payload_limit, show_secrets=view.show_secrets).line(event)
        else:
            lines = EventJsonLines(self.sink, payload_limit=view.payload_limit, show_secrets=view.show_secrets)
            line = lines.other(event)
        return concealed(orjson.loads(line or "null"), view)

    def connection(self, tally: Tally) -> dict[str, Any]:
        name = concealed(text(tally.script.name), self.view)
        return {**_VERIFIED.view(SimpleNamespace(script=tally.script, name=name)), **_COMPARED.view([tally])}

    def _write(self, value: dict[str, Any]) -> None:
        self.sink.write(harmless(dumps(value) + b"\n"))


def _sum(name: str) -> doc.ValueType:
    return doc.COUNT.at(lambda tallies: sum(getattr(tally, name) for tally in tallies))


def _reasons(tallies: list[Tally]) -> Counter[str]:
    reasons: Counter[str] = Counter()
    for tally in tallies:
        reasons.update(tally.reasons)
    return reasons


COMPARED = {
    "compared": _sum("compared"), "equal": _sum("equals"), "different": _sum("differing"),
    "follow": _sum("following"), "not_judged": _sum("unjudged"), "reasons": doc.mapping(doc.COUNT).at(_reasons),
}  # fmt: skip
"""Sums over connections."""
_COMPARED = doc.record(COMPARED)
_CONCEALED = doc.ValueType(doc.NAME, doc.itself)
"""Text without its secrets."""
_PACKET = doc.ValueType(doc.maybe(doc.PACKET), doc.itself)
DIFFERENCE = doc.record({
    "schema": doc.VERSION_1, "event": doc.constant("difference"), "kind": doc.word(DifferenceKind, DeviceKind),
    "connection": doc.COUNT.at("number"), "name": _CONCEALED, "version": doc.PROTOCOL.at("version.text"),
    "field": doc.unless_empty(doc.TEXT), "expected": doc.ANY, "found": doc.ANY, "message": _CONCEALED,
    "follows": doc.COUNT, "because_of": doc.maybe(doc.record({"option": doc.TEXT, "certain": doc.BOOL})),
    "cause": doc.unless_empty(doc.TEXT), "recorded": _PACKET, "live": _PACKET,
})  # fmt: skip
_VERIFIED = doc.record({
    "schema": doc.VERSION_1, "event": doc.constant("verified_connection"),
    "connection": doc.COUNT.at("script.connection.number"), "name": _CONCEALED,
})  # fmt: skip
VERIFIED = doc.record({**_VERIFIED["properties"], **COMPARED})
_VERIFICATION = {
    "schema": doc.VERSION_1, "event": doc.constant("verification"),
    "connections": doc.COUNT.at(lambda run: len(run.tallies)), "connections_judged": doc.COUNT.at("judged"),
    "nothing": doc.unless_empty(doc.TEXT), "differences": doc.COUNT.at(lambda run: len(run.differences)),
    "counting": doc.COUNT.at(lambda run: len(run.counting)),
    "kinds": doc.mapping(doc.COUNT).at(lambda run: Counter(str(difference.kind) for difference in run.differences)),
    "causes": doc.mapping(doc.COUNT).at(
        lambda run: {cause: len(those) for cause, those in run.by_cause.items() if cause}
    ),
}  # fmt: skip
VERIFICATION = doc.reordered(
    doc.merged((_VERIFICATION, doc.itself), (COMPARED, attrgetter("tallies"))),
    "schema", "event", "connections", "connections_judged", "differences", "counting",
)  # fmt: skip
