"""Recordings of clients that are a burden: with equal identifiers, in a hurry, with too many messages and topics."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Sequence

import mqttbytes as mb
from actors import Actor, leave
from clients import Bare
from rig import Rig
from scenario import scenario
from tamper import SERVER

BARE = ("bare socket",)


@scenario(
    "equal-identifiers",
    "Client Identifiers that two clients have",
    "Two devices with one identifier throw each other out; two clients get the same assigned identifier from a proxy; "
    "and clients without an identifier are disconnected by it as soon as another one comes.",
    clients=BARE,
    proxy=True,
    explain={**dict.fromkeys(range(4), "taken_over"), **dict.fromkeys((7, 8, 9), "server_closed")},
    fires={
        "CON426": ("server", "the proxy hands out an assigned identifier twice"),
        "CON432": ("server", "the proxy closes a client without an identifier when another one comes"),
        "OPS324": ("client", "two clients with one identifier and two addresses take turns"),
    },
)
def equal_identifiers(rig: Rig) -> None:
    """Three kinds of collision."""
    proxy = rig.proxy
    old = Actor(rig, "pump", source="127.0.0.2")
    for number in range(4):
        new = Actor(rig, "pump", source=f"127.0.0.{3 - number % 2}")
        old.until_closed()
        old = new
    leave([old])
    first = Actor(rig, "")
    assigned = first.connack

    def same(packet: bytes) -> Sequence[bytes]:
        return (assigned,)

    proxy.change(SERVER, "", "connack", same)
    second = Actor(rig, "")
    first.ping()
    leave([first, second])
    older = Actor(rig, "", "3.1.1")
    for _ in range(3):
        number = len(proxy.joined) - 1
        newer = Actor(rig, "", "3.1.1")
        proxy.hang_up(number)
        older.until_closed()
        older = newer
        time.sleep(6)
    leave([older])


def _passwords(rig: Rig) -> None:
    rig.run("mosquitto_passwd", "-c", "-b", str(rig.folder / "passwords"), "pump", "right")


@scenario(
    "hasty-clients",
    "Clients that come again and again, and messages that nobody needs",
    "One client connects twelve times within seconds, one is refused twelve times with other passwords; one retains a "
    "message 61 times within a minute, one publishes ten times what nobody has subscribed to.",
    config="password_file {folder}/passwords\nallow_anonymous true\n",
    prepare=_passwords,
    clients=BARE,
    explain=dict.fromkeys(range(12, 24), "not_authorized"),
    fires={
        "OPS325": ("client", "the client connects twelve times within seconds"),
        "OPS426": ("client", "the client publishes 61 retained messages of one topic within a minute"),
        "OPS428": ("server", "mosquitto answers ten messages of a topic with 0x10"),
        "SEC305": ("client", "the client is refused twelve times for one password after the other"),
    },
)
def hasty_clients(rig: Rig) -> None:
    """Four clients."""
    for _ in range(12):
        Actor(rig, "restless").leave()
    for number in range(12):
        Actor(rig, "guesser", user=("pump", f"guess-{number}")).until_closed()
    writer = Actor(rig, "writer")
    writer.send(*(writer.message("plant/clock", b"%d" % second, retain=True) for second in range(61)))
    writer.ping()
    lonely = Actor(rig, "lonely")
    for number in range(1, 11):
        lonely.publish("plant/7", b"%d" % number, 1, number)
    leave([writer, lonely])


@scenario(
    "everything-to-one",
    "Many topics, and one subscription that gets them all",
    "One client publishes on 105 topics, and one that is subscribed to # gets each of these messages.",
    clients=BARE,
    proxy=True,
    fires={
        "OPS429": ("server", "a subscription to # gets all messages"),
        "TOP412": ("client", "the client publishes on more than a hundred topics"),
    },
    settings={"OPS429": {"messages": 100}, "TOP412": {"topics": 100}},
    notes="A proxy joins what mosquitto sends in many small segments.",
)
def everything_to_one(rig: Rig) -> None:
    """Large segments keep the file small."""
    rig.proxy.gather = 0.2
    reader = Actor(rig, "reader")
    reader.subscribe(("#", 0))
    writer = Actor(rig, "writer")
    for start in range(0, 105, 21):
        writer.send(*(writer.message(f"t/{number}") for number in range(start, start + 21)))
        time.sleep(0.3)
    reader.receive(105)
    leave([writer, reader])


@scenario(
    "websocket-cut-frame",
    "A server that closes when a WebSocket frame is not one packet",
    "Frames of one packet each are answered; when one holds half a packet, the connection is closed.",
    config="protocol websockets\nlistener {spare} 127.0.0.1\n",
    port=8080,
    transport="websocket",
    versions=["3.1.1"],
    clients=BARE,
    proxy=True,
    malformed=1,
    explain={0: "server_closed"},
    fires={"WSK504": ("server", "the proxy closes when a frame holds half a packet")},
    beside={
        "ENC107": "WSK504 needs a packet that is not in one frame; the client is closed on before it sends the rest"
    },
)
def websocket_cut_frame(rig: Rig) -> None:
    """A frame for each packet, and one for half of one."""
    rig.proxy.raw = True
    page = Bare(rig)
    key = base64.b64encode(os.urandom(16)).decode()
    page.send(
        f"GET /mqtt HTTP/1.1\r\nHost: {rig.host}:{rig.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n".encode()
    )
    page.socket.recv(4096)
    for packet, kinds in ((mb.connect("page"), ("connect", "connack")), (mb.PINGREQ, ("pingreq", "pingresp"))):
        page.send(_frame(packet))
        page.socket.recv(4096)
        rig.logged.update(kinds)
    page.send(_frame(mb.publish("chat/tea", b"anyone?")[:5]))
    rig.proxy.hang_up(0)
    page.until_closed()


def _frame(payload: bytes) -> bytes:
    mask = os.urandom(4)
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
    return bytes([0x82, 0x80 | len(payload)]) + mask + masked
