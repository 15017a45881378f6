"""Recordings of sessions that are taken up wrongly: by the client, by the server, or not at all."""

from __future__ import annotations

import time
from collections.abc import Sequence

import mqttbytes as mb
from actors import KEPT, Actor, expiry, leave, pause
from rig import Rig
from scenario import scenario
from tamper import CLIENT, SERVER, Change, drop

BARE = ("bare socket",)


def flag(on: bool) -> Change:
    """Set or clear Clean Start in a CONNECT of the name MQTT."""

    def change(packet: bytes) -> Sequence[bytes]:
        at = len(packet) - len(mb.body(packet)) + 7
        return (packet[:at] + bytes([packet[at] & ~2 | on << 1]) + packet[at + 1 :],)

    return change


def present(on: bool) -> Change:
    """Set or clear Session Present in a CONNACK."""
    return lambda packet: (packet[:2] + bytes([on]) + packet[3:],)


def again(rig: Rig, name: str, version: str = "5.0") -> Actor:
    """A client that takes its session up."""
    return Actor(rig, name, version, clean=False, declared=KEPT)


@scenario(
    "resumed-by-clients",
    "Clients that take up a session wrongly",
    "A proxy keeps PUBACK back, so that each has messages to send again: one does not, one sends them in another "
    "order, one under another identifier, one without DUP, one after it asked for a clean start, one with an old "
    "Topic Alias.",
    config="max_topic_alias 10\n",
    clients=BARE,
    proxy=True,
    explain={**dict.fromkeys((0, 1, 2, 3, 4, 10), "client_reset"), 11: "protocol_violation"},
    fires={
        "ACK311": ("client", "the client does not send its message again"),
        "ACK312": ("client", "the client sends the second message before the first"),
        "ACK313": ("client", "the client takes another packet identifier"),
        "ALS305": ("client", "the client uses an alias of the connection before"),
        "PUB311": ("client", "the client sends its message again with DUP 0"),
        "SES306": ("client", "the client asks for a clean start and sends a message of the session before"),
    },
    beside={
        "ALS203": "ALS305 is about an alias that this connection does not know",
    },
)
def resumed_by_clients(rig: Rig) -> None:
    """Six clients, two connections each."""
    proxy = rig.proxy
    for name, number in (("silent", 1), ("mixed", 2), ("renamed", 1), ("bare", 1), ("clean", 1)):
        proxy.change(SERVER, name, "puback", drop, times=number)
        one = again(rig, name)
        for identifier in range(1, number + 1):
            one.send(one.message("plant/7", b"%d" % identifier, 1, identifier))
        one.vanish()
    silent = again(rig, "silent")
    mixed = again(rig, "mixed")
    mixed.publish("plant/7", b"2", 1, 2, dup=True)
    mixed.publish("plant/7", b"1", 1, 1, dup=True)
    renamed = again(rig, "renamed")
    renamed.publish("plant/7", b"1", 1, 9, dup=True)
    bare = again(rig, "bare")
    bare.publish("plant/7", b"1", 1, 1)
    clean = Actor(rig, "clean", clean=True)
    clean.publish("plant/7", b"1", 1, 1, dup=True)
    alias = again(rig, "alias")
    alias.publish("plant/7", b"1", declared=mb.properties(b"\x23\x00\x01"))
    alias.vanish()
    alias = again(rig, "alias")
    alias.send(alias.message("", b"2", declared=mb.properties(b"\x23\x00\x01")))
    alias.until_closed()
    pause(31, silent)
    leave([silent, mixed, renamed, bare, clean])


@scenario(
    "resumed-by-servers",
    "A server that takes up sessions wrongly",
    "Each client leaves messages unacknowledged and comes back. A proxy drops what mosquitto sends again, swaps it, "
    "gives it another identifier, takes DUP away, or hides from mosquitto that a clean start was asked for.",
    clients=BARE,
    proxy=True,
    explain=dict.fromkeys(range(1, 7), "client_reset"),
    fires={
        "ACK311": ("server", "the proxy drops the message that mosquitto sends again"),
        "ACK312": ("server", "the proxy swaps two messages that mosquitto sends again"),
        "ACK313": ("server", "the proxy changes the packet identifier of a message that mosquitto sends again"),
        "ACK314": (
            "server",
            "the proxy drops a QoS 2 message after its Message Expiry Interval has expired in flight",
        ),
        "PUB311": ("server", "the proxy takes DUP from a message that mosquitto sends again"),
        "SES306": ("server", "the proxy hides a clean start from mosquitto, and its Session Present from the client"),
    },
)
def resumed_by_servers(rig: Rig) -> None:
    """Six clients, two connections each."""
    proxy = rig.proxy
    source = Actor(rig, "source")
    names = ("silent", "mixed", "renamed", "bare", "clean", "expired")
    number = 0
    for name in names:
        one = again(rig, name)
        qos = 2 if name == "expired" else 1
        one.subscribe((f"plant/{name}", qos))
        for _ in range(2 if name == "mixed" else 1):
            number += 1
            source.publish(f"plant/{name}", b"%d" % number, qos, number, expiry(3) if qos == 2 else None)
            one.receive()
        one.vanish()
    time.sleep(4)
    held: list[bytes] = []

    def hold(packet: bytes) -> Sequence[bytes]:
        held.append(packet)
        return ()

    def rename(packet: bytes) -> Sequence[bytes]:
        at = len(packet) - len(mb.body(packet)) + 2 + len("plant/renamed")
        return (packet[:at] + b"\x00\x63" + packet[at + 2 :],)

    for name in ("silent", "expired"):
        proxy.change(SERVER, name, "publish", drop)
        proxy.change(SERVER, name, "pubrel", drop)
    proxy.change(SERVER, "mixed", "publish", hold)
    proxy.change(SERVER, "mixed", "publish", lambda packet: (packet, *held))
    proxy.change(SERVER, "renamed", "publish", rename)
    proxy.change(SERVER, "bare", "publish", lambda packet: (bytes([packet[0] & ~8]) + packet[1:],))
    proxy.change(CLIENT, "clean", "connect", flag(False))
    proxy.change(SERVER, "clean", "connack", present(False))
    back = {name: again(rig, name) for name in names if name != "clean"}
    back["clean"] = Actor(rig, "clean")
    for name in ("mixed", "renamed", "bare", "clean"):
        back[name].take(2 if name == "mixed" else 1)
    pause(32, back["silent"], back["expired"], source)
    leave([*back.values(), source])


@scenario(
    "sessions-lost",
    "Sessions that are lost, or that outlive their end",
    "A proxy sets or clears the flag Clean Start on the way to mosquitto: one session is thrown away while it is taken "
    "over, one with a subscription, one lives on although it was to end. From one that is taken up it drops a message.",
    clients=BARE,
    proxy=True,
    explain={2: "taken_over"},
    fires={
        "SES303": ("server", "the proxy makes mosquitto throw a session away that the client takes over"),
        "SES304": ("server", "the proxy makes mosquitto throw sessions away"),
        "SES305": ("server", "the proxy makes mosquitto keep a session of CleanSession 1"),
        "SES411": ("server", "the proxy drops the message that waited for the client"),
    },
)
def sessions_lost(rig: Rig) -> None:
    """Four clients, two connections each."""
    proxy = rig.proxy
    source = Actor(rig, "source")
    away = again(rig, "away")
    away.subscribe(("plant/7", 1))
    source.publish("plant/7", b"1", 1)
    away.take()
    away.leave()
    taken = again(rig, "taken")

    def take_over(packet: bytes) -> Sequence[bytes]:
        proxy.send(CLIENT, "taken", mb.packet(0xE0, b"\x8e\x00"), before=1)
        return flag(True)(packet)

    proxy.change(CLIENT, "taken", "connect", take_over)
    new = again(rig, "taken")
    taken.until_closed()
    gone = again(rig, "gone")
    gone.subscribe(("plant/8", 1))
    gone.leave()
    proxy.change(CLIENT, "gone", "connect", flag(True))
    proxy.change(SERVER, "gone", "connack", present(True))
    gone = again(rig, "gone")
    gone.send(mb.packet(0xA2, b"\x00\x02\x00", mb.string("plant/8")))
    gone.receive()
    proxy.change(CLIENT, "ended", "connect", flag(False))
    ended = Actor(rig, "ended", "3.1.1")
    ended.leave()
    source.publish("plant/7", b"2", 1, 2)
    time.sleep(3)
    ended = Actor(rig, "ended", "3.1.1", clean=False)
    proxy.change(SERVER, "away", "publish", drop)
    away = again(rig, "away")
    pause(40, away, source)
    leave([source, away, new, gone, ended])
