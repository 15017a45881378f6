"""Keys of connections and packets, and places of events, independent of how captures are cut and read.

The key of a connection is the place and time of its segments: group of captures, flow key, time of its first segment,
and the initial sequence number of its initiator as known when the connection was recognised.  All of this is in the
flow's own segments.  A packet is its connection, its direction and its place in the stream.

Events of several flows have an order, which a task that reads flow by flow cannot see.  A notice of dropped frames
belongs to no flow, so a task that reads one flow alone does not meet it.  Its place is determined in advance, and each
event is compared with that place.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, cast

from mqttscope.lint.context import ConnectionKey, is_of_one
from mqttscope.lint.finding import Scope
from mqttscope.net.segment import flow_key
from mqttscope.session.capture_time import captured
from mqttscope.session.connection import Connection


def connection_id(connection: Connection, group: str = "", repetition: int = 0) -> str:
    """Identifier of a connection: 32 hexadecimal digits.

    ``group``: name of captures that belong together; equal endpoints in different groups are different machines.
    ``repetition``: number of earlier connections with equal time and numbers.
    """
    # Which side is the initiator may be a guess.
    key = flow_key(connection.flow_key) if connection.flow_key else b""
    identifier = _connection_id(key, connection.opened_ns, connection.initial_sequence, group)
    return _connection_id(identifier.encode(), 0, repetition, group) if repetition else identifier


def _connection_id(flow: bytes, opened_ns: int, initial_sequence: int, group: str) -> str:
    parts = (
        group.encode("utf-8", "surrogateescape"),
        flow,
        captured(opened_ns).to_bytes(12, "big", signed=True),
        initial_sequence.to_bytes(5, "big", signed=True),
    )
    digest = blake2b(digest_size=16, person=b"connection")
    for part in parts:
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return digest.hexdigest()


def stage_key(key: tuple[Hashable, ...], widest: Scope, group: str = "") -> str:
    """Key of connections that rules up to a scope judge together.

    ``key``: key of a connection by `scope_key`, for the session or the broker.  ``widest``: the widest scope of all
    rules that run; the connections of a server include the connections of its sessions.  A connection without a Client
    Identifier has a session of its own.
    """
    server, *session = key
    if widest is Scope.BROKER:
        return str(server)
    (name,) = session
    if is_of_one(key):
        flow, opened_ns, initial_sequence = cast(ConnectionKey, name)
        text = f"\\{_connection_id(flow if isinstance(flow, bytes) else b'', opened_ns, initial_sequence, group)}"
    else:
        # Bytes outside UTF-8 become \\xff, and a backslash two: a single one never begins a Client Identifier.
        text = str(name).replace("\\", "\\\\")
    return f"{server} {text.encode('utf-8', 'surrogateescape').decode('utf-8', 'backslashreplace')}"


AT_THE_END = (1 << 63) - 1
"""Time when open flows end: after all segments, in the order of their beginnings."""

BEFORE_ALL = 1 << 62
"""Subtracted from a frame number so that events come before all segments of their time."""


@dataclass(slots=True)
class SortPosition:
    """The segment that releases events; the events may belong to another segment."""

    now_ns: int = 0
    file: int = 0
    frame: int = 0
    ends: tuple[int, ...] = ()
    """Times of the last segments of all captures, if they are read one after the other, in this order; empty if they
    are read together.  A timeout belongs to the capture that is read when its time has come."""
    read: int = 0
    """The capture of the last segment."""

    def set(self, now_ns: int, file: int, frame: int) -> None:
        self.now_ns, self.file, self.frame = now_ns, file, frame

    def segment(self, now_ns: int, file: int, frame: int) -> None:
        """Continue with the next segment."""
        self.set(now_ns, file, frame)
        self.read = file

    def time_out(self, due_ns: int, last_frame: int) -> None:
        """Continue with a timeout, before the segments of its time; the timeout of the earlier flow comes first.

        ``last_frame``: number of the last frame of the flow.
        """
        # A capture may end at the largest time.
        self.set(min(due_ns, AT_THE_END), self._first_open_capture(due_ns), last_frame - BEFORE_ALL)

    def place(self) -> tuple[int, int, int]:
        """Place of events that come out now: time, capture, frame."""
        return self.now_ns, self.file, self.frame

    def _first_open_capture(self, now_ns: int) -> int:
        count = len(self.ends)
        return next((file for file in range(self.read, count) if self.ends[file] >= now_ns), count)


class Drop(NamedTuple):
    """The first notice of a capture about dropped frames."""

    file: int
    """Place of the capture in the order of reading, from 0."""
    frame: int
    """Number of earlier frames of the capture."""
    timestamp_ns: int | None = None
    """Time of the latest segment before it; ``None`` without one."""

    def is_before(self, place: tuple[int, int, int]) -> bool:
        """Whether the notice comes before an event at this place."""
        now_ns, file, frame = place
        if now_ns >= AT_THE_END:
            return True
        if frame > 0:
            return (self.file, self.frame) < (file, frame)
        # A timeout comes out at the first segment of its time.
        return self.timestamp_ns is None or self.timestamp_ns < now_ns
