"""What names a connection and a packet however a collection of captures was cut into files, and in whatever order.

A connection is where its segments ran and when it began: group of captures, flow key, time of its first segment, and
the initial sequence number of its initiator as far as it was known when the connection was recognised.  All of this is
in the flow's own segments.  A packet is its connection, its direction and its place in the stream.
"""

from __future__ import annotations

from collections.abc import Hashable
from hashlib import blake2b
from typing import NamedTuple, cast

from mqttscope.lint.context import ConnectionKey, is_of_one
from mqttscope.lint.finding import Scope
from mqttscope.mqtt.constants import Direction
from mqttscope.net.segment import flow_key
from mqttscope.session.connection import Connection


class PacketKey(NamedTuple):
    """Names a packet."""

    connection_id: str
    direction: str
    stream_offset: int


def connection_id(connection: Connection, group: str = "") -> str:
    """The name of a connection: 32 hexadecimal digits.

    ``group``: names captures that belong together; the same endpoints in different groups are different machines.
    """
    # Which side is the initiator may be a guess.
    key = flow_key(connection.flow_key) if connection.flow_key else b""
    return _connection_id(key, connection.opened_ns, connection.initial_sequence, group)


def _connection_id(flow: bytes, opened_ns: int, initial_sequence: int, group: str) -> str:
    parts = (
        group.encode("utf-8", "surrogateescape"),
        flow,
        opened_ns.to_bytes(12, "big", signed=True),
        initial_sequence.to_bytes(5, "big", signed=True),
    )
    digest = blake2b(digest_size=16, person=b"connection")
    for part in parts:
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return digest.hexdigest()


def stage_key(key: tuple[Hashable, ...], widest: Scope, group: str = "") -> str:
    """The key by which connections are brought together where rules up to a scope run over them.

    ``key``: that of a connection by `scope_key`, for the session or the broker.  ``widest``: the widest scope of all
    rules that run: a server's connections hold those of its sessions.  A connection without a Client Identifier shares
    a session with none that is known.
    """
    server, *session = key
    if widest is Scope.BROKER:
        return str(server)
    (name,) = session
    if is_of_one(key):
        flow, opened_ns, initial_sequence = cast(ConnectionKey, name)
        told = f"\\{_connection_id(flow if isinstance(flow, bytes) else b'', opened_ns, initial_sequence, group)}"
    else:
        # What is not UTF-8 becomes \\xff, and a backslash two: another one stands before no Client Identifier.
        told = str(name).replace("\\", "\\\\")
    return f"{server} {told.encode('utf-8', 'surrogateescape').decode('utf-8', 'backslashreplace')}"


def packet_key(connection: Connection, direction: Direction, stream_offset: int, group: str = "") -> PacketKey:
    """The name of a packet."""
    return PacketKey(connection_id(connection, group), str(direction), stream_offset)
