"""Subscriptions that are asked for, answered and ended, on one table."""

from __future__ import annotations

from mqttscope.mqtt import Suback, Subscribe, Unsuback, Unsubscribe
from mqttscope.session.subscriptions import Subscriptions
from tests.packets import packet
from tests.tables import steps

SECOND = 1_000_000_000


class Talk:
    """Requests and answers in words, one a second, on one table: ``subscribe 1 a:1; suback 1 1``."""

    def __init__(self, text: str = "nothing", *, shared: bool = True) -> None:
        self.table = Subscriptions()
        self.shared = shared
        self.number = 0
        self.tell(text)

    def tell(self, text: str) -> Subscriptions:
        for step in steps(text):
            row, number, now = packet(step), self.number, self.number * SECOND
            if isinstance(row, Subscribe):
                self.table.subscribe(row, number, number + 1, now, shared=self.shared)
            elif isinstance(row, Suback):
                self.table.handle_suback(row, number, now)
            elif isinstance(row, Unsubscribe):
                self.table.unsubscribe(row, number, number + 1, now)
            else:
                assert isinstance(row, Unsuback)
                self.table.handle_unsuback(row, number, now)
            self.number += 1
        return self.table


def filters(table: Subscriptions, topic: str) -> list[str]:
    return [subscription.topic_filter for subscription in table.matching(topic)]
