"""Recordings of 5.0 saying why: reason codes, reason strings, DISCONNECT from the broker, enhanced authentication."""

from __future__ import annotations

import mqttbytes as mb
from clients import Bare, Client, declare
from rig import Rig
from scenario import scenario


def _access(rig: Rig) -> None:
    (rig.folder / "acl").write_text("topic readwrite open/#\ntopic read closed/#\n")


@scenario(
    "v5-reason-codes",
    "Reason codes and reason strings in acknowledgements",
    "PUBACK 0x10 and 0x87, PUBREC 0x87 and UNSUBACK 0x11 from the broker; PUBACK 0x83 and PUBREC 0x97 with reason "
    "string and user property from a bare client.",
    config="allow_anonymous true\nacl_file {folder}/acl\n",
    prepare=_access,
    clients=("paho-mqtt", "bare socket"),
    notes="paho-mqtt answers the PUBREC 0x87 with a PUBREL although that exchange is over; the bare client asks with "
    "PUBREL for an identifier nobody used.",
)
def v5_reason_codes(rig: Rig) -> None:
    """Everything but success."""
    full = Bare(rig)
    full.send(mb.connect("full", "5.0"))
    full.receive()
    full.send(mb.subscribe(1, ("open/#", 2), declared=b"\x00"))
    full.receive()
    office = Client(rig, "office", "5.0")
    office.connect()
    for topic in ("open/a", "closed/a"):
        for qos in (1, 2):
            office.publish(topic, "x", qos)
    office.unsubscribe("never/subscribed", declared=declare("unsubscribe", UserProperty=[("why", "tidy up")]))
    for received in full.receive(2):
        identifier = int.from_bytes(received[10:12], "big")
        if received[0] & 6 == 4:
            explained = mb.properties(b"\x1f", mb.string("disk is full"), b"\x26", mb.string("free"), mb.string("0"))
            full.send(mb.ack(0x50, identifier, b"\x97" + explained))
        else:
            full.send(mb.ack(0x40, identifier, b"\x83"))
    full.send(mb.packet(0xA2, b"\x00\x02\x00", mb.string("open/#")))
    full.receive()
    office.publish("open/b", "nobody listens", 1)
    office.publish("open/b", "nobody listens", 2)
    full.send(mb.ack(0x62, 999))
    full.receive()
    full.send(mb.DISCONNECT)
    full.until_closed()
    office.disconnect()


@scenario(
    "v5-server-disconnect",
    "DISCONNECT from the broker, five reasons",
    "One connection each for an alias above the maximum (0x94), QoS 2 above Maximum QoS 1 (0x9B), RETAIN where it is "
    "not available (0x9A), a packet above Maximum Packet Size (0x95), a wildcard in a topic name (0x82); a property "
    "given twice only gets the connection closed.",
    config="max_topic_alias 2\nmax_qos 1\nretain_available false\nmax_packet_size 100\n",
    clients=("bare socket",),
    explain={
        0: "topic_alias",
        1: "not_supported",
        2: "not_supported",
        3: "packet_too_large",
        4: "protocol_violation",
        5: "protocol_violation",
    },
)
def v5_server_disconnect(rig: Rig) -> None:
    """The broker says why it closes."""
    alias = b"\x23\x00"
    none = mb.properties()
    offences = {
        "alias": mb.publish("a/b", b"x", declared=mb.properties(alias + b"\x09")),
        "quality": mb.publish("a/b", b"x", qos=2, identifier=1, declared=none),
        "retained": mb.publish("a/b", b"x", retain=True, declared=none),
        "large": mb.publish("a/b", b"x" * 200, declared=none),
        "wildcard": mb.publish("a/+", b"x", declared=none),
        "twice": mb.publish("a/b", b"x", declared=mb.properties(alias + b"\x01", alias + b"\x02")),
    }
    for name, offence in offences.items():
        bare = Bare(rig)
        bare.send(mb.connect(name, "5.0"))
        bare.receive()
        bare.send(offence)
        bare.until_closed()


@scenario(
    "v5-closed-without-reason",
    "The broker closes 5.0 connections without a DISCONNECT",
    "Session taken over by a second connection, a second CONNECT, Keep Alive missed and the broker stopped: "
    "mosquitto 2.0 just closes, though 5.0 has a reason code for each.",
    clients=("paho-mqtt", "bare socket"),
    explain={0: "taken_over", 1: "server_closed", 2: "protocol_violation", 3: "keep_alive"},
    fires={"ERR503": ("server", "mosquitto closes for a second CONNECT without a reason")},
    beside={
        "CON212": "ERR503 needs a violation",
        "KAL201": "the client is silent to see what mosquitto says",
    },
)
def v5_closed_without_reason(rig: Rig) -> None:
    """FIN instead of a reason."""
    first = Client(rig, "twin", "5.0")
    first.connect()
    second = Client(rig, "twin", "5.0")
    second.connect()
    first.gone()

    twice = Bare(rig)
    twice.send(mb.connect("twice", "5.0"))
    twice.receive()
    twice.send(mb.connect("twice", "5.0"))
    twice.until_closed()

    silent = Bare(rig)
    silent.send(mb.connect("silent", "5.0", keep_alive=1))
    silent.receive()
    silent.socket.settimeout(20)
    silent.until_closed()

    rig.stop_broker()
    second.gone()


@scenario(
    "v5-enhanced-auth",
    "Enhanced authentication that the broker does not offer",
    "CONNECT with Authentication Method and Data is refused with 0x8C; an AUTH out of the blue ends a connection.",
    clients=("paho-mqtt", "bare socket"),
    explain={0: "bad_credentials", 1: "protocol_violation"},
)
def v5_enhanced_auth(rig: Rig) -> None:
    """AUTH without a plugin for it."""
    client = Client(rig, "scram", "5.0")
    client.connect(
        declared=declare("connect", AuthenticationMethod="SCRAM-SHA-256", AuthenticationData=b"n,,n=ada,r=abc")
    )
    client.gone()
    bare = Bare(rig)
    bare.send(mb.connect("scram", "5.0"))
    bare.receive()
    bare.send(mb.packet(0xF0, b"\x19", mb.properties(b"\x15", mb.string("SCRAM-SHA-256"))))
    bare.until_closed()
