"""What the WebSocket below a connection did wrong, for rules."""

from __future__ import annotations

from typing import Any

from mqttscope.session.connection import Connection

NOT_OFFERED = ("subprotocol_not_offered", "subprotocol_old", "subprotocol_foreign")
"""Reasons that say that the request does not offer the subprotocol of MQTT."""


def problems(connection: Connection) -> list[dict[str, Any]]:
    """The problems of a WebSocket in their order, each with ``from_client``, ``reason``, ``detail`` and ``frame``."""
    found = (connection.websocket or {}).get("problems")
    return found if isinstance(found, list) else []


def problem(connection: Connection, *reasons: str) -> tuple[str, str] | None:
    """Reason and detail of the first problem with one of these reasons; ``None`` where there is none."""
    for one in problems(connection):
        if one["reason"] in reasons:
            return one["reason"], one["detail"]
    return None
