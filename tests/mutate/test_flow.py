"""Flows and what comes of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqttscope.mqtt import Connect, PacketType, Pingreq, Publish, decode, encode
from mqttscope.mqtt.codec import packet_end
from mqttscope.mutate.flow import (
    CLIENT,
    SERVER,
    Action,
    Change,
    FlowStep,
    MutatedFlow,
    RecordedPacket,
    differences,
    recorded_steps,
)
from tests.mutate.talk import V3_1, V5, good, of_bytes


def test_the_first_packet_of_a_class_is_of_one_side() -> None:
    flow = good(V3_1)
    connect = flow.entries[0].packet

    assert flow.first(Connect, from_client=True) is connect
    assert flow.first(Connect, from_client=False) is None


def test_malformed_packets_have_no_place() -> None:
    flow = of_bytes([(CLIENT, b"\x36\x03\x00\x01a"), (CLIENT, encode(Pingreq()))], V5)

    assert flow.entries[0].packet_type is None
    assert flow.places(CLIENT) == [1]
    assert flow.places(CLIENT, PacketType.PUBLISH) == []
    assert flow.places(SERVER) == []


def test_recorded_steps_send_ones_own_packets_as_they_were_and_wait_for_the_others() -> None:
    flow = good(V5)
    steps = recorded_steps(flow, CLIENT)

    assert [step.entry for step in steps] == list(range(len(flow.entries)))
    assert steps[0] == FlowStep(Action.SEND, flow.entries[0].raw, 0)
    assert (steps[1].action, steps[1].awaits, steps[1].data) == (Action.AWAIT, PacketType.CONNACK, flow.entries[1].raw)
    assert steps[6].packet_identifier == 2
    assert not any(step.mutated for step in steps)


def test_the_place_of_a_mutation_is_its_first_step() -> None:
    steps = [FlowStep(Action.SEND, b"a"), FlowStep(Action.SEND, b"b", mutated=True), FlowStep(Action.AWAIT)]

    assert MutatedFlow("x", CLIENT, V5, steps).at == 1
    assert MutatedFlow("x", CLIENT, V5, steps).sent == b"ab"
    assert MutatedFlow("x", CLIENT, V5, []).at == 0


def test_a_change_is_told_without_the_length_that_follows_from_it() -> None:
    before = encode(Publish(topic_name="a/b", payload=b"x"))
    after = encode(Publish(topic_name="a/bc", payload=b"x"))

    length, topic_length, *_ = changes = differences(3, "topic_name", before, after, 2)

    assert length == Change(3, "remaining_length", 1, b"\x06", b"\x07")
    assert topic_length.offset >= 2
    assert len(changes) == 2


def test_nothing_changed_is_no_change() -> None:
    assert differences(0, "", b"\xc0\x00", b"\xc0\x00", 2) == ()


@given(st.binary(min_size=0, max_size=12), st.binary(min_size=0, max_size=12))
def test_changes_make_the_new_bytes_of_the_old_ones(old: bytes, new: bytes) -> None:
    before, after = bytes((0x30, len(old))) + old, bytes((0x30, len(new))) + new
    raw = before
    for difference in reversed(differences(0, "x", before, after, 2)):
        assert raw[difference.offset : difference.offset + len(difference.removed)] == difference.removed
        raw = raw[: difference.offset] + difference.inserted + raw[difference.offset + len(difference.removed) :]

    assert raw == after


def test_an_entry_knows_its_sender() -> None:
    raw = encode(Pingreq())

    assert packet_end(raw, 0, 2) == (2, 2)
    assert RecordedPacket(True, decode(raw), raw).sender == CLIENT
    assert RecordedPacket(False, decode(raw), raw).sender == SERVER
