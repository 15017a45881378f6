"""Real sockets on both sides, and peers of all manners, with TLS too."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import threading
from pathlib import Path
from random import Random

import pytest

from mqttscope.mqtt import Connect, ProtocolVersion, encode
from mqttscope.net.segment import reverse_key
from mqttscope.proxy import Proxy, relay
from mqttscope.proxy.pair import HIGH_WATER_BYTES, ProxiedConnection
from mqttscope.transport.recording import Recording
from mqttscope.transport.target import parse_upstream
from mqttscope.transport.wire import Endpoint
from tests.proxy import rig
from tests.proxy.rig import PATIENCE_S, free_port, is_reset, until
from tests.proxy.upstream import connect, joined, made, read, recorded, reset, send, serving
from tests.transport.linking import fail_to_accept

CONNECT = encode(Connect(client_identifier="dev1"), ProtocolVersion.V3_1_1)


def test_bytes_pass_unchanged_in_both_directions(tmp_path: Path) -> None:
    random = Random(3)
    there, back = random.randbytes(600_000), random.randbytes(400_001)
    with serving() as server, Proxy(server.url) as proxy, joined(proxy, server) as (client, upstream):
        got: list[bytes] = []

        def answer() -> None:
            got.append(read(upstream, len(there)))
            upstream.sendall(back)

        thread = threading.Thread(target=answer)
        thread.start()
        client.sendall(there)
        assert read(client, len(back)) == back
        thread.join()
        client.close()
        assert upstream.recv(1) == b""

    assert got == [there]
    client_said, server_said, texts = recorded(proxy, tmp_path / "all.pcapng")
    assert (client_said == there, server_said == back) == (True, True)
    assert texts == ["FlowOpened", "client fin", "server fin", "closed fin"]


@pytest.mark.parametrize("who", ["client", "server"])
def test_either_side_may_close_its_half_and_listen_on(tmp_path: Path, who: str) -> None:
    with serving() as server, Proxy(server.url) as proxy, joined(proxy, server) as (client, upstream):
        first, other = (client, upstream) if who == "client" else (upstream, client)
        first.sendall(b"question")
        first.shutdown(socket.SHUT_WR)
        assert read(other, 100) == b"question"
        send(other, first, b"answer")
        other.close()
        assert first.recv(1) == b""

    raw, answer = (b"question", b"answer") if who == "client" else (b"answer", b"question")
    ends = ["client fin", "server fin"] if who == "client" else ["server fin", "client fin"]
    assert recorded(proxy, tmp_path / "half.pcapng") == (raw, answer, ["FlowOpened", *ends, "closed fin"])


@pytest.mark.parametrize("who", ["client", "server"])
def test_a_reset_is_passed_on(tmp_path: Path, who: str) -> None:
    with serving() as server, Proxy(server.url) as proxy, joined(proxy, server) as (client, upstream):
        send(client, upstream, b"something")
        gone, left = (client, upstream) if who == "client" else (upstream, client)
        reset(gone)
        with pytest.raises(ConnectionResetError):
            left.recv(1)
        raw, _, texts = recorded(proxy, tmp_path / "reset.pcapng")

    assert raw == b"something"
    assert texts[-1] == "closed reset"
    # One reset by the one who did it.
    resets = [
        framed_segment.segment
        for framed_segment in made(proxy, tmp_path / "reset.pcapng")
        if framed_segment.segment.flags & 4
    ]
    assert [reset.payload for reset in resets] == [b""]
    ports = {"client": resets[0].key[10:12], "server": resets[0].key[8:10]}
    assert int.from_bytes(ports[who], "big") == proxy.port


def test_who_does_not_read_holds_up_nobody_else_and_memory_stays_bounded(tmp_path: Path) -> None:
    with (
        serving() as server,
        Proxy(server.url) as proxy,
        joined(proxy, server) as (client, upstream),
        joined(proxy, server) as (other, its_upstream),
    ):
        client.setblocking(False)
        sent = quiet = 0
        while quiet < 300 and sent < 1 << 28:
            try:
                sent += client.send(bytes(65_536))
                quiet = 0
            except BlockingIOError:
                quiet += 1
                send(other, its_upstream, b"ping")
        assert quiet == 300, "the proxy took everything"
        running = proxy._relay
        assert running is not None
        held = [
            end.transport.get_write_buffer_size()
            for pair in running._pairs
            for end in (pair.client, pair.server)
            if end.transport is not None
        ]
        assert 0 < sum(held) <= HIGH_WATER_BYTES + (1 << 18)
        until(lambda: any(pair.wire.acknowledged(False) > 1 << 10 for pair in running._pairs))
        reset(upstream)

    # The server is not said to have what its system never took.
    shown = [framed_segment.segment for framed_segment in made(proxy, tmp_path / "stalled.pcapng")]
    of_client = [segment for segment in shown if segment.key == shown[0].key]
    of_server = [segment for segment in shown if segment.key == reverse_key(shown[0].key)]
    acknowledged = (of_server[-1].acknowledgment - of_client[0].sequence - 1) % 2**32
    assert 0 < acknowledged < sum(len(segment.payload) for segment in of_client)


def test_garbage_passes_and_is_reported(tmp_path: Path) -> None:
    garbage = Random(5).randbytes(10_000)
    with serving() as server, Proxy(server.url) as proxy:
        with joined(proxy, server) as (client, upstream):
            client.sendall(garbage)
            upstream.sendall(garbage[::-1])
            assert read(upstream, len(garbage)) == garbage
            assert read(client, len(garbage)) == garbage[::-1]
        assert proxy.findings()

    assert recorded(proxy, tmp_path / "garbage.pcapng")[:2] == (garbage, garbage[::-1])


def test_a_client_without_a_broker_is_reset(tmp_path: Path) -> None:
    with Proxy(f"mqtt://127.0.0.1:{free_port()}") as proxy:
        assert is_reset(proxy.port)
        assert recorded(proxy, tmp_path / "refused.pcapng")[2][-1] == "closed reset"
        (note,) = proxy.notes

    assert "cannot reach mqtt://127.0.0.1:" in note
    assert made(proxy, tmp_path / "refused.pcapng")[-1].segment.flags & 4


def test_what_a_client_says_before_the_broker_is_there_is_not_lost() -> None:
    with serving() as server, Proxy(server.url) as proxy, connect(proxy) as client:
        client.sendall(b"early")
        client.shutdown(socket.SHUT_WR)
        with server.accept() as upstream:
            assert read(upstream, 10) == b"early"


def test_a_client_is_not_read_before_its_broker_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says would have to be kept."""
    connect_upstream, backlogs = relay.Relay._connect, list[int]()

    async def connect_late(self: relay.Relay, pair: ProxiedConnection, client: Endpoint) -> None:
        event.wait(PATIENCE_S)
        for _ in range(20):
            await asyncio.sleep(0.005)
        backlogs.append(sum(map(len, pair.server._backlog)))
        await connect_upstream(self, pair, client)

    monkeypatch.setattr(relay.Relay, "_connect", connect_late)
    event = threading.Event()
    with serving() as server, Proxy(server.url) as proxy, connect(proxy) as client:
        client.sendall(b"early")
        event.set()
        with server.accept() as upstream:
            assert read(upstream, 5) == b"early"
    assert backlogs == [0]


def test_a_broker_that_does_not_answer_in_time_is_given_up() -> None:
    """It accepts, and then says nothing to the hello of TLS."""
    with serving() as server:
        url = server.url.replace("mqtt:", "mqtts:")
        with Proxy(url, insecure=True, connect_timeout=0.1) as proxy:
            assert is_reset(proxy.port)
            assert [note.rpartition(": ")[2] for note in proxy.notes] == ["no answer in time"]


def test_clients_beyond_the_limit_are_closed() -> None:
    with serving() as server, Proxy(server.url, max_connections=1) as proxy:
        with joined(proxy, server) as (client, upstream):
            with connect(proxy) as another:
                assert another.recv(1) == b""
            send(client, upstream, b"fine")
        with connect(proxy) as third:
            until(lambda: proxy._relay is not None and proxy._relay.clients <= 1)
            del third
        assert proxy.notes[0] == "a client was closed: there are 1 connections already"


def test_without_descriptors_clients_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_to_accept(monkeypatch, [errno.ECONNABORTED, errno.EMFILE])
    with serving() as server, Proxy(server.url) as proxy, joined(proxy, server) as (client, upstream):
        send(client, upstream, b"patience")
    assert proxy.notes == ["cannot accept: no; clients wait"]


def test_many_come_and_go() -> None:
    with serving() as server, Proxy(server.url) as proxy:
        for number in range(50):
            with joined(proxy, server) as (client, upstream):
                send(client, upstream, CONNECT)
                if number % 2:
                    reset(client)
        assert len([packet for packet in proxy.packets() if packet.type == "connect"]) == 50
        running = proxy._relay
        assert running is not None
        until(lambda: not running.clients)
        assert (running.served, running.reached, running.connecting, len(running._pairs)) == (50, 50, 0, 0)


def test_when_the_proxy_ends_the_record_does_not_say_that_anybody_closed(tmp_path: Path) -> None:
    with serving() as server, Proxy(server.url) as proxy, joined(proxy, server) as (client, upstream):
        send(client, upstream, CONNECT)
        proxy.close()
        assert client.recv(1) == b""
        assert upstream.recv(1) == b""

    assert recorded(proxy, tmp_path / "open.pcapng") == (CONNECT, b"", ["FlowOpened", "closed capture_end"])


def test_ipv6(tmp_path: Path) -> None:
    rig.need_address("::1")
    with serving() as server, Proxy(server.url, "[::1]:0") as proxy:
        assert proxy.address == f"[::1]:{proxy.port}"
        with socket.create_connection(("::1", proxy.port), PATIENCE_S) as client, server.accept() as upstream:
            send(client, upstream, CONNECT)
            assert recorded(proxy, tmp_path / "six.pcapng")[0] == CONNECT


def test_every_address_has_the_same_port() -> None:
    with serving() as server, Proxy(server.url, "*:0") as proxy:
        running = proxy._relay
        assert running is not None
        assert {port for _, port in running.addresses} == {proxy.port}
        with joined(proxy, server) as (client, upstream):
            send(upstream, client, b"hello")


def test_two_cannot_listen_at_the_same_place() -> None:
    with serving() as server, Proxy(server.url) as proxy:
        second = Proxy(server.url, proxy.address)
        with pytest.raises(OSError, match="in use") as caught:
            second.start()
    assert caught.value.errno == errno.EADDRINUSE


def test_a_client_that_closes_tls_closes_the_other_side(certificates: rig.Certificates) -> None:
    context = ssl.create_default_context(cafile=certificates.ca)
    with (
        serving() as server,
        Proxy(server.url, listen_cert=certificates.cert, listen_key=certificates.key) as proxy,
    ):
        assert proxy.url == f"mqtts://127.0.0.1:{proxy.port}"
        with context.wrap_socket(connect(proxy), server_hostname="localhost") as client:
            client.sendall(b"plain inside")
            with server.accept() as upstream:
                assert read(upstream, 12) == b"plain inside"
                upstream.sendall(bytes(100_000))
                assert read(client, 100_000) == bytes(100_000)
                client.close()
                assert upstream.recv(1) == b""
    assert proxy.notes == []


def test_limits_count_from_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("mqttscope.proxy.relay.time.monotonic", lambda: now)
    ending = relay.Relay(relay.Route("", 0, parse_upstream("mqtt://127.0.0.1:1")), Recording("it"))

    ending.stop()
    now = 101.0
    assert ending._left_s(0.6) == 0.6
    ending.stop(hurry=True)
    now = 101.25
    assert ending._left_s(0.6) == pytest.approx(0.35)
    ending.stop(hurry=True)
    now = 102.0
    assert ending._left_s(0.6) == 0


def test_mqtt_may_be_named_as_the_protocol(certificates: rig.Certificates) -> None:
    context = ssl.create_default_context(cafile=certificates.ca)
    context.set_alpn_protocols(["mqtt"])
    with (
        serving() as server,
        Proxy(server.url, listen_cert=certificates.cert, listen_key=certificates.key) as proxy,
        context.wrap_socket(connect(proxy), server_hostname="localhost") as client,
    ):
        assert client.selected_alpn_protocol() == "mqtt"
