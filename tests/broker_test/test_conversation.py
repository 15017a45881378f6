"""What was said, as segments and frames."""

from __future__ import annotations

from mqttscope.broker_test.conversation import Conversation, frames
from mqttscope.dissect import dissect
from mqttscope.events import ConnectionClosed, PacketEvent
from mqttscope.mqtt import Connack, Connect, Pingreq, encode
from tests.broker_test.flows import V3_1_1


def talk() -> Conversation:
    conversation = Conversation(V3_1_1, 1_000)
    conversation.add(True, encode(Connect(client_identifier="a"), V3_1_1), 2_000)
    conversation.add(False, encode(Connack(session_present=False), V3_1_1), 3_000)
    conversation.add(True, encode(Pingreq(), V3_1_1), 4_000, mutated=True)
    return conversation


def test_what_each_side_sent() -> None:
    conversation = talk()

    assert conversation.sent(mutated=True) == b"\xc0\x00"
    assert conversation.begins == 2
    assert conversation.mutated_ranges() == [(len(conversation.sent()) - 2, len(conversation.sent()))]
    assert [type(packet) for packet in conversation.packets(from_client=True)] == [Connect, Pingreq]
    assert [type(packet) for packet in conversation.packets(from_client=False)] == [Connack]


def test_the_frames_say_the_same() -> None:
    conversation = talk()
    conversation.add(False, b"", 5_000, ends="reset")
    events = list(dissect(segment.frame for segment in frames(conversation)))

    assert [type(event.packet) for event in events if isinstance(event, PacketEvent)] == [Connect, Connack, Pingreq]
    assert [event.timestamp_ns for event in events if isinstance(event, PacketEvent)] == [2_000, 3_000, 4_000]
    closed = next(event for event in events if isinstance(event, ConnectionClosed))
    assert (closed.connection.closed_how, closed.connection.closed_by) == ("reset", "server")


def test_a_conversation_that_nobody_ended_is_ended_in_good_order() -> None:
    events = list(dissect(segment.frame for segment in frames(talk())))

    closed = next(event for event in events if isinstance(event, ConnectionClosed))
    assert closed.connection.closed_how == "fin"
