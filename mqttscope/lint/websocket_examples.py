"""MQTT over WebSocket in examples of rules.

    conversation(
        "text frames",
        *web_opened(),
        client(framed(Pingreq(), opcode=TEXT)),
        server(framed(Pingresp(), masked=False)),
    )

Frames with one packet each are packets of a step; an upgrade and frames without a whole packet are `silent` steps.
"""

from __future__ import annotations

from mqttscope.lint.examples import CLIENT, Step, client, make_connect, server, silent
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Connack
from mqttscope.net.http_upgrade import accept_for
from mqttscope.net.websocket import BINARY, unmask

V5 = ProtocolVersion.V5
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
_MASK = b"\x12\x34\x56\x78"


def upgrade_request(offered: str | None = "mqtt", path: str = "/mqtt") -> bytes:
    """The HTTP request that asks for a WebSocket; ``offered`` is the list of subprotocols, ``None`` for no header."""
    return _head(
        f"GET {path} HTTP/1.1",
        "Host: broker.example",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {KEY}",
        "Sec-WebSocket-Version: 13",
        *_subprotocol(offered),
    )


def upgrade_response(selected: str | None = "mqtt") -> bytes:
    """The HTTP response that grants it; ``selected`` is the subprotocol, ``None`` for no header."""
    return _head(
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {accept_for(KEY)}",
        *_subprotocol(selected),
    )


def upgraded(offered: str | None = "mqtt", selected: str | None = "mqtt") -> tuple[Step, Step]:
    """Request and response."""
    return silent(client(upgrade_request(offered))), silent(server(upgrade_response(selected)))


def framed(
    *content: ControlPacket | bytes,
    masked: bool = True,
    opcode: int = BINARY,
    fin: bool = True,
    version: ProtocolVersion = V5,
) -> bytes:
    """One frame with these packets or bytes; clients mask their frames, servers do not."""
    payload = b"".join(one if isinstance(one, bytes) else encode(one, version) for one in content)
    first, mark = fin << 7 | opcode, masked << 7
    if len(payload) < 126:
        head = bytes((first, mark | len(payload)))
    else:
        head = bytes((first, mark | 126)) + len(payload).to_bytes(2, "big")
    return head + _MASK + unmask(payload, _MASK) if masked else head + payload


def silent_frame(side: str, payload: bytes, *, opcode: int, fin: bool = True) -> Step:
    """A frame without a whole packet: a ping of the WebSocket itself, or part of a packet."""
    step = client if side == CLIENT else server
    return silent(step(framed(payload, masked=side == CLIENT, opcode=opcode, fin=fin)))


def web_opened(version: ProtocolVersion = V5) -> tuple[Step, ...]:
    """The upgrade, CONNECT and the CONNACK that accepts it, one packet in each frame."""
    return (
        *upgraded(),
        client(framed(make_connect(version), version=version)),
        server(framed(Connack(), masked=False, version=version)),
    )


def _subprotocol(names: str | None) -> list[str]:
    return [] if names is None else [f"Sec-WebSocket-Protocol: {names}"]


def _head(*lines: str) -> bytes:
    return "\r\n".join((*lines, "", "")).encode("ascii")
