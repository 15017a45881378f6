r"""Values for fields as they are written behind ``--set PATH=``, read by the type of the field.

Numbers are decimal or ``0x…``, those in seconds may be written ``30s`` or ``1h30m``, those in bytes ``10KiB``; flags
are ``true`` and ``false``; bytes are text (UTF-8), ``hex:00ff``, ``@file``, or ``text:…`` where the text itself begins
with one of these; a User Property is ``NAME=VALUE``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqttscope.filter import literals
from mqttscope.filter.fields import unit_of
from mqttscope.mqtt.constants import ProtocolVersion, allowed_reason_codes
from mqttscope.mqtt.topics import topic_filter_problem, topic_name_problem, utf8_length
from mqttscope.mqtt.wire import MAX_VARIABLE_BYTE_INTEGER
from mqttscope.replay.rewrite.changes import RewriteError
from mqttscope.replay.rewrite.paths import Target

ReadFile = Callable[[str], bytes]

MAX_LENGTH = 65_535
"""Bytes of a string or of Binary Data (5.0 1.5.4, 1.5.6)."""
_HIGHEST = {
    "Byte": 0xFF,
    "Two Byte Integer": 0xFFFF,
    "Four Byte Integer": 0xFFFFFFFF,
    "Variable Byte Integer": MAX_VARIABLE_BYTE_INTEGER,
}
_RANGES = {
    "qos": (0, 2),
    "will_qos": (0, 2),
    "maximum_qos": (0, 2),
    "retain_handling": (0, 2),
    "payload_format_indicator": (0, 1),
    "request_problem_information": (0, 1),
    "request_response_information": (0, 1),
}
_NOT_ZERO = frozenset({"receive_maximum", "maximum_packet_size", "topic_alias", "subscription_identifier"})
"""Properties for which 0 is a Protocol Error (5.0 3.1.2.11.3, 3.1.2.11.4, 3.3.2.3.4, 3.8.2.1.2)."""
_NAMES = frozenset({"topic_name", "will_topic", "response_topic"})


def parse_value(target: Target, text: str, read_file: ReadFile | None = None) -> Any:
    """The value for a field; RewriteError names the path and says what is allowed.

    ``read_file`` gets the bytes of ``@file``; without it there are no files.
    """
    kind = target.kind
    if kind == "flag":
        return _flag(target, text)
    if kind in _HIGHEST:
        return _reason(target, text) if target.name == "reason_code" else _number(target, text)
    if kind == "UTF-8 Encoded String":
        return _text(target, text)
    if kind in ("Binary Data", "rest of the packet"):
        return _bytes(target, text, read_file)
    if kind == "UTF-8 String Pair":
        name, equals, value = text.partition("=")
        if not equals:
            raise _wrong(target, text, "NAME=VALUE")
        return _plain(target, name), _plain(target, value)
    raise RewriteError(f"{target.path} has no value of its own: set one of the fields in it")


def _is_plain(target: Target) -> bool:
    """Whether no value of a field is a secret: numbers, flags and topics."""
    return target.kind == "flag" or target.kind in _HIGHEST or target.name in (*_NAMES, "topic_filter")


def _wrong(target: Target, text: str, allowed: str) -> RewriteError:
    shown = repr(text if len(text) <= 60 else text[:60] + "…") if _is_plain(target) else "this value"
    return RewriteError(f"{target.path}: {shown} is not allowed, only {allowed}")


def _flag(target: Target, text: str) -> bool:
    values = {"true": True, "false": False, "1": True, "0": False}
    found = values.get(text.lower())
    if found is None:
        raise _wrong(target, text, "true or false")
    return found


def _number(target: Target, text: str) -> int:
    low, high = _RANGES.get(target.name, (int(target.name in _NOT_ZERO), _HIGHEST[target.kind]))
    unit = unit_of(target.name)
    value: int | float | None = literals.integer(text)
    if value is None and unit == "seconds":
        lasting = literals.duration(text)
        value = None if lasting is None or lasting % 1_000_000_000 else lasting // 1_000_000_000
    if value is None and unit == "bytes":
        value = literals.size(text)
    if not isinstance(value, int) or not low <= value <= high:
        raise _wrong(target, text, f"{low} to {high}{f' {unit}' if unit else ''}")
    return value


def _reason(target: Target, text: str) -> int:
    value = literals.integer(text)
    allowed = sorted(allowed_reason_codes(target.cls.packet_type, ProtocolVersion.V5))
    if value not in allowed:
        raise _wrong(target, text, ", ".join(f"0x{code:02x}" for code in allowed))
    return value


def _plain(target: Target, text: str) -> str:
    if "\0" in text or utf8_length(text) > MAX_LENGTH:
        raise _wrong(target, text, f"text of at most {MAX_LENGTH} bytes without U+0000")
    return text


def _text(target: Target, text: str) -> str:
    problem = None
    if target.name in _NAMES:
        problem = topic_name_problem(text)
        allowed = "a Topic Name"
    elif target.name == "topic_filter":
        problem = topic_filter_problem(text)
        allowed = "a Topic Filter"
    if problem is not None:
        raise _wrong(target, text, f"{allowed} ({problem.replace('_', ' ')})")
    return _plain(target, text)


def _bytes(target: Target, text: str, read_file: ReadFile | None) -> bytes:
    if text.startswith("@"):
        if read_file is None:
            raise _wrong(target, text, "text or hex:…, no files here; text:@… is text that begins with @")
        try:
            value = read_file(text[1:])
        except OSError as error:
            raise RewriteError(f"{target.path}: {text[1:]}: {error.strerror or error}") from None
    elif text.startswith("hex:"):
        try:
            value = bytes.fromhex(text[4:])
        except ValueError:
            raise _wrong(target, text, "pairs of hex digits behind hex:") from None
    else:
        value = text.removeprefix("text:").encode("utf-8", "surrogateescape")
    if target.kind == "Binary Data" and len(value) > MAX_LENGTH:
        raise RewriteError(f"{target.path}: {len(value)} bytes are too many, at most {MAX_LENGTH} are allowed")
    return value
