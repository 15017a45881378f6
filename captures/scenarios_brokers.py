"""Recordings of other brokers than mosquitto, which break rules by themselves."""

from __future__ import annotations

import time

import mqttbytes as mb
from actors import Actor, leave
from clients import Bare
from rig import Rig
from scenario import scenario

BARE = ("bare socket",)


@scenario(
    "amqtt-waits",
    "A broker that lets everybody stay",
    "amqtt keeps a client that is silent for six times its Keep Alive, and a connection that "
    "sends no CONNECT for a minute.",
    clients=BARE,
    broker="amqtt",
    fires={
        "CON530": ("server", "amqtt accepts a CONNECT that comes 61 s after the connection was opened"),
        "KAL503": ("server", "amqtt answers a client that was silent for six times its Keep Alive"),
    },
    beside={"KAL201": "KAL503 needs a client that is silent"},
)
def amqtt_waits(rig: Rig) -> None:
    """One minute."""
    late = Bare(rig)
    quiet = Actor(rig, "quiet", "3.1.1", keep_alive=4)
    time.sleep(25)
    quiet.ping()
    leave([quiet])
    time.sleep(36)
    late.send(mb.connect("late"))
    late.receive()
    late.send(mb.DISCONNECT)
    late.until_closed()


@scenario(
    "aedes-delivers",
    "A broker that delivers with the wrong QoS, and again without DUP",
    "A subscriber has plant/7 with QoS 1 and plant/# with QoS 2, and gets a message of QoS 2 with 1; one that comes "
    "back to its session gets the message that it had not acknowledged once more, with DUP 0.",
    clients=BARE,
    broker="aedes",
    explain={2: "client_reset"},
    fires={
        "DLV411": ("server", "Aedes delivers with QoS 1 what was published with QoS 2 and matches a filter with QoS 2"),
        "PUB311": ("server", "Aedes sends a message again with DUP 0"),
    },
)
def aedes_delivers(rig: Rig) -> None:
    """Two subscribers."""
    source = Actor(rig, "source", "3.1.1")
    overlap = Actor(rig, "overlap", "3.1.1")
    overlap.subscribe(("plant/7", 1))
    overlap.subscribe(("plant/#", 2), identifier=2)
    away = Actor(rig, "away", "3.1.1", clean=False)
    away.subscribe(("ship/1", 1))
    time.sleep(1.5)
    source.publish("plant/7", b"1", 2, 1)
    overlap.take()
    source.publish("ship/1", b"2", 1, 2)
    away.receive()
    away.vanish()
    time.sleep(0.5)
    away = Actor(rig, "away", "3.1.1", clean=False)
    away.take()
    time.sleep(11)
    overlap.ping()
    leave([away, overlap, source])
