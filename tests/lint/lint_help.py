"""Findings of conversations, for tests that need some."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.conversation_text import parse_conversations
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import V5, ExampleStep, client, conversation, on, opened, segments, server
from mqttscope.lint.finding import Finding
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Puback, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from mqttscope.net.segment import Segment


def steps_of(*lines: str) -> tuple[ExampleStep, ...]:
    """Steps that are written as text: ``mqttscope.lint.conversation_text``."""
    (only,) = parse_conversations("\n  ".join(["title", *lines]))
    return only.steps


def lint(rules: Iterable[Rule], captured: Iterable[Segment]) -> list[Finding]:
    """What rules find in segments; a rule that fails is an error."""
    linter = Linter(rules, strict=True)
    return [finding for event in dissect_segments(captured) for finding in linter.feed(event)]


def talked(*steps: ExampleStep, version: ProtocolVersion | None = None) -> list[Segment]:
    """The segments of a conversation."""
    return segments(conversation("a conversation", *steps, version=version))


def linted(*steps: ExampleStep, codes: Iterable[str] = (), version: ProtocolVersion | None = None) -> list[Finding]:
    """Findings of a conversation, of some rules or of all."""
    rules = [usual_rule(rule) for code, rule in all_rules().items() if not codes or code in codes]
    return lint(rules, talked(*steps, version=version))


def subscriber(
    version: ProtocolVersion = V5,
    *filters: str,
    connection: int = 1,
    identifier: str = "c2",
    granted: int = 1,
    connect: Properties | None = None,
) -> tuple[ExampleStep, ...]:
    """A client that subscribes to ``a``, or to what is given."""
    rows = [Subscription(name, granted) for name in filters or ("a",)]
    return on(
        connection,
        *opened(version, client_identifier=identifier, connect=connect),
        client(Subscribe(1, subscriptions=rows)),
        server(Suback(1, reason_codes=[granted] * len(rows))),
    )


def message(payload: bytes = b"21.5", **fields: Any) -> Publish:
    """A PUBLISH on ``a``, QoS 1 unless given; ``properties`` are keywords of them."""
    qos = fields.pop("qos", 1)
    known = {"dup": False, "retain": False, "topic_name": "a", "packet_identifier": 1 if qos else None, **fields}
    block = known.pop("properties", None)
    return Publish(qos=qos, properties=None if block is None else Properties(**block), payload=payload, **known)


def publishes(*packets: Publish, after: float = 2) -> tuple[ExampleStep, ...]:
    """The first client publishes messages of QoS 0 or 1."""
    steps: list[ExampleStep] = []
    for packet in packets:
        steps.append(client(packet, after=after))
        if packet.packet_identifier is not None:
            steps.append(server(Puback(packet.packet_identifier)))
        after = 0.01
    return tuple(steps)


def qos_findings(*topics: str, client_identifier: str = "dev1") -> list[Finding]:
    """PUB209 findings, one for each topic."""
    return linted(
        *opened(client_identifier=client_identifier, connack=Properties(maximum_qos=0)),
        *(
            client(Publish(qos=1, topic_name=topic, packet_identifier=number, payload=b"x"))
            for number, topic in enumerate(topics, 1)
        ),
        codes=("PUB209",),
    )
