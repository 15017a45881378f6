"""Keys of connections and packets, and places of events, that do not depend on how captures were cut and are read.

A connection is where its segments ran and when it began: group of captures, flow key, time of its first segment, and
the initial sequence number of its initiator as far as it was known when the connection was recognised.  All of this is
in the flow's own segments.  A packet is its connection, its direction and its place in the stream.

Events of several flows have an order, which a task that reads flow by flow cannot see.  A notice that frames were
dropped belongs to no flow, and a task that reads one flow alone does not meet it; so its place is determined before,
and each event is checked for whether it comes after it.
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
        captured(opened_ns).to_bytes(12, "big", signed=True),
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


AT_THE_END = (1 << 63) - 1
"""When flows that are still open end: after all segments, in the order in which they began."""

BEFORE_ALL = 1 << 62
"""Taken from the number of a frame where events come out before all segments of their time."""


@dataclass(slots=True)
class SortPosition:
    """The segment at which events come out, which need not be the one they belong to."""

    now_ns: int = 0
    file: int = 0
    frame: int = 0
    ends: tuple[int, ...] = ()
    """Times of the last segments of all captures, which are read one after the other in this order; empty where they
    are read together.  A time-out has its place in the capture that is read when its time has come."""
    read: int = 0
    """The capture of the last segment."""

    def set(self, now_ns: int, file: int, frame: int) -> None:
        self.now_ns, self.file, self.frame = now_ns, file, frame

    def segment(self, now_ns: int, file: int, frame: int) -> None:
        """Continue with the segment that is read now."""
        self.set(now_ns, file, frame)
        self.read = file

    def time_out(self, due_ns: int, last_frame: int) -> None:
        """Continue with a time-out, which counts before the segments of its time; the earlier flow's comes first.

        ``last_frame``: the last one of the flow.
        """
        # A capture may end at the end of all times that there are.
        self.set(min(due_ns, AT_THE_END), self._capture_at(due_ns), last_frame - BEFORE_ALL)

    def place(self) -> tuple[int, int, int]:
        """The place of events that come out now: time, capture, frame."""
        return self.now_ns, self.file, self.frame

    def _capture_at(self, now_ns: int) -> int:
        count = len(self.ends)
        return next((file for file in range(self.read, count) if self.ends[file] >= now_ns), count)


class Drop(NamedTuple):
    """The first notice of a capture that frames were dropped."""

    file: int
    """Place of the capture in the order of reading, from 0."""
    frame: int
    """How many frames of the capture come before."""
    timestamp_ns: int | None = None
    """Time of the latest segment before it; ``None`` where there is none."""

    def is_before(self, place: tuple[int, int, int]) -> bool:
        """Whether it comes before an event with this place."""
        now_ns, file, frame = place
        if now_ns >= AT_THE_END:
            return True
        if frame > 0:
            return (self.file, self.frame) < (file, frame)
        # A time-out comes out at the first segment of its time.
        return self.timestamp_ns is None or self.timestamp_ns < now_ns
