"""What a device is answered, and what ends its connection."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Malformed, decode
from mqttscope.replay.server import responder
from tests.replay.server.desk import HELLO, MESSAGES, V3_1_1, V5, Desk


def test_unexpected_packets_are_answered_as_a_broker_would() -> None:
    device, _ = Desk(HELLO + "dev > disconnect").connect()

    assert device.say("publish new x qos=1 id=1") == ["puback id=1"]
    assert device.say("publish new x qos=2 id=2", "pubrel 2") == ["pubrec id=2", "pubcomp id=2"]
    assert device.say("subscribe 3 a:1 b:2") == ["suback id=3 1 2"]
    assert device.say("unsubscribe 4 a c") == ["unsuback id=4 0 17"]
    assert device.say("pingreq") == ["pingresp"]


def test_violations_end_the_connection_with_their_reason_code() -> None:
    for lines, code in (
        (("connect",), "0x82"),
        (("publish a/+ x",), "0x90"),
        (("publish a x topic_alias=3",), "0x94"),
        (("publish a x qos=1 id=1", "publish a y qos=2 id=2"), None),
        (("subscribe 1 a/#/b:0",), "0x8f"),
        (("suback 1 0",), "0x82"),
    ):
        device, _ = Desk(HELLO).connect()
        heard = device.say(*lines)
        assert (heard[-1] == f"disconnect {code}") if code else (device.closed is None)
    device, _ = Desk(HELLO).connect()
    bad = decode(bytes.fromhex("3607000361"), V5)
    assert isinstance(bad, Malformed)
    device.player.receive(bad, device.desk.now)
    assert device.heard() == ["disconnect 0x81"]


def test_enhanced_authentication_takes_its_recorded_course() -> None:
    text = """
    dev > connect authentication_method=X
    dev < auth code=0x18 authentication_method=X
    dev > auth code=0x18 authentication_method=X
    dev < connack authentication_method=X
    dev > auth code=0x19 authentication_method=X
    dev < auth code=0 authentication_method=X
    """
    device, heard = Desk(text).connect("dev connect authentication_method=X")
    assert [text.split()[0] for text in heard] == ["auth"]
    assert [text.split()[0] for text in device.say("auth code=0x18 authentication_method=X")] == ["connack"]
    assert [text.split()[0] for text in device.say("auth code=0x19 authentication_method=X")] == ["auth"]
    # A device without a method is not asked for one (5.0 4.12).
    assert Desk(text).connect()[1] == ["connack"]


def test_answers_that_the_recorded_server_never_gave_are_not_given() -> None:
    text = (
        HELLO + "dev > publish a x qos=1 id=1\ndev > pingreq\ndev < pingresp\ndev > publish b y qos=1 id=2\ndev > fin"
    )
    device, _ = Desk(text).connect()

    assert device.say("publish a x qos=1 id=1", "pingreq") == ["pingresp"]
    # Here the recorded client had left before it could be answered.
    assert device.say("publish b y qos=1 id=2") == ["puback id=2"]


def test_old_clients_without_an_identifier_need_a_clean_session() -> None:
    device, heard = Desk(HELLO, V3_1_1).connect("dev connect client= resume")
    assert heard == ["connack 0x02"]
    assert device.closed is not None


def test_devices_without_an_identifier_get_one_each() -> None:
    desk = Desk("dev > connect client=\ndev < connack assigned_client_identifier=auto-1\ndev > disconnect")
    assert "auto-1" in desk.connect("dev connect client=")[1][0]
    assert "mqttscope-1" in desk.connect("dev connect client=")[1][0]


def test_nothing_but_connect_begins_a_connection() -> None:
    desk = Desk(HELLO)
    device, _ = desk.connect()
    player = device.player
    assert player.device.over is False
    other, _ = desk.connect("dev connect")
    assert other.say("connect") == ["disconnect 0x82"]


def test_a_device_that_completes_no_message_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responder, "MAX_SESSION_BYTES", 1_000)
    device, _ = Desk(MESSAGES).connect()
    heard: list[str] = []
    for number in range(1, 200):
        heard += device.say(f"publish x {'p' * 20} qos=2 id={number}")
        if device.closed is not None:
            break
    assert heard[-1] == "disconnect 0x97"
    assert heard[0].startswith("pubrec id=1")
    assert device.player.device.session.arrived == {}
    assert device.player.device.session.arrived_bytes == 0
