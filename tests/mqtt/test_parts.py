"""Parts of packets that are more than one field: reason codes, the Will, subscriptions, lists of topic filters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttscope.mqtt import (
    Connect,
    MalformedReason,
    PacketType,
    Properties,
    ProtocolVersion,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
    encode,
)
from mqttscope.mqtt.constants import allowed_reason_codes
from mqttscope.mqtt.declare import Examination
from mqttscope.mqtt.parts import FILTERS, reason_of, reasons_of, subscriptions_in, will_in
from mqttscope.mqtt.wire import LayoutFault, WireType
from tests.mqtt.case import V3_1, V3_1_1, V5, VERSIONS
from tests.mqtt.checks import broken
from tests.mqtt.octets import block, string
from tests.tables import cases_of, differing

R = MalformedReason
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
CODES = [
    (kind, version) for kind in PacketType for version in ProtocolVersion if allowed_reason_codes(kind, version)
]  # fmt: skip


def test_will_qos_3_and_reserved_option_bits() -> None:
    raw = encode(Connect(will=Will("w", b"", 3)), V3_1_1)

    assert raw[9] == 0x1E
    assert encode(Subscribe(1, subscriptions=[Subscription("a", 3, reserved=0xC0)]))[-1] == 0xC3


FAULTS = """
a fault in a value leaves the packet complete
    90 06 00 01 00 03 80 81 | 3.1.1 | complete=True packet.packet_identifier=1 packet.reason_codes=[0,3,0x80,0x81]
    faults.field=[reason_codes[1],reason_codes[3]]
subscriptions before the fault are kept
    82 09 00 01 00 01 61 01 00 09 62 | 3.1.1 |
    packet.subscriptions.topic_filter=[a] packet.subscriptions.maximum_qos=[1]
a will is kept as far as it could be read
    10 11 00 04 4d 51 54 54 04 06 00 00 00 00 00 01 77 00 05 | 3.1.1 | packet.will.will_topic=w
a will goes on behind a fault inside its properties
    10 14 00 04 4d 51 54 54 05 06 00 00 00 00 00 02 7e 00 00 01 77 00 | 5.0 |
    faults.reason=[property_unknown,field_overrun] faults.field=[will.properties.unknown_0x7e,will.will_payload]
"""


@pytest.mark.parametrize(("raw", "version", "facts"), cases_of(FAULTS, str, VERSIONS.__getitem__, str))
def test_what_is_kept_of_a_part(raw: str, version: ProtocolVersion, facts: str) -> None:
    assert differing(broken(raw, version), facts) == {}


def examined(wire: WireType[Any], raw: bytes, prefix: str = "") -> tuple[Any, Examination]:
    """The result of the slow walk for the bytes of a part."""
    examination = Examination(raw, Connect, V5)
    examination.prefix = prefix
    value, end = wire.read(raw, 0, len(raw), examination)
    assert end == len(raw)
    return value, examination


def both(wire: WireType[Any], raw: bytes, prefix: str = "") -> Any:
    """The value of a part without a fault, which both ways of reading give."""
    value, end = wire.read(raw, 0, len(raw))
    assert end == len(raw)
    slow, examination = examined(wire, raw, prefix)
    assert slow == value
    assert examination.faults == []
    return value


@pytest.mark.parametrize(("kind", "version"), CODES)
def test_a_reason_code_is_one_of_the_table_of_its_packet(kind: PacketType, version: ProtocolVersion) -> None:
    read, allowed = reason_of(kind)(version).read, allowed_reason_codes(kind, version)
    assert 0 < len(allowed) < 256

    for code in range(256):
        raw = bytes((9, code, 9))
        if code in allowed:
            assert read(raw, 1, 2) == (code, 2)
            continue
        with pytest.raises(LayoutFault) as caught:
            read(raw, 1, 2)
        # The next field is known, and so is the number.
        assert (caught.value.reason, caught.value.offset) == (R.REASON_CODE_INVALID, 1)
        assert (caught.value.value, caught.value.resume) == (code, 2)
        assert f"0x{code:02x} is not a {kind.name} code of MQTT {version.text}" in str(caught.value.detail)


def test_no_reason_code_is_an_overrun() -> None:
    with pytest.raises(LayoutFault) as caught:
        reason_of(PacketType.CONNACK)(V5).read(b"\0", 1, 1)
    assert (caught.value.reason, caught.value.resume) == (R.FIELD_OVERRUN, None)


@given(st.binary(max_size=30))
def test_every_wrong_code_of_a_list_is_a_fault_and_all_are_kept(codes: bytes) -> None:
    wire, allowed = reasons_of(PacketType.SUBACK)(V5), allowed_reason_codes(PacketType.SUBACK, V5)
    wrong = [index for index, code in enumerate(codes) if code not in allowed]
    value, examination = examined(wire, codes, "reason_codes.")

    assert value == [*codes]
    assert [fault.field for fault in examination.faults] == [f"reason_codes[{index}]" for index in wrong]
    assert [(span.field, span.start, span.end) for span in examination.spans] == [
        (f"reason_codes[{index}]", index, index + 1) for index in range(len(codes))
    ]
    if wrong:
        with pytest.raises(LayoutFault):
            wire.read(codes, 0, len(codes))
    else:
        assert wire.read(codes, 0, len(codes)) == (value, len(codes))
    assert wire.write(value) == codes


@pytest.mark.parametrize("version", ProtocolVersion)
@given(topic=TEXT, payload=st.binary(max_size=20), delay=st.none() | st.integers(0, 2**32 - 1))
def test_a_will_is_written_as_it_is_read(
    version: ProtocolVersion, topic: str, payload: bytes, delay: int | None
) -> None:
    wire = will_in(version)
    properties = b"" if delay is None else b"\x18" + delay.to_bytes(4, "big")
    raw = (block(properties) if version is V5 else b"") + string(topic) + string(payload)
    will = both(wire, raw, "will.")

    assert (will.will_topic, will.will_payload) == (topic, payload)
    if version is V5:
        assert will.properties.will_delay_interval == delay
    else:
        assert will.properties is None
    assert wire.write(will) == raw


@pytest.mark.parametrize("version", ProtocolVersion)
def test_a_will_that_was_announced_and_is_not_there_contradicts_the_flags(version: ProtocolVersion) -> None:
    with pytest.raises(LayoutFault) as caught:
        examined(will_in(version), b"", "will.")
    assert caught.value.reason is R.CONNECT_PAYLOAD_MISMATCH


def test_a_will_names_each_of_its_fields() -> None:
    raw = block(b"\x01\x01") + string("w") + string(b"gone")
    _, examination = examined(will_in(V5), raw, "will.")

    assert [(span.field, span.start, span.end) for span in examination.spans] == [
        ("will.properties.property_length", 0, 1),
        ("will.properties.payload_format_indicator", 1, 3),
        ("will.will_topic", 3, 6),
        ("will.will_payload", 6, 12),
    ]


@pytest.mark.parametrize("version", ProtocolVersion)
def test_every_byte_of_options(version: ProtocolVersion) -> None:
    wire = subscriptions_in(version)
    for options in range(256):
        raw = string("a/b") + bytes([options])
        rows, examination = examined(wire, raw, "subscriptions.")
        reserved = options & {V3_1: 0, V3_1_1: 0xFC, V5: 0xC0}[version]
        wanted = [
            *(["subscriptions[0].reserved"] if reserved else []),
            *(["subscriptions[0].maximum_qos"] if options & 3 == 3 else []),
        ]

        assert [fault.field for fault in examination.faults] == wanted, options
        assert rows[0].maximum_qos == options & 3
        # Whatever is wrong with them, they are written as they were.
        assert wire.write(rows) == raw
        if wanted:
            with pytest.raises(LayoutFault):
                wire.read(raw, 0, len(raw))
        else:
            assert wire.read(raw, 0, len(raw)) == (rows, len(raw))


def test_the_bits_of_options_have_names_in_5_0_alone() -> None:
    raw = string("a") + b"\x2d"

    assert both(subscriptions_in(V5), raw) == [Subscription("a", 1, True, True, 2)]
    assert both(subscriptions_in(V3_1), raw) == [Subscription("a", 1, reserved=0x2C)]


@given(st.lists(st.tuples(TEXT, st.integers(0, 2), st.booleans(), st.booleans(), st.integers(0, 3)), max_size=5))
def test_subscriptions_are_written_as_they_are_read(rows: list[tuple[str, int, bool, bool, int]]) -> None:
    wire = subscriptions_in(V5)
    subscriptions = [Subscription(*row) for row in rows]

    assert both(wire, wire.write(subscriptions), "subscriptions.") == subscriptions


@given(st.lists(TEXT, max_size=6))
def test_topic_filters_are_written_as_they_are_read(names: list[str]) -> None:
    raw = b"".join(map(string, names))

    assert both(FILTERS, raw, "topic_filters.") == names
    assert FILTERS.write(names) == raw


def test_topic_filters_have_an_index_and_those_before_a_fault_are_kept() -> None:
    raw = string("a") + string(b"b\xff") + string("c") + b"\0\x09x"
    examination = Examination(raw, Unsubscribe, V5)
    examination.prefix = "topic_filters."
    with pytest.raises(LayoutFault) as caught:
        FILTERS.read(raw, 0, len(raw), examination)

    assert caught.value.value == ["a", "b\udcff", "c"]
    assert (caught.value.reason, caught.value.field) == (R.FIELD_OVERRUN, "topic_filters[3]")
    assert [(fault.reason, fault.field) for fault in examination.faults] == [(R.UTF8_ILL_FORMED, "topic_filters[1]")]


def test_missing_will_properties_are_written_empty() -> None:
    assert will_in(V5).write(Will("w", b"x")) == b"\0" + string("w") + string("x")
    assert will_in(V3_1_1).write(Will("w", b"x", properties=Properties(will_delay_interval=1))) == string("w") + string(
        "x"
    )
