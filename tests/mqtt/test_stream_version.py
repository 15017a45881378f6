"""Finding out the version of a connection that was joined in the middle."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import (
    Auth,
    Connack,
    Connect,
    ControlPacket,
    Disconnect,
    Malformed,
    PacketStream,
    Pingresp,
    Properties,
    ProtocolVersion,
    Puback,
    Publish,
    Subscribe,
    Subscription,
    Unsuback,
    encode,
)
from mqttscope.mqtt.resync import evidence
from tests.mqtt.case import ALL, V3_1, V3_1_1, V5, parse
from tests.mqtt.checks import run
from tests.mqtt.conversation import CLEAN, JSON
from tests.mqtt.octets import framed, string


class TestEvidence:
    @pytest.mark.parametrize(
        ("packet", "spoken", "version", "says"),
        [
            (
                Publish(topic_name="t", properties=Properties(topic_alias=1)),
                V5,
                V5,
                "a PUBLISH with well-formed properties",
            ),
            (Publish(topic_name="t"), V5, V5, "a PUBLISH with an empty property block"),
            (Publish(topic_name="t", payload=JSON), V3_1_1, V3_1_1, "a PUBLISH that is well formed in 3.1.1 only"),
            (Subscribe(1, None, [Subscription("a")]), V3_1_1, V3_1_1, "a SUBSCRIBE that is well formed in 3.1.1 only"),
            (Subscribe(1, None, [Subscription("a", 1)]), V5, V5, "a SUBSCRIBE that is well formed in 5.0 only"),
            (Unsuback(1), V3_1_1, V3_1_1, "an UNSUBACK that is well formed in 3.1.1 only"),
            (Connack(), V5, V5, "a CONNACK that is well formed in 5.0 only"),
            (Disconnect(0x8E), V5, V5, "a DISCONNECT that is well formed in 5.0 only"),
            (Auth(0x18), V5, V5, "an AUTH that is well formed in 5.0 only"),
        ],
    )
    def test_a_packet_that_says_which_version_it_is(
        self, packet: ControlPacket, spoken: ProtocolVersion, version: ProtocolVersion, says: str
    ) -> None:
        raw = encode(packet, spoken)
        stream = PacketStream(version_source="")

        assert evidence(raw) == (version, says)
        (item,) = run([raw], stream)
        assert isinstance(item, ControlPacket)
        assert (stream.version, stream.version_source) == (version, says)

    @pytest.mark.parametrize("raw", ["c0 00", "d0 00", "40 02 00 01", "e0 00", "00 00", "41 05 00"])
    def test_a_packet_that_says_nothing(self, raw: str) -> None:
        assert evidence(parse(raw)) is None

    def test_nothing_is_assumed_until_something_is_said(self) -> None:
        stream = PacketStream(version_source="")

        assert stream.feed(parse("d0 00 40 02 00 01")) == [Pingresp(), Puback(1)]
        assert stream.version_source == ""
        stream.feed(CLEAN[0])
        assert stream.version is V5

    def test_an_assumption_is_given_up_when_a_packet_contradicts_it(self) -> None:
        stream = PacketStream(version_source="")
        zero = framed(0x30, string("t"), b"\0data")
        subscribe = encode(Subscribe(1, None, [Subscription("a")]), V3_1_1)

        assert stream.feed(zero) == [Publish(topic_name="t", properties=Properties(), payload=b"data")]
        assert stream.version is V5
        assert stream.feed(subscribe + zero) == [
            Subscribe(1, None, [Subscription("a")]),
            Publish(topic_name="t", payload=b"\0data"),
        ]
        assert stream.version is V3_1_1

    def test_a_given_version_is_not_given_up(self) -> None:
        stream = PacketStream(V3_1_1)
        (item,) = stream.feed(encode(Disconnect(0x8E), V5))

        assert isinstance(item, Malformed)
        assert (stream.version, stream.version_source) == (V3_1_1, "given")

    @pytest.mark.parametrize("source", ["", "given", "a PUBLISH with an empty property block"])
    @pytest.mark.parametrize("version", ALL)
    def test_a_connect_brings_its_version(self, version: ProtocolVersion, source: str) -> None:
        name = "MQIsdp" if version == V3_1 else "MQTT"
        stream = PacketStream(version_source=source)
        stream.feed(encode(Connect(name, version), version))

        assert (stream.version, stream.version_source) == (version, "CONNECT")

    def test_a_malformed_connect_brings_its_version_too_when_it_names_one(self) -> None:
        stream = PacketStream(version_source="")
        stream.feed(parse("10 0d 00 04 4d 51 54 54 05 01 00 00 00 00 00"))
        assert stream.version is V5

        other = PacketStream(version_source="")
        other.feed(parse("10 06 00 04 4d 51 54 54"))
        assert other.version_source == ""
