"""The schema of events as JSON Lines: output of ``inspect``, ``sniff`` and ``decode`` (``docs/jsonl.md``).

Fields and properties of packets come from the catalogue that the decoder, filters and columns use too.
"""

from __future__ import annotations

from collections.abc import Mapping

from mqttscope.events import LOSS_VALUES, DiscardedEvent, GapEvent
from mqttscope.mqtt.constants import MalformedReason, PacketType, type_name
from mqttscope.mqtt.fields import TYPES, PacketField, members_of
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import LISTS, PROPERTIES, Properties
from mqttscope.report.documents import (
    ANY,
    BINARY,
    BOOL,
    COUNT,
    DIRECTION,
    HEX,
    NAME,
    PROTOCOL,
    SIDE,
    TEXT,
    VERSION_1,
    WHOLE,
    Schema,
    any_of,
    both,
    each,
    mapping,
    maybe,
    record,
    times,
    word,
)

_PLAIN: dict[type, Schema] = {bool: BOOL, int: COUNT, str: NAME, bytes: BINARY}


def _property(kind: type) -> Schema:
    return record({"name": NAME, "value": NAME}) if kind is tuple else _PLAIN[kind]


def properties() -> Schema:
    """A block of properties; unknown properties are named by their number."""
    shown: dict[str, Schema] = {}
    for row in PROPERTIES:
        value = _property(TYPES[row.wire.name])
        shown[row.name] = each(value) if row.name in LISTS else any_of(value, each(value))
    return {**record({}, shown), "patternProperties": {"^unknown_0x": ANY}}


def _field(field: PacketField) -> Schema:
    if field.value_type is Properties:
        shown: Schema = {"$ref": "#/$defs/properties"}
    elif field.value_type in (Will, Subscription):
        shown = _members(field.packet_type, field.path)
    elif field.value_type is tuple:
        shown = each(NAME)
    else:
        shown = _PLAIN[field.value_type]
    return each(shown) if field.path.endswith("[]") else maybe(shown)


def _members(kind: PacketType, path: str = "") -> Schema:
    shown: dict[str, Schema] = {}
    for field in members_of(kind, path) if path else members_of(kind):
        shown[field.name] = _field(field)
        if field.name == "reason_code":
            shown["reason"] = maybe(TEXT)
        elif field.name == "reason_codes":
            shown["reasons"] = each(TEXT)
    if not path:
        shown["header_flags"] = COUNT
    return record({}, shown)


def packets() -> dict[str, Schema]:
    """The object of each packet type, by its name."""
    return {type_name(kind): _members(kind) for kind in PacketType}


PLACE = {"capture": NAME, "frame": COUNT, **times("timestamp"), "connection": COUNT, "client": TEXT, "server": TEXT}
_MESSAGE = {
    "direction": maybe(DIRECTION), "client_identifier": maybe(NAME), "version": PROTOCOL, "version_known": BOOL,
}  # fmt: skip
_PLACED = {**PLACE, **_MESSAGE}
_TYPE = word(*(type_name(kind) for kind in PacketType))
_ANY_TYPE = word(*(type_name(number) for number in range(16)))
"""Types of malformed packets, including reserved types."""
_FAULT = {"reason": word(MalformedReason), "offset": COUNT, "field": maybe(TEXT), "detail": TEXT}
MALFORMED = record(
    {**_FAULT, "reason_code": COUNT, "raw": HEX},
    {"redacted": BOOL, "truncated": BOOL, "missing": COUNT, "faults": each(record(_FAULT))},
)
_SEGMENTS = record({"segments": COUNT, "bytes": COUNT})
TCP = both(
    record(dict.fromkeys((
        "data_segments", "empty_segments", "retransmitted_segments", "retransmitted_bytes", "duplicate_segments",
        "copied_segments", "out_of_order_segments", "damaged_segments", "overlaps", "zero_windows", "keep_alive_probes",
    ), COUNT))
)  # fmt: skip
_WEBSOCKET = record(
    {"path": maybe(NAME), "host": maybe(NAME), "subprotocol": maybe(NAME), "extensions": each(NAME)},
    {"problems": each(record({"from_client": BOOL, "reason": TEXT, "detail": TEXT, "frame": COUNT})), "status": COUNT},
)
_RECORDS = record({
    "records": mapping(COUNT), "bytes": mapping(COUNT), "well_framed": BOOL, "unframed_bytes": COUNT,
    "missing_bytes": COUNT,
})  # fmt: skip
_TLS = record(
    {
        "server_name": maybe(NAME), "alpn_offered": each(NAME), "alpn": maybe(NAME), "versions_offered": each(TEXT),
        "version": maybe(TEXT), "cipher_suite": maybe(COUNT), "client_hello": BOOL, "server_hello": BOOL,
        "hello_retry_request": BOOL, "encrypted_client_hello": BOOL, "resumption_offered": BOOL, "resumed": maybe(BOOL),
        "client": _RECORDS, "server": _RECORDS,
        "alerts": each(record({"from": SIDE, "level": TEXT, "description": TEXT})), "alerts_dropped": COUNT,
        "encrypted_alert_from": maybe(SIDE), "problems": each(TEXT),
    },
    {
        "decrypted": BOOL, "undecrypted": TEXT, "websocket": _WEBSOCKET, "maximum_fragment_bytes": COUNT,
        "overlong_record": maybe(record({"from": SIDE, "length": COUNT})),
    },
)  # fmt: skip
_SERVER_NAME = {"server_name": NAME}
_CONNECTION = (
    {
        **PLACE, "transport": word("tcp", "websocket", "tls"), "handshake_seen": BOOL, "roles_known": BOOL,
        "roles_evidence": TEXT,
    },
    {
        **_SERVER_NAME, "tls": _TLS, "websocket": _WEBSOCKET, "tcp": TCP,
        "proxy": record({}, {"client": maybe(TEXT), "server": maybe(TEXT)}),
    },
)  # fmt: skip
_TCP = {"tcp_acknowledged": maybe(BOOL)}
_ENDS = word("fin", "reset", "port_reused", "idle", "evicted", "capture_end")


def _line(event: str, required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    return record({"schema": VERSION_1, "event": {"const": event}, **required}, optional)


def _lost(event: type[GapEvent | DiscardedEvent]) -> Schema:
    values = {name: _PLAIN[kind] for name, kind in LOSS_VALUES.items()}
    return _line(event.kind, {**_PLACED, **values, "reason": word(*event.reasons)})


def _lines() -> dict[str, Schema]:
    types: dict[str, Schema] = {name: {"$ref": f"#/$defs/{name}"} for name in packets()}
    numbered = {"packet": COUNT, "length": COUNT}
    # `decode` reads bytes without a capture, and numbers its input lines.
    decoded, line = _MESSAGE, {**PLACE, "line": COUNT}
    return {
        "event_packet": _line(
            "packet", {**decoded, **numbered, "type": _TYPE, "remaining_length": COUNT},
            {**line, **types, **_TCP, "topic": maybe(NAME), "missing": COUNT, "payload": ANY},
        ),
        "event_malformed": _line(
            "malformed", {**decoded, **numbered, "type": maybe(_ANY_TYPE), "malformed": MALFORMED},
            {**line, **types, **_TCP, "topic": maybe(NAME)},
        ),
        "event_gap": _lost(GapEvent),
        "event_unparsed": _line(
            "unparsed", {**decoded, "length": COUNT, "reason": TEXT, "missing": COUNT, "raw": BINARY},
            {**line, "packet_type": COUNT},
        ),
        "event_discarded": _lost(DiscardedEvent),
        "event_connection_opened": _line("connection_opened", *_CONNECTION),
        "event_connection_ending": _line(
            "connection_ending", {**PLACE, "client_identifier": maybe(NAME), "how": _ENDS, "by": maybe(SIDE)},
            _SERVER_NAME,
        ),
        "event_connection_closed": _line(
            "connection_closed",
            {
                **_CONNECTION[0], "client_identifier": maybe(NAME), "version": PROTOCOL, "version_known": BOOL,
                "version_evidence": TEXT, "how": _ENDS, "by": maybe(SIDE), "disconnect_by": maybe(SIDE),
                "disconnect_reason": maybe(COUNT), "packets": both(COUNT), "bytes": both(COUNT), "gaps": COUNT,
                "gap_bytes": COUNT, "discarded": _SEGMENTS, "copied_segments": COUNT, "one_sided": maybe(DIRECTION),
                "also_closed": maybe(record({"how": _ENDS, "frame": COUNT, **times("timestamp")})),
                "tcp_unacknowledged": both(maybe(each(COUNT))),
            },
            _CONNECTION[1],
        ),
        "event_capture_error": _line(
            "capture_error", {"message": NAME}, {"capture": NAME, "offset": maybe(WHOLE), "frames": COUNT,
            "line": COUNT}
        ),
    }  # fmt: skip


def definitions() -> dict[str, Schema]:
    """Definitions used by several schemas: packets, properties, and the line of each event."""
    return {"properties": properties(), **packets(), **_lines()}


def event_line() -> Schema:
    return {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in _lines()]}
