from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mqttscope.transport import delivery as module
from mqttscope.transport import sockets
from mqttscope.transport.delivery import Delivery, Rounds
from tests.transport.linking import play


class Transport(asyncio.Transport):
    """Has bytes that wait."""

    def __init__(self, *, tls: bool = False) -> None:
        super().__init__({"sslcontext": object() if tls else None})
        self.waiting = 0
        self.closing = False

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.closing


def test_what_waits_has_not_arrived() -> None:
    transport = Transport()
    delivery = Delivery(transport)
    transport.waiting = 4
    delivery.writing(10)
    assert delivery.known() == 6
    transport.waiting = 0
    assert delivery.known() == 10
    delivery.writing(1)
    transport.closing = True
    assert delivery.known() == 10


def test_inside_tls_all_or_nothing_is_known() -> None:
    transport = Transport(tls=True)
    delivery = Delivery(transport)
    transport.waiting = 4
    delivery.writing(10)
    assert (delivery.known(), delivery.plain) == (0, False)
    transport.waiting = 0
    assert delivery.known() == 10


def test_what_was_said_before_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    unread = 0
    monkeypatch.setattr(sockets, "unread", lambda _: unread)
    delivery = Delivery(Transport())
    delivery.writing(3)
    unread = 7
    delivery.writing(5)
    assert delivery.read() == 3
    unread = 0
    assert delivery.read() == 3
    assert delivery.read() == 8


class Item:
    def __init__(self, *still: bool) -> None:
        self.still = list(still)

    def acknowledge(self) -> bool:
        return self.still.pop(0)


def test_those_with_bytes_under_way_are_asked_until_all_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACKNOWLEDGE_EVERY_S", 0.001)

    async def scene() -> Any:
        rounds = Rounds()
        items = Item(True, True, False, False), Item(False), Item()
        for item in items:
            rounds.note(item)
        rounds.forget(items[2])
        await asyncio.sleep(0.1)
        assert [len(item.still) for item in items] == [1, 0, 0]
        rounds.note(items[0])
        rounds.close()
        assert items[0].still == []
        rounds.note(items[2])
        await asyncio.sleep(0.01)

    play(scene)
