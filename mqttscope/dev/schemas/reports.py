"""The schemas of what is written about captures: findings, statistics, explanations, comparisons, redactions."""

from __future__ import annotations

from mqttscope.dev.schemas.events import definitions
from mqttscope.replay.verify.captures import CaptureDifferenceKind
from mqttscope.report.compare import COUNTS
from mqttscope.report.documents import (
    ANY,
    BOOL,
    COUNT,
    DIRECTION,
    NAME,
    TEXT,
    VERSION_1,
    WHOLE,
    Schema,
    each,
    mapping,
    maybe,
    record,
    word,
)

CAPTURE_ERROR = record({"capture": NAME, "message": TEXT, "offset": maybe(WHOLE), "frames": COUNT})
"""What is wrong with a capture."""
PACKET = {"anyOf": [{"$ref": f"#/$defs/event_{name}"} for name in ("packet", "malformed", "gap", "unparsed")]}
"""A packet within another document, as ``inspect`` writes it."""
_ONE_SIDE = maybe(record({"connection": COUNT, "value": ANY, "packet": maybe(PACKET)}))
_DIFFERENCE = {
    "kind": word(CaptureDifferenceKind), "only": maybe(word("a", "b")), "client_identifier": maybe(NAME),
    "direction": maybe(DIRECTION), "type": maybe(TEXT), "topic": maybe(NAME), "field": maybe(TEXT), "a": _ONE_SIDE,
    "b": _ONE_SIDE,
}  # fmt: skip
_COMPARED = {"client_identifier": maybe(NAME), **COUNTS["properties"]}
_COMPARISON = {
    "captures": record({"a": NAME, "b": NAME}), **COUNTS["properties"], "kinds": mapping(COUNT), "complete": BOOL,
    "left_out": COUNT,
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
