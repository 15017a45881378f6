"""Conversations as text: every word of the notation, and what is wrong with a line."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.lint.conversation_text import (
    ConversationTextError,
    parse_conversations,
    parse_packet,
)
from mqttscope.lint.examples import (
    ExampleConversation,
    ExampleStep,
    acknowledges,
    client,
    closes,
    conversation,
    crossing,
    examples,
    framed,
    lost,
    make_connect,
    on,
    opened,
    server,
    silent,
    silent_frame,
    upgraded,
)
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties
from mqttscope.net import websocket
from tests.each import each

V3_1, V3_1_1, V5 = ProtocolVersion


def read(steps: str) -> ExampleConversation:
    (only,) = parse_conversations(f"title\n    {steps}")
    return only


def steps_of(steps: str) -> tuple[ExampleStep, ...]:
    return read(steps).steps


PACKETS: dict[str, Any] = {
    "connect": make_connect(),
    "connect 3.1": make_connect(V3_1),
    "connect 3.1.1 client=- keep_alive=0 resume": make_connect(
        V3_1_1, client_identifier="", keep_alive=0, clean_start=False
    ),
    "connect user_name=u password=p": make_connect(user_name="u", password=b"p"),
    "connect password=0x00ff": make_connect(password=b"\x00\xff"),
    "connect will=w": make_connect(will=Will("w")),
    "connect will=w will_payload=gone will_qos=2 will_retain will.will_delay_interval=5": make_connect(
        will=Will("w", b"gone", 2, True, Properties(will_delay_interval=5))
    ),
    "connect will=w will.properties": make_connect(will=Will("w", properties=Properties())),
    "connect protocol_name=MQTX protocol_level=0x84": Connect(
        protocol_name="MQTX", protocol_level=0x84, keep_alive=60, client_identifier="c1"
    ),
    "connect receive_maximum=7 session_expiry_interval=0xffffffff": make_connect(
        properties=Properties(receive_maximum=7, session_expiry_interval=0xFFFFFFFF)
    ),
    "connack": Connack(),
    "connack present code=0x87 reason_string=no": Connack(
        session_present=True, reason_code=0x87, properties=Properties(reason_string="no")
    ),
    "publish": Publish(),
    "publish a/b": Publish(topic_name="a/b"),
    "publish - hot dup retain qos=2 id=5": Publish(True, 2, True, "", 5, payload=b"hot"),
    "publish a 0x00ff": Publish(topic_name="a", payload=b"\x00\xff"),
    'publish "a b" "{\\"a\\": 1; 2}"': Publish(topic_name="a b", payload=b'{"a": 1; 2}'),
    'publish "a"*3 "ab"*2"c"': Publish(topic_name="aaa", payload=b"ababc"),
    "publish a 0x0102*3": Publish(topic_name="a", payload=b"\x01\x02" * 3),
    "publish a topic_alias=65535 message_expiry_interval=0xffffffff qos=3 id=65535": Publish(
        qos=3,
        topic_name="a",
        packet_identifier=65535,
        properties=Properties(topic_alias=65535, message_expiry_interval=0xFFFFFFFF),
    ),
    "publish a dup=1": Publish(dup=True, topic_name="a"),
    "publish a correlation_data=0x0001 response_topic=r payload_format_indicator=1": Publish(
        topic_name="a", properties=Properties(correlation_data=b"\0\1", response_topic="r", payload_format_indicator=1)
    ),
    'publish a user_property=k:v user_property="x:y":"z z"': Publish(
        topic_name="a", properties=Properties(user_property=[("k", "v"), ("x:y", "z z")])
    ),
    "publish a subscription_identifier=1 subscription_identifier=2": Publish(
        topic_name="a", properties=Properties(subscription_identifier=[1, 2])
    ),
    "publish a 0x7e=0x0102": Publish(topic_name="a", properties=Properties.of([(0x7E, b"\1\2")])),
    "publish a properties": Publish(topic_name="a", properties=Properties()),
    "puback 7": Puback(7),
    "puback 0x10 code=0x10": Puback(16, 0x10),
    "pubrec 7": Pubrec(7),
    "pubrel 7 header_flags=0": Pubrel(7, header_flags=0),
    "pubcomp 7 code=0x92 reason_string=x": Pubcomp(7, 0x92, Properties(reason_string="x")),
    "subscribe 1 a": Subscribe(1, subscriptions=[Subscription("a", 0)]),
    "subscribe 1 a/#:2 b:1,no_local,retain_as_published,retain_handling=2,reserved=0x40": Subscribe(
        1, subscriptions=[Subscription("a/#", 2), Subscription("b", 1, True, True, 2, 0x40)]
    ),
    'subscribe 1 "a:b" "c d":1': Subscribe(1, subscriptions=[Subscription("a:b", 0), Subscription("c d", 1)]),
    "subscribe 1 a:0 subscription_identifier=9": Subscribe(
        1, Properties(subscription_identifier=[9]), [Subscription("a", 0)]
    ),
    "suback 1 0 0x80": Suback(1, reason_codes=[0, 0x80]),
    "suback 1": Suback(1),
    "unsubscribe 1 a b/#": Unsubscribe(1, topic_filters=["a", "b/#"]),
    "unsuback 1": Unsuback(1),
    "unsuback 1 empty": Unsuback(1, reason_codes=[]),
    "unsuback 1 0 0x11": Unsuback(1, reason_codes=[0, 0x11]),
    "pingreq": Pingreq(),
    "pingresp": Pingresp(),
    "disconnect": Disconnect(),
    "disconnect code=0x8b server_reference=x": Disconnect(0x8B, Properties(server_reference="x")),
    "auth code=0x18 authentication_method=m": Auth(0x18, Properties(authentication_method="m")),
}


@each("words, packet", PACKETS.items())
def test_packets(words: str, packet: Any) -> None:
    (step,) = steps_of(f"> {words}")

    assert step == client(packet)


def test_every_type_of_packet_is_among_them() -> None:
    assert {type(packet).__name__ for packet in PACKETS.values()} == {
        kind.__name__
        for kind in (
            Connect, Connack, Publish, Puback, Pubrec, Pubrel, Pubcomp, Subscribe, Suback, Unsubscribe, Unsuback,
            Pingreq, Pingresp, Disconnect, Auth,
        )
    }  # fmt: skip


STEPS: dict[str, tuple[ExampleStep, ...]] = {
    "> pingreq; < pingresp": (client(Pingreq()), server(Pingresp())),
    "> pingreq & publish a": (client(Pingreq(), Publish(topic_name="a")),),
    "+2.5 > pingreq; +0 < pingresp": (client(Pingreq(), after=2.5), server(Pingresp(), after=0)),
    "@1 > pingreq": on(1, client(Pingreq())),
    "+3 @2 lost > pingreq": on(2, lost(client(Pingreq(), after=3))),
    "crossing < pingresp": (crossing(server(Pingresp())),),
    'silent > raw "GET / HTTP/1.1\\r\\n"': (silent(client(b"GET / HTTP/1.1\r\n")),),
    "> raw 10 0e 0004 \"MQTT\" 00*3 ff": (client(b"\x10\x0e\x00\x04MQTT\0\0\0\xff"),),
    "> fin; < reset; +1 > fin-reset": (closes("client"), closes("server", "reset"), closes("client", "fin-reset", 1)),
    "< ack; +9 > nothing": (acknowledges("server"), client(after=9)),
    "opened": opened(),
    "opened 3.1.1 keep_alive=5 resume < present": opened(
        V3_1_1, keep_alive=5, clean_start=False, session_present=True
    ),
    "+5 @1 opened client=c2 < maximum_qos=1": on(
        1,
        client(make_connect(client_identifier="c2"), after=5),
        opened(connack=Properties(maximum_qos=1))[1],
    ),
    "upgraded": upgraded(),
    "upgraded offered=none selected=mqttv3.1": upgraded(None, "mqttv3.1"),
    "+1 @1 upgraded": on(1, silent(client(upgraded()[0].packets[0], after=1)), upgraded()[1]),
    "> frame pingreq; < frame pingresp": (
        client(framed(Pingreq())),
        server(framed(Pingresp(), masked=False)),
    ),
    "> frame pingreq | raw c000": (client(framed(Pingreq(), Pingreq())),),
    "> frame connect 3.1.1; < frame connack; > frame publish a": (
        client(framed(make_connect(V3_1_1), version=V3_1_1)),
        server(framed(Connack(), masked=False, version=V3_1_1)),
        client(framed(Publish(topic_name="a"), version=V3_1_1)),
    ),
    "> frame text pingreq": (client(framed(Pingreq(), opcode=websocket.TEXT)),),
    "silent > frame part raw c0; > frame continuation raw 00": (
        silent_frame("client", b"\xc0", opcode=websocket.BINARY, fin=False),
        client(framed(b"\0", opcode=websocket.CONTINUATION)),
    ),
    "silent < frame ping; silent > frame pong; silent < frame close raw 03ea": (
        silent_frame("server", b"", opcode=websocket.PING),
        silent_frame("client", b"", opcode=websocket.PONG),
        silent_frame("server", b"\x03\xea", opcode=websocket.CLOSE),
    ),
    "for 1..3: > puback {n}; < pingresp": tuple(
        step for number in (1, 2, 3) for step in (client(Puback(number)), server(Pingresp()))
    ),
    "> for 8..9: publish a/{n} & pingreq": (
        client(Publish(topic_name="a/8"), Publish(topic_name="a/9"), Pingreq()),
    ),
    "for 1..1: > pingreq": (client(Pingreq()),),
}  # fmt: skip


@each("text, steps", STEPS.items())
def test_steps(text: str, steps: tuple[ExampleStep, ...]) -> None:
    assert steps_of(text) == steps


MARKS: dict[str, ExampleStep] = {
    "> publish a !qos": client(Publish(topic_name="a")).marked("qos"),
    "> pingreq !": client(Pingreq()).marked(""),
    "> pingreq ! !": client(Pingreq()).marked("", ""),
    "> pingreq !! !!topic_name": client(Pingreq()).marked("", "topic_name", at=None),
    "> pingreq !a & pingresp !properties.user_property": client(Pingreq(), Pingresp())
    .marked("a", at=0)
    .marked("properties.user_property", at=1),
    "< fin !": closes("server").marked(""),
    "silent > raw 16 !": silent(client(b"\x16")).marked(""),
}


@each("text, step", MARKS.items())
def test_marks(text: str, step: ExampleStep) -> None:
    assert steps_of(text) == (step,)


def test_both_packets_of_an_opening_may_have_marks() -> None:
    asked, answered = opened()

    assert steps_of("opened !keep_alive < !session_present") == (
        asked.marked("keep_alive"), answered.marked("session_present"),
    )  # fmt: skip


def test_a_connect_has_the_version_of_the_one_before() -> None:
    example_conversation = read("opened 3.1.1; @1 opened client=c2; @2 opened 5.0 client=c3; @3 > connect")

    versions = [
        packet.version for step in example_conversation.steps for packet in step.packets if isinstance(packet, Connect)
    ]
    assert versions == [V3_1_1, V3_1_1, V5, V5]
    assert example_conversation.version is V3_1_1


OPTIONS: dict[str, ExampleConversation] = {
    "version 3.1; > raw c000": conversation("title", client(b"\xc0\0"), version=V3_1),
    "version 3.1.1": conversation("title", version=V3_1_1),
    "midstream; > pingreq": conversation("title", client(Pingreq()), handshake=False),
    "server 192.0.2.7:18830; > pingreq": conversation("title", client(Pingreq()), server="192.0.2.7:18830"),
    'settings most=3 share=0.5 names=["a b","c"] word=loud; > pingreq': conversation(
        "title", client(Pingreq()), settings={"most": 3, "share": 0.5, "names": ["a b", "c"], "word": "loud"}
    ),
}


@each("text, whole", OPTIONS.items())
def test_options_of_a_conversation(text: str, whole: ExampleConversation) -> None:
    assert read(text) == whole


def test_lines_are_titles_steps_and_continuations() -> None:
    first, second = parse_conversations(
        """
        a title: with "quotes"; and more
            opened; > publish a
                qos=1
                id=7
            < puback 7;

              > fin

        # is a title as well
            > pingreq
        """
    )

    assert first == conversation(
        'a title: with "quotes"; and more',
        *opened(),
        client(Publish(topic_name="a", qos=1, packet_identifier=7)),
        server(Puback(7)),
        closes("client"),
    )
    assert second == conversation("# is a title as well", client(Pingreq()))
    assert parse_conversations("") == []


def test_defaults_of_a_connect_are_those_of_the_caller() -> None:
    packet = parse_packet(["connect", "keep_alive=5"], V3_1_1, client_identifier="dev", keep_alive=0)

    assert packet == make_connect(V3_1_1, client_identifier="dev", keep_alive=5)


WRONG = {
    "publish a": "'publish' is not the beginning of a step",
    "lost opened": "'opened' is not the beginning of a step",
    "+1": "'' is not the beginning of a step",
    ">": "a packet is missing",
    "> & pingreq": "a packet is missing",
    "> pingreq &": "a packet is missing",
    "> publsh a": "'publsh' is not one of connect, connack, publish,",
    "> pingreq now": "'now' is one word too many for pingreq",
    "> publish a b c": "'c' is one word too many for publish",
    "> fin now": "fin takes no other words",
    "> ack & pingreq": "ack takes no other words, and no packets beside it",
    "> pingreq & nothing": "nothing takes no other words, and no packets beside it",
    "> publish a quality=1": "publish has no field 'quality', and MQTT has no property 'quality'",
    "> connack id=1": "connack has no field 'packet_identifier'",
    "> puback x": "'x' is not a number",
    "> publish a qos=high": "'high' is not a number",
    "> subscribe 1 a:high": "'high' is not a number",
    "> subscribe 1 a:1,local": "'local' is not an option of a subscription: no_local,",
    "> publish a user_property=k": "user_property is name:value, not 'k'",
    "> connect 4": "'4' is not a version: 3.1, 3.1.1, 5.0",
    "> connect will_qos=1": "a Will needs its topic: will=TOPIC",
    "> puback 65536": "65536 is not a number from 0 to 65,535",
    "> puback -1": "-1 is not a number from 0 to 65,535",
    "> publish a qos=4": "4 is not a number from 0 to 3",
    "> connect will=w will_qos=4": "4 is not a number from 0 to 3",
    "> subscribe 1 a:4": "4 is not a number from 0 to 3",
    "> suback 1 256": "256 is not a number from 0 to 255",
    "> disconnect code=256": "256 is not a number from 0 to 255",
    "> connect keep_alive=65536": "65536 is not a number from 0 to 65,535",
    "> publish a topic_alias=65536": "65536 is not a number from 0 to 65,535",
    "> connack maximum_qos=256": "256 is not a number from 0 to 255",
    "> connect maximum_packet_size=0x100000000": "0x100000000 is not a number from 0 to 4,294,967,295",
    "> pingreq header_flags=16": "16 is not a number from 0 to 15",
    '> publish a "\\ud800"': "surrogates not allowed",
    '> publish "a': "a quotation mark is missing",
    '> publish {"a":1}': "has quotation marks inside",
    '> publish "\\x"': "is not a JSON string",
    "> raw 1": "'1' is not hexadecimal",
    "> publish a 0xz": "'z' is not hexadecimal",
    "+soon > pingreq": "'soon' is not a number",
    "+inf > pingreq": "+inf is not a number of seconds",
    "+nan > pingreq": "+nan is not a number of seconds",
    "@x > pingreq": "'x' is not a number",
    "@-1 > pingreq": "@-1 is not a connection: @0 to @9999",
    "for 1-3: > pingreq": "for needs two numbers and a colon, such as for 1..9:",
    "for": "for needs two numbers and a colon",
    "for 2..1: > pingreq": "for 2..1: repeats 0 times: 1 to 10,000 are allowed",
    "settings most; opened": "'most' is not name=value",
    "version 6; opened": "'6' is not a version",
    "server broker; opened": "'broker' is not an IPv4 address and a port",
    "upgraded chosen=mqtt": "chosen",
}


@each("step, why", WRONG.items())
def test_a_wrong_step_is_named_with_its_line(step: str, why: str) -> None:
    text = f"\n  one\n    opened; > publish a\n      qos=0\n  two\n    opened\n    {step}\n"
    with pytest.raises(ConversationTextError) as raised:
        parse_conversations(text)

    assert why in raised.value.reason
    assert raised.value.line == 7
    assert str(raised.value).startswith("line 7: ")


def test_a_wrong_word_in_a_continuation_is_of_the_line_where_its_line_begins() -> None:
    with pytest.raises(ConversationTextError, match=r"^line 2: 'x' is not a number"):
        parse_conversations("one\n  > publish a\n    qos=x")


def test_a_title_has_steps_and_comes_first() -> None:
    with pytest.raises(ConversationTextError, match=r"^line 1: the conversation 'one' has no steps, which are"):
        parse_conversations("one\ntwo\n  opened")
    with pytest.raises(ConversationTextError, match=r"^line 2: a title comes first, and steps are indented deeper"):
        parse_conversations("\n  opened\none\n  opened")


def test_texts_and_functions_are_examples_in_their_order() -> None:
    class Owner:
        good = examples("one\n  opened", lambda: [conversation("two", *opened())], "three\n  opened")

    assert [each.title for each in Owner.good] == ["one", "two", "three"]
    assert Owner.good is Owner.good
