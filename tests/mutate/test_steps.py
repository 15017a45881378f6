"""What mutations of flows share: where steps are put in, identifiers that are free, limits of the other side."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Connack, Disconnect, Malformed, PacketType, Pingreq, ProtocolVersion, Publish, decode
from mqttscope.mutate import Action, Chance, NotApplicableError, RecordedFlow, steps
from mqttscope.mutate.flow import CLIENT, SERVER, FlowStep, recorded_steps
from mqttscope.mutate.mutation import FlowTarget
from tests.mutate.talk import V3_1_1, V5, authenticated, good, limited, of_bytes, spoken

ALL = list(ProtocolVersion)


def target_of(flow: RecordedFlow, sender: str = CLIENT, seed: int = 0) -> FlowTarget:
    """A flow from the view of one side."""
    return FlowTarget(flow, sender, Chance("steps", seed), recorded_steps(flow, sender))


def connected(*, keep_alive: int = 60, answer: str = "") -> RecordedFlow:
    """CONNECT and CONNACK of 5.0."""
    return spoken(V5, f"> connect keep_alive={keep_alive}\n< connack {answer}")


def test_what_is_new_is_marked_as_the_mutation_s() -> None:
    assert steps.send(Pingreq(), V5) == FlowStep(Action.SEND, b"\xc0\x00", mutated=True)
    assert steps.send(b"\xff", V5).data == b"\xff"
    assert steps.wait(PacketType.PUBACK, 7) == FlowStep(
        Action.AWAIT, awaits=PacketType.PUBACK, packet_identifier=7, mutated=True
    )
    assert steps.pause(5) == FlowStep(Action.PAUSE, nanoseconds=5, mutated=True)
    recorded = target_of(good(V5)).steps[0]
    assert not recorded.mutated
    assert steps.mark_mutated(recorded) == FlowStep(recorded.action, recorded.data, recorded.entry, mutated=True)


@pytest.mark.parametrize("sender", [CLIENT, SERVER])
@pytest.mark.parametrize("version", ALL)
def test_the_open_connection_lies_between_connack_and_disconnect(version: ProtocolVersion, sender: str) -> None:
    flow = good(version)
    target = target_of(flow, sender)

    assert isinstance(flow.entries[steps.opening_index(target) - 1].packet, Connack)
    assert isinstance(flow.entries[steps.ending_index(target)].packet, Disconnect)


def test_a_connack_comes_after_authentication_and_from_the_server() -> None:
    target = target_of(authenticated())

    assert steps.opening_index(target) == 4
    assert target.flow.entries[steps.ending_index(target)].packet == decode(authenticated().entries[-1].raw, V5)
    assert steps.ending_index(target) == len(target.steps) - 1


def test_without_disconnect_the_connection_is_open_to_the_last_step() -> None:
    target = target_of(connected())

    assert (steps.opening_index(target), steps.ending_index(target)) == (2, 2)


@pytest.mark.parametrize(
    "flow",
    [connected(answer="code=0x87"), spoken(V5, "> connack"), RecordedFlow([], V5)],
    ids=["refused", "of the client", "empty"],
)
def test_a_connection_that_was_not_accepted_is_never_open(flow: RecordedFlow) -> None:
    with pytest.raises(NotApplicableError, match="accepts the connection"):
        steps.opening_index(target_of(flow))


def test_steps_are_put_in_at_an_index_and_the_recorded_ones_go_on_or_not() -> None:
    target = target_of(good(V5))
    added = [steps.send(Pingreq(), V5), steps.wait(PacketType.PINGRESP)]

    assert steps.insert(target, added, 3) == [*target.steps[:3], *added, *target.steps[3:]]
    assert steps.insert(target, added, 3, rest=False) == [*target.steps[:3], *added]
    assert steps.insert(target, added, len(target.steps)) == [*target.steps, *added]


def test_chance_puts_steps_everywhere_on_the_open_connection_and_nowhere_else() -> None:
    added = [steps.pause(1)]
    places = set()
    for seed in range(600):
        target = target_of(good(V5), seed=seed)
        flow_steps = steps.insert(target, added)
        places.add(flow_steps.index(added[0]))
        assert [step for step in flow_steps if step is not added[0]] == target.steps

    target = target_of(good(V5))
    assert places == set(range(steps.opening_index(target), steps.ending_index(target) + 1))


def test_free_identifiers_are_those_that_neither_side_uses_the_highest_first() -> None:
    flow = connected()
    flow.entries += spoken(V5, "< puback 65534").entries
    target = target_of(flow)

    assert steps.free_identifiers(target, 3) == [65_535, 65_533, 65_532]
    assert steps.free_identifiers(target, 0) == []


def test_there_are_no_more_identifiers_than_65_535() -> None:
    target = target_of(good(V3_1_1))
    used = {getattr(recorded_packet.packet, "packet_identifier", None) for recorded_packet in target.flow.entries} - {
        None
    }
    free = 65_535 - len(used)

    assert len(used) == 4
    assert steps.free_identifiers(target, free)[-1] == 5
    with pytest.raises(NotApplicableError, match="not enough free"):
        steps.free_identifiers(target, free + 1)


def test_what_is_malformed_has_no_identifier_to_use() -> None:
    flow = connected()
    flow.entries += of_bytes([(CLIENT, b"\x40\x03\xff\xff\x01\x00")], V3_1_1).entries
    assert isinstance(flow.entries[-1].packet, Malformed)

    assert steps.free_identifiers(target_of(flow), 1) == [65_535]


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publish_is_well_formed_in_every_version(version: ProtocolVersion, qos: int) -> None:
    packet = steps.publish(target_of(good(version)), qos, 9, "/x")
    actual_packet = decode(steps.send(packet, version).data, version)

    assert isinstance(actual_packet, Publish)
    assert actual_packet == packet
    assert (actual_packet.qos, actual_packet.packet_identifier) == (qos, 9 if qos else None)
    assert actual_packet.topic_name == "mqttscope/mutate/x"


def test_no_qos_is_asked_of_a_server_that_does_not_take_it() -> None:
    assert steps.publish(target_of(limited()), 0).qos == 0
    with pytest.raises(NotApplicableError, match="the server does not accept QoS 1"):
        steps.publish(target_of(limited()), 1, 1)
    # The limit is one on what clients send.
    assert steps.publish(target_of(limited(), SERVER), 2, 1).qos == 2


def test_keep_alive_is_the_server_s_where_it_has_one() -> None:
    assert steps.keep_alive(target_of(connected(keep_alive=30))) == 30
    assert steps.keep_alive(target_of(connected(keep_alive=30, answer="server_keep_alive=5"))) == 5
    assert steps.keep_alive(target_of(connected(keep_alive=30, answer="server_keep_alive=0"))) == 0


def test_without_connect_there_is_no_keep_alive() -> None:
    target = target_of(spoken(V5, "< connack"))

    for asked in (steps.recorded_connect, steps.keep_alive):
        with pytest.raises(NotApplicableError, match="no CONNECT"):
            asked(target)
    assert steps.recorded_connect(target_of(good(V5))).client_identifier == "device1"


def test_steps_that_send_are_those_with_bytes() -> None:
    target = target_of(good(V5))
    target.steps.insert(3, FlowStep(Action.SEND))
    numbers = steps.sending_steps(target)

    assert numbers[0] == 0
    assert 3 not in numbers
    assert {target.steps[index].action for index in numbers} == {Action.SEND}
    assert len(numbers) == len(target.flow.places(CLIENT))
    assert steps.sending_steps(target, start=4) == [index for index in numbers if index >= 4]
