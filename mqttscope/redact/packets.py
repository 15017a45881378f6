"""MQTT Control Packets with other values in the same places: names, payloads, credentials.

What no field is known to hold is replaced by filler, so that nothing is left by oversight; numbers, flags and lengths
stay.  A packet that breaks the layout is replaced as far as its fields can be read.  Of what follows, as few bytes stay
as it takes for the same faults to be found in the same places: the length of a text that does not fit, for example.
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
from mqttscope.redact.kinds import BLANK, NOT_UNDERSTOOD, Choice, Treatment, Value, filler
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
"""The kind of each field that holds a text or bytes, by its last word; all others hold numbers."""
_OF_LAYOUT: Final = frozenset(
    (
        "flags", "header_flags", "packet_type", "remaining_length", "protocol_name", "protocol_level", "connect_flags",
        "acknowledge_flags", "property_length", "property_identifier", "reason_codes",
    )
)  # fmt: skip
"""Fields that say what the others are, or where."""
_UNREAD: Final = frozenset(("unparsed", "trailing_bytes", "fixed_header"))
_NAMES: Final = frozenset((b"MQTT", b"MQISDP"))
_NUMBER_BYTES: Final = 5
"""Bytes that a number takes at most: a Variable Byte Integer that is one byte too long."""
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
"""First levels by which brokers name what they offer."""
_SHARE: Final = re.compile(rb"share(?=/)")
MAX_KEPT: Final = 4
"""Bytes of a damaged packet that stay after the fields that could be read, at most: those of a length."""


class Packets:
    """Replaces values in packets."""

    def __init__(self, names: Pseudonyms, choice: Choice) -> None:
        self._names = names
        self._choice = choice
        self.topic = lru_cache(65_536)(self._topic)
        """Another topic or filter in the place of one, level by level."""
        self.differing = 0
        """Damaged packets in which other faults will be found than before."""
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

    def replaced(self, found: ControlPacket | Malformed, version: ProtocolVersion) -> bytes:
        """The bytes of a packet with other values."""
        raw = found.raw
        if isinstance(found, Malformed):
            return self._damaged(raw, version)
        if type(found) is Publish and version < ProtocolVersion.V5 and not found.missing:
            return self._publish(raw, found)
        return self._by_fields(raw, version)[0]

    def beginning(self, raw: bytes, version: ProtocolVersion) -> bytes:
        """The same of a packet that lost bytes, of which these are the beginning."""
        return self._damaged(raw, version) if raw else raw

    def value(self, kind: Value, raw: bytes, make: Callable[[bytes], bytes] | None = None) -> bytes:
        """Another value of a kind and of the same length, as the user wants it."""
        treatment = self._choice.of_kind(kind)
        if treatment is Treatment.KEEP or not raw:
            return raw
        made = _blank(raw, kind) if treatment is Treatment.BLANK else (make or self._by_kind[kind])(raw)
        if made != raw:
            self._choice.value(kind, len(raw))
        return made

    def _publish(self, raw: bytes, found: Publish) -> bytes:
        """What `_by_fields` does for nearly all packets of 3.1.1."""
        body, _ = packet_end(raw, 0, len(raw))
        start = body + 2
        after = start + (raw[body] << 8 | raw[body + 1])
        begin = len(raw) - len(found.payload)
        topic = self.value(Value.TOPICS, raw[start:after])
        return raw[:start] + topic + raw[after:begin] + self.value(Value.PAYLOADS, raw[begin:])

    def _by_fields(self, raw: bytes, version: ProtocolVersion, *, numbers: bool = True) -> tuple[bytes, int]:
        """A packet by the fields that can be read of it, and where these end.

        ``numbers``: whether those stay that say nothing of the layout.
        """
        made = bytearray(filler(len(raw)))
        read = 0
        for span in trace(raw, version):
            start, end, name = span.start, span.end, span.field.rpartition(".")[2].partition("[")[0]
            if name in _UNREAD:
                if name == "fixed_header":
                    made[start:end] = raw[start:end]
                    read = max(read, end)
                continue
            if numbers or name in _OF_FIELDS or name in _OF_LAYOUT:
                made[start:end] = self._field(name, span.field, raw[start:end])
            read = max(read, end)
        return bytes(made), read

    def _field(self, name: str, path: str, raw: bytes) -> bytes:
        """The bytes of one field with another value."""
        kind = _OF_FIELDS.get(name)
        in_block = ".properties." in f".{path}" and name != "property_length"
        if name == "protocol_name":
            return raw if raw[2:].upper() in _NAMES else raw[:2] + self._names.name(raw[2:])
        if name == "payload":
            return self.value(Value.PAYLOADS, raw)
        if name == "reason_codes":
            # Where framing is lost, anything may be in the place of codes.
            return raw if raw[0] in REASON_CODES else filler(1)
        at = 0
        if in_block:
            # The identifier, which may be in more bytes than it takes.
            at = next((index for index, octet in enumerate(raw[:4], 1) if octet < 0x80), 4)
        if kind is None:
            # A number; where its property does not end, what follows it is none.
            kept = at if name not in BY_NAME and in_block else at + _NUMBER_BYTES
            return raw[:kept] + filler(len(raw) - kept)
        if name == "user_property":
            return self._pair(kind, raw, at)
        return raw[: at + 2] + self._of(kind, name, raw[at + 2 :])

    def _pair(self, kind: Value, raw: bytes, at: int) -> bytes:
        middle = at + 2 + int.from_bytes(raw[at : at + 2], "big")
        first, second = raw[at + 2 : middle], raw[middle + 2 :]
        return raw[: at + 2] + self.value(kind, first) + raw[middle : middle + 2] + self.value(kind, second)

    def _of(self, kind: Value, name: str, raw: bytes) -> bytes:
        if name == "authentication_data":
            return self.value(kind, raw, lambda one: self._names.secret(one, b"authentication"))
        if name == "authentication_method":
            return raw if _METHOD.fullmatch(raw) else self.value(kind, raw, self._names.name)
        if kind is Value.CONTENT_TYPES and _CONTENT.fullmatch(raw):
            return raw
        return self.value(kind, raw)

    def _damaged(self, raw: bytes, version: ProtocolVersion) -> bytes:
        """A packet that breaks the layout, so that the same is wrong with it afterwards."""
        found = decode(raw, version)
        wanted = _shape(found)
        # Where a packet ends before its fields do, what seems to be a number may be a part of a text.
        doubtful = isinstance(found, Malformed) and not found.complete
        counts, sizes = self._choice.counts.copy(), self._choice.sizes.copy()
        best = b""
        for numbers in (False, True) if doubtful else (True,):
            self._choice.counts, self._choice.sizes = counts.copy(), sizes.copy()
            made, read = self._by_fields(raw, version, numbers=numbers)
            best = best or made
            places = {read}
            if isinstance(found, Malformed):
                places.update(one.offset for one in found.faults if one.offset >= read)
            for kept in range(MAX_KEPT + 1):
                trial = bytearray(made)
                for at in places:
                    trial[at : at + kept] = raw[at : at + kept]
                if _shape(decode(trial, version)) == wanted:
                    self._choice.count(NOT_UNDERSTOOD, max(0, len(raw) - read))
                    return bytes(trial)
        self.differing += 1
        self._choice.count(NOT_UNDERSTOOD, len(raw))
        return best

    def _in_levels(self, raw: bytes) -> bytes:
        """A name that may be a level of a topic: the same level gives the same name."""
        return b"/".join(map(self._names.name, raw.split(b"/")))

    def _topic(self, raw: bytes) -> bytes:
        feature = _FEATURES.match(raw) or _SHARE.match(raw)
        kept = feature.end() if feature else 0
        return raw[:kept] + self._in_levels(raw[kept:])

    def _content_type(self, raw: bytes) -> bytes:
        head, suffix = _TYPE.match(raw), _SUFFIX.search(raw)
        start, end = head.end() if head else 0, suffix.start() if suffix else len(raw)
        return raw[:start] + self._names.name(raw[start:end]) + self._content_rest(raw[end:])

    def _content_rest(self, raw: bytes) -> bytes:
        word, semicolon, parameters = raw.partition(b";")
        return word + semicolon + self._names.name(parameters)


def _blank(raw: bytes, kind: Value) -> bytes:
    """The same filler for all values of one length; levels of topics stay apart."""
    if kind is not Value.TOPICS:
        return BLANK * len(raw)
    return re.sub(rb"[^/+#$]", BLANK, raw)


def _shape(found: ControlPacket | Malformed) -> tuple[object, ...]:
    """What the linter reads from a packet beside its values."""
    if not isinstance(found, Malformed):
        return (found.packet_type, len(found.raw))
    return (
        found.packet_type, found.reason, found.offset, found.field, found.complete, found.fields_read,
        tuple((one.reason, one.offset, one.field) for one in found.faults),
    )  # fmt: skip
