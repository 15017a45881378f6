"""Payloads of every format, a descriptor file made in code, and the events that carry them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from tests import tools

tools.package("google.protobuf")

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from mqttscope.payloads.decoders import Decoders, PayloadTable
from tests.report.make import Talk, publish

STRING, INT32, MESSAGE, ENUM = (
    FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_INT32, FieldDescriptorProto.TYPE_MESSAGE,
    FieldDescriptorProto.TYPE_ENUM,
)  # fmt: skip


def field(holder: Any, name: str, number: int, kind: int, type_name: str = "", *, many: bool = False) -> None:
    """Add a field to the descriptor of a message."""
    result = holder.field.add(name=name, number=number, type=kind, label=3 if many else 1)
    if type_name:
        result.type_name = type_name


def fleet_file(**more: Any) -> FileDescriptorProto:
    """Messages of a fleet: a report with a position, readings, labels and a time."""
    file = FileDescriptorProto(name="fleet.proto", package="fleet", syntax="proto3", **more)
    state = file.enum_type.add(name="State")
    for number, name in enumerate(("IDLE", "DRIVING")):
        state.value.add(name=name, number=number)
    report = file.message_type.add(name="Report")
    field(report, "vehicle", 1, STRING)
    field(report, "speed", 2, INT32)
    field(report, "readings", 3, INT32, many=True)
    field(report, "state", 4, ENUM, ".fleet.State")
    field(report, "inner", 5, MESSAGE, ".fleet.Report")
    field(report, "password", 6, STRING)
    labels = report.nested_type.add(name="LabelsEntry")
    labels.options.map_entry = True
    field(labels, "key", 1, STRING)
    field(labels, "value", 2, STRING)
    field(report, "labels", 7, MESSAGE, ".fleet.Report.LabelsEntry", many=True)
    return file


def descriptors(*files: FileDescriptorProto) -> bytes:
    """A descriptor file."""
    raw: bytes = FileDescriptorSet(file=files or [fleet_file()]).SerializeToString()
    return raw


REPORT = b"\x0a\x07truck-1\x10\x2a\x1a\x02\x01\x02\x20\x01\x2a\x02\x10\x07\x3a\x06\x0a\x01k\x12\x01v"
"""A report: of truck-1, speed 42, readings 1 and 2, driving, with one inside of it and a label."""


def varint(number: int) -> bytes:
    """An integer of Protocol Buffers."""
    buffer = bytearray()
    while number > 127:
        buffer.append(number & 127 | 128)
        number >>= 7
    return bytes((*buffer, number))


def part(number: int, value: bytes | int | float) -> bytes:
    """A field of Protocol Buffers: bytes with their length, an integer, or a double."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def metric(*parts: bytes) -> bytes:
    """A metric of Sparkplug B in its payload."""
    return part(2, b"".join(parts))


BIRTH = (
    part(1, 1_700_000_000_000)
    + metric(part(1, b"Temperature"), part(2, 7), part(4, 10), part(13, 21.5))
    + metric(part(1, b"Level"), part(2, 8), part(4, 3), part(10, 0xFFFFFFFF))
    + metric(part(1, b"Wifi/Password"), part(4, 12), part(15, b"hunter2hunter2"))
    + part(3, 0)
)
"""Of an edge node: a temperature with alias 7, a level of -1 with alias 8, a password."""
DATA = part(1, 1_700_000_001_000) + metric(part(2, 7), part(13, 41.0)) + metric(part(2, 8), part(10, 5)) + part(3, 1)
"""By alias alone."""
NBIRTH_TOPIC, NDATA_TOPIC = "spBv1.0/plant/NBIRTH/edge-1", "spBv1.0/plant/NDATA/edge-1"


def published(*messages: tuple[str, bytes], **fields: Any) -> list[Any]:
    """Events of a connection that publishes these."""
    talk = Talk()
    return [talk.say(publish(topic, payload, **fields)) for topic, payload in messages]


def decoders(*tables: PayloadTable | tuple[Any, ...], **more: Any) -> Decoders:
    """Decoders of tables, given as such or by their fields."""
    return Decoders(
        tuple(table if isinstance(table, PayloadTable) else PayloadTable(*table) for table in tables), **more
    )


def values(pairs: Any) -> Any:
    """Maps as dictionaries, all the way down."""
    if isinstance(pairs, list) and type(pairs).__name__ == "Pairs":
        return {key: values(value) for key, value in pairs}
    return [values(pair) for pair in pairs] if isinstance(pairs, list) else pairs


def nested(depth: int, make: Sequence[bytes]) -> bytes:
    """Bytes within bytes: what begins a level, as often, and what is inside."""
    return make[0] * depth + make[1]
