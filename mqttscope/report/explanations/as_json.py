"""Explanations as one JSON document (docs/explain.md)."""

from __future__ import annotations

from typing import Any

from mqttscope.explain.fates import Fate, Trace
from mqttscope.explain.model import Cause, Certainty, Explanation, NodeQuestion, Totals
from mqttscope.lint.finding import Confidence
from mqttscope.report import documents as doc
from mqttscope.report.base import Sink, View
from mqttscope.report.jsonl import dumps, harmless

_EVIDENCE = doc.record({"text": doc.NAME, "frame": doc.maybe(doc.COUNT), "timestamp_ns": doc.maybe(doc.TIME)})
_BROKEN = doc.record({
    "rule": doc.TEXT, "slug": doc.TEXT, "by": doc.SIDE, "statements": doc.each(doc.TEXT), "message": doc.NAME,
    "confidence": doc.word(Confidence), "frame": doc.COUNT, "timestamp_ns": doc.TIME,
})  # fmt: skip
_CAUSE = {
    "cause": doc.word(Cause), "certainty": doc.word(Certainty), "headline": doc.NAME,
    "reason_code": doc.maybe(doc.COUNT),
}  # fmt: skip
_CANDIDATE = doc.record({
    **_CAUSE, "for": doc.each(_EVIDENCE).at("reasons"), "against": doc.each(_EVIDENCE).at("doubts"),
    "broken": doc.each(_BROKEN), "advice": doc.each(doc.TEXT),
})  # fmt: skip
_MOMENT = doc.record({
    "timestamp_ns": doc.TIME, "frame": doc.COUNT, "by": doc.unless_empty(doc.SIDE), "text": doc.NAME.at("what"),
})  # fmt: skip
EXPLANATION = doc.record({
    "connection": doc.COUNT, "capture": doc.NAME, "client": doc.TEXT, "server": doc.TEXT,
    "server_name": doc.maybe(doc.NAME), "client_identifier": doc.maybe(doc.NAME), "version": doc.PROTOCOL,
    "version_known": doc.BOOL, "transport": doc.TRANSPORT, "opened_ns": doc.TIME, "opened_frame": doc.COUNT,
    "ended_ns": doc.TIME, "ended_frame": doc.COUNT, "ended_by": doc.maybe(doc.SIDE), "ended_how": doc.TEXT,
    **{name: kind.at(f"first.{name}") for name, kind in _CAUSE.items()},
    "causes": doc.some(_CANDIDATE).at("candidates"), "timeline": doc.each(_MOMENT), "left_out": doc.COUNT,
    "afterwards": doc.each(_EVIDENCE), "notes": doc.each(doc.TEXT),
})  # fmt: skip
_PUBLISHED = doc.record({
    "client": doc.NAME, "connection": doc.COUNT, "frame": doc.COUNT, "timestamp_ns": doc.TIME, "qos": doc.COUNT,
    "retain": doc.BOOL, "reason_code": doc.maybe(doc.COUNT).at("code"),
})  # fmt: skip
_DELIVERY = doc.record({
    "client": doc.NAME, "connection": doc.maybe(doc.COUNT), "fate": doc.word(Fate), "text": doc.NAME.at("outcome"),
    "frame": doc.maybe(doc.COUNT), "timestamp_ns": doc.maybe(doc.TIME), "advice": doc.each(doc.TEXT),
})  # fmt: skip
_MESSAGE = doc.record({
    "topic": doc.NAME, "summary": doc.NAME.at("outcome"), "published": doc.maybe(_PUBLISHED),
    "evidence": doc.each(_EVIDENCE), "clients": doc.each(_DELIVERY).at("deliveries"),
})  # fmt: skip
_NODE = doc.record({
    "node": doc.NAME, "question": doc.word(NodeQuestion), "certainty": doc.maybe(doc.word(Certainty)),
    "headline": doc.NAME, "for": doc.each(_EVIDENCE).at("reasons"), "advice": doc.each(doc.TEXT),
    "connections": doc.each(doc.COUNT),
})  # fmt: skip
_NODES = doc.each(_NODE)
_TOTALS = doc.maybe(doc.record({
    "connections": doc.COUNT, "normal": doc.COUNT.at("quiet"), "open": doc.COUNT, "unreadable": doc.COUNT,
    "not_shown": doc.COUNT, "causes": doc.mapping(doc.COUNT), "dropped": doc.mapping(doc.COUNT),
}))  # fmt: skip
_REMARKS = doc.each(doc.NAME)
DOCUMENT = doc.record({
    "schema": doc.VERSION_1, "explanations": doc.each(EXPLANATION), "totals": _TOTALS, "messages": doc.each(_MESSAGE),
    "remarks": _REMARKS,
}, {"edge_nodes": _NODES})  # fmt: skip


class ExplanationJson:
    """Writes the JSON document piece by piece."""

    def __init__(self, sink: Sink, view: View, *, every: bool = False) -> None:
        self.sink = sink
        self._messages: list[dict[str, Any]] = []
        self._remarks: list[Any] = []
        self._nodes: dict[str, Any] = {}
        self._between = b'{"schema":%d,"explanations":[\n' % doc.SCHEMA

    def feed(self, explanation: Explanation) -> None:
        self.sink.write(self._between + harmless(dumps(EXPLANATION.view(explanation))))
        self._between = b",\n"

    def trace(self, trace: Trace) -> None:
        """Keep the fate of messages for the end of the document."""
        self._messages += map(_MESSAGE.view, trace.messages)
        self._remarks = _REMARKS.view(trace.remarks)
        if trace.nodes:
            self._nodes = {"edge_nodes": _NODES.view(trace.nodes)}

    def close(self, totals: Totals | None, *, asked: str = "") -> None:
        """Write the document with the totals."""
        opening = b"" if self._between == b",\n" else self._between.rstrip()
        remarks = self._remarks if totals is None else [*self._remarks, *_REMARKS.view(totals.remarks)]
        end = {"totals": _TOTALS.view(totals), "messages": self._messages, "remarks": remarks} | self._nodes
        self.sink.write(opening + b"\n]," + harmless(dumps(end))[1:] + b"\n")
