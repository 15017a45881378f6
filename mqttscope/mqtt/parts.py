"""Parts of packets that are more than one field: reason codes, the Will, subscriptions, lists of topic filters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from mqttscope.mqtt.constants import (
    V3_1,
    V3_1_1,
    V5,
    MalformedReason,
    PacketType,
    ProtocolVersion,
    allowed_reason_codes,
)
from mqttscope.mqtt.declare import Examination, FieldDeclaration, computed, wire
from mqttscope.mqtt.properties import WILL, Properties, reader, write_properties
from mqttscope.mqtt.wire import BINARY, U8, UTF8, LayoutFault, WireType, read_binary, read_u8, read_utf8, write_utf8


def properties_of(owner: int) -> WireType[Any]:
    return WireType("Properties", reader(owner), write_properties, composite=True)


def reason_of(packet_type: PacketType) -> Callable[[ProtocolVersion], WireType[Any]]:
    """The reason or return code of a packet type; a code outside its table is a fault that carries the code."""

    @cache
    def kind(version: ProtocolVersion) -> WireType[Any]:
        allowed = allowed_reason_codes(packet_type, version)

        def read(buffer: bytes, position: int, end: int) -> tuple[int, int]:
            code, after = read_u8(buffer, position, end)
            if code not in allowed:
                raise _reason_fault(packet_type, version, code, position)
            return code, after

        return WireType("Byte", read, U8.write)

    return kind


def _reason_fault(packet_type: PacketType, version: ProtocolVersion, code: int, position: int) -> LayoutFault:
    return LayoutFault(
        MalformedReason.REASON_CODE_INVALID,
        position,
        f"0x{code:02x} is not a {packet_type.name} code of MQTT {version.text}",
        value=code,
        resume=position + 1,
    )


def reasons_of(packet_type: PacketType) -> Callable[[ProtocolVersion], WireType[Any]]:
    """The list of reason or return codes of SUBACK and UNSUBACK."""

    @cache
    def kind(version: ProtocolVersion) -> WireType[Any]:
        allowed = allowed_reason_codes(packet_type, version)

        def read(buffer: bytes, position: int, end: int, examine: Examination | None = None) -> tuple[list[int], int]:
            codes = list(buffer[position:end])
            if examine is None:
                if not allowed.issuperset(codes):
                    raise _reason_fault(packet_type, version, 0, position)
                return codes, end
            outer = examine.prefix.removesuffix(".")
            examine.prefix = ""
            for index, code in enumerate(codes):
                name = f"{outer}[{index}]"
                if code not in allowed:
                    examine.fault(_reason_fault(packet_type, version, code, position + index), name)
                examine.span(name, position + index, position + index + 1)
            return codes, end

        return WireType("reason codes", read, bytes, composite=True)

    return kind


@dataclass(slots=True)
class Will:
    """The Will of a CONNECT (5.0 3.1.2.5, 3.1.3.2): flags, properties, topic and payload."""

    will_topic: str = wire(UTF8, default="")
    will_payload: bytes = wire(BINARY, default=b"")
    will_qos: int = computed(default=0)
    will_retain: bool = computed(default=False)
    properties: Properties | None = field(
        default=None, metadata={"declared": FieldDeclaration(wire=properties_of(WILL), since=V5)}
    )
    """Will Properties; ``None`` before 5.0."""


def will_in(version: ProtocolVersion) -> WireType[Any]:
    """The will fields in the payload of a CONNECT (5.0 3.1.3.2 to 3.1.3.4)."""
    read_block = reader(WILL) if version == V5 else None

    def read(buffer: bytes, position: int, end: int, examine: Examination | None = None) -> tuple[Will, int]:
        will = Will()
        if examine is None:
            if read_block is not None:
                will.properties, position = read_block(buffer, position, end)
            will.will_topic, position = read_utf8(buffer, position, end)
            will.will_payload, position = read_binary(buffer, position, end)
            return will, position
        if position >= end:
            raise LayoutFault(
                MalformedReason.CONNECT_PAYLOAD_MISMATCH, position, "the Will Flag is 1 but the payload ends before it"
            )
        try:
            if read_block is not None:
                outer, examine.prefix = examine.prefix, examine.prefix + "properties."
                try:
                    will.properties, position = read_block(buffer, position, end, examine)
                except LayoutFault as error:
                    error.field = error.field or f"{outer}properties"
                    if error.resume is None:
                        raise
                    examine.fault(error)
                    will.properties, position = error.value, error.resume
                finally:
                    examine.prefix = outer
            will.will_topic, position = examine.tolerate(read_utf8, buffer, position, end, "will_topic")
            will.will_payload, position = examine.tolerate(read_binary, buffer, position, end, "will_payload")
        except LayoutFault as error:
            error.value = will
            raise
        return will, position

    def write(will: Will) -> bytes:
        block = write_properties(will.properties) if read_block is not None else b""
        return block + write_utf8(will.will_topic) + BINARY.write(will.will_payload)

    return WireType("Will", read, write, composite=True)


@dataclass(slots=True)
class Subscription:
    """One Topic Filter of a SUBSCRIBE with its Subscription Options (5.0 3.8.3.1)."""

    topic_filter: str = field(metadata={"declared": FieldDeclaration(wire=UTF8)})
    maximum_qos: int = computed(default=0)
    no_local: bool = computed(default=False, since=V5)
    retain_as_published: bool = computed(default=False, since=V5)
    retain_handling: int = computed(default=0, since=V5)
    reserved: int = computed(default=0)
    """Reserved bits of the options byte, in place (5.0 bits 7-6, 3.1.1 bits 7-2)."""


def subscriptions_in(version: ProtocolVersion) -> WireType[Any]:
    """The payload of a SUBSCRIBE (5.0 3.8.3, 3.1.1 3.8.3)."""
    five = version == V5
    reserved_mask = {V3_1: 0, V3_1_1: 0xFC, V5: 0xC0}[version]

    def make(topic_filter: str, options: int) -> Subscription:
        if five:
            return Subscription(
                topic_filter, options & 3, bool(options & 4), bool(options & 8), options >> 4 & 3, options & 0xC0
            )
        return Subscription(topic_filter, options & 3, reserved=options & 0xFC)

    def read(
        buffer: bytes, position: int, end: int, examine: Examination | None = None
    ) -> tuple[list[Subscription], int]:
        rows: list[Subscription] = []
        if examine is None:
            while position < end:
                topic_filter, position = read_utf8(buffer, position, end)
                options, position = read_u8(buffer, position, end)
                if options & 3 == 3 or options & reserved_mask:
                    raise LayoutFault(MalformedReason.SUBSCRIPTION_QOS_INVALID, position - 1, "")
                rows.append(make(topic_filter, options))
            return rows, position
        outer = examine.prefix.removesuffix(".")
        while position < end:
            examine.prefix = f"{outer}[{len(rows)}]."
            try:
                topic_filter, position = examine.tolerate(read_utf8, buffer, position, end, "topic_filter")
                options, after = examine.tolerate(read_u8, buffer, position, end, "options")
            except LayoutFault as error:
                error.value = rows
                raise
            if options & reserved_mask:
                examine.fault(
                    LayoutFault(
                        MalformedReason.SUBSCRIPTION_OPTIONS_RESERVED,
                        position,
                        f"reserved bits of the options byte 0x{options:02x} are set",
                    ),
                    "reserved",
                )
            if options & 3 == 3:
                examine.fault(
                    LayoutFault(MalformedReason.SUBSCRIPTION_QOS_INVALID, position, "QoS 3 is requested"), "maximum_qos"
                )
            position = after
            rows.append(make(topic_filter, options))
        return rows, position

    def write(rows: list[Subscription]) -> bytes:
        parts = []
        for row in rows:
            options = row.maximum_qos & 3 | row.reserved
            if five:
                options |= row.no_local << 2 | row.retain_as_published << 3 | (row.retain_handling & 3) << 4
            parts.append(write_utf8(row.topic_filter) + U8.write(options))
        return b"".join(parts)

    return WireType("subscriptions", read, write, composite=True)


def _read_filters(buffer: bytes, position: int, end: int, examine: Examination | None = None) -> tuple[list[str], int]:
    rows: list[str] = []
    if examine is None:
        while position < end:
            topic_filter, position = read_utf8(buffer, position, end)
            rows.append(topic_filter)
        return rows, position
    outer, examine.prefix = examine.prefix.removesuffix("."), ""
    while position < end:
        try:
            topic_filter, position = examine.tolerate(read_utf8, buffer, position, end, f"{outer}[{len(rows)}]")
        except LayoutFault as error:
            error.value = rows
            raise
        rows.append(topic_filter)
    return rows, position


FILTERS: Final[WireType[list[str]]] = WireType(
    "topic filters", _read_filters, lambda rows: b"".join(map(write_utf8, rows)), composite=True
)
