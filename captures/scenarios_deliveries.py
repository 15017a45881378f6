"""Recordings of messages that reach their subscribers late, twice, changed, or not at all."""

from __future__ import annotations

import time
from collections.abc import Sequence

import mqttbytes as mb
from actors import KEPT, Actor, leave, pause
from rig import Rig
from scenario import scenario
from tamper import CLIENT, SERVER, drop, replace

BARE = ("bare socket",)
MARK = "\ufeff"


def pair(name: str, value: str) -> bytes:
    """A User Property."""
    return b"\x26" + mb.string(name) + mb.string(value)


def interval(seconds: int) -> bytes:
    """Message Expiry Interval with its identifier."""
    return b"\x02" + seconds.to_bytes(4, "big")


def without_qos(packet: bytes) -> Sequence[bytes]:
    """A PUBLISH with QoS 0 instead."""
    fields = mb.body(packet)
    at = 2 + int.from_bytes(fields[:2], "big")
    return (mb.packet(0x30, fields[:at], fields[at + 2 :]),)


@scenario(
    "misdelivered",
    "Messages that do not reach their subscribers as they were published",
    "Every subscriber is named for what a proxy does to its messages: one is lost, gets another QoS, overtakes "
    "another, has other properties, is too old, comes twice, has another topic.",
    clients=BARE,
    proxy=True,
    fires={
        "DLV410": ("server", "the proxy drops the second of two messages"),
        "DLV411": ("server", "the proxy makes QoS 0 of QoS 1"),
        "DLV412": ("server", "the proxy swaps two messages"),
        "DLV413": ("server", "the proxy changes a Content Type"),
        "DLV414": ("server", "the proxy swaps two User Properties"),
        "DLV415": (
            "server",
            "the proxy makes mosquitto keep a message longer than its interval, and gives it that again",
        ),
        "DLV416": ("server", "the proxy gives a message that waited the interval again that it was published with"),
        "DLV417": ("server", "the publisher sends a QoS 2 message again, and the proxy delivers a second copy"),
        "ENC411": ("server", "the proxy removes U+FEFF from a topic"),
        "OPS427": ("server", "mosquitto delivers a message for each of two subscriptions that match"),
    },
    beside={"ACK206": "DLV417 needs a publisher that sends its message again"},
)
def misdelivered(rig: Rig) -> None:
    """One publisher, ten subscribers."""
    proxy = rig.proxy
    source = Actor(rig, "source")
    names = ("lost", "lower", "swapped", "retyped", "turned", "double")
    readers = {name: Actor(rig, name) for name in names}
    for name, one in readers.items():
        one.subscribe((f"plant/{name}", 2))
    overlap = Actor(rig, "overlap")
    overlap.subscribe(("plant/overlap", 1))
    overlap.subscribe(("plant/overlap/#", 1), identifier=2)
    marked = Actor(rig, "marked")
    marked.subscribe(("mark/#", 1))
    for name in ("expired", "aged"):
        one = Actor(rig, name, clean=False, declared=KEPT)
        one.subscribe((f"plant/{name}", 1))
        one.leave()

    proxy.change(CLIENT, "source", "publish", replace(interval(2), interval(102)), holding=b"plant/expired")
    source.publish("plant/expired", b"1", 1, 1, mb.properties(interval(2)))
    source.publish("plant/aged", b"2", 1, 2, mb.properties(interval(100)))

    source.publish("plant/lost", b"3", 1, 3)
    readers["lost"].take()
    proxy.change(SERVER, "lost", "publish", drop)
    source.publish("plant/lost", b"4", 1, 4)

    proxy.change(SERVER, "lower", "publish", without_qos)
    source.publish("plant/lower", b"5", 1, 5)
    readers["lower"].take()

    held: list[bytes] = []

    def hold(packet: bytes) -> Sequence[bytes]:
        held.append(packet)
        return ()

    proxy.change(SERVER, "swapped", "publish", hold)
    proxy.change(SERVER, "swapped", "publish", lambda packet: (packet, *held))
    source.publish("plant/swapped", b"6", 1, 6)
    source.publish("plant/swapped", b"7", 1, 7)
    readers["swapped"].take(2)

    proxy.change(SERVER, "retyped", "publish", replace(b"text/csv", b"text/xml"))
    source.publish("plant/retyped", b"8", 1, 8, mb.properties(b"\x03" + mb.string("text/csv")))
    readers["retyped"].take()

    start, end = pair("from", "1"), pair("to", "2")
    proxy.change(SERVER, "turned", "publish", replace(start + end, end + start))
    source.publish("plant/turned", b"9", 1, 9, mb.properties(start, end))
    readers["turned"].take()

    source.send(source.message("plant/double", b"10", 2, 10))
    source.receive()
    source.publish("plant/double", b"10", 2, 10, dup=True)
    (copy,) = readers["double"].take()
    at = len(copy) - len(mb.body(copy)) + 2 + len("plant/double")
    proxy.change(CLIENT, "double", "pubrec", drop)
    proxy.change(CLIENT, "double", "pubcomp", drop)
    proxy.send(CLIENT, "double", copy[:at] + b"\x00\x63" + copy[at + 2 :])
    readers["double"].receive()
    readers["double"].send(mb.ack(0x50, 0x63))
    proxy.send(CLIENT, "double", mb.ack(0x62, 0x63))
    readers["double"].receive()
    readers["double"].send(mb.ack(0x70, 0x63))

    proxy.change(SERVER, "marked", "publish", replace(mb.string(f"mark/{MARK}7"), mb.string("mark/7")))
    source.publish(f"mark/{MARK}7", b"11", 1, 11)
    marked.take()

    source.publish("plant/overlap", b"12", 1, 12)
    overlap.take(2)

    time.sleep(6)
    for name, published in (("expired", 2), ("aged", 100)):

        def renew(packet: bytes, seconds: int = published) -> Sequence[bytes]:
            at = packet.index(b"\x05\x02\x00\x00\x00") + 1
            return (packet[:at] + interval(seconds) + packet[at + 5 :],)

        proxy.change(SERVER, name, "publish", renew)
        readers[name] = Actor(rig, name, clean=False, declared=KEPT)
        readers[name].take()
    pause(32, *readers.values(), source)
    leave([*readers.values(), overlap, marked, source])


@scenario(
    "misdelivered-shared",
    "Messages of a Shared Subscription that go to several members",
    "A proxy hands the second member what the first one has got already, once after the first has refused it.",
    clients=BARE,
    proxy=True,
    fires={
        "DLV418": ("server", "the first member refuses a message, and the proxy hands it to the second"),
        "DLV419": ("server", "the proxy hands a message to the second member too"),
    },
)
def misdelivered_shared(rig: Rig) -> None:
    """Two groups of two."""
    proxy = rig.proxy
    source = Actor(rig, "source")
    for topic, reason in (("plant/7", b""), ("plant/8", b"\x80")):
        members = [Actor(rig, f"{topic[-1]}-{number}") for number in (1, 2)]
        for one in members:
            one.subscribe((f"$share/g/{topic}", 1))
        seen: list[bytes] = []
        for number in (1, 2):

            def note(packet: bytes, member: int = number, found: list[bytes] = seen) -> Sequence[bytes]:
                found.append(bytes([member]) + packet)
                return (packet,)

            proxy.change(SERVER, f"{topic[-1]}-{number}", "publish", note)
        source.publish(topic, topic.encode(), 1)
        time.sleep(0.3)
        first, packet = seen[0][0], seen[0][1:]
        members[first - 1].receive()
        members[first - 1].send(mb.ack(0x40, mb.packet_identifier(packet), reason))
        proxy.change(CLIENT, f"{topic[-1]}-{3 - first}", "puback", drop)
        proxy.send(CLIENT, f"{topic[-1]}-{3 - first}", packet)
        members[2 - first].take()
        leave(members)
    leave([source])
