"""Explanations as one JSON document (docs/explain.md)."""

from __future__ import annotations

from typing import Any

from mqttscope.explain.fates import Trace
from mqttscope.explain.model import Broken, Candidate, Evidence, Explanation, Moment, Totals
from mqttscope.mqtt.view import text
from mqttscope.report.base import Sink, View
from mqttscope.report.jsonl import dumps, harmless
from mqttscope.session.capture_time import captured

SCHEMA = 1


class Json:
    """Writes the document piece by piece."""

    def __init__(self, sink: Sink, view: View, *, every: bool = False) -> None:
        self.sink = sink
        self._traces: list[dict[str, Any]] = []
        self._begun = False

    def feed(self, explanation: Explanation) -> None:
        """Write one explanation."""
        self._begin()
        self.sink.write((b",\n" if self._count else b"\n") + harmless(dumps(explained(explanation))))
        self._count += 1

    def trace(self, trace: Trace) -> None:
        """Keep the fate of messages for the end."""
        self._traces += [
            {
                "topic": text(one.topic),
                "summary": text(one.said),
                "published": None if one.published is None else published(one.published),
                "evidence": [evidence(told) for told in one.evidence],
                "clients": [
                    {
                        "client": text(told.client),
                        "connection": told.connection,
                        "fate": str(told.fate),
                        "text": text(told.said),
                        "frame": told.frame,
                        "timestamp_ns": captured(told.timestamp_ns),
                        "advice": list(told.advice),
                    }
                    for told in one.deliveries
                ],
            }
            for one in trace.messages
        ]
        self._told = [text(one) for one in trace.told]

    def close(self, totals: Totals | None, *, asked: str = "") -> None:
        """Write the end."""
        self._begin()
        end: dict[str, Any] = {
            "totals": None
            if totals is None
            else {
                "connections": totals.connections,
                "normal": totals.quiet,
                "open": totals.open,
                "unreadable": totals.unreadable,
                "not_shown": totals.not_shown,
                "causes": totals.causes,
                "dropped": totals.dropped,
            },
            "messages": self._traces,
            "remarks": self._told,
        }
        self.sink.write(b"\n]," + harmless(dumps(end))[1:] + b"\n")

    def _begin(self) -> None:
        if not self._begun:
            self._begun, self._count = True, 0
            self.sink.write(b'{"schema":%d,"explanations":[' % SCHEMA)

    _count = 0
    _told: list[Any] = []  # noqa: RUF012 - replaced, never changed


def explained(one: Explanation) -> dict[str, Any]:
    """One explanation as plain values."""
    first = one.first
    return {
        "connection": one.connection,
        "capture": text(one.capture),
        "client": one.client,
        "server": one.server,
        "client_identifier": None if one.client_identifier is None else text(one.client_identifier),
        "version": one.version,
        "version_known": one.version_known,
        "transport": one.transport,
        "opened_ns": captured(one.opened_ns),
        "opened_frame": one.opened_frame,
        "ended_ns": captured(one.ended_ns),
        "ended_frame": one.ended_frame,
        "ended_by": one.ended_by,
        "ended_how": one.ended_how,
        "cause": str(first.cause),
        "certainty": str(first.certainty),
        "headline": text(first.headline),
        "reason_code": first.reason_code,
        "causes": [candidate(each) for each in one.candidates],
        "timeline": [moment(each) for each in one.timeline],
        "left_out": one.left_out,
        "afterwards": [evidence(each) for each in one.afterwards],
        "notes": list(one.notes),
    }


def candidate(one: Candidate) -> dict[str, Any]:
    """One cause."""
    return {
        "cause": str(one.cause),
        "certainty": str(one.certainty),
        "headline": text(one.headline),
        "reason_code": one.reason_code,
        "for": [evidence(each) for each in one.reasons],
        "against": [evidence(each) for each in one.doubts],
        "broken": [broken(each) for each in one.broken],
        "advice": list(one.advice),
    }


def evidence(one: Evidence) -> dict[str, Any]:
    """One sentence and its place."""
    return {"text": text(one.text), "frame": one.frame, "timestamp_ns": captured(one.timestamp_ns)}


def broken(one: Broken) -> dict[str, Any]:
    """One violation."""
    return {
        "rule": one.rule,
        "slug": one.slug,
        "by": one.by,
        "statements": list(one.statements),
        "message": text(one.message),
        "confidence": one.confidence,
        "frame": one.frame,
        "timestamp_ns": captured(one.timestamp_ns),
    }


def moment(one: Moment) -> dict[str, Any]:
    """One packet or act of TCP."""
    return {
        "timestamp_ns": captured(one.timestamp_ns),
        "frame": one.frame,
        "by": one.by or None,
        "text": text(one.what),
    }


def published(one: Any) -> dict[str, Any]:
    """Who published a message, and how."""
    return {
        "client": text(one.client),
        "connection": one.connection,
        "frame": one.frame,
        "timestamp_ns": captured(one.timestamp_ns),
        "qos": one.qos,
        "retain": one.retain,
        "reason_code": one.code,
    }
