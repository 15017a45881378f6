"""The tables: names, types and meanings of their columns.

Column names are the words of the JSON forms.  Numbers within a run are missing, since they would depend on how
captures are cut: a connection is its ``connection_id``, a packet its ``stream_offset`` and direction in the connection,
and ``packet_in_connection`` orders the packets of a connection.

Within a version columns are added, never renamed, removed or given another meaning.  Version 1 can still be read.
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
"""Renamed columns: present name and name in version 1, by table; version 1 can still be read."""

S, L, N, H, B, T, X = (
    pa.string(), pa.int64(), pa.int32(), pa.int16(), pa.bool_(), pa.timestamp("us", "UTC"), pa.binary(),
)  # fmt: skip


_DIGEST = "first 32 hexadecimal digits; null if bytes of the payload are missing"


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
    """Columns that identify a row."""
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def arrow(self) -> pa.Schema:
        """The Arrow schema, with the meanings as comments."""
        fields = [
            pa.field(column.name, column.type, metadata={"comment": column.meaning} if column.meaning else None)
            for column in self.columns
        ]
        return pa.schema(fields, {"mqttscope.table": self.name, "mqttscope.schema": str(VERSION)})

    def struct(self) -> pa.DataType:
        """The columns as one struct, for rows of several tables in one stream."""
        return pa.struct([pa.field(column.name, column.type) for column in self.columns])


def _by_direction(kind: pa.DataType) -> pa.DataType:
    return pa.struct([("client_to_server", kind), ("server_to_client", kind)])


_TCP_COUNTERS = [(name, L) for name in COUNTERS if name != "damaged_segments"]
"""Counters without damaged segments, which have rows of their own in the table of gaps."""
_ID = Column("connection_id", S, "the connection; it does not depend on how the captures were cut (`lake.keys`)")
_PLACE = (
    Column("capture", S, "the capture of the frame"),
    Column("frame", L, "number of the frame, from 1, where it was completed or noticed"),
    Column("timestamp", T, "capture time in microseconds, as in Spark"),
    Column("timestamp_ns", L, "capture time in nanoseconds since 1970"),
)
_ENDS = (Column("client", S, "endpoint of the client"), Column("server", S, "endpoint of the server"))
_WHO = (
    Column("direction", S, "client_to_server or server_to_client"),
    Column("client_identifier", S, "from CONNECT or assigned in CONNACK; null if neither was captured"),
    Column("version", S, "3.1, 3.1.1 or 5.0"),
    Column("version_known", B, "false if no captured CONNECT shows it"),
)
_OFFSET = Column("stream_offset", L, "offset of its first byte in the stream of its direction")
_NUMBER = Column("packet_in_connection", L, "number of the packet in the connection, from 0, malformed ones included")
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
    "MQTT Control Packets, malformed ones included",
    ("connection_id", "direction", "stream_offset"),
    (
        _ID, *_PLACE, *_ENDS, *_WHO,
        Column("event", S, "packet or malformed"),
        _NUMBER, _OFFSET,
        Column("type", S, "name of the packet type; null if even that is unknown"),
        Column("length", L, "bytes of the whole packet"),
        Column("remaining_length", L, "bytes after the fixed header; null when malformed"),
        Column("header_flags", H, "only if the flags differ from the table of the specification"),
        Column("missing", L, "number of payload bytes missing from the capture; null for 0"),
        Column("topic", S, "topic of a PUBLISH, with its alias resolved; null if it is unknown"),
        *(Column(name, kind, _DIGEST if name == "payload_sha256" else "") for name, kind in packet_columns().items()),
        Column("reason", S, "name of the reason code"),
        Column("malformed", _MALFORMED, "faults of a malformed packet, and its bytes with secrets redacted"),
        Column("not_utf8", NOT_UTF8, "texts of this row that are not UTF-8, by the path of the field"),
        Column("other_properties", OTHER_PROPERTIES, "unknown properties, and forbidden repetitions"),
    ),
)  # fmt: skip
MESSAGES = TableSchema(
    "messages",
    "Application Messages: a PUBLISH with its whole QoS exchange on its connection",
    ("connection_id", "direction", "stream_offset"),
    (
        _ID, *_PLACE, *_ENDS, *_WHO, _NUMBER, _OFFSET,
        Column("topic", S, "with its alias resolved; null if it is unknown"),
        Column("qos", H), Column("retain", B), Column("packet_identifier", N),
        Column("dup", B, "the first captured PUBLISH has DUP set: an earlier one was not captured"),
        Column("message_expiry_interval", L), Column("payload_length", L),
        Column("payload_sha256", S, _DIGEST),
        Column("length", L, "bytes of the first PUBLISH"),
        Column("state", S, "sent (QoS 0, or not answered), received (PUBREC), released (PUBREL), completed, refused"),
        Column("ended", S, "answer, replaced (the identifier was used again) or connection (it ended first)"),
        Column("acknowledged_ns", L, "time of the PUBACK or PUBREC"),
        Column("released_ns", L, "time of the PUBREL"),
        Column("completed_ns", L, "time of the answer that ended the exchange"),
        Column("latency_ns", L, "from the PUBLISH to that answer, as captured"),
        Column("retransmissions", N, "number of repetitions with DUP"),
        Column("acknowledge_reason_code", H, "reason code of the PUBACK or PUBREC"),
        Column("release_reason_code", H, "reason code of the PUBREL"),
        Column("complete_reason_code", H, "reason code of the PUBCOMP"),
        Column("not_utf8", NOT_UTF8),
    ),
)  # fmt: skip
CONNECTIONS = TableSchema(
    "connections",
    "MQTT Network Connections; open ones as known up to now",
    ("connection_id",),
    (
        _ID, Column("capture_group", S, "captures of different groups share no connection"), *_PLACE,
        Column("found_capture", S, "capture where it was recognised; `inspect` numbers connections in this order"),
        Column("found_frame", L), Column("found_ns", L),
        Column("closed_capture", S, "capture where it ended: the first FIN or RST, else its last frame"),
        Column("closed_frame", L), Column("closed", T), Column("closed_ns", L),
        *_ENDS, Column("flow_key", X, "addresses, ports and encapsulation, as `net.segment.Segment.key`"),
        Column("initial_sequence", L, "of the initiator; null if its SYN was not captured"),
        Column("transport", S, "tcp, websocket or tls"), Column("decrypted", B), Column("handshake_seen", B),
        Column("roles_known", B), Column("roles_evidence", S),
        *_WHO[1:], Column("version_evidence", S),
        Column("closed_how", S, "how it ended (fin, reset, port_reused, idle, evicted, capture_end); open: not yet"),
        Column("closed_by", S, "side that ended it first: client or server"),
        Column("also_closed", _OTHER_END, "how the other side ended later"),
        Column("disconnect_by", S, "sender of DISCONNECT"), Column("disconnect_reason", H),
        Column("keep_alive", N, "value in force"), Column("clean_start", B), Column("session_present", B),
        Column("session_expiry_interval", L, "value in force"),
        Column("phase", S), Column("packets", _by_direction(L)), Column("bytes", _by_direction(L)),
        Column("gaps", L), Column("gap_bytes", L),
        Column("discarded_segments", L, "discarded segments with data, up to its end; `gaps` has all of them"),
        Column("discarded_bytes", L),
        Column("copied_segments", L, "segments that a second tap captured again"),
        Column("one_sided", S, "the direction, if the captures have only one"),
        Column("late", B, "its captures came later than newer ones: its neighbouring bytes may be another row; "
               "no rule of wider scope judges it"),
        Column("tcp", _by_direction(pa.struct(_TCP_COUNTERS)), "counters of TCP"),
        Column("proxy", pa.struct([("client", S), ("server", S)]), "endpoints in a PROXY protocol header"),
        Column("details", S, "details of WebSocket or TLS as a JSON object, as in `inspect`; null for plain TCP"),
        Column("not_utf8", NOT_UTF8),
        Column("unacknowledged", _by_direction(L), "bytes that TCP had not acknowledged at its end"),
    ),
)  # fmt: skip
SESSIONS = TableSchema(
    "sessions",
    "MQTT Sessions: connections of one Client Identifier on a server that continue each other's session",
    ("server", "client_identifier", "session"),
    (
        _ENDS[1], _WHO[1], Column("session", L, "number of the session of this client and server, from 0"),
        Column("first_ns", L), Column("last_ns", L), Column("clean_start", B, "Clean Start of its first connection"),
        Column("begin_known", B, "whether the session began on its first connection"),
        Column("session_expiry_interval", L, "interval of its last connection"),
        Column("connections", L), Column("connection_ids", pa.list_(S)),
    ),
)  # fmt: skip
_RELATED = pa.struct([("message", S), ("packet_in_connection", L), ("frame", L), ("timestamp_ns", L)])
_SPOT = pa.struct([("field", S), ("offset", L), ("length", L)])
FINDINGS = TableSchema(
    "findings",
    "Findings of the rules",
    ("connection_id", "scope", "finding_in_connection"),
    (
        _ID, Column("scope", S, "scope of the rule: connection, session or broker"),
        Column("finding_in_connection", L, "number of the finding in the connection and this scope, from 0"), *_PLACE,
        Column("rule", S), Column("slug", S), Column("severity", S), Column("confidence", S), Column("message", S),
        Column("statements", pa.list_(S)), *_ENDS, *_WHO[:3],
        Column("packet_in_connection", L, "null if the finding concerns no packet"), _OFFSET,
        Column("packet_type", S), Column("field", S), Column("offset", L, "offset of the field in the packet"),
        Column("length", L), Column("reason_code", H), Column("fingerprint", S), Column("topic", S),
        Column("related", pa.list_(_RELATED)), Column("not_utf8", NOT_UTF8),
        Column("count", L, "number of places of the packet in the finding; field and offset are the first's"),
        Column("places", pa.list_(_SPOT), "the first places, if there are several"),
        Column("rule_generation", L, "place in `rule_sets` of `manifest.json`, from 1, of the rules of its ingest"),
        Column("clock_shift_ns", L, "sum of the steps of the captures' clock up to it, without which rules count time"),
    ),
)  # fmt: skip
GAPS = TableSchema(
    "gaps",
    "Bytes that are missing from the capture, belong to no readable packet, or were discarded",
    ("connection_id", "event", "event_in_connection"),
    (
        _ID, *_PLACE, *_ENDS, *_WHO, Column("event", S, "gap, unparsed or discarded"),
        Column("event_in_connection", L, "number in the connection, from 0; discarded ones are numbered separately"),
        Column("stream_offset", L, "for a gap, its offset in the TCP stream"),
        Column("length", L), Column("reason", S), Column("missing", L), Column("packet_type", H), Column("raw", X),
        Column("raw_length", L), Column("redacted", B),
    ),
)  # fmt: skip
SPARKPLUG_METRICS = TableSchema(
    "sparkplug_metrics",
    "Metrics of Sparkplug B; a message without metrics has one row without a metric",
    ("connection_id", "direction", "stream_offset", "metric_in_message"),
    (
        _ID, *_PLACE, *_ENDS, *_WHO, _NUMBER, _OFFSET,
        Column("dup", B), Column("retain", B),
        Column("node", S, "group and edge node: group/node"), Column("device", S, "null for the edge node itself"),
        Column("message_type", S, "NBIRTH, DBIRTH, NDATA, DDATA, NDEATH, DDEATH, NCMD or DCMD"),
        Column("seq", L, "sequence number; null without one"),
        Column("bdseq", L, "value of the metric bdSeq of the message; null without one"),
        Column("metric_in_message", N, "number of the metric in the message, from 0"),
        Column("metric", S, "name; of an alias alone, by the last birth on the connection; null if it is unknown"),
        Column("alias", L),
        Column("datatype", S, "data type, by the last birth if the message lacks it; null if it is unknown"),
        Column("timestamp_ms", L, "timestamp of the metric, else of the message, in milliseconds since 1970"),
        Column("is_historical", B), Column("is_null", B),
        Column("value", S, "text as it is, else JSON; null without the whole payload (`--payload-limit`)"),
        Column("number", pa.float64(), "the value of a number"),
        Column("problem", S, "why the payload could not be read"),
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
    "Errors of captures, and dropped frames that captures report",
    ("capture", "event", "message"),
    (
        Column("capture", S), Column("event", S, "capture_error, capture_drops or clock_step"), Column("message", S),
        Column("offset", L), Column("frames", L), Column("interface", L), Column("received", L),
        Column("dropped", L, "2^63 - 1 stands for more; the message has the number"),
        Column("healed", B, "true if a later ingest read a capture of this name without an error"),
    ),
)  # fmt: skip

TABLES: dict[str, TableSchema] = {
    table.name: table
    for table in (
        PACKETS, MESSAGES, CONNECTIONS, SESSIONS, FINDINGS, TOPICS, CLIENTS, GAPS, INGEST_ERRORS,
        SPARKPLUG_METRICS,
    )
}  # fmt: skip
EVENT_TABLES = ("packets", "messages", "connections", "findings", "gaps", "ingest_errors", "sparkplug_metrics")
"""Tables with rows from the kernel; the others are sums over them (`lake.aggregates`)."""

STATE = TableSchema(
    "state",
    "Memories of open flows, for the next ingest (`lake.state`)",
    ("flow",),
    (
        Column("flow", X), Column("last_ns", L), Column("state", X),
        Column("due_ns", L, "time until which nothing happens to it by itself; null if unknown"),
        Column("keys", pa.list_(S), "keys for judging it with other connections"),
        Column("connections", pa.list_(S), "connections with rows of what is known up to now"),
        Column("ending_ns", L, "when it ends without further segments, if no rule can report something about that end"),
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
    "Flows that rules beyond one connection need together (`lake.keys.stage_key`)",
    ("flow", "key"),
    (Column("flow", X), Column("key", S)),
)


SCOPE_STATE = TableSchema(
    "scope_state",
    "Memories of rules of wide scope about a key, for the next ingest (`lake.memory`)",
    ("key",),
    (
        Column("key", S), Column("state", X),
        Column("due_ns", L, "time until which no rule asks by itself; null if unknown"),
        Column("part", S, "name of the part; null for a whole key"),
        Column("flow", X, "flow of the connection that it concerns; null if it concerns several"),
        Column("next_ns", L, "earliest time of the connection's next event that a rule asks about"),
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
"""Columns of numbers that rarely recur and mostly differ little from the previous row."""
DISTINCT = frozenset(("payload_sha256", "state"))
"""Columns of texts and bytes that rarely recur."""
OPEN = "open/"
"""Prefix of the kinds of rows for connections that are still open."""


@cache
def event_schema(tables: Iterable[str] = (*EVENT_TABLES, *(table.name for table in INTERNAL))) -> pa.Schema:
    """Rows of several tables in one stream: ``kind`` names the table, and one struct for each table has the row."""
    known = TABLES | {table.name: table for table in INTERNAL}
    return pa.schema([("kind", S), *((name, known[name].struct()) for name in tables)])
