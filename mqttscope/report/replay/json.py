"""Differences between a recording and its replay as JSON Lines, schema 1.

A line per difference (``"event":"difference"``) with both packets in the form that they have in `report.jsonl`, one
per connection (``"verified_connection"``) with its counts, and one for the whole (``"verification"``).
"""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import orjson

from mqttscope.events import PacketEvent
from mqttscope.mqtt.view import text
from mqttscope.replay.script import Entry, Script
from mqttscope.replay.verify.difference import DeviceKind, Difference, DifferenceKind, Tally, Verification
from mqttscope.report import documents as doc
from mqttscope.report.base import Sink, View
from mqttscope.report.jsonl import JsonLines, PacketLines, dumps, harmless
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
        self._write(VERIFICATION.view(found))

    def difference(self, one: Difference) -> dict[str, Any]:
        """The object of a difference."""
        view = self.view
        shown: dict[str, Any] = DIFFERENCE.view(SimpleNamespace(
            kind=one.kind, number=one.number, name=concealed(text(one.name), view), version=one.version,
            field=one.field, expected=plain(one.field, one.expected, view), found=plain(one.field, one.found, view),
            message=concealed(text(one.message), view), follows=one.follows, because_of=one if one.option else None,
            cause=one.cause, recorded=self.packet(one.recorded, one.script),
            live=self.packet(one.live, one.live_script or one.script),
        ))  # fmt: skip
        return shown

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
"""Text that is concealed already."""
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
    "connections": doc.COUNT.at(lambda found: len(found.tallies)), "connections_judged": doc.COUNT.at("judged"),
    "nothing": doc.unless_empty(doc.TEXT), "differences": doc.COUNT.at(lambda found: len(found.differences)),
    "counting": doc.COUNT.at(lambda found: len(found.counting)),
    "kinds": doc.mapping(doc.COUNT).at(lambda found: Counter(str(one.kind) for one in found.differences)),
    "causes": doc.mapping(doc.COUNT).at(
        lambda found: {cause: len(those) for cause, those in found.by_cause.items() if cause}
    ),
}  # fmt: skip
VERIFICATION = doc.reordered(
    doc.merged((_VERIFICATION, doc.itself), (COMPARED, attrgetter("tallies"))),
    "schema", "event", "connections", "connections_judged", "differences", "counting",
)  # fmt: skip
