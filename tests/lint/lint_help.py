"""Findings of conversations, for tests that need some."""

from __future__ import annotations

from collections.abc import Iterable

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import Step, client, conversation, opened, segments, server
from mqttscope.lint.finding import Finding
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.properties import Properties


def linted(*steps: Step, codes: Iterable[str] = (), version: ProtocolVersion | None = None) -> list[Finding]:
    """Findings of a conversation, of some rules or of all."""
    rules = [usual_rule(rule) for code, rule in all_rules().items() if not codes or code in codes]
    linter = Linter(rules, strict=True)
    captured = segments(conversation("a conversation", *steps, version=version))
    return [finding for event in dissect_segments(captured) for finding in linter.feed(event)]


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


__all__ = ["client", "linted", "opened", "qos_findings", "server"]
