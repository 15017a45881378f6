"""Links against a plain socket that does as it is told, and against each other."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mqttscope.net.http_upgrade import accept_for
from mqttscope.transport import link as module
from mqttscope.transport.link import HIGH_WATER_BYTES, Link, LinkErrorKind, link_error, reason
from mqttscope.transport.recording import LinkRecorder
from mqttscope.transport.target import BrokerUrl, parse_broker
from mqttscope.transport.websocket import WebSocketError
from mqttscope.transport.wire import Endpoint
from tests.each import each
from tests.net import framing
from tests.net.framing import CLIENT
from tests.transport.linking import CONNACK, CONNECT, PUBLISH, Heard, connect, recorder, soon, sound_story, story, until


class Remote:
    """A plain socket at the other end."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    async def read(self, size: int) -> bytes:
        data = b""
        loop = asyncio.get_running_loop()
        while len(data) < size and (part := await soon(loop.sock_recv(self.sock, size - len(data)))):
            data += part
        return data

    async def write(self, data: bytes) -> None:
        await soon(asyncio.get_running_loop().sock_sendall(self.sock, data))

    async def close(self, link: Link) -> None:
        """Close, and wait for the end of the link."""
        self.sock.close()
        await soon(link.closed.wait())

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


@asynccontextmanager
async def linked(recorder: LinkRecorder | None = None) -> AsyncIterator[tuple[Link, Heard, Remote]]:
    """A link to a plain socket."""
    heard = Heard()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        target = BrokerUrl("mqtt", "127.0.0.1", listening.getsockname()[1])
        link = await connect(target, heard, recorder=recorder)
        sock, _ = listening.accept()
    sock.setblocking(False)
    try:
        yield link, heard, Remote(sock)
    finally:
        link.abort()
        await soon(link.closed.wait())
        sock.close()
        if recorder is not None:
            recorder.close()


async def test_bytes_go_both_ways_and_the_ends_are_known(tmp_path: Path) -> None:
    async with linked(recorder(tmp_path / "it.pcapng")) as (link, heard, remote):
        assert link.local == Endpoint.of(remote.sock.getpeername())
        assert link.remote == Endpoint.of(remote.sock.getsockname())
        link.write(CONNECT)
        link.write(b"")
        assert await remote.read(len(CONNECT)) == CONNECT
        await remote.write(CONNACK)
        await heard.gets(CONNACK)
        link.close()
        link.write(PUBLISH)
        assert await remote.read(1) == b""
        await remote.close(link)
        assert heard.end == ("fin", "the connection was closed")

    texts = ["FlowOpened", "client fin", "server fin", "closed fin"]
    assert sound_story(tmp_path / "it.pcapng") == (CONNECT, CONNACK, texts)


async def test_a_close_waits_for_the_other_side_and_resets_nothing(tmp_path: Path) -> None:
    async with linked(recorder(tmp_path / "it.pcapng")) as (link, heard, remote):
        await remote.write(b"unread")
        link.write(bytes(100_000))
        link.close()
        link.close()
        await remote.write(b"later")
        assert len(await remote.read(1_000_000)) == 100_000
        await remote.write(b"last")
        assert not link.closed.is_set()
        await remote.close(link)
        assert (heard.data[6:], heard.end) == (b"", ("fin", "the connection was closed"))

    assert sound_story(tmp_path / "it.pcapng")[1] == b"unreadlaterlast"


@pytest.mark.parametrize("size", [10, 50_000_000])
async def test_who_does_not_close_is_given_up(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_TIMEOUT_S", 0.05)
    async with linked(recorder(tmp_path / "it.pcapng")) as (link, heard, _):
        link.write(bytes(size))
        link.close()
        await soon(link.closed.wait())
        assert heard.end is None

    assert story(tmp_path / "it.pcapng")[2][-1] == ("closed capture_end" if size == 10 else "closed reset")


async def test_half_closed_it_still_reads(tmp_path: Path) -> None:
    async with linked(recorder(tmp_path / "it.pcapng")) as (link, heard, remote):
        link.write(b"question")
        link.half_close()
        link.half_close()
        link.write(b"never")
        assert await remote.read(100) == b"question"
        await remote.write(b"answer")
        await heard.gets(b"answer")
        await remote.close(link)
        assert heard.end == ("fin", "the connection was closed")

    texts = ["FlowOpened", "client fin", "server fin", "closed fin"]
    assert sound_story(tmp_path / "it.pcapng") == (b"question", b"answer", texts)


async def test_a_half_closed_peer_is_still_written_to(tmp_path: Path) -> None:
    async with linked(recorder(tmp_path / "it.pcapng")) as (link, heard, remote):
        remote.sock.shutdown(socket.SHUT_WR)
        await heard.until(lambda: heard.end)
        link.read(False)
        link.write(b"more")
        assert await remote.read(4) == b"more"
        assert not link.closed.is_set()
        link.close()
        await soon(link.closed.wait())
        assert await remote.read(1) == b""

    assert story(tmp_path / "it.pcapng")[2] == ["FlowOpened", "server fin", "client fin", "closed fin"]


async def test_a_reset_is_told(tmp_path: Path) -> None:
    async with linked(recorder(tmp_path / "it.pcapng")) as (link, heard, remote):
        link.write(CONNECT)
        assert await remote.read(len(CONNECT)) == CONNECT
        remote.reset()
        await soon(link.closed.wait())
        assert heard.end == ("reset", "the connection was reset")
        for nothing in (link.close, link.half_close, link.abort):
            nothing()
        link.write(b"x")
        link.read(True)

    texts = ["FlowOpened", "server reset", "client reset", "closed reset"]
    assert sound_story(tmp_path / "it.pcapng") == (CONNECT, b"", texts)


async def test_an_abort_is_a_reset_and_is_not_told(tmp_path: Path) -> None:
    async with linked(recorder(tmp_path / "it.pcapng")) as (link, heard, remote):
        link.write(CONNECT)
        assert await remote.read(len(CONNECT)) == CONNECT
        link.abort()
        link.abort()
        await soon(link.closed.wait())
        with pytest.raises(ConnectionResetError):
            await remote.read(1)
        assert heard.end is None

    assert sound_story(tmp_path / "it.pcapng")[2] == ["FlowOpened", "client reset", "server reset", "closed reset"]


async def test_a_slow_reader_is_noticed_and_may_be_slow_itself() -> None:
    async with linked() as (link, heard, remote):
        size = 0
        while heard.flow != [False]:
            link.write(bytes(HIGH_WATER_BYTES))
            size += HIGH_WATER_BYTES
        assert len(await remote.read(size)) == size
        await heard.until(lambda: heard.flow == [False, True])
        link.read(False)
        await remote.write(b"x")
        await asyncio.sleep(0.02)
        assert heard.data == b""
        link.read(True)
        await heard.gets(b"x")


async def test_the_record_acknowledges_what_has_arrived(tmp_path: Path) -> None:
    link_recorder = recorder(tmp_path / "it.pcapng")
    async with linked(link_recorder) as (link, heard, remote):
        link.write(CONNECT)
        await remote.write(CONNACK)
        await heard.gets(CONNACK)
        assert link._record is not None
        wire = link._record.wire
        await until(lambda: (wire.acknowledged(True), wire.acknowledged(False)) == (len(CONNACK), len(CONNECT)))


@asynccontextmanager
async def socketed(recorder: LinkRecorder | None = None) -> AsyncIterator[tuple[Link, Heard, Remote]]:
    """A link with WebSocket to a plain socket."""
    heard = Heard()
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        target = BrokerUrl("ws", "127.0.0.1", listening.getsockname()[1], None, "/mqtt")
        connecting = asyncio.create_task(connect(target, heard, recorder=recorder))
        sock, _ = await soon(loop.sock_accept(listening))
    sock.setblocking(False)
    remote = Remote(sock)
    request = b""
    while not request.endswith(b"\r\n\r\n"):
        request += await soon(loop.sock_recv(sock, 1000))
    key = request.partition(b"Sec-WebSocket-Key: ")[2].split()[0].decode()
    answer = framing.response().replace(accept_for(framing.KEY).encode(), accept_for(key).encode())
    await remote.write(answer + framing.frame(b"first"))
    link = await soon(connecting)
    await heard.gets(b"first")
    try:
        yield link, heard, remote
    finally:
        link.abort()
        await soon(link.closed.wait())
        sock.close()
        if recorder is not None:
            recorder.close()


async def test_frames_of_a_websocket_are_unwrapped() -> None:
    async with socketed() as (link, heard, remote):
        assert link.subprotocol == "mqtt"
        await remote.write(framing.frame(b"ping", first=0x89) + framing.frame(b"se", first=2))
        await remote.write(framing.frame(b"cond", first=0x80))
        await heard.gets(b"second")
        pong = await remote.read(10)
        assert pong[0] == 0x8A
        link.write(b"third")
        frames = framing.opened().feed(CLIENT, await remote.read(11))
        assert framing.application(frames, CLIENT) == b"third"


async def test_a_websocket_closes_with_close_frames(tmp_path: Path) -> None:
    async with socketed(recorder(tmp_path / "it.pcapng")) as (link, heard, remote):
        link.close()
        assert (await remote.read(8))[:2] == b"\x88\x82"
        await remote.write(framing.frame(b"\x03\xe8", first=0x88))
        assert await remote.read(1) == b""
        await remote.close(link)
        assert heard.end == ("fin", "close frame 1000")

    assert sound_story(tmp_path / "it.pcapng")[2] == ["FlowOpened", "client fin", "server fin", "closed fin"]


async def test_a_websocket_is_half_closed_by_a_close_frame() -> None:
    async with socketed() as (link, heard, remote):
        link.half_close()
        assert (await remote.read(8))[:2] == b"\x88\x82"
        await remote.write(framing.frame(b"late"))
        await heard.gets(b"late")
        await remote.write(framing.frame(b"\x03\xe8bye", first=0x88))
        await heard.until(lambda: heard.end)
        assert heard.end == ("fin", "close frame 1000: bye")
        await remote.close(link)


async def test_a_websocket_whose_peer_says_nonsense_fails() -> None:
    async with socketed() as (link, heard, remote):
        await remote.write(framing.frame(b"good") + b"\x83\x00")
        await heard.gets(b"good")
        assert heard.end == ("failed", "the opcode is 3")
        assert (await remote.read(100))[:2] == b"\x88\x82"
        await remote.close(link)


async def test_a_websocket_may_end_without_a_close_frame() -> None:
    async with socketed() as (link, heard, remote):
        await remote.close(link)
        assert heard.end == ("fin", "the connection was closed without a close frame")


async def test_without_an_answer_a_websocket_is_given_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_TIMEOUT_S", 0.05)
    async with socketed() as (link, _, remote):
        link.close()
        await soon(link.closed.wait())
        assert len(await remote.read(100)) == 8


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "no answer in time"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed"), "Connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "SSL: WRONG VERSION NUMBER"),
        (UnicodeError("label too long"), "label too long"),
        (OSError(), "OSError"),
    ],
)
def test_reasons_are_words(error: BaseException, words: str) -> None:
    assert words.lower() in reason(error).lower()


def unverified(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "what OpenSSL says"
    return error


def failed(why: str) -> ssl.SSLError:
    error = ssl.SSLError(1, why)
    error.reason = why
    return error


WHY: dict[LinkErrorKind, dict[Exception, str]] = {
    LinkErrorKind.WEBSOCKET: {WebSocketError("it answers 404 Not Found"): "it answers 404 Not Found"},
    LinkErrorKind.UNRESOLVABLE: {
        socket.gaierror(-2, "Unknown name"): "the host name broker cannot be resolved (Unknown name)",
        UnicodeError("label too long"): "the host name broker cannot be resolved (label too long)",
    },
    LinkErrorKind.TLS: {
        unverified(10): "its certificate has expired",
        unverified(20): "its certificate comes from a CA that is not trusted",
        unverified(62): "its certificate is not for broker",
        unverified(99): "its certificate is not accepted: what OpenSSL says",
        failed("WRONG_VERSION_NUMBER"): "it does not speak TLS",
        failed("NO_SHARED_CIPHER"): "TLS failed: no shared cipher",
        ConnectionResetError(): "it closed the connection during the TLS handshake; perhaps it does not speak TLS",
    },
    LinkErrorKind.TIMEOUT: {TimeoutError(): "no answer within 2.5 s"},
    LinkErrorKind.REFUSED: {
        ConnectionRefusedError(errno.ECONNREFUSED, "no"): "nothing listens there (connection refused)"
    },
    LinkErrorKind.OTHER: {OSError(errno.ENETUNREACH, "no"): "Network is unreachable"},
}


@each("kind, errors", WHY.items())
def test_links_say_why_they_are_not_there(kind: LinkErrorKind, errors: dict[Exception, str]) -> None:
    for error, why in errors.items():
        shown_error = link_error(error, parse_broker("mqtts://me@broker"), timeout_s=2.5)
        assert (shown_error.kind, str(shown_error)) == (kind, f"cannot connect to mqtts://broker:8883: {why}")


def test_the_name_that_a_certificate_is_not_for_may_be_given() -> None:
    error = link_error(unverified(64), parse_broker("mqtts://192.0.2.1"), timeout_s=1, server_name="broker.example")
    assert str(error).endswith("its certificate is not for broker.example")
