"""Common parts of all explanation reports: formats by name, titles of causes, summary of a run in sentences."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Protocol, cast

from mqttscope.explain.fates import Trace
from mqttscope.explain.model import Cause, Explanation, NodeAnswer, NodeQuestion, Totals
from mqttscope.report.base import Sink, View
from mqttscope.report.numbers import plural

_PACKAGE = "mqttscope.report.explanations"
FORMATS = {
    "text": ("text", "ExplanationText"),
    "json": ("as_json", "ExplanationJson"),
    "markdown": ("markdown", "ExplanationMarkdown"),
    "html": ("as_html", "ExplanationHtml"),
}
"""Name of a format -> module and class."""
COPY = {"pcapng": ("comments", "ExplanationComments")}
"""The format for a `CommentSink`."""
TITLES: dict[Cause, str] = {
    Cause.NORMAL: "normal end",
    Cause.CLIENT_DISCONNECT: "client disconnected",
    Cause.BAD_CREDENTIALS: "bad credentials",
    Cause.CLIENT_IDENTIFIER_REJECTED: "Client Identifier rejected",
    Cause.NOT_AUTHORIZED: "not authorized",
    Cause.BANNED: "banned",
    Cause.UNSUPPORTED_VERSION: "unsupported version of MQTT",
    Cause.SERVER_UNAVAILABLE: "broker unavailable",
    Cause.QUOTA_EXCEEDED: "quota exceeded",
    Cause.USE_ANOTHER_SERVER: "sent to another broker",
    Cause.CONNECT_REFUSED: "CONNECT refused",
    Cause.NOT_LISTENING: "nothing listened",
    Cause.UNREACHABLE: "unreachable",
    Cause.NO_MQTT: "no MQTT",
    Cause.NO_CONNECT: "no CONNECT",
    Cause.TURNED_AWAY: "closed before CONNECT",
    Cause.WRONG_LISTENER: "wrong port",
    Cause.WRONG_PATH: "wrong path",
    Cause.SERVER_HUNG: "broker hung",
    Cause.NO_CONNACK: "no CONNACK",
    Cause.KEEP_ALIVE: "Keep Alive ran out",
    Cause.TAKEN_OVER: "session taken over",
    Cause.PACKET_TOO_LARGE: "packet too large",
    Cause.RECEIVE_MAXIMUM: "Receive Maximum exceeded",
    Cause.TOPIC_ALIAS: "Topic Alias invalid",
    Cause.NOT_SUPPORTED: "feature not supported",
    Cause.PROTOCOL_VIOLATION: "protocol violation",
    Cause.ADMINISTRATIVE_ACTION: "administrative action",
    Cause.SERVER_RESTART: "broker stopped or restarted",
    Cause.PART_REPLACED: "part of the server replaced",
    Cause.SERVER_DISCONNECT: "broker disconnected",
    Cause.TLS_FAILURE: "TLS failed",
    Cause.IDLE_TIMEOUT: "idle time-out",
    Cause.FIXED_AGE: "ended at a fixed age",
    Cause.NO_PING_RESPONSE: "no PINGRESP",
    Cause.HALF_OPEN: "path lost (half-open)",
    Cause.DEVICE_RESTART: "device restarted",
    Cause.MIDDLEBOX_RESET: "reset by a device between",
    Cause.CLIENT_CLOSED: "client closed",
    Cause.CLIENT_RESET: "client reset",
    Cause.SERVER_CLOSED: "broker closed",
    Cause.SERVER_RESET: "broker reset",
    Cause.STILL_OPEN: "still open",
    Cause.UNREADABLE: "encrypted",
    Cause.NOT_SHOWN: "not captured",
}
"""Causes in a few words."""
NODE_TITLES = {
    NodeQuestion.OFFLINE: "offline",
    NodeQuestion.STALE: "gone, and online for hosts",
    NodeQuestion.REBIRTH: "rebirth requested",
    NodeQuestion.NO_BIRTH: "metric without a birth",
}
"""Answers about edge nodes in a few words."""


class ExplanationReporter(Protocol):
    """Turns explanations into output; their secrets are already hidden."""

    def feed(self, explanation: Explanation) -> None:
        """Write an explanation."""

    def trace(self, trace: Trace) -> None:
        """Write why messages arrived or did not."""

    def close(self, totals: Totals | None, *, asked: str = "") -> None:
        """Write the summary of all ends; ``asked`` describes the connections that the user selected, if any."""


def make_reporter(name: str, sink: Sink, view: View, *, every: bool = False) -> ExplanationReporter:
    """The reporter of a format; with ``every`` it folds nothing."""
    module, class_name = (FORMATS | COPY)[name]
    reporter = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), class_name)(sink, view, every=every)
    return cast(ExplanationReporter, reporter)


def node_title(answer: NodeAnswer) -> str:
    """Heading of an answer: ``rebirth requested (likely)``."""
    return f"{NODE_TITLES[answer.question]} ({answer.certainty or 'reason unknown'})"


def protocol_text(explanation: Explanation) -> str:
    """Protocol of the connection: ``MQTT 5.0 over WebSocket``."""
    is_unread = explanation.transport == "tls" and not explanation.version_known
    if is_unread or explanation.cause in (Cause.UNREADABLE, Cause.TLS_FAILURE):
        return "MQTT over TLS"
    over = {"tls": " over TLS", "websocket": " over WebSocket"}.get(explanation.transport, "")
    return f"MQTT {explanation.version}{'' if explanation.version_known else ' (assumed)'}{over}"


def verdict(totals: Totals | None, shown: Counter[Cause], asked: str) -> list[str]:
    """The summary of a run in sentences."""
    if totals is None:
        return []
    sentences = []
    trouble = sum(totals.causes.values())
    normal = totals.quiet - totals.empty
    rest = [plural(normal, "connection") + " ended with DISCONNECT"] if normal else []
    if totals.empty:
        rest.append(f"{plural(totals.empty, 'connection')} ended without MQTT from either side")
    if totals.open:
        verb = "is" if totals.open == 1 else "are"
        rest.append(f"{plural(totals.open, 'connection')} {verb} still open where the capture ends")
    if totals.unreadable:
        rest.append(f"{plural(totals.unreadable, 'TLS connection')} could not be read")
    if totals.not_shown:
        rest.append(f"{plural(totals.not_shown, 'connection')} captured from broker to client only")
    others = "; ".join(rest)
    if not totals.connections:
        return ["No MQTT connection to explain.", *totals.remarks]
    if asked:
        sentences.append(
            f"{plural(shown.total(), 'connection')} explained ({asked})." if shown else f"Nothing to explain: {asked}."
        )
    elif not trouble:
        is_known = " is known to have" if totals.unreadable or totals.not_shown else ""
        sentences.append(f"No connection{is_known} ended in trouble: {others}.")
        sentences.append("To see why a message did not arrive, add --message TOPIC.")
    else:
        causes = sorted(shown.items(), key=lambda row: -row[1])
        named = ", ".join(f"{count} × {TITLES[cause]}" for cause, count in causes)
        sentences.append(f"{plural(trouble, 'connection')} of {totals.connections:,} ended in trouble: {named}.")
        if others:
            sentences.append(f"Of the others {others}.")
    sentences[1:1] = totals.remarks
    for name, count in totals.dropped.items():
        sentences.append(f"limit: no room for more {name}; {count:,} were dropped, so evidence may be missing")
    return sentences
