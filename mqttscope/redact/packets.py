"""Redacts MQTT Control Packets: replaces names, payloads and credentials in their original positions.

Bytes outside the known fields become filler, so that nothing is overlooked; numbers, flags and lengths stay.  A
malformed packet is replaced as far as its fields can be read.  Of the rest, as few bytes stay as needed to find equal
faults at equal offsets, such as the length of a string that does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from mqttscope.mqtt.codec import decode, packet_end, trace
from mqttscope.mqtt.constants import REASON_CODES, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.properties import BY_NAME
from mqttscope.redact.kinds import BLANK, NOT_UNDERSTOOD, Treatment, TreatmentChoice, Value, filler
from mqttscope.redact.pseudonyms import Pseudonyms

_OF_FIELDS: Final = {
    "client_identifier": Value.CLIENT_IDENTIFIERS,
    "assigned_client_identifier": Value.CLIENT_IDENTIFIERS,
    "user_name": Value.USER_NAMES,
    "password": Value.PASSWORDS,
    "authentication_data": Value.AUTHENTICATION,
    "authentication_method": Value.AUTHENTICATION,
    "topic_name": Value.TOPICS,
    "topic_filter": Value.TOPICS,
    "topic_filters": Value.TOPICS,
    "will_topic": Value.TOPICS,
    "response_topic": Value.TOPICS,
    "response_information": Value.TOPICS,
    "payload": Value.PAYLOADS,
    "will_payload": Value.PAYLOADS,
    "correlation_data": Value.CORRELATION_DATA,
    "user_property": Value.USER_PROPERTIES,
    "content_type": Value.CONTENT_TYPES,
    "reason_string": Value.REASON_STRINGS,
    "server_reference": Value.HOST_NAMES,
}
"""Kind of each field with text or bytes, by the last word of its path; all other fields are numbers."""
_OF_LAYOUT: Final = frozenset(
    (
        "flags", "header_flags", "packet_type", "remaining_length", "protocol_name", "protocol_level", "connect_flags",
        "acknowledge_flags", "property_length", "property_identifier", "reason_codes",
    )
)  # fmt: skip
"""Fields that define the type, position or presence of other fields."""
_UNREAD: Final = frozenset(("unparsed", "trailing_bytes", "fixed_header"))
_NAMES: Final = frozenset((b"MQTT", b"MQISDP"))
_NUMBER_BYTES: Final = 5
"""Maximum size of a number: a Variable Byte Integer that is one byte too long."""
_METHOD: Final = re.compile(
    rb"SCRAM-SHA-\d{1,3}(?:-PLUS)?|PLAIN|LOGIN|EXTERNAL|ANONYMOUS|GS2-KRB5|KERBEROS|GSSAPI|OAUTHBEARER|XOAUTH2"
    rb"|DIGEST-MD5|CRAM-MD5|NTLM|SPNEGO|K8S-SAT|OAUTH2-JWT|token",
    re.IGNORECASE,
)
_CONTENT: Final = re.compile(
    rb"(?:application/(?:json|cbor|xml|octet-stream|protobuf|x-protobuf|(?:x-|vnd\.)?msgpack|senml\+(?:json|cbor|xml)"
    rb"|ld\+json|geo\+json|cloudevents\+json|zip|gzip|pdf|jwt|javascript|x-www-form-urlencoded|vnd\.apache\.avro"
    rb"|avro)|text/(?:plain|csv|html|xml|json|css)|image/(?:png|jpe?g|gif|webp|bmp|tiff|svg\+xml)"
    rb"|audio/(?:mpeg|wav|ogg)|video/(?:mp4|mpeg)|json|cbor|text|binary|utf-?8)"
    rb"(?:\s*;\s*charset\s*=\s*\"?(?:utf-?8|us-ascii|iso-8859-\d{1,2})\"?)?",
    re.IGNORECASE,
)
_TYPE: Final = re.compile(rb"(?:application|audio|font|image|message|model|multipart|text|video)/", re.IGNORECASE)
_SUFFIX: Final = re.compile(rb"\+(?:json|cbor|xml|zip|gzip)\b[^+]*\Z", re.IGNORECASE)
_FEATURES: Final = re.compile(
    rb"\$(?:SYS|share|oshare|shared|queue|exclusive|delayed|local|noLocal|events|aws|iothub|dps|devices|in|retain)"
    rb"(?=/|\Z)",
    re.IGNORECASE,
)
"""First levels of topics that brokers use for features."""
_SHARE: Final = re.compile(rb"share(?=/)")
MAX_KEPT: Final = 4
"""Maximum number of bytes of a damaged packet that stay after the readable fields: the size of a length."""


class PacketRedactor:
    """Replaces values in packets."""

    def __init__(self, names: Pseudonyms, choice: TreatmentChoice) -> None:
        self._names = names
        self._choice = choice
        self.topic = lru_cache(65_536)(self._topic)
        """The replacement of a topic or filter, level by level."""
        self.differing = 0
        """Number of damaged packets with other faults than before the redaction."""
        self._by_kind: dict[Value, Callable[[bytes], bytes]] = {
            Value.PASSWORDS: lambda raw: names.secret(raw, b"password"),
            Value.USER_NAMES: self._in_levels,
            Value.CLIENT_IDENTIFIERS: self._in_levels,
            Value.TOPICS: lambda raw: self.topic(raw),
            Value.PAYLOADS: names.payload,
            Value.CORRELATION_DATA: lambda raw: names.payload(raw, b"correlation"),
            Value.USER_PROPERTIES: names.name,
            Value.REASON_STRINGS: lambda raw: names.text(raw, b"reason"),
            Value.HOST_NAMES: lambda raw: names.text(raw, b"host"),
            Value.CONTENT_TYPES: self._content_type,
        }

    def replaced(self, packet: ControlPacket | Malformed, version: ProtocolVersion) -> bytes:
        """The bytes of a packet with replaced values."""
        raw = packet.raw
        if isinstance(packet, Malformed):
            return self._damaged(raw, version)
        if type(packet) is Publish and version < ProtocolVersion.V5 and not packet.missing:
            return self._publish(raw, packet)
        return self._by_fields(raw, version)[0]

    def beginning(self, raw: bytes, version: ProtocolVersion) -> bytes:
        """The beginning of an incomplete packet with replaced values."""
        return self._damaged(raw, version) if raw else raw

    def value(self, kind: Value, raw: bytes, make: Callable[[bytes], bytes] | None = None) -> bytes:
        """The replacement of a value, by the treatment of its kind, in unchanged length."""
        treatment = self._choice.treatment_of(kind)
        if treatment is Treatment.KEEP or not raw:
            return raw
        new = _blank(raw, kind) if treatment is Treatment.BLANK else (make or self._by_kind[kind])(raw)
        if new != raw:
            self._choice.value(kind, len(raw))
        return new

    def _publish(self, raw: bytes, packet: Publish) -> bytes:
        """Fast path of `_by_fields` for PUBLISH of 3.1 and 3.1.1, which is nearly every packet."""
        body, _ = packet_end(raw, 0, len(raw))
        start = body + 2
        after = start + (raw[body] << 8 | raw[body + 1])
        begin = len(raw) - len(packet.payload)
        topic = self.value(Value.TOPICS, raw[start:after])
        return raw[:start] + topic + raw[after:begin] + self.value(Value.PAYLOADS, raw[begin:])

    def _by_fields(self, raw: bytes, version: ProtocolVersion, *, numbers: bool = True) -> tuple[bytes, int]:
        """Replace the readable fields of a packet; returns the packet and the end of these fields.

        ``numbers`` is whether numbers stay that do not define the layout.
        """
        result = bytearray(filler(len(raw)))
        read = 0
        for span in trace(raw, version):
            start, end, name = span.start, span.end, span.field.rpartition(".")[2].partition("[")[0]
            if name in _UNREAD:
                if name == "fixed_header":
                    result[start:end] = raw[start:end]
                    read = max(read, end)
                continue
            if numbers or name in _OF_FIELDS or name in _OF_LAYOUT:
                result[start:end] = self._field(name, span.field, raw[start:end])
            read = max(read, end)
        return bytes(result), read

    def _field(self, name: str, path: str, raw: bytes) -> bytes:
        kind = _OF_FIELDS.get(name)
        in_block = ".properties." in f".{path}" and name != "property_length"
        if name == "protocol_name":
            return raw if raw[2:].upper() in _NAMES else raw[:2] + self._names.name(raw[2:])
        if name == "payload":
            return self.value(Value.PAYLOADS, raw)
        if name == "reason_codes":
            # If framing is lost, the reason codes may be any bytes.
            return raw if raw[0] in REASON_CODES else filler(1)
        at = 0
        if in_block:
            # The property identifier, which may be overlong.
            at = next((index for index, octet in enumerate(raw[:4], 1) if octet < 0x80), 4)
        if kind is None:
            # A number, unless the property is truncated.
            size = at if name not in BY_NAME and in_block else at + _NUMBER_BYTES
            return raw[:size] + filler(len(raw) - size)
        if name == "user_property":
            return self._pair(kind, raw, at)
        return raw[: at + 2] + self._of(kind, name, raw[at + 2 :])

    def _pair(self, kind: Value, raw: bytes, at: int) -> bytes:
        middle = at + 2 + int.from_bytes(raw[at : at + 2], "big")
        first, second = raw[at + 2 : middle], raw[middle + 2 :]
        return raw[: at + 2] + self.value(kind, first) + raw[middle : middle + 2] + self.value(kind, second)

    def _of(self, kind: Value, name: str, raw: bytes) -> bytes:
        if name == "authentication_data":
            return self.value(kind, raw, lambda data: self._names.secret(data, b"authentication"))
        if name == "authentication_method":
            return raw if _METHOD.fullmatch(raw) else self.value(kind, raw, self._names.name)
        if kind is Value.CONTENT_TYPES and _CONTENT.fullmatch(raw):
            return raw
        return self.value(kind, raw)

    def _damaged(self, raw: bytes, version: ProtocolVersion) -> bytes:
        """A malformed packet with replaced values and unchanged faults."""
        packet = decode(raw, version)
        wanted = _shape(packet)
        # In an incomplete packet, an apparent number may be part of a text.
        doubtful = isinstance(packet, Malformed) and not packet.complete
        counts, sizes = self._choice.counts.copy(), self._choice.sizes.copy()
        best = b""
        for numbers in (False, True) if doubtful else (True,):
            self._choice.counts, self._choice.sizes = counts.copy(), sizes.copy()
            result, read = self._by_fields(raw, version, numbers=numbers)
            best = best or result
            places = {read}
            if isinstance(packet, Malformed):
                places.update(fault.offset for fault in packet.faults if fault.offset >= read)
            for size in range(MAX_KEPT + 1):
                trial = bytearray(result)
                for at in places:
                    trial[at : at + size] = raw[at : at + size]
                if _shape(decode(trial, version)) == wanted:
                    self._choice.count(NOT_UNDERSTOOD, max(0, len(raw) - read))
                    return bytes(trial)
        self.differing += 1
        self._choice.count(NOT_UNDERSTOOD, len(raw))
        return best

    def _in_levels(self, raw: bytes) -> bytes:
        """The replacement of a name that may be a topic level; equal levels stay equal."""
        return b"/".join(map(self._names.name, raw.split(b"/")))

    def _topic(self, raw: bytes) -> bytes:
        feature = _FEATURES.match(raw) or _SHARE.match(raw)
        start = feature.end() if feature else 0
        return raw[:start] + self._in_levels(raw[start:])

    def _content_type(self, raw: bytes) -> bytes:
        head, suffix = _TYPE.match(raw), _SUFFIX.search(raw)
        start, end = head.end() if head else 0, suffix.start() if suffix else len(raw)
        return raw[:start] + self._names.name(raw[start:end]) + self._content_rest(raw[end:])

    def _content_rest(self, raw: bytes) -> bytes:
        word, semicolon, parameters = raw.partition(b";")
        return word + semicolon + self._names.name(parameters)


def _blank(raw: bytes, kind: Value) -> bytes:
    """Filler that is equal for all values of one length; topic levels stay separate."""
    if kind is not Value.TOPICS:
        return BLANK * len(raw)
    return re.sub(rb"[^/+#$]", BLANK, raw)


def _shape(packet: ControlPacket | Malformed) -> tuple[object, ...]:
    """Everything that the linter reads from a packet except its values."""
    if not isinstance(packet, Malformed):
        return (packet.packet_type, len(packet.raw))
    return (
        packet.packet_type, packet.reason, packet.offset, packet.field, packet.complete, packet.fields_read,
        tuple((fault.reason, fault.offset, fault.field) for fault in packet.faults),
    )  # fmt: skip
