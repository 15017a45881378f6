"""Signs: which packets bear which; that rules need no others is shown in ``test_dispatch``."""

from __future__ import annotations

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.lint import engine
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.context import RuleContext
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import Step, client, conversation, opened, segments, server
from mqttscope.lint.signs import ALL, BITS, SIGNS, signs_of
from mqttscope.mqtt import Publish, packets
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from tests.each import each

NAMES = {bit: name for name, bit in {**BITS, **SIGNS}.items()}
SUBSCRIBED = (
    client(packets.Subscribe(9, subscriptions=[Subscription("a", 1)])),
    server(packets.Suback(9, reason_codes=[1])),
)
Q1 = Publish(topic_name="a", qos=1, packet_identifier=1)
Q2 = Publish(topic_name="a", qos=2, packet_identifier=1)


def signs(monkeypatch: pytest.MonkeyPatch, *steps: Step) -> list[set[str]]:
    """Names of the signs of each packet."""
    found: list[set[str]] = []

    def noted(packet: ControlPacket, at: RuleContext) -> int:
        bits = signs_of(packet, at)
        found.append({name for bit, name in NAMES.items() if bits & bit})
        return bits

    monkeypatch.setattr(engine, "signs_of", noted)
    linter = Linter([], strict=True)
    for event in dissect_segments(segments(conversation("x", *steps))):
        linter.feed(event)
    return found


@each(
    "steps, wanted",
    [
        ((client(Publish(topic_name="a")),), set()),
        ((client(Publish(topic_name="a", dup=True, retain=True)),), {"dup", "retain", "expires_or_retained"}),
        ((client(Publish(topic_name="a\x07")),), {"odd_strings", "unprintable"}),
        ((client(Publish(topic_name="a/#")),), {"odd_strings", "wildcard"}),
        ((client(Publish(topic_name="")),), {"odd_strings", "nameless", "unresolved"}),
        ((client(Publish(topic_name="a", properties=Properties(topic_alias=1))),), {"properties", "odd_alias"}),
        (
            (client(Publish(topic_name="a", properties=Properties(user_property=[("k", "\x07")]))),),
            {"properties", "odd_strings", "unprintable"},
        ),
        (
            (client(Publish(topic_name="a", properties=Properties(message_expiry_interval=5))),),
            {"properties", "expires_or_retained"},
        ),
        ((client(Q1),), {"qos"}),
        ((client(Q1), server(packets.Puback(1))), set()),
        ((client(Q1), client(Q1)), {"qos", "taken"}),
        ((server(packets.Puback(1)),), {"odd_answer", "from_server"}),
        (
            (client(Q2), server(packets.Pubrec(1)), client(packets.Pubrel(1)), server(packets.Pubcomp(1))),
            {"from_server"},
        ),
        ((client(Q2), server(packets.Puback(1))), {"odd_answer", "from_server"}),
        ((client(Q2), server(packets.Pubrec(1, reason_code=0x80))), {"reason_code", "from_server"}),
        ((client(packets.Pingreq(), after=100),), {"silent"}),
        ((server(packets.Pingreq()),), {"wrong_sender", "from_server"}),
        ((server(Publish(topic_name="a")),), {"unmatched", "from_server"}),
        ((*SUBSCRIBED, server(Publish(topic_name="a"))), {"from_server"}),
        ((*SUBSCRIBED, server(Q2)), {"qos", "above_granted", "from_server"}),
    ],
)
def test_a_packet_bears_the_signs_of_what_is_odd_about_it(steps: tuple[Step, ...], wanted: set[str]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert signs(monkeypatch, *opened(keep_alive=60), *steps)[-1] - {"from_server"} == wanted - {"from_server"}


def test_a_usual_connect_and_its_connack_bear_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert signs(monkeypatch, *opened()) == [set(), {"from_server"}]


@each(
    "steps, wanted",
    [
        ((client(packets.Pingreq()),), {"early"}),
        ((*opened()[:1], server(packets.Pingresp())), {"early", "from_server"}),
        ((*opened(), *opened()[:1]), {"again"}),
        ((*opened(), *opened()[1:]), {"again", "from_server"}),
        ((client(packets.Connect(client_identifier="", clean_start=False)),), {"odd_connect"}),
        ((client(packets.Connect(client_identifier="c", protocol_name="MQIsdp")),), {"odd_connect"}),
        ((client(packets.Connect(client_identifier="c", password=b"x")),), {"odd_connect"}),
        ((client(packets.Connect(client_identifier="c\x07")),), {"odd_strings", "unprintable"}),
        ((*opened(), client(packets.Disconnect()), client(packets.Pingreq())), {"disconnected"}),
        ((*opened()[:1], server(packets.Connack(reason_code=5)), client(packets.Pingreq())), {"refused"}),
        ((*opened()[:1], server(packets.Connack(reason_code=5))), {"reason_code", "from_server"}),
        ((*opened(), *SUBSCRIBED[:1]), set()),
        ((*opened(), *SUBSCRIBED), {"from_server"}),
        ((*opened(), SUBSCRIBED[0], SUBSCRIBED[0]), {"taken"}),
        ((*opened(), *SUBSCRIBED, SUBSCRIBED[1]), {"odd_answer", "again", "from_server"}),
        ((*opened(), SUBSCRIBED[0], server(packets.Suback(9, reason_codes=[2]))), {"above_requested", "from_server"}),
        ((*opened(), SUBSCRIBED[0], server(packets.Suback(9, reason_codes=[1, 1]))), {"odd_count", "from_server"}),
        ((*opened(), SUBSCRIBED[0], server(packets.Unsuback(9))), {"odd_answer", "from_server"}),
        ((*opened(), client(packets.Subscribe(9, subscriptions=[Subscription("a/b+", 1)]))), {"odd_filter"}),
        ((*opened(), client(packets.Subscribe(9, subscriptions=[Subscription("a/+/#", 1)]))), set()),
        ((*opened(), client(packets.Unsubscribe(0, topic_filters=["$share/a/b"]))), {"odd_filter", "zero_identifier"}),
        ((*opened(), client(packets.Suback(9, reason_codes=[1]))), {"odd_answer", "wrong_sender"}),
    ],
)
def test_packets_that_are_few_bear_their_signs(steps: tuple[Step, ...], wanted: set[str]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert signs(monkeypatch, *steps)[-1] == wanted


def test_examples_of_rules_have_every_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    met: set[str] = set()

    def noted(packet: ControlPacket, at: RuleContext) -> int:
        bits = signs_of(packet, at)
        if bits.bit_count() < ALL.bit_count() // 2:
            met.update(name for bit, name in NAMES.items() if bits & bit)
        return bits

    monkeypatch.setattr(engine, "signs_of", noted)
    for rule in all_rules().values():
        if rule.signs:
            for talk in rule.bad:
                linter = Linter([rule()], strict=True)
                for event in dissect_segments(segments(talk)):
                    linter.feed(event)

    assert met >= SIGNS.keys()
