from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress

import pytest

from mqttscope import system
from mqttscope.transport import sockets
from mqttscope.transport.sockets import AcknowledgmentPoller, DeliveryTracker
from tests.proxy.rig import until
from tests.transport import linking
from tests.transport.linking import Transport


@pytest.mark.parametrize(("tls", "known"), [(False, 6), (True, 0)])
def test_what_waits_has_not_arrived(tls: bool, known: int) -> None:
    """Inside TLS all or nothing is known."""
    transport = Transport(tls=tls)
    delivery = DeliveryTracker(transport)
    transport.waiting = 4
    delivery.writing(10)
    assert (delivery.delivered(), delivery.plain) == (known, not tls)
    transport.waiting = 0
    assert delivery.delivered() == 10
    delivery.writing(1)
    transport.close()
    assert delivery.delivered() == 10


def test_what_was_said_before_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    unread = 0
    monkeypatch.setattr(sockets, "bytes_unread", lambda _: unread)
    delivery = DeliveryTracker(Transport())
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


async def test_those_with_bytes_under_way_are_asked_until_all_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """An item that was asked once too often has no answer left, and raises."""
    monkeypatch.setattr(sockets, "ACKNOWLEDGE_EVERY_S", 0.001)
    rounds = AcknowledgmentPoller()
    item, done, gone = Item(True, True, False), Item(False), Item()
    for noted in (item, done, gone):
        rounds.note(noted)
    rounds.forget(gone)
    await linking.until(lambda: not item.still)
    assert done.still == []
    # Rounds in which the others have nothing under way.
    later = Item(True, True, True, False)
    rounds.note(later)
    await linking.until(lambda: not later.still)


async def test_the_end_asks_once_more_and_never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "ACKNOWLEDGE_EVERY_S", 0.001)
    rounds = AcknowledgmentPoller()
    item, late = Item(True), Item()
    rounds.note(item)
    rounds.close()
    assert item.still == []
    rounds.note(late)
    # A timer of the rounds would be due before this one, and timers run in order.
    await asyncio.sleep(10 * sockets.ACKNOWLEDGE_EVERY_S)


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        other_socket = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
    return other_socket, other


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
def test_the_kernel_tells_what_is_under_way_and_unread() -> None:
    single_socket, other = pair()
    with single_socket, other:
        assert system.bytes_under_way(single_socket.fileno()) == system.bytes_unread(other.fileno()) == 0
        single_socket.sendall(b"12345")
        until(lambda: system.bytes_unread(other.fileno()) == 5)
        until(lambda: system.bytes_under_way(single_socket.fileno()) == 0)
        single_socket.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                single_socket.send(bytes(100_000))
        assert system.bytes_under_way(single_socket.fileno()) > 0


def test_what_is_no_socket_has_nothing_under_way() -> None:
    assert system.bytes_under_way(-1) == system.bytes_unread(-1) == 0


async def test_sockets_are_prepared_and_reset() -> None:
    other_socket, other = pair()
    with other:
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(asyncio.Protocol, other_socket)
        assert sockets.prepare(transport) == other_socket.fileno()
        assert other_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert other_socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        options = socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT
        assert [other_socket.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [60, 15, 4]
        sockets.reset(transport)
        await asyncio.sleep(0.01)
        with pytest.raises(ConnectionResetError):
            other.recv(1)


def test_a_transport_without_a_socket_is_left_as_it_is() -> None:
    assert sockets.prepare(asyncio.BaseTransport()) == -1


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="asks the kernel of Linux")
async def test_the_kernel_acknowledges_at_once_when_it_is_asked() -> None:
    other_socket, other = pair()
    with other:
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(asyncio.Protocol, other_socket)
        acknowledge = sockets.quick(transport)
        assert acknowledge is not None
        other_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        acknowledge()
        assert other_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
        transport.close()
        await asyncio.sleep(0)
        acknowledge()
    assert sockets.quick(asyncio.BaseTransport()) is None
