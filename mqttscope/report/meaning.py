"""What the bytes of one field say: its value with names and units, and the bits of flag bytes."""

from __future__ import annotations

from collections.abc import Callable

from mqttscope.mqtt.constants import PacketType, ProtocolVersion, reason_name, type_name
from mqttscope.mqtt.declare import PACKETS, Span
from mqttscope.mqtt.properties import BY_NAME
from mqttscope.mqtt.wire import Fault, counted, read_variable_byte_integer
from mqttscope.report.escape import escape_bytes
from mqttscope.report.when import seconds

MAX_VALUE_BYTES = 512
"""Bytes of a value that are made readable; the hexdump has the rest."""

Bits = tuple[str, str]
"""A pattern such as ``.... 0...`` and what these bits say."""

_STRINGS = {"protocol_name", "topic_name", "client_identifier", "will_topic", "user_name", "topic_filter"}
_NUMBERS = {"packet_identifier", "keep_alive", "protocol_level"}
_LEVELS = {3: "MQTT 3.1", 4: "MQTT 3.1.1", 5: "MQTT 5.0", 0x83: "MQTT 3.1, bridge", 0x84: "MQTT 3.1.1, bridge"}
_YES_NO = {
    "retain_available",
    "wildcard_subscription_available",
    "subscription_identifier_available",
    "shared_subscription_available",
    "request_problem_information",
    "request_response_information",
}
_RETAIN_HANDLING = (
    "send retained messages",
    "send retained messages if the subscription is new",
    "send no retained messages",
    "reserved",
)


class Meaning:
    """Explains the fields of one packet."""

    def __init__(
        self, raw: bytes, kind: int, version: ProtocolVersion, *, ascii_only: bool, show_secrets: bool
    ) -> None:
        self.raw = raw
        self.kind = kind
        self.version = version
        self.ascii_only = ascii_only
        self.show_secrets = show_secrets
        self._in_properties = False

    def value(self, span: Span) -> str:
        """The value of a field, escaped; empty where the bits say it all."""
        raw, start, end = self.raw, span.start, span.end
        path = span.field
        if start >= end:
            return ""
        leaf = path.rpartition(".")[2]
        if path in ("flags", "header_flags", "packet_type"):
            return type_name(raw[0] >> 4).upper()
        if path == "remaining_length" or leaf == "property_length":
            try:
                value, _ = read_variable_byte_integer(raw, start, end)
            except Fault:
                return "not a Variable Byte Integer"
            return counted(value, "byte")
        if "properties." in path:
            return self._property(leaf, start, end)
        if path.startswith("reason_codes["):
            return self._reason(raw[start])
        if path.startswith("topic_filters[") or leaf in _STRINGS:
            return self._text(start + 2, end)
        if leaf == "reason_code":
            return self._reason(raw[start])
        if leaf in _NUMBERS:
            return self._number(leaf, int.from_bytes(raw[start:end], "big"))
        if leaf == "password":
            return self._text(start + 2, end) if self.show_secrets else f"({counted(end - start - 2, 'byte')}, hidden)"
        if leaf == "will_payload":
            return self._text(start + 2, end)
        if leaf in ("connect_flags", "acknowledge_flags", "options"):
            return f"0x{raw[start]:02x}"
        if leaf in ("unparsed", "trailing_bytes", "fixed_header"):
            return counted(end - start, "byte")
        return ""

    def _number(self, leaf: str, value: int) -> str:
        if leaf == "keep_alive":
            return f"{value} s" if value else "0 (off)"
        if leaf == "protocol_level":
            return f"{value} ({_LEVELS.get(value, 'unknown')})"
        return str(value)

    def _reason(self, code: int) -> str:
        return f"0x{code:02x} {reason_name(self.kind, code, self.version)}"

    def _text(self, start: int, end: int) -> str:
        value = self.raw[start:end]
        if not value:
            return "(empty)"
        return escape_bytes(value[:MAX_VALUE_BYTES], ascii_only=self.ascii_only)

    def _property(self, name: str, start: int, end: int) -> str:
        """Value of a property from its bytes; the identifier takes one byte unless it was written too long."""
        raw, row = self.raw, BY_NAME.get(name)
        if row is None:
            return f"unknown property, {counted(end - start, 'byte')}"
        at = start
        while at < end and raw[at] & 0x80:
            at += 1
        at += 1
        try:
            value, _ = row.wire.read(raw, at, end)
        except Fault as error:
            value = error.value
            if value is None:
                return f"unreadable: {error.detail}"
        if name == "authentication_data" and isinstance(value, bytes) and not self.show_secrets:
            return f"({counted(len(value), 'byte')}, hidden)"
        if isinstance(value, tuple):
            return " = ".join(self._shown(part) for part in value)
        if isinstance(value, str | bytes):
            return self._shown(value)
        if name.endswith("_interval"):
            return seconds(value)
        if name == "server_keep_alive":
            return f"{value} s"
        if name in _YES_NO:
            return f"{value} ({'yes' if value == 1 else 'no' if value == 0 else 'not 0 or 1'})"
        if name == "payload_format_indicator":
            return f"{value} ({'UTF-8' if value == 1 else 'unspecified bytes' if value == 0 else 'not 0 or 1'})"
        if name == "maximum_packet_size":
            return counted(value, "byte")
        return str(value)

    def _shown(self, value: str | bytes) -> str:
        raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        if not raw:
            return "(empty)"
        return escape_bytes(raw[:MAX_VALUE_BYTES], ascii_only=self.ascii_only)

    def bits(self, span: Span) -> list[Bits]:
        """The bits of a flag byte, spelled out; nothing for other fields."""
        leaf = span.field.rpartition(".")[2]
        explain = _BITS.get(leaf)
        return [] if explain is None or span.start >= len(self.raw) else explain(self.raw[span.start], self)


def _row(byte: int, shift: int, width: int, name: str, meaning: str = "") -> Bits:
    """One group of bits: the others are dots."""
    digits = "".join(f"{byte >> bit & 1}" if shift <= bit < shift + width else "." for bit in range(7, -1, -1))
    value = byte >> shift & ((1 << width) - 1)
    return f"{digits[:4]} {digits[4:]}", f"{name} = {value}" + (f" ({meaning})" if meaning else "")


def _header(byte: int, about: Meaning) -> list[Bits]:
    kind = byte >> 4
    rows = [_row(byte, 4, 4, "packet_type", type_name(kind).upper())]
    if kind == PacketType.PUBLISH:
        qos = byte >> 1 & 3
        return [
            *rows,
            _row(byte, 3, 1, "dup"),
            _row(byte, 1, 2, "qos", ("at most once", "at least once", "exactly once", "must not be used")[qos]),
            _row(byte, 0, 1, "retain"),
        ]
    wanted = PACKETS[kind].fixed_flags if kind in PACKETS else None
    wrong = wanted is not None and byte & 15 != wanted and about.version != ProtocolVersion.V3_1
    return [*rows, _row(byte, 0, 4, "reserved", f"must be {wanted}" if wrong else "")]


def _connect_flags(byte: int, about: Meaning) -> list[Bits]:
    return [
        _row(byte, 7, 1, "user_name"),
        _row(byte, 6, 1, "password"),
        _row(byte, 5, 1, "will_retain"),
        _row(byte, 3, 2, "will_qos", "must not be used" if byte & 0x18 == 0x18 else ""),
        _row(byte, 2, 1, "will"),
        _row(byte, 1, 1, "clean_start" if about.version == ProtocolVersion.V5 else "clean_session"),
        _row(byte, 0, 1, "reserved", "must be 0" if byte & 1 and about.version != ProtocolVersion.V3_1 else ""),
    ]


def _acknowledge_flags(byte: int, about: Meaning) -> list[Bits]:
    if about.version == ProtocolVersion.V3_1:
        return [_row(byte, 0, 8, "reserved")]
    return [_row(byte, 1, 7, "reserved", "must be 0" if byte >> 1 else ""), _row(byte, 0, 1, "session_present")]


def _options(byte: int, about: Meaning) -> list[Bits]:
    qos = _row(byte, 0, 2, "maximum_qos", "must not be used" if byte & 3 == 3 else "")
    if about.version != ProtocolVersion.V5:
        return [_row(byte, 2, 6, "reserved", "must be 0" if byte >> 2 else ""), qos]
    return [
        _row(byte, 6, 2, "reserved", "must be 0" if byte >> 6 else ""),
        _row(byte, 4, 2, "retain_handling", _RETAIN_HANDLING[byte >> 4 & 3]),
        _row(byte, 3, 1, "retain_as_published"),
        _row(byte, 2, 1, "no_local"),
        qos,
    ]


_BITS: dict[str, Callable[[int, Meaning], list[Bits]]] = {
    "flags": _header,
    "header_flags": _header,
    "packet_type": _header,
    "connect_flags": _connect_flags,
    "acknowledge_flags": _acknowledge_flags,
    "options": _options,
}
