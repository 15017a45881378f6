"""Packets with other values: every field that holds one, and damaged packets in which the same is wrong afterwards."""

from __future__ import annotations

import random
from dataclasses import replace

from mqttscope.mqtt import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Properties,
    ProtocolVersion,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
    decode,
    encode,
)
from mqttscope.mqtt.codec import trace
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.fields import all_fields
from mqttscope.redact.kinds import TreatmentChoice
from mqttscope.redact.packets import PacketRedactor, _shape
from mqttscope.redact.pseudonyms import Pseudonyms
from tests.each import each

V3_1, V3_1_1, V5 = ProtocolVersion
SECRET = "Geheimnis"
RAW = SECRET.encode()
TEXTS = {
    "user_property": [(SECRET, SECRET)], "reason_string": SECRET, "content_type": SECRET, "response_topic": SECRET,
    "correlation_data": RAW, "authentication_method": SECRET, "authentication_data": RAW, "server_reference": SECRET,
    "assigned_client_identifier": SECRET, "response_information": SECRET,
}  # fmt: skip


def block(*names: str) -> Properties:
    return Properties(**{name: TEXTS[name] for name in names})


ALL: list[ControlPacket] = [
    Connect(
        protocol_level=5, client_identifier=SECRET, user_name=SECRET, password=RAW,
        properties=block("authentication_method", "authentication_data", "user_property"),
        will=Will(SECRET, RAW, properties=block("content_type", "response_topic", "correlation_data", "user_property")),
    ),
    Connack(
        properties=block(
            "assigned_client_identifier", "authentication_method", "authentication_data", "reason_string",
            "response_information", "server_reference", "user_property",
        )
    ),
    Publish(
        topic_name=SECRET, payload=RAW,
        properties=block("content_type", "response_topic", "correlation_data", "user_property"),
    ),
    Subscribe(packet_identifier=1, properties=block("user_property"), subscriptions=[Subscription(f"a/{SECRET}/#")]),
    Unsubscribe(packet_identifier=1, properties=block("user_property"), topic_filters=[SECRET, f"+/{SECRET}"]),
    Disconnect(0, properties=block("reason_string", "server_reference", "user_property")),
    Auth(0x18, properties=block("authentication_method", "authentication_data", "reason_string", "user_property")),
]  # fmt: skip


def packets(choice: TreatmentChoice | None = None) -> PacketRedactor:
    return PacketRedactor(Pseudonyms(b"key"), choice or TreatmentChoice())


def read(raw: bytes, version: ProtocolVersion = V5) -> ControlPacket:
    packet = decode(raw, version)
    assert isinstance(packet, ControlPacket)
    return packet


@each("packet", ALL, ids=lambda packet: type(packet).__name__)
def test_no_field_is_forgotten(packet: ControlPacket) -> None:
    raw = encode(packet, V5)
    new_raw = packets().replaced(read(raw), V5)

    assert raw.count(RAW) >= 2
    assert RAW not in new_raw
    assert [(span.field, span.start, span.end) for span in trace(new_raw, V5)] == [
        (span.field, span.start, span.end) for span in trace(raw, V5)
    ]


def test_every_text_and_binary_field_of_the_catalogue_is_in_the_packets_above() -> None:
    held = {packet_field.name for packet_field in all_fields() if packet_field.value_type in (str, bytes, tuple)} - {
        "protocol_name"
    }
    shown = {
        span.field.rpartition(".")[2].partition("[")[0]
        for packet in ALL
        for span in trace(encode(packet, V5), V5)
    }  # fmt: skip

    assert held - shown == set()


def test_numbers_stay() -> None:
    raw = encode(
        Publish(
            topic_name="a/b", qos=1, packet_identifier=77, retain=True,
            properties=Properties(topic_alias=3, message_expiry_interval=60, payload_format_indicator=1), payload=b"x1",
        ),
        V5,
    )  # fmt: skip
    packet, other = read(raw), read(packets().replaced(read(raw), V5))
    assert isinstance(packet, Publish)
    assert isinstance(other, Publish)
    assert replace(other, topic_name=packet.topic_name, payload=packet.payload) == packet


def test_what_is_the_same_stays_the_same() -> None:
    work = packets()

    def result(packet: ControlPacket) -> ControlPacket:
        return read(work.replaced(read(encode(packet), V3_1_1), V3_1_1), V3_1_1)

    publish = result(Publish(topic_name="site/pump-7/temp", payload=b"x"))
    subscribe = result(Subscribe(packet_identifier=1, subscriptions=[Subscription("$share/g/site/pump-7/#")]))
    connect = result(Connect(client_identifier="pump-7"))
    assert isinstance(publish, Publish)
    assert isinstance(subscribe, Subscribe)
    assert isinstance(connect, Connect)

    levels = publish.topic_name.split("/")
    assert levels[1] == connect.client_identifier != "pump-7"
    share, _, *rest = subscribe.subscriptions[0].topic_filter.split("/")
    assert (share, rest) == ("$share", [*levels[:2], "#"])


@each(
    "topic, expected",
    [
        (b"$SYS/broker/uptime", b"$SYS/"),
        (b"$SHARE/group/a", b"$SHARE/"),
        (b"$aws/things/x", b"$aws/"),
        (b"share/g/a", b"share/"),
        (b"$mine/secret", b"$"),
        (b"/leading//empty/", b"/"),
    ],
)
def test_first_levels_with_a_meaning_stay(topic: bytes, expected: bytes) -> None:
    raw = packets().topic(topic)

    assert raw.startswith(expected)
    assert [len(word) for word in raw.split(b"/")] == [len(word) for word in topic.split(b"/")]
    assert raw != topic


@each(
    "name, expected",
    [(b"application/json", True), (b"text/plain; charset=utf-8", True), (b"application/vnd.acme.pump+json", False)],
)
def test_content_types_that_everybody_knows_stay(name: bytes, expected: bool) -> None:
    raw = encode(Publish(topic_name="t", properties=Properties(content_type=name.decode())), V5)
    new_raw = packets().replaced(read(raw), V5)

    assert (name in new_raw) is expected
    assert b"acme" not in new_raw
    if not expected:
        assert b"application/" in new_raw
        assert b"+json" in new_raw


def test_kept_and_blank_kinds() -> None:
    raw = encode(Publish(topic_name="site/temp", payload=b"21.5 degrees"), V3_1_1)

    assert packets(TreatmentChoice.of(["topics", "payloads"])).replaced(read(raw, V3_1_1), V3_1_1) == raw
    blank = read(packets(TreatmentChoice.of([], ["topics", "payloads"])).replaced(read(raw, V3_1_1), V3_1_1), V3_1_1)
    assert isinstance(blank, Publish)
    assert (blank.topic_name, blank.payload) == ("xxxx/xxxx", b"x" * 12)


def damaged() -> list[tuple[bytes, ProtocolVersion]]:
    """Packets with bytes that are wrong, that are missing and that are too many."""
    draw = random.Random(3)
    pairs = []
    for packet in ALL:
        raw = encode(packet, V5)
        body = 2 if raw[1] < 0x80 else 3
        pairs += [(raw[:at], V5) for at in range(1, len(raw), 7)]
        for _ in range(25):
            wrong = bytearray(raw)
            wrong[draw.randrange(body, len(raw))] = draw.choice((0, 0x80, 0xFF, draw.randrange(256)))
            pairs.append((bytes(wrong), V5))
        # The length is right, and the packet ends inside of a field.
        for cut in (1, 2, 5, 9):
            if len(raw) < 0x80:
                pairs.append((bytes((raw[0], raw[1] - cut)) + raw[2:-cut], V5))
                pairs.append((bytes((raw[0], raw[1] + cut)) + raw[2:] + RAW[:cut], V5))
    return [(raw, version) for raw, version in pairs if isinstance(decode(raw, version), Malformed)]


def test_the_same_is_wrong_with_damaged_packets() -> None:
    cases = damaged()
    work = packets()
    for raw, version in cases:
        packet = decode(raw, version)
        assert isinstance(packet, Malformed)
        new_raw = work.replaced(packet, version)
        assert len(new_raw) == len(raw)
        assert RAW not in new_raw
        if not work.differing:
            assert _shape(decode(new_raw, version)) == _shape(packet)

    assert len(cases) > 250
    assert work.differing <= len(cases) // 100


def test_the_bytes_of_a_length_that_does_not_fit_stay() -> None:
    packet, work = decode(bytes.fromhex("500d61ff0080c0ff8003"), V5), packets()
    assert isinstance(packet, Malformed)
    assert _shape(decode(work.replaced(packet, V5), V5)) == _shape(packet)
    assert work.differing == 0


def test_text_that_seems_to_be_numbers_is_replaced() -> None:
    """Where framing is lost, a text may lie in the place of codes and identifiers."""
    for raw in (b"listens", b"\x90\x33\0\1\2temperature of the boiler", b"\x62\x10secret of plant", b"\x40\x20" + RAW):
        packet = decode(raw, V5)
        assert isinstance(packet, Malformed)
        new_raw = packets().replaced(packet, V5)
        assert _shape(decode(new_raw, V5)) == _shape(packet)
        for at in range(2, len(raw) - 5):
            assert raw[at : at + 5] not in new_raw
