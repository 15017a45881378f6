from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from mqttscope.transport import listening
from mqttscope.transport.listening import accept, listen
from tests.transport.linking import play, soon


def test_a_free_port_is_the_same_on_every_address() -> None:
    async def scene() -> None:
        socks = await listen("", 0)
        assert len({sock.getsockname()[1] for sock in socks}) == 1
        for sock in socks:
            sock.close()

    play(scene)


def test_a_place_that_is_taken_leaves_nothing_open() -> None:
    async def scene() -> None:
        (sock,) = await listen("127.0.0.1", 0)
        with pytest.raises(OSError, match="in use"):
            await listen("127.0.0.1", sock.getsockname()[1])
        sock.close()
        with pytest.raises(OSError, match=r".") as caught:
            await listen("192.0.2.1", 0)
        assert caught.value.errno == errno.EADDRNOTAVAIL

    play(scene)


def test_without_descriptors_clients_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [errno.EMFILE, errno.ECONNABORTED]
    original = asyncio.SelectorEventLoop.sock_accept

    async def flaky(loop: asyncio.SelectorEventLoop, sock: socket.socket) -> object:
        if failures:
            raise OSError(failures.pop(0), "no")
        return await original(loop, sock)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_accept", flaky)
    monkeypatch.setattr(listening, "_BUSY_S", 0.01)

    async def scene() -> None:
        (sock,) = await listen("127.0.0.1", 0)
        came: list[socket.socket] = []
        told: list[str] = []
        arrived = asyncio.Event()

        def take(client: socket.socket) -> None:
            came.append(client)
            arrived.set()

        task = asyncio.create_task(accept(sock, take, told.append))
        with socket.create_connection(sock.getsockname()):
            await soon(arrived.wait())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        came[0].close()
        sock.close()
        assert told == ["cannot accept: no; clients wait"]
        # A socket that is closed ends it by itself.
        failures.append(errno.EBADF)
        await soon(accept(sock, take, told.append))

    play(scene)
