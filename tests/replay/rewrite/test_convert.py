"""Recordings in another version."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import decode, encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import EMPTY, Properties
from mqttscope.replay.rewrite.convert import ConversionError, Losses, convert, to_3_1_1
from mqttscope.replay.rewrite.links import Changes
from mqttscope.replay.script import UNSAID, Entry
from tests.each import each
from tests.replay import recordings


def converted(packet: ControlPacket, *, from_client: bool, topic: str | None = None) -> ControlPacket:
    losses = Losses()
    found = to_3_1_1(packet, Entry(from_client, packet, topic, 0, 0), Changes(), losses)
    assert losses.found == []
    assert found is not None
    return found


def lost(packet: ControlPacket, *, from_client: bool) -> tuple[ControlPacket | None, Losses]:
    losses = Losses()
    return to_3_1_1(packet, Entry(from_client, packet, None, 0, 0), Changes(), losses), losses


def hello(**fields: object) -> packets.Connect:
    return packets.Connect("MQTT", 5, **{"client_identifier": "c", "properties": EMPTY, **fields})  # type: ignore[arg-type]


FINE: list[tuple[bool, ControlPacket, ControlPacket]] = [
    (True, hello(), packets.Connect(client_identifier="c")),
    (
        True,
        hello(clean_start=False, properties=Properties(session_expiry_interval=0xFFFFFFFF)),
        packets.Connect(client_identifier="c", clean_start=False),
    ),
    (
        True,
        hello(
            properties=Properties(
                session_expiry_interval=0,
                receive_maximum=65_535,
                topic_alias_maximum=9,
                request_problem_information=0,
                request_response_information=0,
            )
        ),
        packets.Connect(client_identifier="c"),
    ),
    (
        True,
        hello(will=Will("a", properties=Properties(will_delay_interval=0))),
        packets.Connect(client_identifier="c", will=Will("a")),
    ),
    (False, packets.Connack(reason_code=0x87, properties=EMPTY), packets.Connack(reason_code=5)),
    (
        False,
        packets.Connack(properties=Properties(assigned_client_identifier="x", receive_maximum=20, maximum_qos=1)),
        packets.Connack(),
    ),
    (
        True,
        packets.Publish(topic_name="", properties=Properties(topic_alias=1)),
        packets.Publish(topic_name="resolved"),
    ),
    (
        True,
        packets.Publish(topic_name="a", properties=Properties(payload_format_indicator=0)),
        packets.Publish(topic_name="a"),
    ),
    (False, packets.Puback(1, 0x10), packets.Puback(1)),
    (False, packets.Pubrec(1, 0x00, EMPTY), packets.Pubrec(1)),
    (True, packets.Pubrel(1, 0x00), packets.Pubrel(1)),
    (False, packets.Pubcomp(1), packets.Pubcomp(1)),
    (
        True,
        packets.Subscribe(1, EMPTY, subscriptions=[Subscription("a", 2)]),
        packets.Subscribe(1, subscriptions=[Subscription("a", 2)]),
    ),
    (False, packets.Suback(1, EMPTY, [0, 1, 2, 0x80]), packets.Suback(1, reason_codes=[0, 1, 2, 0x80])),
    (True, packets.Unsubscribe(1, EMPTY, ["a"]), packets.Unsubscribe(1, topic_filters=["a"])),
    (False, packets.Unsuback(1, EMPTY, [0, 0x11]), packets.Unsuback(1)),
    (True, packets.Pingreq(), packets.Pingreq()),
    (True, packets.Disconnect(0), packets.Disconnect()),
]


@pytest.mark.parametrize(("from_client", "packet", "wanted"), FINE)
def test_what_3_1_1_says_too(from_client: bool, packet: ControlPacket, wanted: ControlPacket) -> None:
    found = converted(packet, from_client=from_client, topic="resolved")

    assert found == wanted
    assert found is not packet


LOST: list[tuple[bool, ControlPacket, str]] = [
    (True, hello(clean_start=False), "properties.session_expiry_interval"),
    (True, hello(properties=Properties(session_expiry_interval=5)), "properties.session_expiry_interval"),
    (True, hello(properties=Properties(session_expiry_interval=0xFFFFFFFF)), "properties.session_expiry_interval"),
    (True, hello(properties=Properties(receive_maximum=5)), "properties.receive_maximum"),
    (True, hello(properties=Properties(user_property=[("a", "b")])), "properties.user_property"),
    (True, hello(properties=Properties(request_response_information=1)), "properties.request_response_information"),
    (True, hello(will=Will("a", properties=Properties(will_delay_interval=5))), "will.properties.will_delay_interval"),
    (True, hello(will=Will("a", properties=Properties(response_topic="r"))), "will.properties.response_topic"),
    (True, hello(password=b"p"), "password"),
    (True, hello(client_identifier="", clean_start=False), "client_identifier"),
    (True, hello(connect_flags=3), "connect_flags"),
    (False, packets.Connack(reason_code=0x89), "reason_code"),
    (False, packets.Connack(properties=Properties(server_keep_alive=5)), "properties.server_keep_alive"),
    (False, packets.Connack(properties=Properties(response_information="x")), "properties.response_information"),
    (True, packets.Publish(properties=Properties(response_topic="r"), topic_name="a"), "properties.response_topic"),
    (
        True,
        packets.Publish(topic_name="a", properties=Properties(payload_format_indicator=1)),
        "properties.payload_format_indicator",
    ),
    (True, packets.Publish(properties=Properties(topic_alias=1)), "topic_name"),
    (False, packets.Puback(1, 0x87), "reason_code"),
    (True, packets.Puback(1, 0x10), "reason_code"),
    (False, packets.Puback(1, 0, Properties(reason_string="why")), "properties.reason_string"),
    (True, packets.Subscribe(1, Properties(subscription_identifier=1)), "properties.subscription_identifier"),
    (True, packets.Subscribe(1, subscriptions=[Subscription("a", no_local=True)]), "subscriptions[0].no_local"),
    (
        True,
        packets.Subscribe(1, subscriptions=[Subscription("a"), Subscription("a", retain_handling=2)]),
        "subscriptions[1].retain_handling",
    ),
    (True, packets.Subscribe(1, subscriptions=[Subscription("$share/g/a")]), "subscriptions[0].topic_filter"),
    (False, packets.Suback(1, EMPTY, [0, 0x87]), "reason_codes[1]"),
    (True, packets.Unsubscribe(1, EMPTY, ["$share/g/a"]), "topic_filters[0]"),
    (False, packets.Unsuback(1, EMPTY, [0x80]), "reason_codes[0]"),
    (True, packets.Disconnect(4), "reason_code"),
    (True, packets.Disconnect(0, Properties(session_expiry_interval=5)), "properties.session_expiry_interval"),
    (False, packets.Disconnect(0x8E), ""),
    (True, packets.Auth(0x18), ""),
]


@each("from_client, packet, field", LOST)
def test_what_3_1_1_has_no_form_for(from_client: bool, packet: ControlPacket, field: str) -> None:
    found, losses = lost(packet, from_client=from_client)

    (loss,) = losses.found
    assert loss.field == field
    assert loss.why
    assert loss.instead
    assert found is not packet
    if found is not None:
        # What is said in its place is 3.1.1.
        read = decode(encode(found, ProtocolVersion.V3_1_1), ProtocolVersion.V3_1_1)
        assert not isinstance(read, Malformed), read


def test_all_of_a_packet_is_told_at_once() -> None:
    rows = [Subscription("$share/g/a", no_local=True), Subscription("b", 1, retain_handling=2)]
    found, losses = lost(packets.Subscribe(1, Properties(subscription_identifier=1), rows), from_client=True)

    assert [one.field for one in losses.found] == [
        "subscriptions[0].topic_filter", "subscriptions[0].no_local", "subscriptions[1].retain_handling",
        "properties.subscription_identifier",
    ]  # fmt: skip
    assert found == packets.Subscribe(1, subscriptions=[Subscription("$share/g/a"), Subscription("b", 1)])


@pytest.mark.parametrize(
    ("from_client", "packet", "wanted"),
    [
        (True, hello(clean_start=False), packets.Connect(client_identifier="c", clean_start=False)),
        (True, hello(properties=Properties(session_expiry_interval=5)), packets.Connect(client_identifier="c")),
        (True, hello(client_identifier="", clean_start=False), packets.Connect(clean_start=True)),
        (True, hello(password=b"p"), packets.Connect(client_identifier="c")),
        (False, packets.Connack(reason_code=0x89), packets.Connack(reason_code=3)),
        (False, packets.Connack(reason_code=0x8A), packets.Connack(reason_code=5)),
        (False, packets.Suback(1, EMPTY, [0, 0x87]), packets.Suback(1, reason_codes=[0, 0x80])),
        (False, packets.Pubrec(1, 0x87), None),
        (False, packets.Puback(1, 0x87), packets.Puback(1)),
        (True, packets.Disconnect(4), None),
        (True, packets.Auth(0x18), None),
    ],
)
def test_what_is_said_instead(from_client: bool, packet: ControlPacket, wanted: ControlPacket | None) -> None:
    assert lost(packet, from_client=from_client)[0] == wanted


UP: list[tuple[str, ControlPacket, ControlPacket]] = [
    (
        ">",
        packets.Connect(client_identifier="c", user_name="u", password=b"p", will=Will("a", b"b", 1, True)),
        packets.Connect(
            "MQTT", 5, properties=EMPTY, client_identifier="c", user_name="u", password=b"p",
            will=Will("a", b"b", 1, True, EMPTY),
        ),
    ),
    (
        ">",
        packets.Connect(client_identifier="c", clean_start=False),
        packets.Connect(
            "MQTT", 5, clean_start=False, client_identifier="c",
            properties=Properties(session_expiry_interval=0xFFFFFFFF),
        ),
    ),
    *(("<", packets.Connack(reason_code=code), packets.Connack(reason_code=reason, properties=UNSAID))
      for code, reason in ((0, 0), (1, 0x84), (2, 0x85), (3, 0x88), (4, 0x86), (5, 0x87))),
    ("<", packets.Connack(session_present=True), packets.Connack(session_present=True, properties=UNSAID)),
    (">", packets.Publish(topic_name="a"), packets.Publish(topic_name="a", properties=EMPTY)),
    ("<", packets.Publish(topic_name="a"), packets.Publish(topic_name="a", properties=UNSAID)),
    ("<", packets.Puback(1), packets.Puback(1, 0, UNSAID)),
    (
        ">",
        packets.Subscribe(1, subscriptions=[Subscription("a", 2)]),
        packets.Subscribe(1, EMPTY, [Subscription("a", 2)]),
    ),
    ("<", packets.Suback(1, reason_codes=[2, 0x80]), packets.Suback(1, UNSAID, [2, 0x80])),
    (">", packets.Unsubscribe(1, topic_filters=["a"]), packets.Unsubscribe(1, EMPTY, ["a"])),
    ("<", packets.Unsuback(1), packets.Unsuback(1, UNSAID)),
    (">", packets.Disconnect(), packets.Disconnect()),
]  # fmt: skip


@pytest.mark.parametrize(("arrow", "packet", "wanted"), UP)
def test_from_3_1_1_to_5_0(arrow: str, packet: ControlPacket, wanted: ControlPacket) -> None:
    (script,), _ = convert(recordings.recorded((arrow, packet), version=recordings.V3_1_1, client=None), recordings.V5)
    (entry,) = script.entries

    assert entry.packet == wanted
    if arrow == "<":
        assert entry.packet.properties is UNSAID  # type: ignore[attr-defined]
    assert script.version == recordings.V5
    if not isinstance(wanted, packets.Unsuback):
        assert not isinstance(decode(entry.raw, recordings.V5), Malformed)


@pytest.mark.parametrize(
    ("packet", "told"),
    [
        (packets.Connect(client_identifier="", clean_start=False), r"connect.client_identifier cannot be converted"),
        (packets.Connect(protocol_level=0x84), r"connect.protocol_level cannot be converted to MQTT 5.0"),
    ],
)
def test_what_5_0_cannot_say(packet: ControlPacket, told: str) -> None:
    with pytest.raises(ConversionError, match=told):
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
    scripts = recordings.recorded((">", packets.Publish(topic_name="a", properties=Properties(content_type="x"))))
    with pytest.raises(ConversionError) as caught:
        convert(scripts, recordings.V3_1_1)

    assert str(caught.value) == (
        "c1, frame 3: publish.properties.content_type cannot be converted to MQTT 3.1.1: MQTT 3.1.1 has no form for it"
    )
    assert caught.value.entry is scripts[0].entries[2]
    assert caught.value.field == "properties.content_type"


def test_repetitions_that_5_0_does_not_allow_are_told() -> None:
    first = packets.Publish(qos=1, topic_name="a", packet_identifier=1)
    again = packets.Publish(dup=True, qos=1, topic_name="a", packet_identifier=1)
    _, changes = convert(recordings.recorded((">", first), (">", again), version=recordings.V3_1_1), recordings.V5)

    assert changes.sentences[0].startswith("1 PUBLISH packet sent again on one connection")


@each("version", list(ProtocolVersion))
@each("name", recordings.NAMES)
def test_a_recording_of_the_version_is_left_as_it_is(name: str, version: ProtocolVersion) -> None:
    scripts = [script for script in recordings.captured(name) if script.version == version]
    copies, changes = convert(scripts, version)

    assert not changes
    for script, copy in zip(scripts, copies, strict=True):
        assert [entry.raw for entry in copy.entries] == [entry.raw for entry in script.entries]


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
        for one, two in zip(script.entries, other.entries, strict=True):
            assert two.packet == one.packet
            assert two.topic == one.topic
            if not getattr(one.packet, "missing", 0):
                assert two.raw == one.raw


@each("name", recordings.NAMES)
def test_what_was_converted_is_well_formed(name: str) -> None:
    for version in (recordings.V3_1_1, recordings.V5):
        for script in recordings.captured(name):
            try:
                (copy,), _ = convert([script], version)
            except ConversionError:
                continue
            for entry in copy.entries:
                found = decode(entry.raw, copy.version)
                unknown = isinstance(entry.packet, packets.Unsuback) and script.version < copy.version == recordings.V5
                if not unknown and script.version != version:
                    assert not isinstance(found, Malformed), found


LOSING = "v5-subscription-identifiers"


def test_an_error_names_all_that_cannot_be_converted() -> None:
    scripts = recordings.captured(LOSING)
    with pytest.raises(ConversionError) as caught:
        convert(scripts, recordings.V3_1_1)

    told = str(caught.value).splitlines()
    kinds = {one.kind for one in caught.value.lost}
    assert len(kinds) >= 2
    assert told[0] == f"{len(caught.value.lost)} fields cannot be converted to MQTT 3.1.1:"
    assert len(told) == 1 + len(kinds)
    assert all(any(kind in line for line in told) for kind in kinds)


@each("name", recordings.NAMES)
def test_with_losses_all_of_5_0_becomes_3_1_1(name: str) -> None:
    """What is lost is said, what is left is well-formed, and links lead to what is there."""
    scripts = [
        script for script in recordings.captured(name) if script.version == recordings.V5 and recordings.certain(script)
    ]
    before = recordings.snapshot(scripts)
    made, changes = convert(scripts, recordings.V3_1_1, lossy=True)

    assert recordings.snapshot(scripts) == before
    lost = 0
    everywhere = {entry for script in made for entry in script.entries}
    for before_it, script in zip(scripts, made, strict=True):
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
