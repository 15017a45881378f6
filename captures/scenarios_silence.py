"""Recordings of servers that do not answer, do not close and do not let go, and of clients that wait for them."""

from __future__ import annotations

import time

import mqttbytes as mb
from actors import Actor, leave, pause
from clients import Bare
from rig import Rig
from scenario import scenario
from tamper import CLIENT, SERVER, drop, instead, late, replace

BARE = ("bare socket",)
METHOD = b"\x15" + mb.string("X")
"""Authentication Method."""


@scenario(
    "silent-server",
    "A server that leaves what it is asked unanswered",
    "Each of six clients, two of them of MQTT 3.1.1, lacks answers that a proxy holds back: CONNACK, PUBACK, PUBCOMP, "
    "the second PUBREC, PINGRESP, SUBACK and UNSUBACK. All wait for more than a minute.",
    clients=BARE,
    proxy=True,
    explain={1: "no_connack"},
    fires={
        "ACK515": ("server", "the proxy drops a PUBACK"),
        "ACK517": ("server", "the proxy drops a PUBCOMP"),
        "ACK518": ("server", "the client sends a QoS 2 PUBLISH again and the proxy drops the second PUBREC"),
        "CON527": ("server", "the proxy drops a CONNACK"),
        "CON531": ("client", "the client waits more than a minute for the CONNACK that the proxy drops"),
        "KAL504": ("server", "the proxy drops a PINGRESP"),
        "KAL505": ("client", "the proxy drops a PINGRESP, and the client continues a minute later"),
        "SUB519": ("server", "the proxy drops a SUBACK"),
        "SUB520": ("server", "the proxy drops an UNSUBACK"),
    },
    beside={
        "ACK516": "the client of ACK518 waits for the second PUBREC, and does not go by the first",
    },
)
def silent_server(rig: Rig) -> None:
    """One minute."""
    proxy = rig.proxy
    for name, kind in (
        ("no-connack", "connack"), ("no-puback", "puback"), ("no-pubcomp", "pubcomp"), ("no-pingresp", "pingresp"),
        ("no-suback", "suback"), ("no-suback", "unsuback"),
    ):  # fmt: skip
        proxy.change(SERVER, name, kind, drop)
    pinger = Actor(rig, "no-pingresp")
    pinger.ping(answered=False)
    waiting = Actor(rig, "no-connack", answered=False)
    publisher = Actor(rig, "no-puback", "3.1.1")
    publisher.send(publisher.message("plant/7", b"1", 1))
    releaser = Actor(rig, "no-pubcomp")
    releaser.send(releaser.message("plant/7", b"2", 2))
    releaser.receive()
    releaser.send(mb.ack(0x62, 1))
    repeater = Actor(rig, "no-pubrec", "3.1.1")
    repeater.send(repeater.message("plant/7", b"3", 2))
    repeater.receive()
    proxy.change(SERVER, "no-pubrec", "pubrec", drop)
    repeater.send(repeater.message("plant/7", b"3", 2, dup=True))
    subscriber = Actor(rig, "no-suback")
    subscriber.send(mb.subscribe(1, ("plant/#", 0), declared=b"\x00"))
    subscriber.send(mb.packet(0xA2, b"\x00\x02\x00", mb.string("plant/#")))
    pause(31, publisher, releaser, repeater, subscriber)
    leave([publisher, releaser, repeater, subscriber])
    time.sleep(31)
    pinger.send(pinger.message("plant/7", b"4"))
    leave([pinger])
    waiting.close()


@scenario(
    "kept-open",
    "Connections that should have been closed",
    "A proxy hides from clients that the broker closes, or from the broker that it should: after a refusal, a "
    "DISCONNECT, a failed re-authentication, a silence beyond Keep Alive, a takeover. Three clients take part in it.",
    clients=BARE,
    proxy=True,
    explain={2: "bad_credentials", 3: "not_authorized"},
    fires={
        "AUT507": (
            "server",
            "the proxy plays the authentication that mosquitto has not, fails it and keeps the connection open",
        ),
        "CON528": ("server", "the proxy keeps a connection open that mosquitto closes after its refusal"),
        "DIS503": ("client", "the client sends DISCONNECT and does not close; the proxy keeps mosquitto's FIN back"),
        "DIS504": ("server", "the proxy holds back mosquitto's FIN after a DISCONNECT"),
        "ERR501": ("server", "the client sends a second CONNECT, the proxy drops that, and mosquitto continues"),
        "KAL503": ("server", "the client is silent, and the proxy pings for it"),
        "SES307": (
            "server",
            "the proxy gives a client that takes over a session another name, so that mosquitto serves both",
        ),
        "SES510": ("client", "the proxy sets Session Present in the answer to a clean start, and the client continues"),
    },
    beside={
        "KAL201": "KAL503 needs a client that is silent",
        "CON215": "SES510 needs a wrong Session Present",
        "CON212": "ERR501 needs a violation",
    },
)
def kept_open(rig: Rig) -> None:
    """Half a minute."""
    proxy = rig.proxy
    for name in ("refused", "stays", "fails"):
        proxy.keep_open(name)
    quiet = Actor(rig, "quiet", keep_alive=4)
    proxy.change(SERVER, "quiet", "pingresp", drop, times=4)
    stays = Actor(rig, "stays")
    stays.send(mb.DISCONNECT)
    refused = Actor(rig, "refused", declared=mb.properties(METHOD))
    proxy.change(CLIENT, "fails", "connect", replace(mb.properties(METHOD), b"\x00"))
    proxy.change(SERVER, "fails", "connack", lambda packet: (mb.connack("5.0", declared=mb.properties(METHOD)),))
    proxy.change(CLIENT, "fails", "auth", drop)
    fails = Actor(rig, "fails", declared=mb.properties(METHOD))
    fails.send(mb.packet(0xF0, b"\x19", mb.properties(METHOD)))
    proxy.send(CLIENT, "fails", mb.packet(0xE0, b"\x87\x00"))
    twice = Actor(rig, "twice")
    proxy.change(CLIENT, "twice", "connect", drop)
    twice.send(mb.connect("twice", "5.0"))
    twice.subscribe(("plant/8", 0))
    proxy.change(SERVER, "fresh", "connack", lambda packet: (packet[:2] + b"\x01" + packet[3:],))
    fresh = Actor(rig, "fresh")
    fresh.subscribe(("plant/9", 0))
    first = Actor(rig, "twin")
    proxy.change(CLIENT, "twin", "connect", replace(b"twin", b"copy"))
    second = Actor(rig, "twin", clean=False)
    first.ping()
    second.ping()
    first.ping()
    for _ in range(4):
        time.sleep(3.5)
        proxy.send(SERVER, "quiet", mb.PINGREQ)
    time.sleep(3)
    quiet.ping()
    leave([quiet])
    time.sleep(16)
    first.ping()
    leave([twice, fresh, first, second])
    for one in (stays, refused, fails):
        one.close()


@scenario(
    "protocol-level-accepted",
    "A protocol level nobody speaks, and is accepted",
    "CONNECT with protocol name MQTT and level 6, which mosquitto refuses with a CONNACK; a proxy makes it accept.",
    clients=BARE,
    proxy=True,
    versions=[],
    notes="The body of the CONNECT is that of 3.1.1; its version is none of the three.",
    explain={0: "protocol_violation"},
    fires={"CON529": ("server", "the proxy turns the refusal of an unknown protocol level into an acceptance")},
    beside={"CON102": "CON529 needs a protocol level that does not exist"},
)
def protocol_level_accepted(rig: Rig) -> None:
    """CONNACK with return code 0."""
    rig.proxy.change(SERVER, "future", "connack", instead(mb.connack("3.1.1")))
    future = Bare(rig)
    future.send(mb.connect("future", level=6))
    future.until_closed()


@scenario(
    "late-connect",
    "A connection with a CONNECT after a minute",
    "mosquitto waits for it, and accepts it.",
    clients=BARE,
    fires={"CON530": ("server", "mosquitto accepts a CONNECT that comes 61 s after the connection was opened")},
)
def late_connect(rig: Rig) -> None:
    """One minute."""
    slow = Bare(rig)
    time.sleep(61)
    slow.send(mb.connect("late", "5.0"))
    slow.receive()
    slow.send(mb.DISCONNECT)
    slow.until_closed()


@scenario(
    "flow-control-stalls",
    "Two clients and a server that wait where they need not",
    "One client answers nothing as long as its own message is not acknowledged, one never sends the PUBREL that is "
    "due; to a third the server delivers nothing more after a message that is too long for it.",
    config="max_inflight_messages 1\n",
    clients=BARE,
    proxy=True,
    fires={
        "ACK515": ("server", "the proxy delays a PUBACK by more than half a minute"),
        "ACK516": ("client", "the client does not answer a PUBREC"),
        "FLW404": (
            "server",
            "mosquitto leaves out a message that is too long for the client, and the proxy all that come then",
        ),
        "FLW505": ("client", "the proxy delays a PUBACK, and the client keeps its own PUBACK back until then"),
    },
)
def flow_control_stalls(rig: Rig) -> None:
    """Receive Maximum 1, Maximum Packet Size 100."""
    proxy = rig.proxy
    source = Actor(rig, "source")
    stalls = Actor(rig, "stalls")
    stalls.subscribe(("plant/7", 1))
    small = Actor(rig, "small", declared=mb.properties(b"\x27" + (100).to_bytes(4, "big")))
    small.subscribe(("plant/8", 1))
    time.sleep(1.5)
    source.publish("plant/8", b"short 1", 1)
    small.take()
    source.publish("plant/8", b"long" * 40, 1)
    proxy.change(SERVER, "small", "publish", drop, times=9)
    source.publish("plant/8", b"short 2", 1)
    forgets = Actor(rig, "forgets")
    forgets.send(forgets.message("plant/6", b"1", 2))
    forgets.receive()
    proxy.change(SERVER, "stalls", "puback", late(proxy, "stalls", 32))
    stalls.send(stalls.message("plant/5", b"1", 1))
    source.publish("plant/7", b"1", 1)
    (message,) = stalls.receive()
    pause(29, source, small, forgets)
    stalls.socket.settimeout(20)
    stalls.receive()
    stalls.send(mb.ack(0x40, mb.packet_identifier(message)))
    pause(6, small, forgets)
    leave([source, stalls, small, forgets])
