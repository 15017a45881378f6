"""Links of both sides with each other over everything, and clients that are not as they should be."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from mqttscope.mqtt import Disconnect
from mqttscope.transport import link as link_module
from mqttscope.transport import server as module
from mqttscope.transport.link import Link, LinkError
from mqttscope.transport.recording import LinkRecorder
from mqttscope.transport.server import Server, accept, listen
from mqttscope.transport.target import BrokerUrl
from mqttscope.transport.tls import listen_context, upstream_context
from tests.proxy import rig
from tests.transport.linking import (
    CONNACK,
    CONNECT,
    PUBLISH,
    Heard,
    connect,
    fail_to_accept,
    packet,
    recorder,
    serve,
    soon,
    sound_story,
    until,
)

SCHEMES = ("mqtt", "mqtts", "ws", "wss")


class Served(Heard):
    """What a server's side hears; it closes when the other side has."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.link = link

    def ended(self, how: str, detail: str) -> None:
        super().ended(how, detail)
        self.link.close()


class Hall:
    """A server, and who came."""

    def __init__(self) -> None:
        self.came: list[Served] = []
        self.notes: list[str] = []
        self.server: Server

    def welcome(self, link: Link) -> Served:
        self.came.append(Served(link))
        return self.came[-1]


@asynccontextmanager
async def open_hall(
    scheme: str, certificates: rig.Certificates, recorder: LinkRecorder | None = None, **options: int
) -> AsyncIterator[Hall]:
    hall = Hall()
    hall.server = await serve(
        "127.0.0.1",
        0,
        hall.welcome,
        tls=listen_context(certificates.cert, certificates.key) if scheme in ("mqtts", "wss") else None,
        websocket=scheme in ("ws", "wss"),
        recorder=recorder,
        note=hall.notes.append,
        **options,
    )
    try:
        yield hall
    finally:
        await soon(hall.server.close())
        if recorder is not None:
            recorder.close()


@asynccontextmanager
async def meeting(
    scheme: str, certificates: rig.Certificates, recorder: LinkRecorder | None = None
) -> AsyncIterator[tuple[Hall, Served, Link, Heard]]:
    """A server, and both sides of a connection to it."""
    async with open_hall(scheme, certificates, recorder) as hall:
        link, heard = await enter(hall, scheme, certificates)
        await until(lambda: hall.came)
        yield hall, hall.came[0], link, heard


async def enter(hall: Hall, scheme: str, certificates: rig.Certificates) -> tuple[Link, Heard]:
    heard = Heard()
    target = BrokerUrl(scheme, "127.0.0.1", hall.server.port, None, "/mqtt" if "ws" in scheme else "")
    return await connect(target, heard, tls=upstream_context(certificates.ca)), heard


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_both_sides_talk_and_the_record_is_sound(
    scheme: str, tmp_path: Path, certificates: rig.Certificates
) -> None:
    path = tmp_path / "it.pcapng"
    async with meeting(scheme, certificates, recorder(path)) as (hall, served, link, heard):
        link.write(CONNECT)
        await served.gets(CONNECT)
        assert (served.link.local, served.link.remote) == (link.remote, link.local)
        served.link.write(CONNACK)
        await heard.gets(CONNACK)
        link.write(PUBLISH + packet(Disconnect()))
        link.close()
        await served.gets(PUBLISH + packet(Disconnect()))
        await soon(served.link.closed.wait())
        await soon(link.closed.wait())
        assert (served.how, hall.notes) == ("fin", [])

    client, server, texts = sound_story(path)
    # RFC 6455 section 7.1.1: after the close frames it is the server that closes first.
    ends = ["server fin", "client fin"] if "ws" in scheme else ["client fin", "server fin"]
    assert texts == ["FlowOpened", *ends, "closed fin"]
    if "ws" in scheme:
        assert (client[:9], server[:12]) == (b"GET /mqtt", b"HTTP/1.1 101")
    else:
        assert (client, server) == (CONNECT + PUBLISH + packet(Disconnect()), CONNACK)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_much_arrives_whole_in_both_directions(scheme: str, certificates: rig.Certificates) -> None:
    there, back = Random(1).randbytes(3_000_000), Random(2).randbytes(2_500_001)
    async with meeting(scheme, certificates) as (_, served, link, heard):
        link.write(there)
        for at in range(0, len(back), 70_000):
            served.link.write(back[at : at + 70_000])
        await heard.until(lambda: len(heard.data) == len(back))
        link.close()
        await served.until(lambda: served.end)
        assert (heard.data == back, served.data == there) == (True, True)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_server_resets_its_client(scheme: str, certificates: rig.Certificates) -> None:
    async with meeting(scheme, certificates) as (_, served, link, heard):
        served.link.abort()
        await soon(link.closed.wait())
        assert heard.how == "reset"


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_when_the_server_ends_its_clients_are_closed(scheme: str, certificates: rig.Certificates) -> None:
    async with open_hall(scheme, certificates) as hall:
        link, heard = await enter(hall, scheme, certificates)
        ending = asyncio.create_task(hall.server.close())
        await heard.until(lambda: heard.end)
        assert heard.how == "fin"
        link.close()
        await soon(ending)
        await soon(link.closed.wait())


async def test_half_closed_tls_only_stays_silent(certificates: rig.Certificates) -> None:
    async with meeting("mqtts", certificates) as (_, served, link, heard):
        link.half_close()
        link.write(b"never")
        served.link.write(b"still read")
        await heard.gets(b"still read")
        link.close()
        await served.until(lambda: served.end)
        assert served.data == b""


async def test_a_client_that_does_not_take_part_in_the_end_is_reset(
    certificates: rig.Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other_module in (module, link_module):
        monkeypatch.setattr(other_module, "CLOSE_TIMEOUT_S", 0.05)
    async with open_hall("mqtts", certificates) as hall:
        context = ssl.create_default_context(cafile=certificates.ca)
        reader, writer = await asyncio.open_connection("127.0.0.1", hall.server.port, ssl=context)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: hall.came)
        hall.came[0].link.write(bytes(10_000_000))
        await soon(hall.server.close())
        assert hall.came[0].link.closed.is_set()
        writer.transport.abort()
        del reader
        await asyncio.sleep(0)


async def raw(hall: Hall, data: bytes) -> bytes:
    """What a client that says so gets."""
    reader, writer = await asyncio.open_connection("127.0.0.1", hall.server.port)
    writer.write(data)
    got = await soon(reader.read())
    writer.close()
    await writer.wait_closed()
    return got


async def test_clients_that_speak_no_websocket_are_answered(certificates: rig.Certificates) -> None:
    async with open_hall("ws", certificates) as hall:
        assert (await raw(hall, CONNECT)).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert (await raw(hall, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
        assert next(text.partition(": ")[2] for text in hall.notes) == (
            "no WebSocket with the client: it does not speak HTTP"
        )
        assert (len(hall.notes), hall.came) == (2, [])


@pytest.mark.parametrize("scheme", ["mqtts", "ws", "wss"])
async def test_clients_that_say_nothing_are_not_waited_for(
    scheme: str, certificates: rig.Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HANDSHAKE_TIMEOUT_S", 0.05)
    async with open_hall(scheme, certificates) as hall:
        reader, writer = await asyncio.open_connection("127.0.0.1", hall.server.port)
        with suppress(ConnectionResetError):
            assert await soon(reader.read()) == b""
        writer.close()
        assert len(hall.notes) == 1
        assert hall.notes[0].endswith("the client was not served: no answer in time")


async def test_clients_beyond_the_limit_are_closed(certificates: rig.Certificates) -> None:
    async with open_hall("mqtt", certificates, max_connections=1) as hall:
        link, _ = await enter(hall, "mqtt", certificates)
        assert await raw(hall, b"") == b""
        assert hall.notes == ["a client was closed: there are 1 connections already"]
        link.close()
        await soon(link.closed.wait())
        await until(lambda: not hall.server.links)
        link, _ = await enter(hall, "mqtt", certificates)
        link.close()


async def test_a_factory_that_fails_is_told_and_its_client_reset(certificates: rig.Certificates) -> None:
    texts: list[str] = []

    def factory(link: Link) -> Heard:
        raise LookupError("nobody home")

    server = await serve("127.0.0.1", 0, factory, note=texts.append)
    heard = Heard()
    link = await connect(BrokerUrl("mqtt", "127.0.0.1", server.port), heard)
    await soon(link.closed.wait())
    assert heard.end == ("reset", "the connection was reset")
    assert texts == ["internal error: LookupError: nobody home"]
    await server.close()


async def test_a_place_is_taken_only_once(certificates: rig.Certificates) -> None:
    async with open_hall("mqtt", certificates) as hall:
        with pytest.raises(OSError, match="in use") as caught:
            await serve("127.0.0.1", hall.server.port, hall.welcome)
        assert caught.value.errno == errno.EADDRINUSE


async def test_with_the_end_nobody_listens(certificates: rig.Certificates) -> None:
    async with open_hall("mqtt", certificates) as hall:
        pass
    with pytest.raises(LinkError, match="nothing listens there"):
        await enter(hall, "mqtt", certificates)


async def test_a_client_that_is_gone_at_once_is_no_trouble(certificates: rig.Certificates) -> None:
    async with open_hall("mqtts", certificates) as hall:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", hall.server.port)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        link, _ = await enter(hall, "mqtts", certificates)
        link.close()
        await soon(link.closed.wait())
        assert all("the client was not served" in text for text in hall.notes)


async def test_a_free_port_is_the_same_on_every_address() -> None:
    socks = await listen("", 0)
    assert len({sock.getsockname()[1] for sock in socks}) == 1
    for sock in socks:
        sock.close()


async def test_a_place_that_is_taken_leaves_nothing_open() -> None:
    (sock,) = await listen("127.0.0.1", 0)
    with pytest.raises(OSError, match="in use"):
        await listen("127.0.0.1", sock.getsockname()[1])
    sock.close()
    with pytest.raises(OSError, match=r".") as caught:
        await listen("192.0.2.1", 0)
    assert caught.value.errno == errno.EADDRNOTAVAIL


async def test_without_descriptors_clients_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [errno.EMFILE, errno.ECONNABORTED]
    fail_to_accept(monkeypatch, failures)
    (sock,) = await listen("127.0.0.1", 0)
    came: list[socket.socket] = []
    texts: list[str] = []
    task = asyncio.create_task(accept(sock, came.append, texts.append))
    with socket.create_connection(sock.getsockname()):
        await until(lambda: came)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    came[0].close()
    sock.close()
    assert texts == ["cannot accept: no; clients wait"]
    # A socket that is closed ends it by itself.
    failures.append(errno.EBADF)
    await soon(accept(sock, came.append, texts.append))
