"""The reader of Sparkplug B against the library protobuf, and payloads that are damaged, compressed or too large."""

from __future__ import annotations

import gzip
import random
import zlib
from typing import Any

import pytest

from mqttscope.payloads import sparkplug_wire
from mqttscope.payloads.sparkplug_wire import (
    COMPRESSED,
    DATATYPES,
    PayloadLimitError,
    encode_message,
    open_payload,
    parse_message,
    value_field,
)
from mqttscope.payloads.values import UndecodableError
from tests import tools
from tests.payloads.samples import BIRTH, metric, part

tools.package("google.protobuf")

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet


def library_class() -> Any:
    """The class of payloads that the library protobuf makes from the schema."""
    file = FileDescriptorProto(name="sparkplug_b.proto", package="sparkplug", syntax="proto2")
    for name, rows in sparkplug_wire._SCHEMA.items():
        message = file.message_type.add(name=name)
        for row in rows:
            number, field, kind = row.split()
            descriptor = message.field.add(name=field, number=int(number), label=3 if kind[0] == "*" else 1)
            kind = kind.lstrip("*")
            if kind in sparkplug_wire._SCHEMA:
                descriptor.type, descriptor.type_name = descriptor.TYPE_MESSAGE, f".sparkplug.{kind}"
            else:
                descriptor.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
            if field in sparkplug_wire.VALUES:
                if not message.oneof_decl:
                    message.oneof_decl.add(name="value")
                descriptor.oneof_index = 0
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("sparkplug.Payload"))


LIBRARY = library_class()


def plain(message: Any) -> Any:
    """A message of the library as the dictionary of its fields."""
    fields = {}
    for field, value in message.ListFields():
        if field.is_repeated:
            fields[field.name] = [plain(element) if field.message_type else element for element in value]
        else:
            fields[field.name] = plain(value) if field.message_type else value
    return fields


def by_library(data: bytes) -> Any:
    """Fields and number of unknown fields, or ``None`` for an invalid payload."""
    try:
        message = LIBRARY.FromString(data)
        return plain(message), len(UnknownFieldSet(message))
    except Exception:
        return None


def by_reader(data: bytes) -> Any:
    try:
        return parse_message(data)
    except UndecodableError:
        return None


DATA_SET = {
    "num_of_columns": 2, "columns": ["a", "b"], "types": [3, 12],
    "rows": [{"elements": [{"int_value": 0xFFFFFFFF}, {"string_value": "x"}]}],
}  # fmt: skip
PAYLOAD = {
    "timestamp": 1_700_000_000_000, "seq": 255, "uuid": "u", "body": b"\0\xff",
    "metrics": [
        {"name": "T", "alias": 1 << 63, "timestamp": 1, "datatype": 3, "is_historical": True, "int_value": 0xFFFFFFFB},
        {"alias": 0, "is_null": True, "is_transient": False, "metadata": {"file_name": "ä", "size": 3}},
        {"name": "", "float_value": 0.5, "properties": {"keys": ["k"], "values": [{"type": 3, "int_value": 192}]}},
        {"name": "D", "dataset_value": DATA_SET}, {"double_value": -1.5}, {"boolean_value": True},
        {"template_value": {"version": "1", "template_ref": "M", "is_definition": False,
                            "metrics": [{"name": "rpm", "long_value": 9}],
                            "parameters": [{"name": "p", "type": 12, "string_value": "v"}]}},
        {"properties": {"keys": ["k"], "values": [{"propertyset_value": {"keys": ["i"]}}]}, "bytes_value": b"b"},
    ],
}  # fmt: skip


def test_the_reader_and_the_library_read_what_the_writer_wrote() -> None:
    raw = encode_message(PAYLOAD)
    assert by_reader(raw) == by_library(raw) == (PAYLOAD, 0)
    assert by_reader(BIRTH) == by_library(BIRTH)


@pytest.mark.parametrize(
    "data",
    [
        part(3, 1) + part(3, 2),  # the last one counts
        metric(part(10, 5), part(15, b"x")),  # one value at a time
        metric(part(17, part(3, b"\x01\x02")) + part(17, part(3, 3))),  # joined, packed and plain
        part(1, b"text") + part(77, 1) + part(2, 7),  # other wire types, unknown fields
        b"\x7b\x08\x01\x7c",  # a group
        b"\x7b\x08\x01\x84\x01",  # a group that ends as another
        b"\x7b\x08\x01",
        b"\x7c",
        b"\x00\x01",  # field 0
        b"\x08" + b"\xff" * 9 + b"\x01",
        b"\x08" + b"\xff" * 10,
        b"\x08",
        b"\x12\x05\x0a",
        b"",
        metric(part(4, (1 << 35) + 3)),  # 32 bits are left
        metric(b"\x68\x00"),  # a float as a number
    ],
)  # fmt: skip
def test_the_reader_and_the_library_agree(data: bytes) -> None:
    assert by_reader(data) == by_library(data)


def test_the_reader_and_the_library_agree_on_damage() -> None:
    drawn = random.Random(1)
    raw = encode_message(PAYLOAD)
    outcomes = set()
    for _ in range(400):
        damaged = bytearray(raw)
        for _ in range(drawn.randrange(1, 4)):
            damaged[drawn.randrange(len(damaged))] = drawn.randrange(256)
        data = bytes(damaged[: drawn.choice([len(damaged), drawn.randrange(len(damaged))])])
        read, library = by_reader(data), by_library(data)
        if library is not None and read is None and _has_broken_text(data):
            continue
        assert repr(read) == repr(library), data.hex()
        outcomes.add(read is None)
    assert outcomes == {False, True}


def _has_broken_text(data: bytes) -> bool:
    """Whether only a text that is not UTF-8, which the library may pass on, makes the payload invalid."""
    with pytest.raises(UndecodableError, match="is not UTF-8"):
        parse_message(data)
    return True


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff", "it ends within a number at byte 1"),
        (b"online", "a field at byte 1 has the unknown wire type 7"),
        (BIRTH[:-4], "exceeds its message"),
        (metric(part(1, b"\xff\xfe")), "name is not UTF-8"),
        (b"\x08" + b"\xff" * 11, "no number at byte 1"),
    ],
)
def test_damage_has_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(UndecodableError, match=reason):
        parse_message(data)


def compressed(body: bytes, algorithm: str | None = None, **more: Any) -> bytes:
    metrics = [] if algorithm is None else [{"name": "algorithm", "datatype": 12, "string_value": algorithm}]
    return encode_message({"uuid": COMPRESSED, "metrics": metrics, "body": body, **more})


INNER = encode_message({"seq": 3, "metrics": [{"name": "T", "int_value": 1}]})


@pytest.mark.parametrize(
    ("data", "seq", "form"),
    [
        (compressed(zlib.compress(INNER), "DEFLATE"), 3, "zlib"),
        (compressed(gzip.compress(INNER), "gzip"), 3, "gzip"),
        (compressed(zlib.compress(INNER), seq=9), 3, "zlib"),
        (compressed(zlib.compress(encode_message({"timestamp": 1})), seq=9), 9, "zlib"),
        (encode_message({"uuid": "own", "body": b"x", "seq": 4}), 4, ""),
    ],
)
def test_compressed_payloads_are_opened(data: bytes, seq: int, form: str) -> None:
    message, _, opened_as = open_payload(data)
    assert (message["seq"], opened_as) == (seq, form)


@pytest.mark.parametrize(
    ("data", "reason", "kind"),
    [
        (compressed(b"x"), "zlib: ", UndecodableError),
        (compressed(zlib.compress(INNER)[:-3], "DEFLATE"), "zlib: it ends too early", UndecodableError),
        (compressed(INNER, "LZ4"), "unknown algorithm 'LZ4'", PayloadLimitError),
        (compressed(zlib.compress(bytes(1 << 20))), "more than 262144 bytes come out of the zlib", PayloadLimitError),
        (bytes((1 << 18) + 1), "longer than 262144 bytes", PayloadLimitError),
    ],
)
def test_what_is_not_opened_has_a_reason(data: bytes, reason: str, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=reason) as caught:
        open_payload(data)
    assert type(caught.value) is kind


def test_fields_of_values() -> None:
    assert [value_field(number) for number in (0, 3, 4, 13, 16, 21, 22, 34, 35)] == [
        "", "int_value", "long_value", "long_value", "dataset_value", "propertysets_value", "bytes_value",
        "bytes_value", "",
    ]  # fmt: skip
    assert len(DATATYPES) == 35


def test_a_field_that_the_schema_does_not_have() -> None:
    with pytest.raises(ValueError, match="Metric has no field 'nam'"):
        encode_message({"metrics": [{"nam": "T"}]})
