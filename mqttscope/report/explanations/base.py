"""What reports of explanations have in common: their formats by name, and sentences about a whole run."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Protocol, cast

from mqttscope.explain.fates import Trace
from mqttscope.explain.model import Cause, Explanation, Totals
from mqttscope.report.base import Sink, View
from mqttscope.report.numbers import plural

_PACKAGE = "mqttscope.report.explanations"
FORMATS = {
    "text": ("text", "Text"),
    "json": ("as_json", "Json"),
    "markdown": ("markdown", "Markdown"),
    "html": ("as_html", "Html"),
}
"""Name of a format -> module and class."""
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
    Cause.WRONG_LISTENER: "wrong port",
    Cause.WRONG_PATH: "wrong path",
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
    Cause.SERVER_DISCONNECT: "broker disconnected",
    Cause.TLS_FAILURE: "TLS failed",
    Cause.IDLE_TIMEOUT: "idle time-out",
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


class ExplanationReporter(Protocol):
    """Turns explanations into output; they come without secrets."""

    def feed(self, explanation: Explanation) -> None:
        """Write one explanation."""

    def trace(self, trace: Trace) -> None:
        """Write why a message arrived or did not."""

    def close(self, totals: Totals | None, *, asked: str = "") -> None:
        """Write the end, with the totals of the ends; ``asked`` says which connections were asked for, if any."""


def make_reporter(name: str, sink: Sink, view: View, *, every: bool = False) -> ExplanationReporter:
    """The reporter of a format; with ``every`` none is folded."""
    module, found = FORMATS[name]
    made = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), found)(sink, view, every=every)
    return cast(ExplanationReporter, made)


def spoken(one: Explanation) -> str:
    """What was spoken: ``MQTT 5.0 over WebSocket``."""
    if one.cause in (Cause.UNREADABLE, Cause.TLS_FAILURE):
        return "MQTT over TLS"
    over = {"tls": " over TLS", "websocket": " over WebSocket"}.get(one.transport, "")
    return f"MQTT {one.version}{'' if one.version_known else ' (assumed)'}{over}"


def verdict(totals: Totals | None, shown: Counter[Cause], asked: str) -> list[str]:
    """The end of a report in sentences."""
    if totals is None:
        return []
    told = []
    trouble = sum(totals.causes.values())
    normal = totals.quiet - totals.empty
    rest = [plural(normal, "connection") + " ended with DISCONNECT"] if normal else []
    if totals.empty:
        rest.append(f"{plural(totals.empty, 'connection')} ended without a byte of either side")
    if totals.open:
        verb = "is" if totals.open == 1 else "are"
        rest.append(f"{plural(totals.open, 'connection')} {verb} still open where the capture ends")
    if totals.unreadable:
        rest.append(f"{plural(totals.unreadable, 'TLS connection')} could not be read")
    if totals.not_shown:
        rest.append(f"of {plural(totals.not_shown, 'connection')} only what the broker sent was captured")
    others = "; ".join(rest)
    if not totals.connections:
        return ["There is no MQTT connection to explain."]
    if asked:
        told.append(
            f"{plural(shown.total(), 'connection')} explained ({asked})." if shown else f"Nothing to explain: {asked}."
        )
    elif not trouble:
        told.append(f"No connection ended in trouble: {others}.")
        told.append("To see why a message did not arrive, add --message TOPIC.")
    else:
        causes = sorted(shown.items(), key=lambda one: -one[1])
        named = ", ".join(f"{count} × {TITLES[cause]}" for cause, count in causes)
        told.append(f"{plural(trouble, 'connection')} of {totals.connections:,} ended in trouble: {named}.")
        if others:
            told.append(f"Of the others {others}.")
    for name, count in totals.dropped.items():
        told.append(f"limit: there is no room for more {name}: {count:,} were let go, and evidence may be missing")
    return told
