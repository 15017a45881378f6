"""The schemas of what is written about captures: findings, statistics, explanations, comparisons, redactions."""

from __future__ import annotations

from mqttscope.dev.schemas.events import TCP, definitions
from mqttscope.mqtt.constants import PacketType, type_name
from mqttscope.replay.verify.captures import CaptureDifferenceKind
from mqttscope.report.documents import (
    ANY,
    BOOL,
    COUNT,
    DIRECTION,
    NAME,
    NUMBER,
    PROTOCOL,
    SIDE,
    TEXT,
    TRANSPORT,
    VERSION_1,
    WHOLE,
    Schema,
    both,
    each,
    mapping,
    maybe,
    record,
    times,
    word,
)
from mqttscope.stats.rows import HANDSHAKES

CAPTURE_ERROR = record({"capture": NAME, "message": TEXT, "offset": maybe(WHOLE), "frames": COUNT})
"""What is wrong with a capture."""
_PAIR = both(COUNT)
_QOS = record({str(qos): _PAIR for qos in range(3)})
_RATE = record({"mean": maybe(NUMBER), "peak": COUNT})
_RATES = record({"packets_per_second": _RATE, "bytes_per_second": _RATE})
_LATENCY = record(
    {"count": COUNT, "unanswered": COUNT},
    {f"{name}_ns": WHOLE for name in ("minimum", "p50", "p90", "p99", "maximum", "mean")},
)
_ALIAS = record(
    {"sets": COUNT, "hits": COUNT, "hit_rate": maybe(NUMBER), "saved_bytes": WHOLE, "property_bytes": COUNT}
)
_TRAFFIC = {
    "packets": _PAIR, "bytes": _PAIR, "rates": _RATES,
    "types": record({}, {type_name(kind): record({"packets": _PAIR, "bytes": _PAIR}) for kind in PacketType}),
    "publish": record({"payload_bytes": _PAIR, "qos": _QOS, "retain": _PAIR, "dup": _PAIR}),
    "topic_alias": both(_ALIAS), "malformed": _PAIR, "malformed_bytes": _PAIR, "unparsed": _PAIR,
    "unparsed_bytes": _PAIR,
    "gaps": _PAIR, "gap_bytes": _PAIR, "tcp": TCP,
    "latencies": record(
        {}, {name: record({}, {"client_to_server": _LATENCY, "server_to_client": _LATENCY}) for name in HANDSHAKES}
    ),
}  # fmt: skip
_SEGMENTS = record({"segments": COUNT, "bytes": COUNT})
_BEGINNINGS = ("accepted", "refused", "unanswered", "joined", "unread")
_ENDINGS = ("disconnected", "broken", "refused", "open", "unknown")
_OUTCOMES = record({
    "opened": COUNT, **dict.fromkeys(_BEGINNINGS, COUNT), "versions": mapping(COUNT), "transports": mapping(COUNT),
    "refusals": each(record({"version": TEXT, "reason_code": COUNT, "reason": TEXT, "count": COUNT})),
    "endings": record(dict.fromkeys(_ENDINGS, COUNT)),
    "closed": each(record({"how": TEXT, "by": TEXT, "count": COUNT})),
    "disconnects": each(record({"by": TEXT, "reason_code": maybe(COUNT), "reason": maybe(TEXT), "count": COUNT})),
})  # fmt: skip


def _moments(first: str, last: str) -> dict[str, Schema]:
    return {**{name: maybe(one) for name, one in times(first, last).items()}, "duration_ns": WHOLE}


_CAPTURE = {
    "frames": COUNT, "frame_bytes": COUNT, "captured_bytes": COUNT, "frames_dropped": COUNT, "clock_steps": COUNT,
    "discarded": _SEGMENTS,
    **_moments("first", "last"),
    "errors": each(record({"message": TEXT, "offset": maybe(WHOLE), "frames": COUNT})), "error_count": COUNT,
    **_TRAFFIC, "connections": _OUTCOMES,
}  # fmt: skip
_CONNECTION = record({
    "connection": COUNT, "capture": NAME, "frame": COUNT, "client": TEXT, "server": TEXT,
    "client_identifier": maybe(NAME),
    "transport": TRANSPORT, "version": maybe(PROTOCOL), "version_known": BOOL, "outcome": word(*_BEGINNINGS),
    "connack_reason_code": maybe(COUNT), **_moments("opened", "ended"), "ending": word(*_ENDINGS),
    "closed_how": maybe(TEXT),
    "closed_by": maybe(SIDE), "also_closed": maybe(record({"how": TEXT, **times("timestamp")})),
    "one_sided": maybe(DIRECTION), "discarded": _SEGMENTS, "disconnect_by": maybe(SIDE),
    "disconnect_reason_code": maybe(COUNT), "disconnect_reason": maybe(TEXT), "keep_alive": maybe(COUNT),
    "longest_silence_ns": WHOLE, "keep_alive_share": maybe(NUMBER),
    "in_flight": both(record({"peak": COUNT, "receive_maximum": maybe(COUNT)})), **_TRAFFIC,
})  # fmt: skip
_TOPICS = record({"count": COUNT, "complete": BOOL, "names": each(NAME)})
_CLIENT = record({
    "client_identifier": maybe(NAME), "addresses": each(TEXT), "addresses_complete": BOOL,
    **dict.fromkeys((
        "connections", "accepted", "refused", "unanswered", "disconnected", "broken", "taken_over", "reconnects",
    ), COUNT),
    "longest_silence_ns": WHOLE, "keep_alive_share": maybe(NUMBER), **_moments("first", "last"),
    "topics_published": _TOPICS, "topics_received": _TOPICS, **_TRAFFIC,
})  # fmt: skip
_CLIENTS = record({"count": COUNT, "complete": BOOL})
_TOPIC = record({
    "topic": maybe(NAME), "messages": _PAIR, "bytes": _PAIR, "payload_bytes": _PAIR, "qos": _QOS, "retain": _PAIR,
    "dup": _PAIR, "publishers": _CLIENTS, "receivers": _CLIENTS, "rates": _RATES, **_moments("first", "last"),
})  # fmt: skip


TAPS = record({
    "frames": COUNT, "copies": COUNT, "clocks": each(record({"capture": NAME, "ahead_ns": WHOLE})),
    "taps": each(record({
        "capture": NAME, "interface": COUNT, "vlans": each(COUNT),
        **dict.fromkeys(("place", "frames", "copies", "only", "missed"), COUNT),
    })),
})  # fmt: skip


def statistics() -> Schema:
    """The document of ``stats --format json``."""
    other = record({
        "captures": maybe(record(_CAPTURE)), "connections": maybe(record({**_TRAFFIC, "connections": _OUTCOMES})),
        "clients": maybe(_CLIENT), "topics": maybe(_TOPIC), "releases_missed": COUNT, "connections_closed_early": COUNT,
    })  # fmt: skip
    totals = record({
        **_CAPTURE, "captures": COUNT, "clients": COUNT, "topics": COUNT, "other_flows": COUNT,
        "frames_skipped": mapping(COUNT), "not_read": mapping(COUNT), "other": other, "limits": mapping(COUNT),
    })  # fmt: skip
    rows = {
        "captures": each(record({"capture": NAME, **_CAPTURE})), "connections": each(_CONNECTION),
        "clients": each(_CLIENT), "topics": each(_TOPIC), "taps": TAPS,
    }  # fmt: skip
    return record({"schema": VERSION_1, "totals": totals}, rows)


PACKET = {"anyOf": [{"$ref": f"#/$defs/event_{name}"} for name in ("packet", "malformed", "gap", "unparsed")]}
"""A packet within another document, as ``inspect`` writes it."""
_SIDES = record({"a": COUNT, "b": COUNT})
_COUNTS = {
    **dict.fromkeys(("connections", "packets", "bytes", "segments", "lost"), _SIDES), "equal": COUNT,
    "differences": COUNT,
}  # fmt: skip
_ONE_SIDE = maybe(record({"connection": COUNT, "value": ANY, "packet": maybe(PACKET)}))
_DIFFERENCE = {
    "kind": word(CaptureDifferenceKind), "only": maybe(word("a", "b")), "client_identifier": maybe(NAME),
    "direction": maybe(DIRECTION), "type": maybe(TEXT), "topic": maybe(NAME), "field": maybe(TEXT), "a": _ONE_SIDE,
    "b": _ONE_SIDE,
}  # fmt: skip
_COMPARED = {"client_identifier": maybe(NAME), **_COUNTS}
_COMPARISON = {
    "captures": record({"a": NAME, "b": NAME}), **_COUNTS, "kinds": mapping(COUNT), "complete": BOOL, "left_out": COUNT,
}  # fmt: skip


def comparison() -> Schema:
    """The document of ``compare --format json``."""
    parts = {
        "differences": each(record(_DIFFERENCE)),
        "clients": each(record(_COMPARED)),
        "comparison": record(_COMPARISON),
    }
    return {**record({"schema": VERSION_1, **parts}), "$defs": definitions()}


def comparison_line() -> Schema:
    """A line of ``compare --format jsonl``."""
    lines = (("capture_difference", _DIFFERENCE), ("compared_client", _COMPARED), ("comparison", _COMPARISON))
    shown = [record({"schema": VERSION_1, "event": {"const": event}, **keys}) for event, keys in lines]
    return {"oneOf": shown, "$defs": definitions()}


def redaction() -> Schema:
    """The document of ``redact --report --format json``."""
    return record({
        "schema": VERSION_1, "captures": each(TEXT), "output": TEXT,
        "replaced": mapping(record({"values": COUNT, "bytes": COUNT})), "kept": each(TEXT), "blank": each(TEXT),
        "frames": record({"read": COUNT, "written": COUNT, "rebuilt": COUNT}), "left_out": mapping(COUNT),
        "tls_key_blocks": COUNT, "differing_packets": COUNT,
    })  # fmt: skip
