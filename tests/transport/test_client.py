"""Connections to a real mosquitto over everything, and to brokers that are not there or not as they should be."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.events import ConnectionClosed, PacketEvent
from mqttscope.mqtt import Disconnect, Pingreq, Pingresp
from mqttscope.transport.client import resolve
from mqttscope.transport.link import LinkError, LinkErrorKind
from mqttscope.transport.target import BrokerUrl, loopback, parse_broker
from mqttscope.transport.tls import listen_context, upstream_context
from tests.each import some
from tests.proxy import rig
from tests.transport.linking import CONNACK, CONNECT, Heard, connect, packet, recorder, serve, soon
from tests.transport.wires import complaints, tshark

SCHEMES = ("mqtt", "mqtts", "ws", "wss")


def settings(scheme: str, certificates: rig.Certificates) -> str:
    """Lines for mosquitto's listener."""
    lines = ["protocol websockets"] if scheme in ("ws", "wss") else []
    if scheme in ("mqtts", "wss"):
        lines += [f"certfile {certificates.cert}", f"keyfile {certificates.key}"]
    return "\n".join(lines)


@pytest.mark.broker
@pytest.mark.parametrize("scheme", some(SCHEMES, 3))
async def test_a_real_broker_is_spoken_with_and_recorded(
    scheme: str, tmp_path: Path, certificates: rig.Certificates
) -> None:
    path = tmp_path / "it.pcapng"
    link_recorder, heard = recorder(path), Heard()
    with rig.mosquitto(tmp_path, settings(scheme, certificates)) as broker:
        target = parse_broker(f"{scheme}://127.0.0.1:{broker.port}")
        link = await connect(target, heard, tls=upstream_context(certificates.ca), recorder=link_recorder)
        assert (link.remote.port, link.subprotocol) == (broker.port, "mqtt" if target.websocket else None)
        link.write(CONNECT)
        await heard.gets(CONNACK)
        link.write(packet(Pingreq()))
        await heard.gets(packet(Pingresp()))
        link.write(packet(Disconnect()))
        if scheme == "mqtt":
            link.half_close()
        else:
            link.close()
        await soon(link.closed.wait())
        assert heard.end is None or heard.end[0] == "fin"
        link_recorder.close()
        log = (tmp_path / f"mosquitto-{broker.port}.log").read_text()
    assert "Received DISCONNECT from dev1" in log
    assert "Socket error" not in log

    events = list(dissect(open_capture([path])))
    assert [event.type for event in events if isinstance(event, PacketEvent)] == [
        "connect", "connack", "pingreq", "pingresp", "disconnect"
    ]  # fmt: skip
    (closed,) = [event for event in events if isinstance(event, ConnectionClosed)]
    # mosquitto answers a DISCONNECT inside of a WebSocket by closing, which may be first.
    assert closed.connection.closed_how == "fin"
    assert closed.connection.closed_by == "client" or "ws" in scheme
    assert complaints(path) == []
    spoken = "http" if "ws" in scheme else "mqtt"
    layer = "websocket.payload_length" if "ws" in scheme else "mqtt.msgtype"
    shown = tshark(path, "-d", f"tcp.port=={broker.port},{spoken}", "-Y", layer, "-T", "fields", "-e", layer)
    assert len(shown) >= 5


async def test_a_wrong_path_is_said_and_the_name_may_be_looked_at_first(tmp_path: Path) -> None:
    heard = Heard()
    server = await serve("127.0.0.1", 0, lambda _: heard, websocket=False)
    target = BrokerUrl("ws", "localhost", server.port, None, "/mqtt")
    addresses = await resolve(target)
    assert loopback(address.ip for address in addresses)
    connecting = asyncio.create_task(connect(target, Heard(), addresses=addresses))
    await heard.until(lambda: heard.data.endswith(b"\r\n\r\n"))
    (link,) = server.links
    link.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
    link.close()
    with pytest.raises(LinkError) as caught:
        await connecting
    assert caught.value.kind is LinkErrorKind.WEBSOCKET
    assert str(caught.value).endswith("/mqtt: it answers 403 Forbidden to the request for /mqtt")
    await server.close()


async def refusal(url: str, **options: object) -> LinkError:
    """Why there is no link."""
    with pytest.raises(LinkError) as caught:
        await connect(parse_broker(url), Heard(), **options)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_nobody_listens(scheme: str) -> None:
    error = await refusal(f"{scheme}://127.0.0.1:{rig.free_port()}")
    assert error.kind is LinkErrorKind.REFUSED
    assert str(error).endswith(": nothing listens there (connection refused)")


async def test_a_name_that_leads_nowhere() -> None:
    error = await refusal("mqtt://nonexistent.invalid")
    assert error.kind is LinkErrorKind.UNRESOLVABLE
    text = "cannot connect to mqtt://nonexistent.invalid:1883: the host name nonexistent.invalid cannot be"
    assert text in str(error)
    assert (await refusal(f"mqtt://{'a' * 70}.invalid")).kind is LinkErrorKind.UNRESOLVABLE


@pytest.mark.parametrize("scheme", ["mqtts", "ws", "wss"])
async def test_who_does_not_answer_is_not_waited_for(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        error = await refusal(f"{scheme}://127.0.0.1:{mute.getsockname()[1]}", connect_timeout_s=0.1)
    assert error.kind is LinkErrorKind.TIMEOUT
    assert str(error).endswith(": no answer within 0.1 s")


async def test_a_full_backlog_is_no_answer_in_time() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for other_socket in waiting:
            other_socket.setblocking(False)
            other_socket.connect_ex(("127.0.0.1", port))
        error = await refusal(f"mqtt://127.0.0.1:{port}", connect_timeout_s=0.2)
        for other_socket in waiting:
            other_socket.close()
    assert error.kind is LinkErrorKind.TIMEOUT


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("other", "its certificate comes from a CA that is not trusted"),
        ("name", "its certificate is not for broker.example"),
        ("expired", "its certificate has expired"),
        ("self", "its certificate is self-signed and not trusted"),
    ],
)
@pytest.mark.parametrize("scheme", ["mqtts", "wss"])
async def test_wrong_certificates(
    case: str, expected: str, scheme: str, tmp_path: Path, certificates: rig.Certificates
) -> None:
    chain = {"expired": lambda: rig.expired(tmp_path, certificates), "self": lambda: certificates.ca}.get(
        case, lambda: certificates.cert
    )()
    key = str(certificates.folder / "ca.key") if case == "self" else certificates.key
    texts: list[str] = []
    server = await serve("127.0.0.1", 0, lambda _: Heard(), tls=listen_context(chain, key), note=texts.append)
    trusted = upstream_context(certificates.other_ca if case in ("other", "self") else certificates.ca)
    name = "broker.example" if case == "name" else None
    error = await refusal(f"{scheme}://127.0.0.1:{server.port}", tls=trusted, server_name=name)
    await server.close()
    assert len(texts) == 1
    assert error.kind is LinkErrorKind.TLS
    assert str(error).endswith(f": {expected}")


@pytest.mark.broker
async def test_tls_with_a_broker_that_has_none(tmp_path: Path, certificates: rig.Certificates) -> None:
    with rig.mosquitto(tmp_path) as broker:
        error = await refusal(f"mqtts://127.0.0.1:{broker.port}", tls=upstream_context(certificates.ca))
        assert error.kind is LinkErrorKind.TLS
        assert "does not speak TLS" in str(error)
        error = await refusal(f"ws://127.0.0.1:{broker.port}", connect_timeout_s=2)
        assert error.kind is LinkErrorKind.WEBSOCKET
        assert str(error).endswith("it closed the connection instead of opening a WebSocket")


@pytest.mark.broker
async def test_a_client_certificate_that_is_missing(tmp_path: Path, certificates: rig.Certificates) -> None:
    """In TLS 1.3 that is said once the client believes to be connected."""

    async def scene(port: int, *, early: bool) -> tuple[str, str]:
        heard = Heard()
        link = await connect(parse_broker(f"mqtts://127.0.0.1:{port}"), heard, tls=upstream_context(certificates.ca))
        if early:
            link.write(CONNECT)
        await soon(link.closed.wait())
        assert heard.end is not None
        return heard.end

    lines = f"{settings('mqtts', certificates)}\ncafile {certificates.ca}\nrequire_certificate true"
    with rig.mosquitto(tmp_path, lines) as broker:
        how, detail = await scene(broker.port, early=False)
        assert (how, detail.startswith("TLS was ended: ")) == ("failed", True)
        assert "certificate required" in detail
        # Its reset may come before its reason.
        assert "certificate" in (await scene(broker.port, early=True))[1]


async def test_by_name_and_with_the_system_s_authorities() -> None:
    server = await serve("127.0.0.1", 0, lambda _: Heard())
    link = await connect(parse_broker(f"mqtt://localhost:{server.port}"), Heard())
    assert link.remote.port == server.port
    link.close()
    await server.close()
    await soon(link.closed.wait())
    assert ssl.CERT_REQUIRED is upstream_context().verify_mode


@pytest.mark.parametrize("scheme", ["mqtts", "ws"])
async def test_who_gives_up_leaves_nothing_behind(scheme: str, certificates: rig.Certificates) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        target = parse_broker(f"{scheme}://127.0.0.1:{mute.getsockname()[1]}")
        connecting = asyncio.create_task(connect(target, Heard(), tls=upstream_context(certificates.ca)))
        await asyncio.sleep(0.05)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting


async def test_who_gives_up_while_a_refused_websocket_is_closed_leaves_nothing_behind() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        target = parse_broker(f"ws://127.0.0.1:{listening.getsockname()[1]}")
        connecting = asyncio.create_task(connect(target, Heard()))
        remote, _ = await soon(loop.sock_accept(listening))
    with remote:
        await soon(loop.sock_recv(remote, 1_000))
        await loop.sock_sendall(remote, b"HTTP/1.1 404 Not Found\r\n\r\n")
        await asyncio.sleep(0.05)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        for _ in range(100):
            try:
                await loop.sock_sendall(remote, b"x")
            except ConnectionError:
                return
            await asyncio.sleep(0.01)
    raise AssertionError("the connection is still open")
