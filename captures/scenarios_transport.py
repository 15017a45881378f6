"""Recordings of how the bytes travel: segments, ports, IPv6, WebSocket, TLS."""

from __future__ import annotations

import ssl
import time

import mqttbytes as mb
from clients import Bare, Client
from rig import Rig
from scenario import scenario


@scenario(
    "big-payload",
    "A payload of 24,000 bytes over many segments, both ways",
    "Segments of at most 1000 bytes, so one PUBLISH takes two dozen of them, and its Remaining Length three bytes; "
    "some frames hold several segments, as the offload of loopback hands them over.",
)
def big_payload(rig: Rig) -> None:
    """One packet, many segments."""
    client = Client(rig, "camera", segment_size=1012)
    client.connect()
    client.subscribe(("camera/image", 1))
    picture = bytes(value * value % 251 for value in range(24000))
    client.publish("camera/image", picture, 1)
    client.receive()
    client.publish("camera/image", b"small", 1)
    client.receive()
    client.disconnect()


@scenario(
    "many-in-one-segment",
    "Many packets in one segment",
    "A bare client writes CONNECT, SUBSCRIBE and ten PUBLISH of all QoS at once, before any answer; then all its "
    "acknowledgements at once.",
    clients=("bare socket",),
)
def many_in_one_segment(rig: Rig) -> None:
    """Coalesced writes."""
    bare = Bare(rig)
    bare.send(
        mb.connect("hasty"),
        mb.subscribe(1, ("burst/#", 2)),
        *(mb.publish(f"burst/{number}", b"x" * number, qos=number % 3, identifier=number + 10) for number in range(10)),
    )
    first = bare.receive(2 + 3 + 3 + 4 + 3)
    bare.send(*(answer for packet in first for answer in _answers(packet)))
    second = bare.receive(3 + 3)
    bare.send(*(answer for packet in second for answer in _answers(packet)))
    third = bare.receive(3)
    bare.send(*(answer for packet in third for answer in _answers(packet)), mb.PINGREQ)
    bare.receive()
    bare.send(mb.DISCONNECT)
    bare.until_closed()


def _answers(packet: bytes) -> list[bytes]:
    """What a client sends back in 3.1.1."""
    kind, qos = packet[0] >> 4, packet[0] >> 1 & 3
    if kind == 5:
        return [b"\x62" + packet[1:]]
    if kind == 6:
        return [b"\x70" + packet[1:]]
    if kind == 3 and qos:
        at = 4 + int.from_bytes(packet[2:4], "big")
        return [mb.ack(0x40 if qos == 1 else 0x50, int.from_bytes(packet[at : at + 2], "big"))]
    return []


def _exchange(rig: Rig, version: str) -> None:
    client = Client(rig, "pilot", version)
    client.connect()
    client.subscribe(("ship/+", 2))
    client.publish("ship/course", "270", 2)
    client.receive()
    client.publish("ship/speed", "11", 0)
    client.receive()
    client.disconnect()


@scenario(
    "ipv6",
    "MQTT over IPv6",
    "A short 3.1.1 and a short 5.0 exchange over ::1.",
    host="::1",
)
def ipv6(rig: Rig) -> None:
    """Two connections over ::1."""
    _exchange(rig, "3.1.1")
    _exchange(rig, "5.0")


@scenario(
    "port-18830",
    "MQTT on a port that no table names",
    "A short 3.1 and a short 5.0 exchange with the broker on port 18830.",
    port=18830,
)
def port_18830(rig: Rig) -> None:
    """Two connections to an unusual port."""
    _exchange(rig, "3.1")
    _exchange(rig, "5.0")


# mosquitto 2.0.11 does not start with WebSocket listeners alone, so it gets a plain one that nobody uses.
WEB = "protocol websockets\nlistener {spare} 127.0.0.1\n"


def _web(rig: Rig, version: str) -> None:
    client = Client(rig, "page", version, transport="websockets")
    client.connect(keep_alive=1)
    client.subscribe(("chat/+", 2))
    client.publish("chat/tea", "anyone?", 2)
    client.receive()
    client.publish("chat/tea", b"\x00\xff" * 100, 0)
    client.receive()
    time.sleep(1.2)
    client.disconnect()


@scenario(
    "websocket-v311",
    "MQTT 3.1.1 over WebSocket",
    "HTTP upgrade with subprotocol mqtt, masked frames from paho, a frame with 16-bit length, pings of MQTT.",
    config=WEB,
    port=8080,
    transport="websocket",
    versions=["3.1.1"],
)
def websocket_v311(rig: Rig) -> None:
    """A page that chats."""
    _web(rig, "3.1.1")


@scenario(
    "websocket-v5",
    "MQTT 5.0 over WebSocket",
    "As websocket-v311 with properties.",
    config=WEB,
    port=8080,
    transport="websocket",
    versions=["5.0"],
)
def websocket_v5(rig: Rig) -> None:
    """A page that chats in 5.0."""
    _web(rig, "5.0")


def _certificate(rig: Rig) -> None:
    rig.run(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=broker.example", "-addext", "subjectAltName=DNS:broker.example",
        "-keyout", str(rig.folder / "key.pem"), "-out", str(rig.folder / "cert.pem"),
    )  # fmt: skip


def _secret(rig: Rig, newest: ssl.TLSVersion) -> None:
    client = Client(rig, "vault")
    context = ssl.create_default_context(cafile=str(rig.folder / "cert.pem"))
    context.check_hostname = False
    context.maximum_version = context.minimum_version = newest
    client.paho.tls_set_context(context)
    client.connect()
    client.publish("safe/door", "shut", 1)
    client.disconnect()


@scenario(
    "tls-12",
    "MQTT in TLS 1.2, without the keys",
    "A handshake and encrypted records on port 8883; the packets are unreadable, but a tool should report that this is "
    "TLS.",
    config="certfile {folder}/cert.pem\nkeyfile {folder}/key.pem\n",
    prepare=_certificate,
    port=8883,
    transport="tls",
    versions=[],
    notes="Inside is a 3.1.1 exchange of 5 packets.",
)
def tls_12(rig: Rig) -> None:
    """TLS 1.2."""
    _secret(rig, ssl.TLSVersion.TLSv1_2)


@scenario(
    "tls-13",
    "MQTT in TLS 1.3, without the keys",
    "As tls-12 with 1.3, where the certificate is encrypted too.",
    config="certfile {folder}/cert.pem\nkeyfile {folder}/key.pem\n",
    prepare=_certificate,
    port=8883,
    transport="tls",
    versions=[],
    notes="Inside is a 3.1.1 exchange of 5 packets.",
)
def tls_13(rig: Rig) -> None:
    """TLS 1.3."""
    _secret(rig, ssl.TLSVersion.TLSv1_3)
