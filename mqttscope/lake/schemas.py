"""The tables: names, types and meanings of their columns.

Column names are the words of the JSON forms.  Numbers that count a run do not exist here, since they would depend on
how captures were cut: a connection is its ``connection_id``, a packet its ``stream_offset`` and direction in it, and
``packet_in_connection`` puts the packets of a connection into their order.

Within a version columns are added, never renamed, removed or given another meaning.  Version 1 is still read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import pyarrow as pa

from mqttscope.dissect.dissector import COUNTERS
from mqttscope.lake.declared import NOT_UTF8, OTHER_PROPERTIES, packet_columns
from mqttscope.lake.manifest import SCHEMA

VERSION = SCHEMA
"""Version of all schemas."""
RENAMED = {"connections": {"closed_how": "how", "closed_by": "by"}}
"""Columns by their table and name of today, and how they were called in version 1, which is still read."""

S, L, N, H, B, T, X = (
    pa.string(), pa.int64(), pa.int32(), pa.int16(), pa.bool_(), pa.timestamp("us", "UTC"), pa.binary(),
)  # fmt: skip


@dataclass(slots=True, frozen=True)
class Column:
    """One column of a table."""

    name: str
    type: pa.DataType
    meaning: str = ""


@dataclass(slots=True, frozen=True)
class TableSchema:
    """One table."""

    name: str
    meaning: str
    key: tuple[str, ...]
    """Columns that name a row."""
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.columns)

    def arrow(self) -> pa.Schema:
        """The schema for Arrow, with the meanings as comments."""
        fields = [
            pa.field(one.name, one.type, metadata={"comment": one.meaning} if one.meaning else None)
            for one in self.columns
        ]
        return pa.schema(fields, {"mqttscope.table": self.name, "mqttscope.schema": str(VERSION)})

    def struct(self) -> pa.DataType:
        """The columns as one struct, for rows of several tables in one stream."""
        return pa.struct([pa.field(one.name, one.type) for one in self.columns])


def _by_direction(kind: pa.DataType) -> pa.DataType:
    return pa.struct([("client_to_server", kind), ("server_to_client", kind)])


_TCP_COUNTERS = [(name, L) for name in COUNTERS if name != "damaged_segments"]
"""Without those that rows of the table of gaps hold one by one."""
_ID = Column("connection_id", S, "the connection: the same however the captures were cut (`lake.keys`)")
_PLACE = (
    Column("capture", S, "the capture of the frame"),
    Column("frame", L, "number of the frame, from 1, that completed it or at which it was noticed"),
    Column("timestamp", T, "capture time, in microseconds as Spark has them"),
    Column("timestamp_ns", L, "the same in nanoseconds since 1970"),
)
_ENDS = (Column("client", S, "endpoint of the client"), Column("server", S, "endpoint of the server"))
_WHO = (
    Column("direction", S, "client_to_server or server_to_client"),
    Column("client_identifier", S, "from CONNECT or assigned in CONNACK; null where neither was seen"),
    Column("version", S, "3.1, 3.1.1 or 5.0"),
    Column("version_known", B, "false where no CONNECT said so"),
)
_OFFSET = Column("stream_offset", L, "place of its first byte in the stream of its direction")
_NUMBER = Column("packet_in_connection", L, "counts the packets of the connection from 0, malformed ones included")
_FAULT = pa.struct([("reason", S), ("offset", L), ("field", S), ("detail", S)])
_MALFORMED = pa.struct(
    [
        ("reason", S), ("offset", L), ("field", S), ("detail", S), ("reason_code", H), ("raw", X), ("raw_length", L),
        ("redacted", B), ("missing", L), ("faults", pa.list_(_FAULT)), ("fields_read", pa.list_(S)),
    ]
)  # fmt: skip
_OTHER_END = pa.struct([("how", S), ("frame", L), ("timestamp_ns", L), ("capture", S)])

PACKETS = TableSchema(
    "packets",
    "MQTT Control Packets, also those that break the layout",
    ("connection_id", "direction", "stream_offset"),
    (
        _ID, *_PLACE, *_ENDS, *_WHO,
        Column("event", S, "packet or malformed"),
        _NUMBER, _OFFSET,
        Column("type", S, "name of the packet type; null where not even that is known"),
        Column("length", L, "bytes of the whole packet"),
        Column("remaining_length", L, "bytes after the fixed header; null when malformed"),
        Column("header_flags", H, "only where the flags differ from the table of the specification"),
        Column("missing", L, "bytes of the payload that the capture does not have; null for none"),
        Column("topic", S, "of a PUBLISH: the topic with its alias resolved; null where it cannot be known"),
        *(Column(name, kind) for name, kind in packet_columns().items()),
        Column("reason", S, "name of the reason code"),
        Column("malformed", _MALFORMED, "what is wrong with a malformed packet; its bytes with secrets redacted"),
        Column("not_utf8", NOT_UTF8, "texts of this row that are not UTF-8, by the path of the field"),
        Column("other_properties", OTHER_PROPERTIES, "properties outside the table, and forbidden repetitions"),
    ),
)  # fmt: skip
MESSAGES = TableSchema(
    "messages",
    "Application Messages: a PUBLISH with its whole QoS exchange on its connection",
    ("connection_id", "direction", "stream_offset"),
    (
        _ID, *_PLACE, *_ENDS, *_WHO, _NUMBER, _OFFSET,
        Column("topic", S, "with its alias resolved; null where it cannot be known"),
        Column("qos", H), Column("retain", B), Column("packet_identifier", N),
        Column("dup", B, "the first PUBLISH that was seen had DUP set: it came before"),
        Column("message_expiry_interval", L), Column("payload_length", L),
        Column("payload_sha256", S, "null where bytes of it are missing"),
        Column("length", L, "bytes of the first PUBLISH"),
        Column("state", S, "sent (QoS 0, or not answered), received (PUBREC), released (PUBREL), completed, refused"),
        Column("ended", S, "answer, replaced (the identifier was used again) or connection (it ended before)"),
        Column("acknowledged_ns", L, "time of the PUBACK or PUBREC"),
        Column("released_ns", L, "time of the PUBREL"),
        Column("completed_ns", L, "time of the answer that ended the exchange"),
        Column("latency_ns", L, "from the PUBLISH to that answer, where the capture was made"),
        Column("retransmissions", N, "how often it came again with DUP"),
        Column("acknowledge_reason_code", H, "of the PUBACK or PUBREC"),
        Column("release_reason_code", H, "of the PUBREL"),
        Column("complete_reason_code", H, "of the PUBCOMP"),
        Column("not_utf8", NOT_UTF8),
    ),
)  # fmt: skip
CONNECTIONS = TableSchema(
    "connections",
    "MQTT Network Connections; of one that is still open, what is known so far",
    ("connection_id",),
    (
        _ID, Column("capture_group", S, "captures of different groups share no connection"), *_PLACE,
        Column("found_capture", S, "where it was recognised; by its rank `inspect` numbers connections"),
        Column("found_frame", L), Column("found_ns", L),
        Column("closed_capture", S, "where it ended: the first FIN or RST, else its last frame"),
        Column("closed_frame", L), Column("closed", T), Column("closed_ns", L),
        *_ENDS, Column("flow_key", X, "addresses, ports and encapsulation, as `net.segment.Segment.key`"),
        Column("initial_sequence", L, "of the initiator; null where its SYN was not captured"),
        Column("transport", S, "tcp, websocket or tls"), Column("decrypted", B), Column("handshake_seen", B),
        Column("roles_known", B), Column("roles_evidence", S),
        *_WHO[1:], Column("version_evidence", S),
        Column("closed_how", S, "how it ended (fin, reset, port_reused, idle, evicted, capture_end); open: not yet"),
        Column("closed_by", S, "client or server: who ended it first"),
        Column("also_closed", _OTHER_END, "how the other side ended later"),
        Column("disconnect_by", S, "who sent DISCONNECT"), Column("disconnect_reason", H),
        Column("keep_alive", N, "in force"), Column("clean_start", B), Column("session_present", B),
        Column("session_expiry_interval", L, "in force"),
        Column("phase", S), Column("packets", _by_direction(L)), Column("bytes", _by_direction(L)),
        Column("gaps", L), Column("gap_bytes", L),
        Column("discarded_segments", L, "segments with data that it did not take, up to its end; `gaps` has them all"),
        Column("discarded_bytes", L),
        Column("copied_segments", L, "segments that a second tap captured again"),
        Column("one_sided", S, "the direction, where the captures have segments of one alone"),
        Column("late", B, "captures that came later than newer ones: what lies around it may be a row of its own; "
               "no rule of wider scope judges it"),
        Column("tcp", _by_direction(pa.struct(_TCP_COUNTERS)), "counters of TCP"),
        Column("proxy", pa.struct([("client", S), ("server", S)]), "what a PROXY protocol header tells"),
        Column("details", S, "of WebSocket or TLS: a JSON object as `inspect` shows it; null for plain TCP"),
        Column("not_utf8", NOT_UTF8),
    ),
)  # fmt: skip
SESSIONS = TableSchema(
    "sessions",
    "MQTT Sessions: connections of one Client Identifier on a server that continue with each other's session",
    ("server", "client_identifier", "session"),
    (
        _ENDS[1], _WHO[1], Column("session", L, "counts the sessions of this client and server from 0"),
        Column("first_ns", L), Column("last_ns", L), Column("clean_start", B, "of its first connection"),
        Column("begin_known", B, "whether the session began on its first connection"),
        Column("session_expiry_interval", L, "of its last connection"),
        Column("connections", L), Column("connection_ids", pa.list_(S)),
    ),
)  # fmt: skip
_RELATED = pa.struct([("message", S), ("packet_in_connection", L), ("frame", L), ("timestamp_ns", L)])
_SPOT = pa.struct([("field", S), ("offset", L), ("length", L)])
FINDINGS = TableSchema(
    "findings",
    "What the rules found",
    ("connection_id", "scope", "finding_in_connection"),
    (
        _ID, Column("scope", S, "connection, session or broker: how far the rule looks"),
        Column("finding_in_connection", L, "counts the findings of the connection and this scope from 0"), *_PLACE,
        Column("rule", S), Column("slug", S), Column("severity", S), Column("confidence", S), Column("message", S),
        Column("statements", pa.list_(S)), *_ENDS, *_WHO[:3],
        Column("packet_in_connection", L, "null when the finding is about no packet"), _OFFSET,
        Column("packet_type", S), Column("field", S), Column("offset", L, "of the field in the packet"),
        Column("length", L), Column("reason_code", H), Column("fingerprint", S), Column("topic", S),
        Column("related", pa.list_(_RELATED)), Column("not_utf8", NOT_UTF8),
        Column("count", L, "for how many places of the packet the finding stands; field and offset are the first's"),
        Column("places", pa.list_(_SPOT), "the first of them, where there are several"),
    ),
)  # fmt: skip
GAPS = TableSchema(
    "gaps",
    "Bytes that the capture does not have, that belong to no packet that could be read, or that no connection takes",
    ("connection_id", "event", "event_in_connection"),
    (
        _ID, *_PLACE, *_ENDS, *_WHO, Column("event", S, "gap, unparsed or discarded"),
        Column("event_in_connection", L, "counts gaps and unparsed bytes of the connection from 0, discarded apart"),
        Column("stream_offset", L, "of a gap: its place in the stream of TCP"),
        Column("length", L), Column("reason", S), Column("missing", L), Column("packet_type", H), Column("raw", X),
        Column("raw_length", L), Column("redacted", B),
    ),
)  # fmt: skip
TOPICS = TableSchema(
    "topics",
    "Topics of each server",
    ("server", "topic", "direction"),
    (
        _ENDS[1], Column("topic", S), _WHO[0], Column("messages", L), Column("payload_bytes", L),
        Column("qos_0", L), Column("qos_1", L), Column("qos_2", L), Column("retained", L),
        Column("retransmissions", L), Column("connections", L), Column("first_ns", L), Column("last_ns", L),
    ),
)  # fmt: skip
CLIENTS = TableSchema(
    "clients",
    "Client Identifiers on each server",
    ("server", "client_identifier"),
    (
        _ENDS[1], _WHO[1], Column("connections", L), Column("packets_sent", L), Column("packets_received", L),
        Column("bytes_sent", L), Column("bytes_received", L), Column("first_ns", L), Column("last_ns", L),
        Column("versions", pa.list_(S)),
    ),
)  # fmt: skip
INGEST_ERRORS = TableSchema(
    "ingest_errors",
    "What is wrong with captures, and what they say to have dropped",
    ("capture", "event", "message"),
    (
        Column("capture", S), Column("event", S, "capture_error, capture_drops or clock_step"), Column("message", S),
        Column("offset", L), Column("frames", L), Column("interface", L), Column("received", L),
        Column("dropped", L, "2^63 - 1 stands for more, which the message tells"),
    ),
)  # fmt: skip

TABLES: dict[str, TableSchema] = {
    one.name: one
    for one in (
        PACKETS, MESSAGES, CONNECTIONS, SESSIONS, FINDINGS, TOPICS, CLIENTS, GAPS, INGEST_ERRORS,
    )
}  # fmt: skip
EVENT_TABLES = ("packets", "messages", "connections", "findings", "gaps", "ingest_errors")
"""Tables whose rows the kernel gives; the others are sums over them (`lake.aggregates`)."""

STATE = TableSchema(
    "state",
    "What a flow that is still open remembers, for the next ingest (`lake.state`)",
    ("flow",),
    (
        Column("flow", X), Column("last_ns", L), Column("state", X),
        Column("due_ns", L, "time before which nothing happens to it by itself; null where that is not known"),
        Column("keys", pa.list_(S), "with which other connections it is judged"),
        Column("connections", pa.list_(S), "whose rows say what is known so far of it"),
        Column("ending_ns", L, "when it ends if nothing more comes, where no rule has anything to say of that"),
    ),
)  # fmt: skip


class StateRow(NamedTuple):
    """A row of ``state``."""

    flow: bytes
    last_ns: int
    state: bytes
    due_ns: int | None = None
    keys: list[str] | None = None
    connections: list[str] | None = None
    ending_ns: int | None = None


FLOW_KEYS = TableSchema(
    "flow_keys",
    "Which flows the rules that look beyond one connection need together (`lake.keys.stage_key`)",
    ("flow", "key"),
    (Column("flow", X), Column("key", S)),
)


SCOPE_STATE = TableSchema(
    "scope_state",
    "What the rules that look beyond one connection remember of a key, for the next ingest (`lake.memory`)",
    ("key",),
    (
        Column("key", S), Column("state", X),
        Column("due_ns", L, "time before which no rule asks by itself; null where that is not known"),
        Column("part", S, "which part of it this is; null for all of it"),
        Column("flow", X, "whose connection it is about; null for what is about several"),
        Column("next_ns", L, "time from which on a rule asks at the next event of the connection"),
    ),
)  # fmt: skip


class ScopeStateRow(NamedTuple):
    """A row of ``scope_state``."""

    key: str
    state: bytes
    due_ns: int | None = None
    part: str | None = None
    flow: bytes | None = None
    next_ns: int | None = None


INTERNAL = (STATE, FLOW_KEYS, SCOPE_STATE)
RISING = frozenset(
    (
        "frame", "timestamp", "timestamp_ns", "stream_offset", "packet_in_connection", "acknowledged_ns", "released_ns",
        "completed_ns", "latency_ns",
    )
)  # fmt: skip
"""Columns of numbers that hardly ever come again, and of which one is mostly not far from the one before."""
DISTINCT = frozenset(("payload_sha256", "state"))
"""Columns of texts and bytes that hardly ever come again."""
OPEN = "open/"
"""Prefix of the kinds of rows for connections that are still open."""


@cache
def event_schema(tables: Iterable[str] = (*EVENT_TABLES, *(one.name for one in INTERNAL))) -> pa.Schema:
    """Rows of several tables in one stream: ``kind`` names the table, one struct for each holds the row."""
    known = TABLES | {one.name: one for one in INTERNAL}
    return pa.schema([("kind", S), *((name, known[name].struct()) for name in tables)])
