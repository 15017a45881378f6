"""Checks that are the same for two rules but for a name or a measure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from mqttscope.lint.finding import Confidence, Related, Report
from mqttscope.lint.moment import Moment
from mqttscope.lint.rule import Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish, Subscribe


def unanswered(rule: Rule, at: Moment, kind: str, answer: str) -> Iterator[Report]:
    """Requests of a kind (``subscribe``) still open until the connection ended or a side said that it would."""
    if at.history.subscriptions.unread_answers:
        return
    end = at.timestamp_ns
    for party in (at.history.client, at.history.server):
        if party.disconnect is not None:
            end = min(end, party.disconnect.timestamp_ns)
    limit = float(rule.set["timeout"])
    for exchange in at.client.exchanges.values():
        waited = (end - exchange.timestamp_ns) / 1e9
        if exchange.kind != kind or waited < limit:
            continue
        if exchange.packet_identifier in at.history.client.shared:
            continue  # the answer to another packet that had the identifier may have been meant for this one
        request = at.history.subscriptions.request_for(exchange.packet_identifier, kind)
        received = request is not None and at.history.server.acknowledged >= request.position > 0
        name = kind.upper()
        yield rule.report(
            "",
            f"{name} with packet identifier {exchange.packet_identifier} got no {answer} within {waited:.0f} s",
            confidence=None if received else Confidence.HEURISTIC,
            related=(Related(f"the {name}", exchange.packet, exchange.frame, exchange.timestamp_ns),),
            sender=Direction.SERVER_TO_CLIENT,
        )


class TopicLimit(Rule):
    """What a profile allows of each Topic Name and Topic Filter."""

    setting: ClassVar[str]
    """Name of the setting with the limit."""
    unit: ClassVar[str]

    def check(self, packet: Publish | Subscribe, at: Moment) -> Findings:
        """Compare each topic with the profile."""
        limit = self.set[self.setting]
        if isinstance(packet, Publish):
            topic = packet.topic_name or ""
            return self._told("topic_name", topic, limit) if self.count(topic) > limit else None
        return [
            self._told(f"subscriptions[{index}].topic_filter", row.topic_filter, limit)
            for index, row in enumerate(packet.subscriptions or ())
            if self.count(row.topic_filter) > limit
        ]

    def count(self, topic: str) -> int:
        """How many units a topic has."""
        raise NotImplementedError

    def _told(self, field: str, topic: str, limit: int) -> Report:
        told = f"{topic!r} has {self.count(topic):,} {self.unit}; {self.set['profile']} takes at most {limit:,}"
        return self.report(field, told)
