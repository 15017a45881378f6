"""The same script with and without TLS, between Python's ssl and a real mosquitto: the same packets are read."""

from __future__ import annotations

import json
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mqttscope.capture import open_capture
from mqttscope.capture.keylog import Keys
from mqttscope.capture.tls import Decryption
from mqttscope.dissect import Dissector, Options, dissect_segments, segments
from mqttscope.events import ConnectionClosed, PacketEvent
from mqttscope.mqtt import Connect, Disconnect, Pingreq, Publish, Pubrel, Subscribe, Subscription
from mqttscope.mqtt.properties import Properties
from tests.cli.running import inspected
from tests.dissect.talk import V5, only, wire
from tests.live import capturing, need_capture, sniff
from tests.net.framing import frame, request
from tests.proxy.rig import Broker, certificates, mosquitto

pytestmark = [pytest.mark.broker, pytest.mark.tshark]
SCRIPT = (
    (Connect(client_identifier="dev", protocol_level=5, protocol_name="MQTT", properties=Properties()),),
    (Subscribe(1, subscriptions=[Subscription("plant/#", 2)], properties=Properties()), Pingreq()),
    (Publish(topic_name="plant/1", payload=b"x" * 20_000, properties=Properties()), Pingreq()),
    (Publish(topic_name="other", qos=2, packet_identifier=2, payload=b"y", properties=Properties(content_type="t")),),
    (Pubrel(2), *(Publish(topic_name=f"plant/{number}", properties=Properties()) for number in range(20))),
    (Disconnect(),),
)
"""What the client says; between two of them it waits until the broker has nothing to say."""
QUIET_S = 0.15


def play(connection: socket.socket, *, websocket: bool) -> None:
    """Say the script."""

    def listen() -> None:
        try:
            while connection.recv(65_536):
                pass
        except TimeoutError:
            pass

    connection.settimeout(QUIET_S)
    if websocket:
        connection.sendall(request())
        listen()
    for packets in SCRIPT:
        data = wire(*packets, version=V5)
        connection.sendall(frame(data, key=b"abcd") if websocket else data)
        listen()
    connection.close()


def packets(path: Path, keys: bytes | None) -> tuple[list[tuple[str, bytes]], list[ConnectionClosed]]:
    """What is read, and the connections."""
    items: Iterator[object] = segments(open_capture([str(path)]))
    if keys is not None:
        items = Decryption(Keys(keys)).join(items)  # type: ignore[arg-type]
    events = list(dissect_segments(items, dissector=Dissector(Options(decrypting=keys is not None))))  # type: ignore[arg-type]
    pairs = [(str(event.direction), event.packet.raw) for event in only(events, PacketEvent)]
    return pairs, only(events, ConnectionClosed)


each_version = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
each_transport = pytest.mark.parametrize("websocket", [False, True], ids=["tcp", "websocket"])


@contextmanager
def brokers(folder: Path, *, websocket: bool) -> Iterator[tuple[Path, Broker, ssl.SSLContext]]:
    """The script as it is captured without TLS, a broker with TLS, and what a client of it needs."""
    plain = folder / "plain.pcapng"
    protocol = "protocol websockets\n" if websocket else ""
    with certificates(folder) as new_certificates:
        with mosquitto(folder, protocol) as broker, capturing(broker.port, plain):
            for _ in range(2):
                play(socket.create_connection(("127.0.0.1", broker.port)), websocket=websocket)
        with mosquitto(folder, f"{protocol}certfile {new_certificates.cert}\nkeyfile {new_certificates.key}") as broker:
            yield plain, broker, ssl.create_default_context(cafile=new_certificates.ca)


def play_with_tls(broker: Broker, context: ssl.SSLContext, *, websocket: bool) -> None:
    """Say the script twice; the second connection resumes the session of the first."""
    session = None
    for _ in range(2):
        raw = socket.create_connection(("127.0.0.1", broker.port))
        inside = context.wrap_socket(raw, server_hostname="127.0.0.1", session=session)
        play(inside, websocket=websocket)
        session = inside.session


def same(pairs: list[tuple[str, Any]], expected: list[tuple[str, Any]]) -> None:
    """The same packets, in the same order in each direction."""
    assert len(expected) > 2 * 30
    assert sorted(pairs) == sorted(expected)
    for direction in ("client_to_server", "server_to_client"):
        assert [each for way, each in pairs if way == direction] == [each for way, each in expected if way == direction]


@pytest.mark.long
@each_transport
@each_version
def test_the_same_packets_with_and_without_tls(version: ssl.TLSVersion, websocket: bool, tmp_path: Path) -> None:
    secure, log = tmp_path / "tls.pcapng", tmp_path / "keys.txt"
    with brokers(tmp_path, websocket=websocket) as (plain, broker, context), capturing(broker.port, secure):
        context.minimum_version = context.maximum_version = version
        context.keylog_filename = str(log)
        play_with_tls(broker, context, websocket=websocket)

    expected, _ = packets(plain, None)
    pairs, connections = packets(secure, log.read_bytes())

    same(pairs, expected)
    assert [closed.connection.decrypted for closed in connections] == [True, True]
    assert [closed.connection.websocket is not None for closed in connections] == [websocket, websocket]


def said(packet: dict[str, Any]) -> tuple[str, str]:
    """The direction of a packet in JSON, and what it says, with all its fields."""
    return packet["direction"], json.dumps([packet["type"], packet["length"], packet.get(packet["type"])])


@pytest.mark.long
@each_transport
@each_version
def test_live_with_a_key_log_that_grows(version: ssl.TLSVersion, websocket: bool, tmp_path: Path) -> None:
    """The key log does not exist when the capture begins."""
    need_capture()
    log = tmp_path / "keys.txt"
    with brokers(tmp_path, websocket=websocket) as (plain, broker, context):
        context.minimum_version = context.maximum_version = version
        words = "--port", str(broker.port), "--keylog", log, "--format", "jsonl"
        running = sniff(*words, first=b"does not exist yet")
        try:
            context.keylog_filename = str(log)
            play_with_tls(broker, context, websocket=websocket)
        finally:
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=30)

    events = [json.loads(line) for line in out.splitlines()]
    assert running.returncode == 0, err
    same(
        [said(event) for event in events if event["event"] == "packet"],
        [said(packet) for packet in inspected(plain).packets],
    )
    assert [event["tls"]["decrypted"] for event in events if event["event"] == "connection_closed"] == [True, True]
