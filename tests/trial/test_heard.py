"""The broker's side of a case, written down."""

from __future__ import annotations

from mqttscope.mqtt import ControlPacket, Malformed, Pingresp
from mqttscope.trial.conversation import Conversation
from mqttscope.trial.heard import Heard
from mqttscope.trial.inbox import MAX_RECEIVED_BYTES
from tests.trial.flows import V5


class Valve:
    """The part of a link that an inbox closes."""

    reading = True

    def read(self, on: bool) -> None:
        self.reading = on


def test_everything_is_noted_and_packets_are_handed_on() -> None:
    conversation, took = Conversation(V5), list[ControlPacket | Malformed]()
    heard = Heard(conversation, took.append)
    heard.received(b"\xd0")
    heard.received(b"\x00")
    heard.ended("failed", "")

    assert [one.data for one in conversation.said] == [b"\xd0", b"\x00", b""]
    assert [one.ends for one in conversation.said] == ["", "", "fin"]
    assert [type(one) for one in took] == [Pingresp]


def test_a_flood_is_not_listened_to_without_end() -> None:
    heard, valve = Heard(Conversation(V5), lambda packet: None), Valve()
    heard.link = valve  # type: ignore[assignment]
    heard.bytes = MAX_RECEIVED_BYTES - 1
    heard.received(b"\xd0")
    assert valve.reading
    heard.received(b"\x00")
    assert not valve.reading
