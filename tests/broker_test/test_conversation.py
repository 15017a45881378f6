"""What was said, as segments and frames."""

from __future__ import annotations

from mqttscope.broker_test.conversation import Conversation, frames
from mqttscope.dissect import dissect
from mqttscope.events import ConnectionClosed, PacketEvent
from mqttscope.mqtt import Connack, Connect, Pingreq, encode
from tests.broker_test.flows import V3_1_1


def talk() -> Conversation:
    made = Conversation(V3_1_1, 1_000)
    made.add(True, encode(Connect(client_identifier="a"), V3_1_1), 2_000)
    made.add(False, encode(Connack(session_present=False), V3_1_1), 3_000)
    made.add(True, encode(Pingreq(), V3_1_1), 4_000, mutated=True)
    return made


def test_what_each_side_sent() -> None:
    made = talk()

    assert made.sent(mutated=True) == b"\xc0\x00"
    assert made.begins == 2
    assert made.mutated_ranges() == [(len(made.sent()) - 2, len(made.sent()))]
    assert [type(one) for one in made.packets(from_client=True)] == [Connect, Pingreq]
    assert [type(one) for one in made.packets(from_client=False)] == [Connack]


def test_the_frames_say_the_same() -> None:
    made = talk()
    made.add(False, b"", 5_000, ends="reset")
    events = list(dissect(one.frame for one in frames(made)))

    assert [type(one.packet) for one in events if isinstance(one, PacketEvent)] == [Connect, Connack, Pingreq]
    assert [one.timestamp_ns for one in events if isinstance(one, PacketEvent)] == [2_000, 3_000, 4_000]
    closed = next(one for one in events if isinstance(one, ConnectionClosed))
    assert (closed.connection.closed_how, closed.connection.closed_by) == ("reset", "server")


def test_a_conversation_that_nobody_ended_is_ended_in_good_order() -> None:
    events = list(dissect(one.frame for one in frames(talk())))

    closed = next(one for one in events if isinstance(one, ConnectionClosed))
    assert closed.connection.closed_how == "fin"
