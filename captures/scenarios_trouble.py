"""Recordings of connections that end in trouble, and of messages that do not arrive."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

import mqttbytes as mb
from clients import SETTLE, Bare, Client
from rig import Rig
from scenario import scenario


@scenario(
    "too-large-v311",
    "A PUBLISH above max_packet_size, before 5.0",
    "mosquitto closes on a message of 4,000 bytes without a reason, because 3.1.1 has no packet for it; small messages "
    "pass.",
    config="max_packet_size 1000\n",
    clients=("bare socket",),
    explain={0: "packet_too_large"},
)
def too_large_v311(rig: Rig) -> None:
    """Three small messages, one large."""
    bare = Bare(rig)
    bare.send(mb.connect("logger-9"))
    bare.receive()
    for identifier in (1, 2, 3):
        bare.send(mb.publish("plant/log", b"x" * 40, qos=1, identifier=identifier))
        bare.receive()
    bare.send(mb.publish("plant/log", b"x" * 4000, qos=1, identifier=4))
    bare.until_closed()


@scenario(
    "broker-restarts",
    "The broker is stopped and started again",
    "Four connections end together, an attempt to connect is refused, then the broker accepts clients again.",
    explain={0: "server_restart", 1: "server_restart", 2: "server_restart", 3: "server_restart", 4: "not_listening"},
)
def broker_restarts(rig: Rig) -> None:
    """An upgrade in the middle of the day."""
    names = ("pump-1", "pump-2", "pump-3", "pump-4")
    clients = [Client(rig, name) for name in names]
    for one in clients:
        one.connect()
    time.sleep(SETTLE)
    rig.stop_broker()
    for one in clients:
        one.gone()
    with suppress(OSError), socket.create_connection((rig.host, rig.port), 2):
        pass
    rig.broker = rig.start("mosquitto", "-v", "-c", str(rig.folder / "mosquitto.conf"))
    time.sleep(1)
    for name in names[:2]:
        again = Client(rig, name)
        again.connect()
        again.disconnect()


@scenario(
    "undelivered",
    "A message that some clients get and others do not",
    "Of plant/7/alarm: `right` gets it; `upper` is subscribed to Plant/7/alarm, `late` subscribes after it, `left` had"
    " unsubscribed, `echo` published it and has No Local, `away` is not connected.",
    clients=("paho-mqtt", "bare socket"),
)
def undelivered(rig: Rig) -> None:
    """One alarm."""
    topic = "plant/7/alarm"
    right = Client(rig, "right", "5.0")
    right.connect()
    right.subscribe(("plant/#", 1))
    upper = Client(rig, "upper", "5.0")
    upper.connect()
    upper.subscribe(("Plant/7/alarm", 1))
    left = Client(rig, "left", "5.0")
    left.connect()
    left.subscribe((topic, 1))
    left.unsubscribe(topic)
    away = Bare(rig)
    away.send(mb.connect("away", "3.1.1", clean=False))
    away.receive()
    away.send(mb.subscribe(1, (topic, 0)))
    away.receive()
    away.send(mb.DISCONNECT)
    away.until_closed()
    echo = Bare(rig)
    echo.send(mb.connect("echo", "5.0"))
    echo.receive()
    echo.send(mb.subscribe(1, (topic, 0b101), declared=b"\x00"))
    echo.receive()
    echo.send(mb.publish(topic, b"hot", qos=1, identifier=2, declared=b"\x00"))
    echo.receive()
    right.receive()
    time.sleep(SETTLE)
    late = Client(rig, "late", "5.0")
    late.connect()
    late.subscribe((topic, 1))
    for one in (right, upper, left, late):
        one.disconnect()
    echo.send(mb.DISCONNECT)
    echo.until_closed()
