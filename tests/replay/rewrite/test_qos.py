"""Another QoS, and what follows from it."""

from __future__ import annotations

import pytest

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.replay.rewrite.qos import change_qos
from mqttscope.replay.script import Script
from tests.each import each
from tests.replay.recordings import NAMES, Recorder, captured, changed, check_links, packets, recorded

Said = tuple[str, ControlPacket]
ZERO: list[Said] = [(">", Publish(topic_name="a"))]
ONE: list[Said] = [(">", Publish(qos=1, topic_name="a", packet_identifier=1)), ("<", Puback(1))]
RECEIVED: list[Said] = [("<", Pubrec(1)), (">", Pubrel(1)), ("<", Pubcomp(1))]
TWO: list[Said] = [(">", Publish(qos=2, topic_name="a", packet_identifier=1)), *RECEIVED]


def done(scripts: list[Script], qos: int) -> tuple[list[Script], list[str]]:
    copies, changes = changed(scripts, lambda copies, changes: change_qos(copies, qos, changes))
    check_links(copies)
    return copies, changes.sentences


@pytest.mark.parametrize("before", [ZERO, ONE, TWO])
@pytest.mark.parametrize(("qos", "wanted"), [(0, ZERO), (1, ONE), (2, TWO)])
def test_the_handshake_follows(before: list[Said], qos: int, wanted: list[Said]) -> None:
    (script,), _ = done(recorded(*before), qos)

    assert packets(script)[2:] == [packet for _, packet in wanted]
    assert [entry.from_client for entry in script.entries[2:]] == [arrow == ">" for arrow, _ in wanted]
    assert [entry.answers for entry in script.entries[3:]] == [script.entries[2]] * (len(wanted) - 1)


def test_repetitions_disappear_with_qos_0() -> None:
    again = Publish(dup=True, qos=1, topic_name="a", packet_identifier=1)
    recorder = Recorder()
    recorder.connection(ONE[0], (">", again))
    recorder.connection((">", again), "< puback 1")
    scripts, texts = done(recorder.scripts, 0)

    assert [packets(script)[2:] for script in scripts] == [[ZERO[0][1]], []]
    assert texts == [
        "3 PUBLISH packets lowered to QoS 0",
        "1 acknowledgement dropped",
        "2 repetitions dropped: QoS 0 is sent once",
    ]


def test_the_end_of_a_handshake_on_another_connection_disappears_too() -> None:
    recorder = Recorder()
    recorder.connection(*TWO[:2])
    recorder.connection(*TWO[2:])
    scripts, _ = done(recorder.scripts, 1)

    assert [packets(script)[2:] for script in scripts] == [[packet for _, packet in ONE], []]


def test_identifiers_that_the_client_uses_are_not_taken() -> None:
    subscribe = Subscribe(1, subscriptions=[Subscription("b")])
    recorder = Recorder()
    recorder.connection(*ZERO, (">", subscribe), "< suback 1 0", *ZERO)
    recorder.connection("> publish c qos=1 id=3")
    scripts, texts = done(recorder.scripts, 1)
    numbers = [packet.packet_identifier for packet in packets(scripts[0]) if isinstance(packet, Publish | Puback)]

    assert numbers == [2, 2, 4, 4]
    assert "2 acknowledgements put in" in texts


def test_an_error_ends_the_exchange() -> None:
    (script,), _ = done(recorded(ONE[0], "< puback 1 code=0x87"), 2)

    assert packets(script)[3:] == [Pubrec(1, 0x87)]


def test_nothing_is_expected_of_a_server_that_goes() -> None:
    (script,), _ = done(recorded(*ZERO, "< disconnect code=0x87"), 1)

    assert packets(script)[3:] == [Disconnect(0x87)]


def test_deliveries_are_lowered_with_their_message_and_others_are_not() -> None:
    delivered: list[Said] = [
        ("<", Publish(qos=1, topic_name="a", packet_identifier=7)),
        (">", Puback(7)),
        ("<", Publish(qos=1, topic_name="other", packet_identifier=8)),
        (">", Puback(8)),
    ]
    (script,), texts = done(recorded(*ONE, *delivered), 0)

    assert packets(script)[2:] == [ZERO[0][1], ZERO[0][1], *(packet for _, packet in delivered[2:])]
    assert "1 delivery expected with a lower QoS" in texts
    _, texts = done(recorded(*ONE, *delivered), 2)
    assert texts[-1] == "deliveries of messages with a raised QoS are still expected as recorded"


@each("qos", [0, 1, 2])
@each("name", NAMES)
def test_all_captures(name: str, qos: int) -> None:
    scripts, _ = done(captured(name), qos)

    for script in scripts:
        for entry in script.entries:
            if entry.from_client and isinstance(entry.packet, Publish):
                assert entry.packet.qos == qos
                assert (entry.packet.packet_identifier is not None) == (qos > 0)
                assert entry.raw == entry.packet.raw
            if entry.from_client and isinstance(entry.packet, Pubrel) and entry.answers is not None:
                assert qos == 2
        assert isinstance(script.version, ProtocolVersion)
