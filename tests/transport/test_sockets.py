from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress

import pytest

from mqttscope.transport import sockets
from tests.proxy.rig import until


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
    return one, other


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
def test_the_kernel_tells_what_is_under_way_and_unread() -> None:
    one, other = pair()
    with one, other:
        assert sockets.under_way(one.fileno()) == sockets.unread(other.fileno()) == 0
        one.sendall(b"12345")
        until(lambda: sockets.unread(other.fileno()) == 5)
        until(lambda: sockets.under_way(one.fileno()) == 0)
        one.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                one.send(bytes(100_000))
        assert sockets.under_way(one.fileno()) > 0


def test_what_is_no_socket_has_nothing_under_way() -> None:
    assert sockets.under_way(-1) == sockets.unread(-1) == 0


def test_sockets_are_prepared_and_reset() -> None:
    one, other = pair()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, one)
        assert sockets.prepare(transport) == one.fileno()
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        sockets.reset(transport)
        await asyncio.sleep(0.01)

    with other:
        asyncio.run(work())
        with pytest.raises(ConnectionResetError):
            other.recv(1)


def test_a_transport_without_a_socket_is_left_as_it_is() -> None:
    assert sockets.prepare(asyncio.BaseTransport()) == -1


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="asks the kernel of Linux")
def test_the_kernel_acknowledges_at_once_when_it_is_asked() -> None:
    one, other = pair()

    async def work() -> None:
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(asyncio.Protocol, one)
        acknowledge = sockets.quick(transport)
        assert acknowledge is not None
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        acknowledge()
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
        transport.close()
        await asyncio.sleep(0)
        acknowledge()

    with other:
        asyncio.run(work())
    assert sockets.quick(asyncio.BaseTransport()) is None
