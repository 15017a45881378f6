from __future__ import annotations

import pytest

from mqttscope.dissect.detect import (
    begins_with_packet,
    client_speaks,
    looks_like_mqtt,
    may_start_packet,
    starts_with_connect,
)
from mqttscope.mqtt import Auth, Disconnect, Unsuback, Unsubscribe
from tests.dissect.talk import (
    CONNACK,
    PINGREQ,
    PINGRESP,
    PUBACK_3,
    PUBLISH_1,
    SUBACK,
    SUBACK_5,
    SUBSCRIBE,
    SUBSCRIBE_5,
    V5,
    connect,
    publish,
    wire,
)
from tests.mqtt.octets import framed, string

LONG = "x" * 20_000


@pytest.mark.parametrize(
    ("head", "answer"),
    [
        pytest.param(b"", None, id="nothing yet"),
        pytest.param(b"\x10", None, id="one byte"),
        pytest.param(b"\x10\x0c\0\x04MQ", None, id="half of the name"),
        pytest.param(b"\x10\x0c\0\x06MQIs", None, id="half of the old name"),
        pytest.param(b"\x10\x8c", None, id="half of the length"),
        pytest.param(b"\x10\x0c\0\x04MQTT", True, id="the name"),
        pytest.param(wire(connect(3)), True, id="3.1"),
        pytest.param(wire(connect(4)), True, id="3.1.1"),
        pytest.param(wire(connect(5)), True, id="5.0"),
        pytest.param(wire(connect(5, LONG)), True, id="a length of three bytes"),
        pytest.param(framed(0x1F, string("MQTT"), b"\x04"), True, id="wrong flags"),
        pytest.param(framed(0x10, string("mqtt"), b"\x04"), True, id="a name in lower case"),
        pytest.param(b"\x10\xff\xff\xff\x7f\0\x04MQTT", True, id="a length of four bytes"),
        pytest.param(b"\x10\x0c\0\x04HTTP", False, id="another name"),
        pytest.param(b"\x10\x0c\0\x05MQTT", False, id="a wrong length of the name"),
        pytest.param(wire(PUBLISH_1), False, id="PUBLISH"),
        pytest.param(b"GET / HTTP/1.1\r\n", False, id="HTTP"),
        pytest.param(b"SSH-2.0-x\r\n", False, id="SSH"),
        pytest.param(b"\x16\x03\x01\0\xc8\x01", False, id="TLS"),
    ],
)
def test_starts_with_connect(head: bytes, answer: bool | None) -> None:
    assert starts_with_connect(head) is answer


def test_no_prefix_of_a_connect_is_refused_and_more_bytes_change_no_answer() -> None:
    for level in (3, 4, 5):
        whole = wire(connect(level, LONG))
        answers = [starts_with_connect(whole[:length]) for length in range(16)]

        assert False not in answers
        assert answers == sorted(answers, key=bool)
        assert answers[-1] is True


@pytest.mark.parametrize(
    ("first", "second", "answer"),
    [
        pytest.param(wire(PUBLISH_1, PUBLISH_1), wire(PUBACK_3), True, id="two packets answered by one"),
        pytest.param(wire(PINGREQ), wire(PINGRESP, PINGRESP), True, id="the server shows two"),
        pytest.param(wire(SUBSCRIBE_5, PINGREQ, version=V5), wire(SUBACK_5, version=V5), True, id="5.0"),
        pytest.param(wire(PUBLISH_1), wire(PUBACK_3), False, id="one packet each may be chance"),
        pytest.param(wire(PUBLISH_1, PUBLISH_1), b"", False, id="one direction alone"),
        pytest.param(b"", b"", False, id="nothing"),
        pytest.param(wire(PUBLISH_1, PUBLISH_1), b"HTTP/1.1 200 OK\r\n", False, id="answered by something else"),
        pytest.param(b"0" * 100, b"0" * 100, False, id="text that looks like PUBLISH"),
        pytest.param(b"\0" * 100, b"\0" * 100, False, id="zeros"),
        pytest.param(b"SSH-2.0-a\r\n", b"SSH-2.0-b\r\n", False, id="SSH"),
        pytest.param(
            wire(PUBLISH_1, PUBLISH_1)[:-1], wire(PUBACK_3), False, id="the second packet is not complete yet"
        ),
    ],
)
def test_looks_like_mqtt(first: bytes, second: bytes, answer: bool) -> None:
    assert looks_like_mqtt(first, second) is answer


@pytest.mark.parametrize(
    ("head", "begins", "may"),
    [
        pytest.param(b"", False, True, id="nothing"),
        pytest.param(wire(PUBLISH_1), True, True, id="a packet"),
        pytest.param(wire(PUBLISH_1)[:5], False, True, id="a part of one"),
        pytest.param(b"\x30", False, True, id="its first byte"),
        pytest.param(b"HTTP/1.1", False, False, id="HTTP"),
        pytest.param(b"SSH-2.0", False, False, id="SSH"),
        pytest.param(b"\x17\x03\x03\0\x20", False, False, id="a TLS record"),
        pytest.param(b"\0\0\0\0", False, False, id="zeros"),
        pytest.param(wire(Auth(0x18), version=V5), True, True, id="AUTH exists in 5.0"),
    ],
)
def test_whether_a_packet_begins(head: bytes, begins: bool, may: bool) -> None:
    assert (begins_with_packet(head), may_start_packet(head)) == (begins, may)


@pytest.mark.parametrize(
    ("head", "client"),
    [
        pytest.param(wire(connect()), True, id="CONNECT"),
        pytest.param(wire(SUBSCRIBE), True, id="SUBSCRIBE"),
        pytest.param(wire(Unsubscribe(1, topic_filters=["a"])), True, id="UNSUBSCRIBE"),
        pytest.param(wire(PINGREQ), True, id="PINGREQ"),
        pytest.param(wire(CONNACK), False, id="CONNACK"),
        pytest.param(wire(SUBACK), False, id="SUBACK"),
        pytest.param(wire(Unsuback(1)), False, id="UNSUBACK"),
        pytest.param(wire(PINGRESP), False, id="PINGRESP"),
        pytest.param(wire(PUBLISH_1, PUBACK_3), None, id="PUBLISH and PUBACK go both ways"),
        pytest.param(wire(Disconnect(), version=V5), None, id="DISCONNECT goes both ways in 5.0"),
        pytest.param(wire(PUBLISH_1, publish(payload=LONG.encode()), PINGREQ), True, id="behind long packets"),
        pytest.param(wire(PUBLISH_1, PINGRESP), False, id="behind others, by a server"),
        pytest.param(b"\x30\xff\xff\xff\xff", None, id="a length that never ends"),
        pytest.param(b"\x30\xff", None, id="half a length"),
        pytest.param(b"", None, id="nothing"),
    ],
)
def test_client_speaks(head: bytes, client: bool | None) -> None:
    assert client_speaks(head) is client
