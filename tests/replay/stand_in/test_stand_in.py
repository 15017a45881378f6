"""Scripts of what a device says, and what a stand-in answers."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Malformed, ProtocolVersion, Subscription, decode
from mqttscope.replay.stand_in import Unexpected, live, responder
from mqttscope.replay.stand_in import connection_matching as module
from tests.replay.stand_in.desk import SECOND, Desk

V3_1, V3_1_1, V5 = ProtocolVersion

HELLO = "dev > connect\ndev < connack\n"
MESSAGES = (
    HELLO
    + """
    dev > subscribe 1 t/#:2
    dev < suback 1 1
    dev < publish t/a one qos=1 id=7
    dev > puback 7
    dev > publish cmd go qos=1 id=2
    dev < puback 2 code=0x10
    dev < publish t/b two qos=1 id=8
    dev > puback 8
    dev < publish t/c three
    dev > disconnect
    dev > fin
"""
)


def test_answers_are_the_recorded_ones_with_the_identifiers_of_the_device() -> None:
    device, heard = Desk(MESSAGES).connect()

    assert heard == ["connack"]
    assert device.say("subscribe 41 t/#:2") == ["suback id=41 1", "publish t/a one qos=1 id=7"]
    assert device.say("publish cmd go qos=1 id=42") == [
        "puback id=42 0x10", "publish t/b two qos=1 id=8", "publish t/c three qos=0",
    ]  # fmt: skip
    assert device.say("puback 8", "puback 7", "disconnect") == []
    assert device.closed is not None
    assert device.stand_in.exhausted


def test_a_delivery_waits_for_what_the_device_did_before_it_and_not_for_ever() -> None:
    desk = Desk(MESSAGES)
    device, _ = desk.connect()
    device.say("subscribe 1 t/#:2")
    desk.later(4.5)
    assert device.heard() == []
    desk.later(1)

    # Five seconds later than recorded.
    assert device.heard() == ["publish t/b two qos=1 id=8", "publish t/c three qos=0"]
    assert any("waited in vain for PUBLISH" in note.text for note in device.stand_in.notes)


def test_deliveries_of_topics_that_the_device_did_not_subscribe_to_are_held_back() -> None:
    desk = Desk(MESSAGES, patience_ns=SECOND)
    device, _ = desk.connect()
    device.say("subscribe 1 t/b:2", "publish cmd go qos=1 id=2")
    desk.later(3)
    assert device.heard() == []
    device.say("puback 8")

    assert device.say("subscribe 2 t/c:0") == ["suback id=2 0", "publish t/c three qos=0"]
    device.vanish()
    assert ("PUBLISH held back: the device has not subscribed to its topic", 1) in [
        (note.text, times) for note, times in device.stand_in.notes.items()
    ]


def test_the_quality_of_a_subscription_and_the_limits_of_the_device_are_obeyed() -> None:
    text = (
        HELLO.replace("connect", "connect topic_alias_maximum=10")
        + """
    dev > subscribe 1 t/#:2
    dev < suback 1 2
    dev < publish t/a one qos=2 id=1 topic_alias=3
    dev > pubrec 1
    dev < pubrel 1
    dev > pubcomp 1
    dev < publish - two qos=1 id=2 topic_alias=3
    dev > puback 2
    dev < publish t/long aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
    dev < publish t/c four
    """
    )
    device, _ = Desk(text).connect("dev connect receive_maximum=1 maximum_packet_size=40")

    assert device.say("subscribe 1 t/#:1") == ["suback id=1 1", "publish t/a one qos=1 id=1"]
    # The next one had come before the first was acknowledged.
    assert device.say("puback 1") == ["publish t/a two qos=1 id=2", "publish t/c four qos=0"]


def test_qos_2_goes_through_both_ways() -> None:
    text = (
        HELLO
        + """
    dev > publish a x qos=2 id=1
    dev < pubrec 1
    dev > pubrel 1
    dev < pubcomp 1
    dev < publish b y qos=2 id=1
    dev > pubrec 1
    dev < pubrel 1
    dev > pubcomp 1
    """
    )
    device, _ = Desk(text).connect()

    assert device.say("publish a x qos=2 id=9") == ["pubrec id=9", "publish b y qos=2 id=1"]
    assert device.say("publish a x qos=2 id=9 dup") == ["pubrec id=9"]
    assert device.say("pubrel 9") == ["pubcomp id=9"]
    assert device.say("pubrel 9") == ["pubcomp id=9 0x92"]
    assert device.say("pubrec 1") == ["pubrel id=1"]
    assert device.say("pubrec 5") == ["pubrel id=5 0x92"]
    assert device.say("pubcomp 1") == []


def test_a_session_that_goes_on_gets_again_what_it_did_not_acknowledge() -> None:
    text = """
    dev > connect resume
    dev < connack
    dev > subscribe 1 t:2
    dev < suback 1 2
    dev < publish t one qos=1 id=1
    dev < publish t two qos=2 id=2
    dev > pubrec 2
    dev < pubrel 2
    dev > fin
    dev > connect resume
    dev < connack present
    dev < publish t one qos=1 id=1 dup
    dev < pubrel 2
    dev > puback 1
    dev > pubcomp 2
    dev > disconnect
    """
    desk = Desk(text, V3_1_1)
    device, _ = desk.connect("dev connect resume")
    device.say("subscribe 5 t:2")
    assert device.say("pubrec 2") == ["pubrel id=2"]
    device.vanish()
    again, heard = desk.connect("dev connect resume")

    assert heard == ["connack present", "publish t one qos=1 dup id=1", "pubrel id=2"]
    assert again.say("puback 1", "pubcomp 2") == []
    assert desk.sessions.of("dev").unfinished == {}


def test_a_device_that_acknowledged_more_gets_nothing_again_and_one_that_starts_clean_has_no_session() -> None:
    text = """
    dev > connect resume
    dev < connack
    dev > subscribe 1 t:1
    dev < suback 1 1
    dev < publish t one qos=1 id=1
    dev > fin
    dev > connect resume
    dev < connack present
    dev < publish t one qos=1 id=1 dup
    dev > puback 1
    dev > fin
    dev > connect resume
    dev < connack present
    """
    desk = Desk(text, V3_1_1)
    device, _ = desk.connect("dev connect resume")
    device.say("subscribe 5 t:1")
    device.say("puback 1")
    device.vanish()
    again, heard = desk.connect("dev connect resume")
    assert heard == ["connack present"]
    again.vanish()
    assert desk.connect()[1] == ["connack"]


def test_unexpected_packets_are_answered_as_a_broker_would() -> None:
    device, _ = Desk(HELLO + "dev > disconnect").connect()

    assert device.say("publish new x qos=1 id=1") == ["puback id=1"]
    assert device.say("publish new x qos=2 id=2", "pubrel 2") == ["pubrec id=2", "pubcomp id=2"]
    assert device.say("subscribe 3 a:1 b:2") == ["suback id=3 1 2"]
    assert device.say("unsubscribe 4 a c") == ["unsuback id=4 0 17"]
    assert device.say("pingreq") == ["pingresp"]


def test_unexpected_packets_are_ignored_or_end_the_connection() -> None:
    text = HELLO + "dev > publish a x qos=1 id=1\ndev < puback 1\ndev > disconnect"
    device, _ = Desk(text, unexpected=Unexpected.IGNORE).connect()
    assert device.say("publish new x qos=1 id=1", "subscribe 2 a:1") == []
    assert device.say("publish a other qos=1 id=3", "pingreq") == ["puback id=3", "pingresp"]

    device, _ = Desk(text, unexpected=Unexpected.CLOSE).connect()
    assert device.say("pingreq") == ["pingresp"]
    assert device.say("publish new x qos=1 id=1") == ["disconnect 0x83"]
    assert device.closed is not None
    assert "not in the recording" in device.closed.why


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
    device.stand_in.receive(bad, device.desk.now)
    assert device.heard() == ["disconnect 0x81"]


def test_what_the_recorded_client_did_wrong_has_the_recorded_end() -> None:
    text = HELLO + "dev > publish a/+ x\ndev < disconnect code=0x82\ndev < fin"
    device, _ = Desk(text).connect()

    assert device.say("publish a/+ x") == ["disconnect 0x82"]
    good, _ = Desk(text).connect()
    # Who does it right is not disconnected for it.
    assert good.say("publish a/b x") == []
    good.desk.later(100)
    assert good.heard() == []


def test_subscriptions_that_differ_are_granted_filter_by_filter() -> None:
    text = HELLO + "dev > subscribe 1 a:2 b:1 c:1\ndev < suback 1 1 0x87 1\ndev > subscribe 2 d:0\ndev < suback 2 0"
    device, _ = Desk(text).connect()

    assert device.say("subscribe 9 c:0 a:2 b:2 e:1") == ["suback id=9 0 1 135 1"]


def test_times_are_the_recorded_ones() -> None:
    text = HELLO + "dev > publish a x qos=1 id=1\n+0.5 dev < puback 1\n+2 dev < publish b y"
    desk = Desk(text, speed=2.0)
    device, _ = desk.connect()
    desk.later(1)
    device.heard()
    assert device.say("publish a x qos=1 id=1") == []
    desk.later(0.3)
    assert device.heard() == ["puback id=1"]
    desk.later(0.9)
    assert device.heard() == []
    desk.later(0.2)
    assert device.heard() == ["publish b y qos=0"]


def test_the_keep_alive_of_the_device_is_enforced() -> None:
    desk = Desk("dev > connect keep_alive=10\ndev < connack\ndev > disconnect")
    device, _ = desk.connect("dev connect keep_alive=10")
    desk.later(14)
    assert device.say("pingreq") == ["pingresp"]
    desk.later(14.9)
    assert device.heard() == []
    desk.later(0.2)
    assert device.heard() == ["disconnect 0x8d"]


def test_a_client_that_connects_anew_ends_its_old_connection() -> None:
    desk = Desk(
        HELLO + "two > connect client=dev\ntwo < connack\ndev < disconnect code=0x8e\ndev < fin\ntwo > disconnect"
    )
    device, heard = desk.connect()
    assert heard == ["connack"]
    device.stand_in.take_over(desk.now)
    assert device.heard() == ["disconnect 0x8e"]

    desk = Desk(HELLO + "dev > disconnect")
    device, _ = desk.connect()
    device.stand_in.take_over(desk.now)
    assert device.heard() == ["disconnect 0x8e"]


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
    assert [one.split()[0] for one in heard] == ["auth"]
    assert [one.split()[0] for one in device.say("auth code=0x18 authentication_method=X")] == ["connack"]
    assert [one.split()[0] for one in device.say("auth code=0x19 authentication_method=X")] == ["auth"]
    # A device without a method is not asked for one (5.0 4.12).
    assert Desk(text).connect()[1] == ["connack"]


def test_responses_carry_what_the_device_asked_with() -> None:
    text = (
        HELLO
        + """
    dev > subscribe 1 answers:1
    dev < suback 1 1
    dev > publish ask x response_topic=answers correlation_data=one
    dev < publish answers y correlation_data=one
    """
    )
    device, _ = Desk(text).connect()
    device.say("subscribe 1 mine:1")
    heard = device.say("publish ask x response_topic=mine correlation_data=two")
    assert len(heard) == 1
    assert heard[0].startswith("publish mine y qos=0")
    assert "two" in heard[0]


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
    stand_in = device.stand_in
    assert stand_in.over is False
    other, _ = desk.connect("dev connect")
    assert other.say("connect") == ["disconnect 0x82"]


def test_packets_beyond_what_is_kept_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_KEPT_BYTES", 20 * live.ENTRY_COST)
    device, _ = Desk(MESSAGES).connect()
    device.say(*["pingreq"] * 50)

    assert len(device.stand_in.live.entries) <= 20
    (note,) = [one for one in device.stand_in.notes if "not compared" in one.text]
    assert device.stand_in.notes[note] == 2 + 100 - len(device.stand_in.live.entries)


def test_what_no_answer_is_recorded_of_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_WAITING_BYTES", 10 * live.ENTRY_COST)
    monkeypatch.setattr(live, "MAX_PINGS", 5)
    silent = (
        HELLO + "dev > subscribe 1 t/#:2\ndev > pingreq\ndev < publish t/a one qos=0\ndev > disconnect\ndev > fin\n"
    )
    device, _ = Desk(silent).connect()
    for number in range(1, 100):
        device.say(f"subscribe {number} t/#:2")
    stand_in = device.stand_in
    assert len(stand_in._waiting) <= 10
    assert stand_in._waiting_bytes == sum(live.ENTRY_COST + len(one.raw) for one in stand_in._waiting.values())


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
    assert device.stand_in.session.arrived == {}
    assert device.stand_in.session.arrived_bytes == 0


def test_messages_that_are_complete_use_no_room() -> None:
    device, _ = Desk(MESSAGES).connect()
    for number in range(1, 20):
        device.say(f"publish x {'p' * 20} qos=2 id=5")
        assert device.stand_in.session.arrived_bytes > 20, number
        device.say("pubrel 5")
        assert device.stand_in.session.arrived_bytes == 0


def test_of_many_sessions_those_with_something_in_them_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SESSIONS", 10)
    sessions = module.Sessions()
    kept = sessions.of("kept")
    kept.subscriptions["a"] = module.Subscribed(Subscription("a"), 0)
    for number in range(100):
        sessions.of(f"empty-{number}")
    assert sessions.of("kept") is kept
    assert len(sessions.known) <= 10
    for number in range(100):
        sessions.of(f"full-{number}").subscriptions["a"] = module.Subscribed(Subscription("a"), 0)
    assert len(sessions.known) <= 10
    assert "full-99" in sessions.known
