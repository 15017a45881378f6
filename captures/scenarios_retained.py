"""Recordings of a server that keeps retained messages wrongly."""

from __future__ import annotations

import time

import mqttbytes as mb
from actors import Actor, leave, pause
from clients import Bare
from rig import Rig
from scenario import scenario
from tamper import CLIENT, SERVER, drop, first_byte

AS_PUBLISHED = 0x08
"""Subscription option: Retain As Published."""


@scenario(
    "retained-mishandled",
    "Retained messages that are lost, kept or marked wrongly",
    "Every topic is named for what becomes of its retained message: not stored, not sent, not cleared, stored "
    "though it was not retained, without its flag, gone with its publisher. A proxy changes flags and drops messages "
    "for that.",
    clients=("bare socket",),
    proxy=True,
    fires={
        "RET405": ("server", "the proxy takes RETAIN from a message on its way to mosquitto"),
        "RET406": ("server", "the proxy drops the retained message that mosquitto sends"),
        "RET407": ("server", "the proxy takes RETAIN from the empty message that clears a topic"),
        "RET408": ("server", "the proxy sets RETAIN in a message on its way to mosquitto"),
        "RET409": ("server", "the proxy takes RETAIN from a message to a subscription with Retain As Published"),
        "RET410": ("server", "another client, which is not recorded, clears the topic when its publisher has left"),
        "RET411": ("server", "the proxy takes RETAIN from the message that answers a SUBSCRIBE"),
    },
)
def retained_mishandled(rig: Rig) -> None:
    """One publisher that stays, one that leaves, and readers."""
    proxy = rig.proxy
    source = Actor(rig, "source")
    for number, name in enumerate(("stored", "cleared", "made", "flag", "sent"), 1):
        source.publish(f"plant/{name}", b"old", 1, number, retain=True)
    proxy.change(CLIENT, "source", "publish", first_byte(0x32), holding=b"new")
    source.publish("plant/stored", b"new", 1, 6, retain=True)
    proxy.change(CLIENT, "source", "publish", first_byte(0x32), holding=b"plant/cleared")
    source.publish("plant/cleared", b"", 1, 7, retain=True)
    proxy.change(CLIENT, "source", "publish", first_byte(0x33), holding=b"plant/made")
    source.publish("plant/made", b"event", 1, 8)

    bridge = Actor(rig, "bridge")
    bridge.subscribe(("plant/live", 1 | AS_PUBLISHED))
    proxy.change(SERVER, "bridge", "publish", first_byte(0x32))
    source.publish("plant/live", b"live", 1, 9, retain=True)
    bridge.take()

    watcher = Actor(rig, "watcher")
    mortal = Actor(rig, "mortal")
    mortal.publish("plant/mortal", b"here", 1, 1, retain=True)
    watcher.subscribe(("plant/mortal", 1))
    watcher.take()
    mortal.leave()
    janitor = Bare(rig, rig.broker_port)
    janitor.send(mb.connect("janitor"))
    janitor.send(mb.publish("plant/mortal", retain=True))
    janitor.close()

    time.sleep(6)
    watcher.send(mb.packet(0xA2, b"\x00\x02\x00", mb.string("plant/mortal")))
    while watcher.receive()[0][0] >> 4 != 11:
        pass
    watcher.subscribe(("plant/mortal", 1), identifier=3)
    reader = Actor(rig, "reader")
    proxy.change(SERVER, "reader", "publish", lambda packet: (bytes([packet[0] & ~1]) + packet[1:],), holding=b"flag")
    for number, name in enumerate(("stored", "cleared", "made", "flag"), 1):
        reader.send(mb.subscribe(number, (f"plant/{name}", 1), declared=b"\x00"))
        reader.receive()
        reader.take()
    reader.send(mb.subscribe(5, ("plant/sent", 1), declared=b"\x00"))
    reader.receive()
    reader.take()
    proxy.change(SERVER, "reader", "publish", drop, holding=b"plant/sent")
    reader.send(mb.subscribe(6, ("plant/sent", 1), declared=b"\x00"))
    reader.receive()
    pause(34, reader, watcher, source)
    leave([reader, watcher, bridge, source])
