"""Connections to mutate, and trials of them against a broker with faults."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from mqttscope.broker_test import oracle
from mqttscope.broker_test.conversation import Conversation
from mqttscope.broker_test.drivers.health import Process
from mqttscope.broker_test.drivers.probe_client import BrokerAccess
from mqttscope.broker_test.drivers.run import BrokerTest, CaseResult
from mqttscope.broker_test.fit import Numbered, Numbering, fitted, flow_of
from mqttscope.broker_test.verdict import Ruling
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.finding import Finding
from mqttscope.mqtt import Connect, Properties, ProtocolVersion, Puback, Publish, Suback, Subscribe, Subscription
from mqttscope.mqtt.packets import Auth, Connack, Disconnect, Pingreq, Pingresp, Pubcomp, Pubrec, Pubrel
from mqttscope.mutate import Case, Chance, apply, mutation
from mqttscope.replay.script import Script
from mqttscope.transport.target import Target, parse_broker
from tests.broker_test.broken import METHOD, Fault, broken
from tests.replay.recordings import conversation

# Rules are imported when they are first needed, which pytest's rewriting of modules does not stand deep inside a loop.
all_rules()
V3_1, V3_1_1, V5 = ProtocolVersion
PATIENCE_S = 0.15
HASH = "a" * 64
T = TypeVar("T")


def script(version: ProtocolVersion = V5, *, more: int = 0) -> Script:
    """A connection with messages of every QoS, a subscription, and a ping; ``more`` messages ahead of them."""
    five = version == V5
    block = Properties() if five else None
    name = "MQIsdp" if version == V3_1 else "MQTT"
    connect = Connect(
        protocol_name=name, protocol_level=int(version), client_identifier="device1", keep_alive=60, properties=block
    )
    limits = Properties(receive_maximum=20, topic_alias_maximum=5) if five else None
    return conversation(
        (">", connect),
        ("<", Connack(session_present=False, properties=limits)),
        (">", Subscribe(packet_identifier=1, properties=block, subscriptions=[Subscription("in/#", 0)])),
        ("<", Suback(packet_identifier=1, properties=block, reason_codes=[0])),
        *((">", Publish(topic_name="out/more", payload=b"more", properties=block)) for _ in range(more)),
        (">", Publish(topic_name="out/one", qos=1, packet_identifier=2, payload=b"1", properties=block)),
        ("<", Puback(packet_identifier=2)),
        (">", Publish(topic_name="out/two", qos=2, packet_identifier=3, payload=b"2", properties=block)),
        ("<", Pubrec(packet_identifier=3)),
        (">", Pubrel(packet_identifier=3)),
        ("<", Pubcomp(packet_identifier=3)),
        ("<", Publish(topic_name="in/one", payload=b"a", properties=block)),
        (">", Pingreq()),
        ("<", Pingresp()),
        (">", Disconnect()),
    )


def authenticated(method: str = METHOD) -> Script:
    """A connection with an authentication in two steps, and another one later."""

    def step(code: int) -> Auth:
        return Auth(code, Properties(authentication_method=method, authentication_data=b"data"))

    block = Properties(authentication_method=method, authentication_data=b"data")
    return conversation(
        (">", Connect(protocol_level=5, client_identifier="device1", keep_alive=60, properties=block)),
        ("<", step(0x18)),
        (">", step(0x18)),
        ("<", Connack(session_present=False, properties=Properties(authentication_method=method))),
        (">", step(0x19)),
        ("<", step(0x18)),
        (">", step(0x18)),
        ("<", step(0x00)),
        (">", Disconnect()),
    )


def make_case(name: str, one: Script, seed: str = "test") -> Case:
    """A mutation of a connection."""
    flow = flow_of(one, HASH, 0)
    return Case(0, 1, HASH, 0, mutation(name), apply(mutation(name), flow, Chance(seed, name)))


def catalogued(pattern: str, one: Script, seed: int = 1) -> list[Numbered]:
    """The cases of a pattern that a run plays of a connection."""
    return list(Numbering([flow_of(one, HASH, 0)], seed, "client").cases(pattern, [0]))


def target(port: int) -> Target:
    """A broker on loopback."""
    return parse_broker(f"mqtt://127.0.0.1:{port}")


def trial_of(port: int, process: Process | None = None, *, patience_s: float = PATIENCE_S) -> BrokerTest:
    """A trial of a broker on loopback."""
    return BrokerTest(BrokerAccess(target(port)), patience_s, process)


async def tried(name: str, fault: Fault, version: ProtocolVersion = V5, process: Process | None = None) -> CaseResult:
    """One case against a broker with a fault."""
    async with broken(fault) as broker:
        test = trial_of(broker.port, process)
        await test.begin()
        own = fitted(script(version), await test.connack(script(version)))
        try:
            return await test.one(own, make_case(name, own))
        finally:
            await test.end()


def at_once(steps: Generator[None, None, T]) -> T:
    """The outcome of long work in steps."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


def confirm(ruling: Ruling, case: Case, conversation: Conversation) -> Ruling:
    """What becomes of a ruling if the linter is asked."""
    return at_once(oracle.confirming(ruling, case, conversation))


def findings(conversation: Conversation) -> tuple[list[Finding], list[Finding]]:
    """What the linter finds of the client and of the server."""
    return at_once(oracle.finding(conversation))


def broken_by_client(conversation: Conversation) -> tuple[str, ...]:
    """The statements that the client breaks."""
    return at_once(oracle.breaking(conversation))
