"""Recordings of a server that publishes wills wrongly."""

from __future__ import annotations

import time

import mqttbytes as mb
from actors import KEPT, Actor, leave, pause
from rig import Rig
from scenario import scenario
from scenarios_reconnects import present
from tamper import CLIENT, SERVER, drop, replace, twice


def delayed(seconds: int) -> bytes:
    """Will Delay Interval, as the properties of a will."""
    return mb.properties(b"\x18" + seconds.to_bytes(4, "big"))


@scenario(
    "wills-mishandled",
    "Wills that are published wrongly, or not at all",
    "Every client is named for what becomes of its will: lost, published although it had left or was back again, "
    "published twice, changed. A proxy drops, doubles and changes messages for that.",
    clients=("bare socket",),
    proxy=True,
    explain=dict.fromkeys((1, 2, 4, 5), "client_reset"),
    fires={
        "WIL404": ("server", "the proxy drops the will"),
        "WIL405": ("server", "the proxy drops the DISCONNECT of the client"),
        "WIL406": (
            "server",
            "the proxy gives the client another name when it is back, so that mosquitto takes it for gone",
        ),
        "WIL407": ("server", "the proxy doubles the will"),
        "WIL408": ("server", "the proxy changes a property of the will"),
    },
)
def wills_mishandled(rig: Rig) -> None:
    """Five clients that die, and one that watches."""
    proxy = rig.proxy
    watcher = Actor(rig, "watcher")
    watcher.subscribe(("state/#", 0))

    def born(name: str, declared: bytes = b"\x00") -> Actor:
        return Actor(rig, name, declared=KEPT, will=mb.will(f"state/{name}", f"{name} is gone".encode(), declared))

    back = born("back", delayed(12))
    lost, left, double = (born(name) for name in ("lost", "left", "double"))
    changed = born("changed", mb.properties(b"\x03" + mb.string("text/csv")))
    lost.publish("state/lost", b"here", 1)
    watcher.take()
    back.vanish()
    proxy.change(SERVER, "watcher", "publish", drop, holding=b"lost is gone")
    lost.vanish()
    proxy.change(CLIENT, "left", "disconnect", drop)
    left.send(mb.DISCONNECT)
    left.close()
    watcher.take()
    proxy.change(SERVER, "watcher", "publish", twice, holding=b"double is gone")
    double.vanish()
    watcher.take(2)
    proxy.change(SERVER, "watcher", "publish", replace(b"text/csv", b"text/xml"), holding=b"changed is gone")
    changed.vanish()
    watcher.take()
    proxy.change(CLIENT, "back", "connect", replace(b"back", b"copy"))
    proxy.change(SERVER, "back", "connack", present(True))
    back = Actor(rig, "back", clean=False, declared=KEPT)
    time.sleep(8)
    watcher.take()
    pause(34, watcher)
    leave([back, watcher])
