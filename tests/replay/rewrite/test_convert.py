"""Recordings in another version."""

from __future__ import annotations

import pytest

from mqttscope.mqtt.codec import decode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import EMPTY, Properties
from mqttscope.replay.rewrite.convert import ConversionError, convert
from mqttscope.replay.script import UNSAID
from tests.replay.recordings import (
    NAMES,
    V3_1,
    V3_1_1,
    V5,
    Recorder,
    captured,
    certain,
    links,
    packets,
    recorded,
    snapshot,
)

UP: list[tuple[str, ControlPacket, ControlPacket]] = [
    (
        ">",
        Connect(client_identifier="c", user_name="u", password=b"p", will=Will("a", b"b", 1, True)),
        Connect(
            "MQTT", 5, properties=EMPTY, client_identifier="c", user_name="u", password=b"p",
            will=Will("a", b"b", 1, True, EMPTY),
        ),
    ),
    (
        ">",
        Connect(client_identifier="c", clean_start=False),
        Connect(
            "MQTT", 5, clean_start=False, client_identifier="c",
            properties=Properties(session_expiry_interval=0xFFFFFFFF),
        ),
    ),
    *(("<", Connack(reason_code=code), Connack(reason_code=reason, properties=UNSAID))
      for code, reason in ((0, 0), (1, 0x84), (2, 0x85), (3, 0x88), (4, 0x86), (5, 0x87))),
    ("<", Connack(session_present=True), Connack(session_present=True, properties=UNSAID)),
    (">", Publish(topic_name="a"), Publish(topic_name="a", properties=EMPTY)),
    ("<", Publish(topic_name="a"), Publish(topic_name="a", properties=UNSAID)),
    ("<", Puback(1), Puback(1, 0, UNSAID)),
    (
        ">",
        Subscribe(1, subscriptions=[Subscription("a", 2)]),
        Subscribe(1, EMPTY, [Subscription("a", 2)]),
    ),
    ("<", Suback(1, reason_codes=[2, 0x80]), Suback(1, UNSAID, [2, 0x80])),
    (">", Unsubscribe(1, topic_filters=["a"]), Unsubscribe(1, EMPTY, ["a"])),
    ("<", Unsuback(1), Unsuback(1, UNSAID)),
    (">", Disconnect(), Disconnect()),
]  # fmt: skip


@pytest.mark.parametrize(("arrow", "packet", "wanted"), UP)
def test_from_3_1_1_to_5_0(arrow: str, packet: ControlPacket, wanted: ControlPacket) -> None:
    (script,), _ = convert(recorded((arrow, packet), version=V3_1_1, client=None), V5)
    (entry,) = script.entries

    assert entry.packet == wanted
    if arrow == "<":
        assert entry.packet.properties is UNSAID  # type: ignore[attr-defined]
    assert script.version == V5
    if not isinstance(wanted, Unsuback):
        assert not isinstance(decode(entry.raw, V5), Malformed)


@pytest.mark.parametrize(
    ("packet", "told"),
    [
        (Connect(client_identifier="", clean_start=False), r"connect.client_identifier cannot be converted"),
        (Connect(protocol_level=0x84), r"connect.protocol_level cannot be converted to MQTT 5.0"),
    ],
)
def test_what_5_0_cannot_say(packet: ControlPacket, told: str) -> None:
    with pytest.raises(ConversionError, match=told):
        convert(recorded((">", packet), version=V3_1_1, client=None), V5)


def test_from_3_1() -> None:
    recorder = Recorder()
    again = Subscribe(1, subscriptions=[Subscription("a", 1, reserved=0x40)], header_flags=0xA)
    recorder.connection((">", again), version=V3_1)
    (script,), changes = convert(recorder.scripts, V3_1_1)

    assert packets(script) == [
        Connect("MQTT", 4, client_identifier="c1", keep_alive=60),
        Connack(session_present=None),
        Subscribe(1, subscriptions=[Subscription("a", 1)]),
    ]
    assert script.entries[2].raw[0] == 0x82
    assert changes.sentences == [
        "1 SUBSCRIBE packet without its header flags, which MQTT 3.1.1 reserves",
        "1 connection converted from MQTT 3.1 to 3.1.1",
    ]
    (script,), _ = convert(recorder.scripts, V5)
    assert packets(script)[0] == Connect("MQTT", 5, client_identifier="c1", keep_alive=60, properties=EMPTY)
    with pytest.raises(ConversionError, match="nothing is converted to MQTT 3"):
        convert(recorded(), V3_1)


def test_the_error_names_packet_and_field() -> None:
    scripts = recorded((">", Publish(topic_name="a", properties=Properties(content_type="x"))))
    with pytest.raises(ConversionError) as caught:
        convert(scripts, V3_1_1)

    assert str(caught.value) == (
        "c1, frame 3: publish.properties.content_type cannot be converted to MQTT 3.1.1: MQTT 3.1.1 has no form for it"
    )
    assert caught.value.entry is scripts[0].entries[2]
    assert caught.value.field == "properties.content_type"


def test_repetitions_that_5_0_does_not_allow_are_told() -> None:
    first = Publish(qos=1, topic_name="a", packet_identifier=1)
    again = Publish(dup=True, qos=1, topic_name="a", packet_identifier=1)
    _, changes = convert(recorded((">", first), (">", again), version=V3_1_1), V5)

    assert changes.sentences[0].startswith("1 PUBLISH packet sent again on one connection")


@pytest.mark.parametrize("version", list(ProtocolVersion))
@pytest.mark.parametrize("name", NAMES)
def test_a_recording_of_the_version_is_left_as_it_is(name: str, version: ProtocolVersion) -> None:
    scripts = [script for script in captured(name) if script.version == version]
    copies, changes = convert(scripts, version)

    assert not changes
    for script, copy in zip(scripts, copies, strict=True):
        assert [entry.raw for entry in copy.entries] == [entry.raw for entry in script.entries]


@pytest.mark.parametrize("name", NAMES)
def test_from_3_1_1_to_5_0_and_back(name: str) -> None:
    scripts = [
        script
        for script in captured(name)
        if script.version == V3_1_1
        and certain(script)
        and not any(isinstance(entry.packet, Malformed) for entry in script.entries)
    ]
    if name == "refused-connect":
        # One is refused since it has no Client Identifier; MQTT 5.0 would accept it.
        with pytest.raises(ConversionError, match="client_identifier"):
            convert(scripts, V5)
        scripts = [script for script in scripts if script.connection.client_identifier]
    before = snapshot(scripts)
    there, _ = convert(scripts, V5)
    back, _ = convert(there, V3_1_1)

    assert snapshot(scripts) == before
    assert all(script.version == V5 for script in there)
    assert links(back) == links(scripts)
    for script, other in zip(scripts, back, strict=True):
        for one, two in zip(script.entries, other.entries, strict=True):
            assert two.packet == one.packet
            assert two.topic == one.topic
            if not getattr(one.packet, "missing", 0):
                assert two.raw == one.raw


@pytest.mark.parametrize("name", NAMES)
def test_what_was_converted_is_well_formed(name: str) -> None:
    for version in (V3_1_1, V5):
        for script in captured(name):
            try:
                (copy,), _ = convert([script], version)
            except ConversionError:
                continue
            for entry in copy.entries:
                found = decode(entry.raw, copy.version)
                unknown = isinstance(entry.packet, Unsuback) and script.version < copy.version == V5
                if not unknown and script.version != version:
                    assert not isinstance(found, Malformed), found


LOSING = "v5-subscription-identifiers"


def test_an_error_names_all_that_cannot_be_converted() -> None:
    scripts = captured(LOSING)
    with pytest.raises(ConversionError) as caught:
        convert(scripts, V3_1_1)

    told = str(caught.value).splitlines()
    kinds = {one.kind for one in caught.value.lost}
    assert len(kinds) >= 2
    assert told[0] == f"{len(caught.value.lost)} fields cannot be converted to MQTT 3.1.1:"
    assert len(told) == 1 + len(kinds)
    assert all(any(kind in line for line in told) for kind in kinds)


@pytest.mark.parametrize("name", NAMES)
def test_with_losses_all_of_5_0_becomes_3_1_1(name: str) -> None:
    """What is lost is said, what is left is well-formed, and links lead to what is there."""
    scripts = [script for script in captured(name) if script.version == V5 and certain(script)]
    before = snapshot(scripts)
    made, changes = convert(scripts, V3_1_1, lossy=True)

    assert snapshot(scripts) == before
    lost = 0
    for before_it, script in zip(scripts, made, strict=True):
        there = set(script.entries)
        lost += len(before_it.entries) - len(there)
        for entry in script.entries:
            assert not isinstance(entry.packet, Malformed)
            if not getattr(entry.packet, "missing", 0):
                assert not isinstance(decode(entry.raw, V3_1_1), Malformed), entry.packet
            assert entry.answers is None or entry.answers in there
            assert entry.resends is None or entry.resends in there
    assert not lost or any("left out" in sentence for sentence in changes.sentences)


def test_only_losses_of_5_0_may_be_allowed() -> None:
    refused = [script for script in captured("refused-connect") if not script.connection.client_identifier]
    with pytest.raises(ConversionError, match="client_identifier"):
        convert(refused, V5, lossy=True)
