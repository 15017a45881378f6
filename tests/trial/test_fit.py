"""Recorded connections made to fit a broker."""

from __future__ import annotations

from mqttscope.mqtt import Connack, Connect, Properties, Publish, decode, encode
from mqttscope.trial.fit import fitted, flow_of, recorded_failures
from tests.replay.recordings import connect, conversation, publish
from tests.trial.flows import V3_1_1, V5, script


def live(**limits: int) -> Connack:
    made = decode(encode(Connack(session_present=False, properties=Properties(**limits)), V5), V5)
    assert isinstance(made, Connack)
    return made


def test_the_live_connack_takes_the_place_of_the_recorded_one() -> None:
    told = live(topic_alias_maximum=3)
    made = fitted(script(), told)

    assert made.connack is not None
    assert made.connack.packet is told
    assert flow_of(made, "hash", 4).entries[1].raw == told.raw


def test_the_client_keeps_to_the_limits_of_the_live_broker() -> None:
    made = fitted(script(), live(maximum_qos=0))
    sent = [one.packet for one in made.entries if one.from_client and isinstance(one.packet, Publish)]

    assert {one.qos for one in sent} == {0}
    # The recording is left as it was.
    assert {one.packet.qos for one in script().entries if isinstance(one.packet, Publish) and one.from_client} == {1, 2}


def test_credentials_are_replaced_without_a_connack_too() -> None:
    made = fitted(script(), None, user_name="tester", password=b"secret")
    first = made.entries[0]

    assert isinstance(first.packet, Connect)
    assert (first.packet.user_name, first.packet.password) == ("tester", b"secret")
    again = decode(first.raw, V5)
    assert isinstance(again, Connect)
    assert again.password == b"secret"


def test_before_5_0_there_is_no_password_without_a_user_name() -> None:
    for version, sent in ((V3_1_1, None), (V5, b"secret")):
        first = fitted(script(version), None, password=b"secret").entries[0].packet
        assert isinstance(first, Connect)
        assert first.password == sent


def test_what_was_refused_in_the_recording_is_known() -> None:
    told = conversation((">", connect()), ("<", Connack(reason_code=0x87, properties=Properties())), (">", publish()))

    assert recorded_failures(told) == {0x87}
