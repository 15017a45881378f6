"""What names a connection and a packet however a collection of captures was cut into files, and in whatever order.

A connection is where its segments ran and when it began: group of captures, flow key, time of its first segment, and
the initial sequence number of its initiator as far as it was known when the connection was recognised.  All of this is
in the flow's own segments.  A packet is its connection, its direction and its place in the stream.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from mqttscope.lint.context import is_of_one, scope_key
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
    key = connection.flow_key
    if key:
        # Which side is the initiator may be a guess.
        key = flow_key(key)
    parts = (
        group.encode("utf-8", "surrogateescape"),
        key,
        connection.opened_ns.to_bytes(12, "big", signed=True),
        connection.initial_sequence.to_bytes(5, "big", signed=True),
    )
    digest = blake2b(digest_size=16, person=b"connection")
    for part in parts:
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return digest.hexdigest()


def session_key(connection: Connection, named: str) -> str:
    """The key of the session of a connection, as far as it is known now: its server and its Client Identifier.

    A connection without a Client Identifier shares a session with none that is known; ``named`` is its
    ``connection_id``.
    """
    key = scope_key(Scope.SESSION, connection)
    # What is not UTF-8 becomes \\xff, and a backslash two: another one stands before no Client Identifier.
    told = f"\\{named}" if is_of_one(key) else str(key[1]).replace("\\", "\\\\")
    return f"{connection.server} {told.encode('utf-8', 'surrogateescape').decode('utf-8', 'backslashreplace')}"


def packet_key(connection: Connection, direction: Direction, stream_offset: int, group: str = "") -> PacketKey:
    """The name of a packet."""
    return PacketKey(connection_id(connection, group), str(direction), stream_offset)
