"""The schemas of what is written about captures: findings, statistics, explanations, comparisons, redactions."""

from __future__ import annotations

from mqttscope.dev.schemas.events import TCP, definitions
from mqttscope.dev.schemas.notation import (
    ANY,
    BOOL,
    COUNT,
    DIRECTION,
    NAME,
    NUMBER,
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
from mqttscope.explain.fates import Fate
from mqttscope.explain.model import Cause, Certainty
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.quality import Quality, QualityLevel
from mqttscope.mqtt.constants import PacketType, type_name
from mqttscope.replay.verify.captures import CaptureDifferenceKind
from mqttscope.stats.rows import HANDSHAKES

_TRANSPORT = word("tcp", "websocket", "tls")
_SPAN = {"offset": maybe(COUNT), "length": maybe(COUNT)}
FINDING = record(
    {
        "schema": VERSION_1, "rule": TEXT, "slug": TEXT,
        "severity": word(Severity), "confidence": word(Confidence), "message": TEXT, "statements": each(TEXT),
        "version": PROTOCOL, "capture": NAME, "frame": COUNT, "timestamp_ns": WHOLE, "connection": COUNT,
        "client": TEXT,
        "server": TEXT, "client_identifier": maybe(NAME), "direction": maybe(DIRECTION), "packet": maybe(COUNT),
        "packet_type": maybe(TEXT), "field": TEXT, **_SPAN, "reason_code": maybe(COUNT), "fingerprint": TEXT,
    },
    {
        "topic": NAME, "clients": COUNT, "count": COUNT, "places": each(record({"field": TEXT, **_SPAN})),
        "related": each(record({"message": TEXT, "packet": COUNT, "frame": COUNT, "timestamp_ns": WHOLE})),
    },
)  # fmt: skip
FAILURE = record({"rule": TEXT, "capture": NAME, "frame": COUNT, "error": TEXT})
"""A rule that failed."""
CAPTURE_ERROR = record({"capture": NAME, "message": TEXT, "offset": maybe(WHOLE), "frames": COUNT})
"""What is wrong with a capture."""
_BY_SEVERITY = record({str(one): COUNT for one in Severity})
SUMMARY = record({
    "findings": _BY_SEVERITY, "counting": maybe(_BY_SEVERITY), "hidden": COUNT, "packets": COUNT,
    "nothing": maybe(TEXT),
    "suppressed": mapping(COUNT), "withheld": mapping(COUNT), "captures": each(NAME), "rules": each(TEXT),
    "profile": maybe(TEXT), "truncated": BOOL,
    "quality": record(dict.fromkeys(Quality().as_json(), COUNT)), "required_quality": maybe(word(QualityLevel)),
    "shortfalls": each(record({"capture": NAME, "causes": each(TEXT)})),
    "fixed": each(mapping(NAME)),
    "internal_errors": each(FAILURE),
})  # fmt: skip
COUNTED_RULE = {
    "rule": TEXT, "slug": TEXT, "severity": word(Severity),
    **dict.fromkeys(("findings", "clients", "suppressed", "withheld"), COUNT),
}  # fmt: skip


def finding_line() -> Schema:
    """A line of ``lint --format jsonl``; with ``--statistics`` one counts the findings of a rule."""
    return any_of(FINDING, record({"schema": VERSION_1, **COUNTED_RULE}))


def findings() -> Schema:
    """The document of ``lint --format json``, also with ``--statistics``."""
    return {
        **record(
            {"schema": VERSION_1, "summary": SUMMARY}, {"findings": each(FINDING), "rules": each(record(COUNTED_RULE))}
        ),
        "oneOf": [{"required": ["findings"]}, {"required": ["rules"]}],
    }


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
    "transport": _TRANSPORT, "version": maybe(PROTOCOL), "version_known": BOOL, "outcome": word(*_BEGINNINGS),
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


_EVIDENCE = record({"text": NAME, "frame": maybe(COUNT), "timestamp_ns": maybe(WHOLE)})
_BROKEN = record({
    "rule": TEXT, "slug": TEXT, "by": SIDE, "statements": each(TEXT), "message": NAME, "confidence": word(Confidence),
    "frame": COUNT, "timestamp_ns": WHOLE,
})  # fmt: skip
_CAUSE = {
    "cause": word(Cause), "certainty": word(Certainty), "headline": NAME, "reason_code": maybe(COUNT),
}  # fmt: skip
_CANDIDATE = record({
    **_CAUSE, "for": each(_EVIDENCE), "against": each(_EVIDENCE), "broken": each(_BROKEN), "advice": each(TEXT),
})  # fmt: skip
_EXPLANATION = record({
    "connection": COUNT, "capture": NAME, "client": TEXT, "server": TEXT, "client_identifier": maybe(NAME),
    "version": PROTOCOL, "version_known": BOOL, "transport": _TRANSPORT, "opened_ns": WHOLE, "opened_frame": COUNT,
    "ended_ns": WHOLE, "ended_frame": COUNT, "ended_by": maybe(SIDE), "ended_how": TEXT, **_CAUSE,
    "causes": {**each(_CANDIDATE), "minItems": 1},
    "timeline": each(record({"timestamp_ns": WHOLE, "frame": COUNT, "by": maybe(SIDE), "text": NAME})),
    "left_out": COUNT, "afterwards": each(_EVIDENCE), "notes": each(TEXT),
})  # fmt: skip
_MESSAGE = record({
    "topic": NAME, "summary": NAME,
    "published": maybe(record({
        "client": NAME, "connection": COUNT, "frame": COUNT, "timestamp_ns": WHOLE, "qos": COUNT, "retain": BOOL,
        "reason_code": maybe(COUNT),
    })),
    "evidence": each(_EVIDENCE),
    "clients": each(record({
        "client": NAME, "connection": maybe(COUNT), "fate": word(Fate), "text": NAME, "frame": maybe(COUNT),
        "timestamp_ns": maybe(WHOLE), "advice": each(TEXT),
    })),
})  # fmt: skip


def explanations() -> Schema:
    """The document of ``explain --format json``."""
    counted = dict.fromkeys(("connections", "normal", "open", "unreadable", "not_shown"), COUNT)
    return record({
        "schema": VERSION_1, "explanations": each(_EXPLANATION),
        "totals": maybe(record({**counted, "causes": mapping(COUNT), "dropped": mapping(COUNT)})),
        "messages": each(_MESSAGE), "remarks": each(NAME),
    })  # fmt: skip


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
    """The document of ``redact --format json``."""
    return record({
        "schema": VERSION_1, "captures": each(TEXT), "output": TEXT,
        "replaced": mapping(record({"values": COUNT, "bytes": COUNT})), "kept": each(TEXT), "blank": each(TEXT),
        "frames": record({"read": COUNT, "written": COUNT, "rebuilt": COUNT}), "left_out": mapping(COUNT),
        "tls_key_blocks": COUNT, "differing_packets": COUNT,
    })  # fmt: skip
