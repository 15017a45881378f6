"""Recordings of what all versions share: QoS, will, retained messages, sessions, refusals, keep alive."""

from __future__ import annotations

import time

import mqttbytes as mb
from clients import Bare, Client, command, listener
from rig import Rig
from scenario import scenario


def _all_qualities(rig: Rig, version: str) -> None:
    subscriber = Client(rig, "logger", version)
    subscriber.connect()
    subscriber.subscribe(("plant/+/temperature", 2))
    publisher = Client(rig, "sensor-1", version)
    publisher.connect()
    for qos in (0, 1, 2):
        publisher.publish("plant/line1/temperature", f"21.{qos}", qos)
    subscriber.receive(3)
    publisher.disconnect()
    subscriber.unsubscribe("plant/+/temperature")
    subscriber.disconnect()


@scenario(
    "v31-qos",
    "MQTT 3.1, QoS 0, 1 and 2 both ways",
    "A paho client publishes once at each QoS with protocol name MQIsdp; another one gets the three messages.",
)
def v31_qos(rig: Rig) -> None:
    """All three QoS in 3.1."""
    _all_qualities(rig, "3.1")


@scenario(
    "v311-qos",
    "MQTT 3.1.1, QoS 0, 1 and 2 both ways",
    "A paho client publishes once at each QoS; another one gets the three messages.",
)
def v311_qos(rig: Rig) -> None:
    """All three QoS in 3.1.1."""
    _all_qualities(rig, "3.1.1")


@scenario(
    "v5-qos",
    "MQTT 5.0, QoS 0, 1 and 2 both ways",
    "A paho client publishes once at each QoS; another one gets the three messages.",
)
def v5_qos(rig: Rig) -> None:
    """All three QoS in 5.0."""
    _all_qualities(rig, "5.0")


@scenario(
    "mixed-versions",
    "Subscribers of 3.1, 3.1.1 and 5.0 get the same messages",
    "One topic, three mosquitto_sub of different versions; a 5.0 publisher's properties reach only the 5.0 subscriber.",
    clients=("mosquitto_pub", "mosquitto_sub"),
)
def mixed_versions(rig: Rig) -> None:
    """Three versions on one broker."""
    for version in ("3.1", "3.1.1", "5.0"):
        listener(rig, version, "-i", f"watch-{version}", "-t", "lab/lamp", "-q", "1", "-C", "2")
    command(
        rig, "mosquitto_pub", "5.0", "-i", "switch", "-t", "lab/lamp", "-m", "on", "-q", "1",
        "-D", "publish", "content-type", "text/plain", "-D", "publish", "user-property", "room", "lab 2",
    )  # fmt: skip
    command(rig, "mosquitto_pub", "3.1.1", "-i", "switch", "-t", "lab/lamp", "-m", "off", "-q", "1")
    time.sleep(0.3)


@scenario(
    "v311-qos-downgrade",
    "Delivery at the lower of published and granted QoS",
    "Subscribers with maximum QoS 0, 1 and 2 and one with two overlapping filters; published at 2 and at 1.",
)
def v311_qos_downgrade(rig: Rig) -> None:
    """QoS is agreed per hop."""
    subscribers = []
    for qos in (0, 1, 2):
        one = Client(rig, f"at-most-{qos}")
        one.connect()
        one.subscribe(("yard/gate", qos))
        subscribers.append(one)
    both = Client(rig, "overlapping")
    both.connect()
    both.subscribe(("yard/#", 0), ("yard/gate", 2))
    publisher = Client(rig, "gate")
    publisher.connect()
    publisher.publish("yard/gate", "open", 2)
    publisher.publish("yard/gate", "shut", 1)
    for one in [*subscribers, both]:
        one.receive(2)
        one.disconnect()
    publisher.disconnect()


@scenario(
    "v311-will",
    "Will in 3.1.1: fired by FIN and by RST, not by DISCONNECT",
    "Three clients with a will leave in three ways; the watcher gets two of the wills, one of them retained.",
    explain={1: "client_closed", 2: "client_reset"},
)
def v311_will(rig: Rig) -> None:
    """Will message after an abrupt end."""
    watcher = Client(rig, "watcher")
    watcher.connect()
    watcher.subscribe(("status/#", 1))
    for name, qos, retain in (("pump-1", 1, True), ("pump-2", 0, False), ("pump-3", 2, False)):
        pump = Client(rig, name)
        pump.paho.will_set(f"status/{name}", "lost", qos, retain)
        pump.connect()
        if name == "pump-3":
            pump.disconnect()
        else:
            pump.vanish(reset=name == "pump-2")
            watcher.receive()
    watcher.disconnect()


@scenario(
    "v311-retained",
    "Retained messages: set, replaced, delivered, cleared",
    "Retained PUBLISH replaced by another, sent with RETAIN 1 to a new subscription, live with RETAIN 0, "
    "cleared by an empty one; a last subscription gets only what is still there.",
)
def v311_retained(rig: Rig) -> None:
    """Life of a retained message."""
    publisher = Client(rig, "thermostat")
    publisher.connect()
    publisher.publish("home/setpoint", "20", 1, True)
    publisher.publish("home/setpoint", "21", 1, True)
    publisher.publish("home/mode", "eco", 1, True)
    early = Client(rig, "panel-1")
    early.connect()
    early.subscribe(("home/+", 1))
    early.receive(2)
    publisher.publish("home/setpoint", "22", 1, True)
    publisher.publish("home/setpoint", b"", 1, True)
    early.receive(2)
    late = Client(rig, "panel-2")
    late.connect()
    late.subscribe(("home/+", 0))
    late.receive(1)
    for one in (publisher, early, late):
        one.disconnect()


@scenario(
    "v311-session-present",
    "A 3.1.1 session survives its connection",
    "Clean Session 0: away, two messages wait, Session Present 1 on return; then Clean Session 1 ends it.",
)
def v311_session_present(rig: Rig) -> None:
    """Messages queued for an absent client."""
    meter = Client(rig, "meter", clean=False)
    meter.connect()
    meter.subscribe(("tariff/#", 1))
    meter.disconnect()
    office = Client(rig, "office")
    office.connect()
    office.publish("tariff/day", "0.31", 1)
    office.publish("tariff/night", "0.22", 2)
    meter = Client(rig, "meter", clean=False)
    meter.connect()
    meter.receive(2)
    meter.disconnect()
    meter = Client(rig, "meter", clean=True)
    meter.connect()
    meter.disconnect()
    office.disconnect()


@scenario(
    "v311-redelivery",
    "Unacknowledged messages come again with DUP 1",
    "A bare client keeps its acknowledgements to itself, vanishes and returns to its session: the broker repeats "
    "a QoS 1 PUBLISH with DUP 1 and, for the QoS 2 one that had its PUBREC, the PUBREL.",
    clients=("paho-mqtt", "bare socket"),
    explain={0: "client_closed"},
)
def v311_redelivery(rig: Rig) -> None:
    """DUP and PUBREL after a reconnect."""
    first = Bare(rig)
    first.send(mb.connect("slow", clean=False))
    first.receive()
    first.send(mb.subscribe(1, ("jobs/#", 2)))
    first.receive()
    office = Client(rig, "office")
    office.connect()
    office.publish("jobs/a", "one", 1)
    office.publish("jobs/b", "two", 2)
    for received in first.receive(2):
        if received[0] & 6 == 4:
            first.send(mb.ack(0x50, _identifier(received)))
    first.receive()
    first.close()
    again = Bare(rig)
    again.send(mb.connect("slow", clean=False))
    again.receive()
    for received in again.receive(2):
        if received[0] >> 4 == 6:
            again.send(mb.ack(0x70, int.from_bytes(received[2:4], "big")))
        else:
            again.send(mb.ack(0x40, _identifier(received)))
    again.send(mb.DISCONNECT)
    again.until_closed()
    office.disconnect()


def _identifier(publish: bytes) -> int:
    topic_end = 4 + int.from_bytes(publish[2:4], "big")
    return int.from_bytes(publish[topic_end : topic_end + 2], "big")


def _many_filters(rig: Rig, version: str) -> None:
    filters = ["#", "+/+/+", "sport/tennis/#", "sport/+/player1", "/finance", "$SYS/broker/uptime", "a//b", "über/maß"]
    client = Client(rig, "many", version)
    client.connect()
    client.subscribe(*((name, number % 3) for number, name in enumerate(filters)))
    client.receive(1)
    client.publish("sport/tennis/player1", "6:4", 2)
    client.receive(1)
    client.publish("über/maß", "größer", 0)
    client.receive(1)
    client.unsubscribe(*filters[:3], "never/subscribed")
    client.unsubscribe(*filters[3:])
    client.disconnect()


@scenario(
    "v311-many-filters",
    "SUBSCRIBE and UNSUBSCRIBE with many topic filters in 3.1.1",
    "Eight filters with wildcards, an empty level, a leading slash, $SYS and umlauts; an UNSUBSCRIBE names a stranger.",
)
def v311_many_filters(rig: Rig) -> None:
    """Lists of topic filters."""
    _many_filters(rig, "3.1.1")


@scenario(
    "v5-many-filters",
    "SUBSCRIBE and UNSUBSCRIBE with many topic filters in 5.0",
    "As v311-many-filters; UNSUBACK now has 0x11 for the filter that was never subscribed.",
)
def v5_many_filters(rig: Rig) -> None:
    """Lists of topic filters with reason codes."""
    _many_filters(rig, "5.0")


@scenario(
    "refused-protocol-level",
    "A protocol level nobody speaks",
    "CONNECT with protocol name MQTT and level 9: the broker answers with a CONNACK that refuses and closes.",
    clients=("bare socket",),
    versions=[],
    notes="The body of the CONNECT is that of 3.1.1; its version is none of the three.",
    explain={0: "unsupported_version"},
)
def refused_protocol_level(rig: Rig) -> None:
    """CONNACK 'unacceptable protocol version'."""
    bare = Bare(rig)
    bare.send(mb.connect("future", level=9))
    bare.until_closed()


def _accounts(rig: Rig) -> None:
    rig.run("mosquitto_passwd", "-b", "-c", str(rig.folder / "passwords"), "ada", "lovelace")


@scenario(
    "refused-connect",
    "Refused and accepted CONNECTs of every version",
    "User name and password right, wrong and missing in 3.1.1 and 5.0; an empty Client Identifier refused in 3.1.1 "
    "because Clean Session is 0.",
    config="allow_anonymous false\npassword_file {folder}/passwords\n",
    prepare=_accounts,
    clients=("paho-mqtt", "bare socket"),
    notes="The password is an example and of no value: lovelace.",
    explain={
        1: "not_authorized",
        2: "not_authorized",
        4: "not_authorized",
        5: "not_authorized",
        7: "not_authorized",
        8: "not_authorized",
        9: "client_identifier_rejected",
    },
)
def refused_connect(rig: Rig) -> None:
    """Codes 2 and 5 of 3.1.1, 0x87 of 5.0."""
    for version in ("3.1", "3.1.1", "5.0"):
        for password in ("lovelace", "babbage", None):
            client = Client(rig, "desk", version)
            if password:
                client.paho.username_pw_set("ada", password)
            if client.connect() == 0:
                client.publish("notes/g", "7", 0)
                client.disconnect()
            else:
                client.gone()
    bare = Bare(rig)
    bare.send(mb.connect("", clean=False))
    bare.until_closed()


@scenario(
    "keep-alive",
    "PINGREQ and PINGRESP, and a client that falls silent",
    "A paho client with Keep Alive 1 pings; a bare 3.1.1 client with Keep Alive 1 sends nothing more and is cut off.",
    clients=("paho-mqtt", "bare socket"),
    explain={1: "keep_alive"},
)
def keep_alive(rig: Rig) -> None:
    """Keep alive kept and missed."""
    pinging = Client(rig, "awake")
    pinging.connect(keep_alive=1)
    silent = Bare(rig)
    silent.send(mb.connect("asleep", keep_alive=1))
    silent.receive()
    silent.send(mb.PINGREQ)
    silent.receive()
    silent.socket.settimeout(20)
    silent.until_closed()
    pinging.disconnect()
