"""What the recorded server said, made to fit a device."""

from __future__ import annotations

from tests.replay.server.desk import HELLO, Desk


def test_the_quality_of_a_subscription_and_the_limits_of_the_device_are_obeyed() -> None:
    text = f"""{HELLO.replace("connect", "connect topic_alias_maximum=10")}
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
    device, _ = Desk(text).connect("dev connect receive_maximum=1 maximum_packet_size=40")

    assert device.say("subscribe 1 t/#:1") == ["suback id=1 1", "publish t/a one qos=1 id=1"]
    # The next one had come before the first was acknowledged.
    assert device.say("puback 1") == ["publish t/a two qos=1 id=2", "publish t/c four qos=0"]


def test_subscriptions_that_differ_are_granted_filter_by_filter() -> None:
    text = HELLO + "dev > subscribe 1 a:2 b:1 c:1\ndev < suback 1 1 0x87 1\ndev > subscribe 2 d:0\ndev < suback 2 0"
    device, _ = Desk(text).connect()

    assert device.say("subscribe 9 c:0 a:2 b:2 e:1") == ["suback id=9 0 1 135 1"]


def test_responses_carry_what_the_device_asked_with() -> None:
    text = f"""{HELLO}
    dev > subscribe 1 answers:1
    dev < suback 1 1
    dev > publish ask x response_topic=answers correlation_data=one
    dev < publish answers y correlation_data=one
    """
    device, _ = Desk(text).connect()
    device.say("subscribe 1 mine:1")
    heard = device.say("publish ask x response_topic=mine correlation_data=two")
    assert len(heard) == 1
    assert heard[0].startswith("publish mine y qos=0")
    assert "two" in heard[0]
