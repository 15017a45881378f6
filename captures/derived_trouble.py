"""Connections that end in trouble, as no program at hand makes them: lost links, restarted devices, devices between."""

from __future__ import annotations

import mqttbytes as mb
from derived import Made, derivation, load
from derived_examples import Dialogue
from wrap import MILLISECOND, RST, SYN, Conversation, segments, streams

SECOND = 1000 * MILLISECOND
BACK_OFF = (0.3, 0.6, 1.2, 2.4, 4.8, 9.6)
"""Seconds between the segments that TCP sends again."""


def _session(dialogue: Dialogue, name: str, keep_alive: int, version: str = "3.1.1") -> Conversation:
    filters = ("valve/3/set", 1)
    declared = b"\x00" if version == "5.0" else b""
    talk = dialogue.open(
        mb.connect(name, version, keep_alive=keep_alive),
        mb.connack(version),
        mb.subscribe(1, filters, declared=declared),
        mb.ack(0x90, 1, declared + b"\x01"),
    )
    talk.acknowledge(0)
    return talk


def _ping(dialogue: Dialogue, talk: Conversation) -> None:
    talk.client(mb.PINGREQ)
    talk.server(mb.PINGRESP)
    dialogue.good += [mb.PINGREQ, mb.PINGRESP]


def _wait(dialogue: Dialogue, seconds: float) -> None:
    dialogue.clock.now_ns += int(seconds * SECOND)


def _again(dialogue: Dialogue, talk: Conversation, side: int, data: bytes, until: float = 60) -> float:
    """Send a segment without an answer, again and again; returns the seconds that took."""
    talk.send(side, data)
    dialogue.good.append(data)
    waited = 0.0
    for pause in BACK_OFF:
        if waited + pause > until:
            break
        _wait(dialogue, pause)
        waited += pause
        talk.send(side, data, back=len(data))
    return waited


@derivation(
    "link-lost-keep-alive",
    "The Keep Alive runs out while the link of the client is down",
    "A message for the client is sent again and again, nothing acknowledges it; the broker closes at 1.5 times the"
    " Keep Alive of 10 s. The client comes back from another port.",
    explain={0: "keep_alive"},
)
def link_lost_keep_alive() -> Made:
    """The broker's view of a client that lost its link."""
    dialogue = Dialogue()
    talk = _session(dialogue, "valve-3", 10)
    _wait(dialogue, 9)
    _ping(dialogue, talk)
    _wait(dialogue, 4)
    waited = _again(dialogue, talk, 1, mb.publish("valve/3/set", b"open", qos=1, identifier=1), until=10)
    _wait(dialogue, 15 - 4 - waited)
    talk.finish(1)
    _wait(dialogue, 20)
    back = _session(dialogue, "valve-3", 10)
    back.client(mb.DISCONNECT)
    back.close()
    dialogue.good.append(mb.DISCONNECT)
    return dialogue.made(["3.1.1"])


@derivation(
    "half-open",
    "A NAT forgets a connection: the client sends, and nobody answers",
    "The client's PINGREQ is sent again and again after 20 minutes of silence; it comes back from another port, and the"
    " old connection is answered with RST at last.",
    explain={0: "half_open"},
)
def half_open() -> Made:
    """The client's view of a connection that its NAT has forgotten."""
    dialogue = Dialogue()
    talk = _session(dialogue, "valve-3", 1800)
    _wait(dialogue, 1200)
    _again(dialogue, talk, 0, mb.PINGREQ)
    _wait(dialogue, 1)
    back = _session(dialogue, "valve-3", 1800)
    _wait(dialogue, 3)
    talk.send(0, mb.PINGREQ, back=2)
    talk.reset(1, flags=RST)
    _wait(dialogue, 60)
    _ping(dialogue, back)
    back.client(mb.DISCONNECT)
    back.close()
    dialogue.good.append(mb.DISCONNECT)
    return dialogue.made(["3.1.1"])


@derivation(
    "reset-by-middlebox",
    "A firewall resets a connection in the name of both sides",
    "Two RST within a millisecond, one to each side; their TTL differs from the TTL of the sides they name.",
    explain={0: "middlebox_reset"},
)
def reset_by_middlebox() -> Made:
    """A firewall with an idle time-out."""
    dialogue = Dialogue()
    talk = Conversation(dialogue.frames, dialogue.clock, client_port=50000, ttl=(64, 52))
    dialogue.connections = 1
    talk.open()
    said = [mb.connect("valve-3", keep_alive=600), mb.connack()]
    talk.client(said[0])
    talk.server(said[1])
    dialogue.good += said
    _wait(dialogue, 300)
    talk.reset(1, flags=RST, ttl=63, identification=41_000)
    talk.reset(0, flags=RST, ttl=63, identification=41_001)
    return dialogue.made(["3.1.1"])


@derivation(
    "device-restarts",
    "A device without memory of its connection, twice",
    "After the first start it opens a connection from the same port; after the second it answers a message of the"
    " broker with a RST that acknowledges nothing.",
    explain={0: "device_restart", 1: "device_restart"},
)
def device_restarts() -> Made:
    """A watchdog that fires."""
    dialogue = Dialogue()
    first = _session(dialogue, "valve-3", 60)
    _wait(dialogue, 20)
    _ping(dialogue, first)
    _wait(dialogue, 5)
    second = Conversation(dialogue.frames, dialogue.clock, client_port=50000, next_number=[700_000, 900_000])
    dialogue.connections += 1
    second.open()
    said = [mb.connect("valve-3"), mb.connack(), mb.subscribe(1, ("valve/3/set", 1)), mb.ack(0x90, 1, b"\x01")]
    for turn, one in enumerate(said):
        (second.server if turn % 2 else second.client)(one)
    dialogue.good += said
    _wait(dialogue, 30)
    message = mb.publish("valve/3/set", b"open", qos=1, identifier=1)
    second.send(1, message)
    dialogue.good.append(message)
    second.reset(0, flags=RST)
    return dialogue.made(["3.1.1"])


@derivation(
    "no-ping-response",
    "A client waits for a PINGRESP, and closes",
    "The broker's TCP acknowledges the PINGREQ, its MQTT does not answer: after 10 s the client closes.",
    explain={0: "no_ping_response"},
)
def no_ping_response() -> Made:
    """A broker that hangs."""
    dialogue = Dialogue()
    talk = _session(dialogue, "valve-3", 30)
    _wait(dialogue, 30)
    talk.client(mb.PINGREQ)
    dialogue.good.append(mb.PINGREQ)
    _wait(dialogue, 10)
    talk.close(0)
    return dialogue.made(["3.1.1"])


@derivation(
    "refused-connects",
    "Eight refusals of MQTT 5.0, and a closed port",
    "CONNACK 0x86, 0x87, 0x88, 0x8A, 0x85, 0x97, 0x9C and 0x9F; the last attempt finds nobody who listens.",
    explain={
        0: "bad_credentials", 1: "not_authorized", 2: "server_unavailable", 3: "banned",
        4: "client_identifier_rejected", 5: "quota_exceeded", 6: "use_another_server",
        7: "quota_exceeded", 8: "not_listening",
    },
)  # fmt: skip
def refused_connects() -> Made:
    """One refusal after the other."""
    dialogue = Dialogue()
    for code in (0x86, 0x87, 0x88, 0x8A, 0x85, 0x97, 0x9C, 0x9F):
        _wait(dialogue, 200)
        talk = dialogue.open(mb.connect(f"client-{code:x}", "5.0"), mb.connack("5.0", code=code))
        talk.close(1)
    _wait(dialogue, 200)
    closed = Conversation(dialogue.frames, dialogue.clock, client_port=51000)
    dialogue.connections += 1
    closed._segment(0, SYN)
    closed.next_number[1] = 0
    closed.reset(1)
    return dialogue.made(["5.0"])


@derivation(
    "receive-maximum-exceeded",
    "More messages in flight than the broker's Receive Maximum of 2",
    "The broker closes at the third QoS 1 message before its first PUBACK: once with DISCONNECT 0x93, once without.",
    explain={0: "receive_maximum", 1: "receive_maximum"},
)
def receive_maximum_exceeded() -> Made:
    """Three messages at once."""
    dialogue = Dialogue()
    limits = mb.properties(b"\x21\x00\x02")
    for said in (b"\xe0\x02\x93\x00", b""):
        talk = dialogue.open(mb.connect("burst", "5.0"), mb.connack("5.0", declared=limits))
        sent = [mb.publish("a/b", b"x", qos=1, identifier=one, declared=b"\x00") for one in (1, 2, 3)]
        talk.client(*sent)
        dialogue.good += sent
        if said:
            talk.server(said)
            dialogue.good.append(said)
        talk.close(1)
        _wait(dialogue, 300)
    return dialogue.made(["5.0"])


@derivation(
    "subscription-denied",
    "A subscription that an access rule denies, and a client that gives up",
    "SUBACK 0x87 in 5.0, 0x80 in 3.1.1: the client closes without DISCONNECT right after it; another one publishes to a"
    " topic that is not allowed, and the broker closes without a word.",
    explain={0: "not_authorized", 1: "not_authorized", 2: "not_authorized"},
)  # fmt: skip
def subscription_denied() -> Made:
    """Clients that take the refusal for the end."""
    dialogue = Dialogue()
    for version, code in (("5.0", b"\x00\x87"), ("3.1.1", b"\x80")):
        declared = b"\x00" if version == "5.0" else b""
        talk = dialogue.open(
            mb.connect("panel-2", version),
            mb.connack(version),
            mb.subscribe(1, ("closed/#", 1), declared=declared),
            mb.ack(0x90, 1, code),
        )
        talk.close(0)
        _wait(dialogue, 200)
    talk = dialogue.open(mb.connect("panel-3"), mb.connack(), mb.publish("closed/a", b"1", qos=1, identifier=1))
    talk.close(1)
    return dialogue.made(["3.1.1", "5.0"])


@derivation(
    "tls-unknown-ca",
    "A device that does not trust the certificate of the broker",
    "ClientHello and the first flight of the broker as recorded, then the client's fatal alert unknown_ca.",
    base="tls-12",
    explain={0: "tls_failure"},
)
def tls_unknown_ca() -> Made:
    """A certificate of an authority that the device does not know."""
    dialogue = Dialogue()
    said = streams(segments(load("tls-12")))
    hello, flight = said[0, 0][1], said[0, 1][1]
    talk = Conversation(dialogue.frames, dialogue.clock, client_port=50000, server_port=8883)
    talk.open()
    talk.client(hello[: 5 + int.from_bytes(hello[3:5], "big")])
    # Handshake records up to the first one of another type.
    end = 0
    while flight[end] == 0x16:
        end += 5 + int.from_bytes(flight[end + 3 : end + 5], "big")
    talk.server(flight[:end])
    talk.client(bytes.fromhex("15030300020230"))
    talk.close(0)
    return Made(dialogue.frames, [], {}, transport="tls", ports=[8883])
