"""Recordings in another version."""

from __future__ import annotations

import pytest

from mqttscope.lint.conversation_text import parse_packet
from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import decode, encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import EMPTY
from mqttscope.replay.rewrite.convert import ConversionError, Losses, convert, to_3_1_1
from mqttscope.replay.rewrite.links import Changes
from mqttscope.replay.script import UNSAID, ScriptEntry
from tests.each import each
from tests.replay import recordings


def five(words: str) -> ControlPacket:
    """A packet of 5.0; without the word ``properties`` it has no empty block."""
    return parse_packet(words.split(), ProtocolVersion.V5, client_identifier="c", keep_alive=0)


def three(words: str) -> ControlPacket:
    """A packet of 3.1.1."""
    return parse_packet(words.split(), ProtocolVersion.V3_1_1, client_identifier="c", keep_alive=0)


def lost(line: str, topic: str | None = None) -> tuple[ControlPacket, ControlPacket | None, Losses]:
    """A packet of 5.0, what becomes of it in 3.1.1, and what is lost."""
    arrow, words = line.split(" ", 1)
    packet, losses = five(words), Losses()
    return packet, to_3_1_1(packet, ScriptEntry(arrow == ">", packet, topic, 0, 0), Changes(), losses), losses


FINE = {
    "> connect properties": "connect",
    "> connect resume session_expiry_interval=0xffffffff": "connect resume",
    "> connect session_expiry_interval=0 receive_maximum=65535 topic_alias_maximum=9 request_problem_information=0 "
    "request_response_information=0": "connect",
    "> connect properties will=a will.will_delay_interval=0": "connect will=a",
    "< connack code=0x87 properties": "connack code=5",
    "< connack assigned_client_identifier=x receive_maximum=20 maximum_qos=1": "connack",
    "> publish - topic_alias=1": "publish resolved",
    "> publish a payload_format_indicator=0": "publish a",
    "< puback 1 code=0x10": "puback 1",
    "< pubrec 1 code=0 properties": "pubrec 1",
    "> pubrel 1 code=0": "pubrel 1",
    "< pubcomp 1": "pubcomp 1",
    "> subscribe 1 a:2 properties": "subscribe 1 a:2",
    "< suback 1 0 1 2 0x80 properties": "suback 1 0 1 2 0x80",
    "> unsubscribe 1 a properties": "unsubscribe 1 a",
    "< unsuback 1 0 0x11 properties": "unsuback 1",
    "> pingreq": "pingreq",
    "> disconnect code=0": "disconnect",
}


@each("line, wanted", FINE.items())
def test_what_3_1_1_says_too(line: str, wanted: str) -> None:
    packet, control_packet, losses = lost(line, topic="resolved")

    assert losses.errors == []
    assert control_packet == three(wanted)
    assert control_packet is not packet


LOST = {
    "> connect resume properties": "properties.session_expiry_interval",
    "> connect session_expiry_interval=5": "properties.session_expiry_interval",
    "> connect session_expiry_interval=0xffffffff": "properties.session_expiry_interval",
    "> connect receive_maximum=5": "properties.receive_maximum",
    "> connect user_property=a:b": "properties.user_property",
    "> connect request_response_information=1": "properties.request_response_information",
    "> connect properties will=a will.will_delay_interval=5": "will.properties.will_delay_interval",
    "> connect properties will=a will.response_topic=r": "will.properties.response_topic",
    "> connect properties password=p": "password",
    "> connect properties client= resume": "client_identifier",
    "> connect properties connect_flags=3": "connect_flags",
    "< connack code=0x89": "reason_code",
    "< connack server_keep_alive=5": "properties.server_keep_alive",
    "< connack response_information=x": "properties.response_information",
    "> publish a response_topic=r": "properties.response_topic",
    "> publish a payload_format_indicator=1": "properties.payload_format_indicator",
    "> publish - topic_alias=1": "topic_name",
    "< puback 1 code=0x87": "reason_code",
    "> puback 1 code=0x10": "reason_code",
    "< puback 1 code=0 reason_string=why": "properties.reason_string",
    "> subscribe 1 subscription_identifier=1": "properties.subscription_identifier",
    "> subscribe 1 a:0,no_local": "subscriptions[0].no_local",
    "> subscribe 1 a a:0,retain_handling=2": "subscriptions[1].retain_handling",
    "> subscribe 1 $share/g/a": "subscriptions[0].topic_filter",
    "< suback 1 0 0x87 properties": "reason_codes[1]",
    "> unsubscribe 1 $share/g/a properties": "topic_filters[0]",
    "< unsuback 1 0x80 properties": "reason_codes[0]",
    "> disconnect code=4": "reason_code",
    "> disconnect code=0 session_expiry_interval=5": "properties.session_expiry_interval",
    "< disconnect code=0x8e": "",
    "> auth code=0x18": "",
}


@each("line, field", LOST.items())
def test_what_3_1_1_has_no_form_for(line: str, field: str) -> None:
    packet, control_packet, losses = lost(line)

    (loss,) = losses.errors
    assert loss.field == field
    assert loss.why
    assert loss.instead
    assert control_packet is not packet
    if control_packet is not None:
        # What is said in its place is 3.1.1.
        read = decode(encode(control_packet, ProtocolVersion.V3_1_1), ProtocolVersion.V3_1_1)
        assert not isinstance(read, Malformed), read


def test_all_of_a_packet_is_told_at_once() -> None:
    _, packet, losses = lost("> subscribe 1 $share/g/a:0,no_local b:1,retain_handling=2 subscription_identifier=1")

    assert [error.field for error in losses.errors] == [
        "subscriptions[0].topic_filter", "subscriptions[0].no_local", "subscriptions[1].retain_handling",
        "properties.subscription_identifier",
    ]  # fmt: skip
    assert packet == three("subscribe 1 $share/g/a b:1")


@each(
    "line, wanted",
    [
        ("> connect resume properties", "connect resume"),
        ("> connect session_expiry_interval=5", "connect"),
        ("> connect client= resume properties", "connect client="),
        ("> connect password=p properties", "connect"),
        ("< connack code=0x89", "connack code=3"),
        ("< connack code=0x8a", "connack code=5"),
        ("< suback 1 0 0x87 properties", "suback 1 0 0x80"),
        ("< pubrec 1 code=0x87", None),
        ("< puback 1 code=0x87", "puback 1"),
        ("> disconnect code=4", None),
        ("> auth code=0x18", None),
    ],
)
def test_what_is_said_instead(line: str, wanted: str | None) -> None:
    assert lost(line)[1] == (None if wanted is None else three(wanted))


WILL = "user_name=u password=p will=a will_payload=b will_qos=1 will_retain"
UP = {
    f"> connect {WILL}": f"connect {WILL} properties will.properties",
    "> connect resume": "connect resume session_expiry_interval=0xffffffff",
    "< connack code=0": "connack code=0 properties",
    "< connack code=1": "connack code=0x84 properties",
    "< connack code=2": "connack code=0x85 properties",
    "< connack code=3": "connack code=0x88 properties",
    "< connack code=4": "connack code=0x86 properties",
    "< connack code=5": "connack code=0x87 properties",
    "< connack present": "connack present properties",
    "> publish a": "publish a properties",
    "< publish a": "publish a properties",
    "< puback 1": "puback 1 code=0 properties",
    "> subscribe 1 a:2": "subscribe 1 a:2 properties",
    "< suback 1 2 0x80": "suback 1 2 0x80 properties",
    "> unsubscribe 1 a": "unsubscribe 1 a properties",
    "< unsuback 1": "unsuback 1 properties",
    "> disconnect": "disconnect",
}


@each("line, wanted", UP.items())
def test_from_3_1_1_to_5_0(line: str, wanted: str) -> None:
    arrow, words = line.split(" ", 1)
    recording = recordings.recorded((arrow, three(words)), version=recordings.V3_1_1, client=None)
    (script,), _ = convert(recording, recordings.V5)
    (entry,) = script.entries

    assert entry.packet == five(wanted)
    if arrow == "<":
        assert entry.packet.properties is UNSAID  # type: ignore[attr-defined]
    assert script.version == recordings.V5
    if not isinstance(entry.packet, packets.Unsuback):
        assert not isinstance(decode(entry.raw, recordings.V5), Malformed)


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        (packets.Connect(client_identifier="", clean_start=False), r"connect.client_identifier cannot be converted"),
        (packets.Connect(protocol_level=0x84), r"connect.protocol_level cannot be converted to MQTT 5.0"),
    ],
)
def test_what_5_0_cannot_say(packet: ControlPacket, expected: str) -> None:
    with pytest.raises(ConversionError, match=expected):
        convert(recordings.recorded((">", packet), version=recordings.V3_1_1, client=None), recordings.V5)


def test_from_3_1() -> None:
    recorder = recordings.Recorder()
    again = packets.Subscribe(1, subscriptions=[Subscription("a", 1, reserved=0x40)], header_flags=0xA)
    recorder.connection((">", again), version=recordings.V3_1)
    (script,), changes = convert(recorder.scripts, recordings.V3_1_1)

    assert recordings.packets(script) == [
        packets.Connect("MQTT", 4, client_identifier="c1", keep_alive=60),
        packets.Connack(session_present=None),
        packets.Subscribe(1, subscriptions=[Subscription("a", 1)]),
    ]
    assert script.entries[2].raw[0] == 0x82
    assert changes.sentences == [
        "1 SUBSCRIBE packet without its header flags, which MQTT 3.1.1 reserves",
        "1 connection converted from MQTT 3.1 to 3.1.1",
    ]
    (script,), _ = convert(recorder.scripts, recordings.V5)
    assert recordings.packets(script)[0] == packets.Connect(
        "MQTT", 5, client_identifier="c1", keep_alive=60, properties=EMPTY
    )
    with pytest.raises(ConversionError, match="nothing is converted to MQTT 3"):
        convert(recordings.recorded(), recordings.V3_1)


def test_the_error_names_packet_and_field() -> None:
    scripts = recordings.recorded("> publish a content_type=x")
    with pytest.raises(ConversionError) as caught:
        convert(scripts, recordings.V3_1_1)

    assert str(caught.value) == (
        "c1, frame 3: publish.properties.content_type cannot be converted to MQTT 3.1.1: MQTT 3.1.1 has no form for it"
    )
    assert caught.value.entry is scripts[0].entries[2]
    assert caught.value.field == "properties.content_type"


def test_repetitions_that_5_0_does_not_allow_are_told() -> None:
    scripts = recordings.recorded("> publish a qos=1 id=1", "> publish a qos=1 id=1 dup", version=recordings.V3_1_1)
    _, changes = convert(scripts, recordings.V5)

    assert changes.sentences[0].startswith("1 PUBLISH packet sent again on one connection")


@each("version", list(ProtocolVersion))
@each("name", recordings.NAMES)
def test_a_recording_of_the_version_is_left_as_it_is(name: str, version: ProtocolVersion) -> None:
    scripts = [script for script in recordings.captured(name) if script.version == version]
    copies, changes = convert(scripts, version)

    assert not changes
    recordings.check_untouched(scripts, copies)


@each("name", recordings.NAMES)
def test_from_3_1_1_to_5_0_and_back(name: str) -> None:
    scripts = [
        script
        for script in recordings.captured(name)
        if script.version == recordings.V3_1_1
        and recordings.certain(script)
        and not any(isinstance(entry.packet, Malformed) for entry in script.entries)
    ]
    if name == "refused-connect":
        # One is refused since it has no Client Identifier; MQTT 5.0 would accept it.
        with pytest.raises(ConversionError, match="client_identifier"):
            convert(scripts, recordings.V5)
        scripts = [script for script in scripts if script.connection.client_identifier]
    before = recordings.snapshot(scripts)
    there, _ = convert(scripts, recordings.V5)
    back, _ = convert(there, recordings.V3_1_1)

    assert recordings.snapshot(scripts) == before
    assert all(script.version == recordings.V5 for script in there)
    assert recordings.links(back) == recordings.links(scripts)
    for script, other in zip(scripts, back, strict=True):
        for script_entry, two in zip(script.entries, other.entries, strict=True):
            assert two.packet == script_entry.packet
            assert two.topic == script_entry.topic
            if not getattr(script_entry.packet, "missing", 0):
                assert two.raw == script_entry.raw


@each("name", recordings.NAMES)
def test_what_was_converted_is_well_formed(name: str) -> None:
    for version in (recordings.V3_1_1, recordings.V5):
        for script in recordings.captured(name):
            try:
                (copy,), _ = convert([script], version)
            except ConversionError:
                continue
            for entry in copy.entries:
                packet = decode(entry.raw, copy.version)
                unknown = isinstance(entry.packet, packets.Unsuback) and script.version < copy.version == recordings.V5
                if not unknown and script.version != version:
                    assert not isinstance(packet, Malformed), packet


LOSING = "v5-subscription-identifiers"


def test_an_error_names_all_that_cannot_be_converted() -> None:
    scripts = recordings.captured(LOSING)
    with pytest.raises(ConversionError) as caught:
        convert(scripts, recordings.V3_1_1)

    lines = str(caught.value).splitlines()
    kinds = {field.kind for field in caught.value.lost}
    assert len(kinds) >= 2
    assert lines[0] == f"{len(caught.value.lost)} fields cannot be converted to MQTT 3.1.1:"
    assert len(lines) == 1 + len(kinds)
    assert all(any(kind in line for line in lines) for kind in kinds)


@each("name", recordings.NAMES)
def test_with_losses_all_of_5_0_becomes_3_1_1(name: str) -> None:
    """What is lost is said, what is left is well-formed, and links lead to what is there."""
    scripts = [
        script for script in recordings.captured(name) if script.version == recordings.V5 and recordings.certain(script)
    ]
    before = recordings.snapshot(scripts)
    new_scripts, changes = convert(scripts, recordings.V3_1_1, lossy=True)

    assert recordings.snapshot(scripts) == before
    lost = 0
    everywhere = {entry for script in new_scripts for entry in script.entries}
    for before_it, script in zip(scripts, new_scripts, strict=True):
        there = set(script.entries)
        lost += len(before_it.entries) - len(there)
        for entry in script.entries:
            assert not isinstance(entry.packet, Malformed)
            if not getattr(entry.packet, "missing", 0):
                assert not isinstance(decode(entry.raw, recordings.V3_1_1), Malformed), entry.packet
            assert entry.answers is None or entry.answers in there
            assert entry.resends is None or entry.resends in everywhere
    assert not lost or any("left out" in sentence for sentence in changes.sentences)


def test_only_losses_of_5_0_may_be_allowed() -> None:
    refused = [script for script in recordings.captured("refused-connect") if not script.connection.client_identifier]
    with pytest.raises(ConversionError, match="client_identifier"):
        convert(refused, recordings.V5, lossy=True)
