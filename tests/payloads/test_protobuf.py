"""Protocol Buffers, by a descriptor file and without one."""

from __future__ import annotations

import sys

import pytest

from tests import tools

tools.package("google.protobuf")

from google.protobuf.timestamp_pb2 import Timestamp

from mqttscope.payloads.protobuf import MAX_FIELDS, MAX_PROTOBUF_BYTES, DescriptorError, MessageType, from_wire
from mqttscope.payloads.values import CUT, UndecodableError, compact, simplified
from tests.payloads.samples import MESSAGE, REPORT, descriptors, field, fleet_file, nested, part, values


def test_a_message_becomes_a_map_by_the_names_of_its_fields() -> None:
    value, note = MessageType(descriptors(), "fleet.Report").decode(REPORT)
    result = values(value)
    assert note == ""
    assert result.pop("inner") == {"vehicle": "", "speed": 7, "state": "IDLE", "password": ""}
    assert result == {
        "vehicle": "truck-1", "speed": 42, "readings": [1, 2], "state": "DRIVING", "password": "", "labels": {"k": "v"}
    }  # fmt: skip


def test_what_the_descriptor_lacks_is_counted_or_its_number() -> None:
    kind = MessageType(descriptors(), "fleet.Report")
    _, note = kind.decode(REPORT + part(99, 1) + part(98, b"x"))
    assert note == "2 fields that the descriptor does not have"
    value, _ = kind.decode(part(4, 9))
    assert values(value)["state"] == 9


def test_files_that_come_with_the_library_may_be_left_out() -> None:
    file = fleet_file(dependency=["google/protobuf/timestamp.proto"])
    field(file.message_type[0], "at", 8, MESSAGE, ".google.protobuf.Timestamp")
    kind = MessageType(descriptors(file), "fleet.Report")
    value, _ = kind.decode(part(8, Timestamp(seconds=0, nanos=5_000_000).SerializeToString()))
    assert values(value)["at"] == "1970-01-01T00:00:00.005Z"
    value, _ = kind.decode(part(8, part(1, 1 << 62)))
    assert values(value)["at"] == f"{1 << 62}.000000000"


def cyclic() -> bytes:
    first, second = fleet_file(dependency=["other.proto"]), fleet_file(dependency=["fleet.proto"])
    second.name, second.package = "other.proto", "other"
    return descriptors(first, second)


@pytest.mark.parametrize(
    ("held", "message", "expected"),
    [
        (b"", "fleet.Report", "not a descriptor file"),
        (b"\xff\xff\xff", "fleet.Report", "not a descriptor file"),
        (descriptors(), "fleet.Reprot", "it has no message fleet.Reprot; did you mean fleet.Report?"),
        (descriptors(), "x", "it has no message x"),
        (cyclic(), "fleet.Report", "imports itself"),
        (descriptors(fleet_file(dependency=["lost.proto"])), "fleet.Report", "it lacks lost.proto, which it imports"),
        (descriptors(fleet_file(dependency=["google/protobuf/../x.proto"])), "fleet.Report", "it lacks google"),
    ],
)
def test_a_descriptor_that_cannot_be_used_says_why(held: bytes, message: str, expected: str) -> None:
    with pytest.raises(DescriptorError, match=r".") as caught:
        MessageType(held, message)
    assert expected in str(caught.value)


def test_a_field_of_a_type_that_is_nowhere_says_so() -> None:
    file = fleet_file()
    field(file.message_type[0], "lost", 9, MESSAGE, ".fleet.Lost")
    with pytest.raises(DescriptorError, match=r"fleet.proto"):
        MessageType(descriptors(file), "fleet.Report")


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"\x0a\x05ab",
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x00",
        nested(2_000, (b"\x2b", b"")),  # groups that are never closed
        b"x" * (MAX_PROTOBUF_BYTES + 1),
    ],
)
def test_what_is_no_message_gives_the_reason(data: bytes) -> None:
    with pytest.raises(UndecodableError):
        MessageType(descriptors(), "fleet.Report").decode(data)
    with pytest.raises(UndecodableError):
        from_wire(data)


def within(depth: int, inner: bytes = b"") -> bytes:
    for _ in range(depth):
        inner = part(5, inner)
    return inner


def test_deep_messages_and_many_fields_are_cut() -> None:
    kind = MessageType(descriptors(), "fleet.Report")
    value, _ = kind.decode(within(90, part(2, 1)))
    text = compact(simplified(value).value)
    assert "..." in text
    assert len(text) < 10_000
    with pytest.raises(UndecodableError):
        kind.decode(within(300))
    value, _ = kind.decode(part(3, b"\1" * 200_000))
    assert len(values(value)["readings"]) <= MAX_FIELDS + 1
    assert values(value)["readings"][-1] is CUT


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (REPORT, '{1:"truck-1",2:42,3:h\'0102\',4:1,5:{2:7},7:{1:"k",2:"v"}}'),
        (part(1, 1.0), "{1:4607182418800017408}"),
        (part(1, 1) + part(1, 2), "{1:1,1:2}"),
        (b"\x0b\x08\x05\x0c", "{1:{1:5}}"),
        (part(1, b"\xff\xfe"), "{1:h'fffe'}"),
    ],
)
def test_the_wire_format_alone_gives_numbers_of_fields(data: bytes, expected: str) -> None:
    assert compact(from_wire(data)) == expected


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    held = descriptors()
    for name in [
        module for module in sys.modules if module == "google.protobuf" or module.startswith("google.protobuf.")
    ]:
        monkeypatch.setitem(sys.modules, name, None)
    hint = r"protobuf is not installed \(pip install protobuf\)"
    with pytest.raises(UndecodableError, match=hint):
        from_wire(REPORT)
    with pytest.raises(UndecodableError, match=hint) as caught:
        MessageType(held, "fleet.Report")
    assert not isinstance(caught.value, DescriptorError)
