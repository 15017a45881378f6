"""Subscriptions that are asked for, answered and ended, on one table."""

from __future__ import annotations

from mqttscope.mqtt import Properties, Suback, Subscribe, Subscription, Unsuback, Unsubscribe
from mqttscope.session.subscriptions import Subscriptions

SECOND = 1_000_000_000


Row = Subscribe | Suback | Unsubscribe | Unsuback


class Talk:
    """Requests and answers, one a second, on one table."""

    def __init__(self, *rows: Row, shared: bool = True) -> None:
        self.table = Subscriptions()
        self.shared = shared
        self.number = 0
        self.tell(*rows)

    def tell(self, *rows: Row) -> Subscriptions:
        for row in rows:
            number, now = self.number, self.number * SECOND
            if isinstance(row, Subscribe):
                self.table.subscribe(row, number, number + 1, now, shared=self.shared)
            elif isinstance(row, Suback):
                self.table.granted(row, number, now)
            elif isinstance(row, Unsubscribe):
                self.table.unsubscribe(row, number, number + 1, now)
            else:
                self.table.unsubscribed(row, number, now)
            self.number += 1
        return self.table


def subscribe(identifier: int, *filters: str, qos: int = 1, number: int | None = None, **options: object) -> Subscribe:
    block = None if number is None else Properties(subscription_identifier=number)
    return Subscribe(identifier, block, [Subscription(one, qos, **options) for one in filters])  # type: ignore[arg-type]


def suback(identifier: int, *codes: int) -> Suback:
    return Suback(identifier, reason_codes=list(codes))


def unsubscribe(identifier: int, *filters: str) -> Unsubscribe:
    return Unsubscribe(identifier, topic_filters=list(filters))


def unsuback(identifier: int, *codes: int) -> Unsuback:
    return Unsuback(identifier, reason_codes=list(codes) if codes else None)


def filters(table: Subscriptions, topic: str) -> list[str]:
    return [one.topic_filter for one in table.matching(topic)]
