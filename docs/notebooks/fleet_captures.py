"""Captures of a small fleet for the notebook beside this file: made, so that its answers are known.

Thirty-six pumps of a water works report to a dashboard from Monday to Wednesday, six in the morning to six in the
evening.  Three things are wrong with this fleet; the notebook finds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

from mqttscope.capture import PcapngWriter
from mqttscope.mqtt import (
    Connack,
    Connect,
    ControlPacket,
    Disconnect,
    Pingreq,
    Pingresp,
    ProtocolVersion,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    encode,
)
from mqttscope.mqtt.properties import Properties
from mqttscope.net.frame import Frame
from mqttscope.transport.wire import Endpoint, SyntheticConnection

PUMPS = 36
FIRMWARE = {"1.8.2": 20, "1.9.0": 12, "2.0.0-beta": 4}
"""How many pumps have which firmware."""
DAYS = ("monday", "tuesday", "wednesday")
BEGIN_NS = 1_772_409_600 * 10**9
"""Monday, 2 March 2026, 00:00 UTC."""
MILLISECOND, SECOND, HOUR = 10**6, 10**9, 3600 * 10**9
DAY = 24 * HOUR
ALIASES = 4
"""Topic aliases that the broker takes; firmware 1.9.0 does not care."""
SLOW = BEGIN_NS + 2 * DAY + 12 * HOUR, BEGIN_NS + 2 * DAY + 15 * HOUR
"""Wednesday from noon to three the broker needs forty times as long."""
STORM = BEGIN_NS + DAY + 14 * HOUR
"""Tuesday at two the pumps with the beta connect again and again."""
BROKER = "198.51.100.7", 1883


@dataclass
class Site:
    """What is captured, and what the dashboard is still to get."""

    chance: Random = field(default_factory=lambda: Random(2026))
    frames: list[Frame] = field(default_factory=list)
    heard: list[tuple[int, Publish]] = field(default_factory=list)
    ports: Iterator[int] = field(default_factory=lambda: count(20_000))

    def connection(self, address: str) -> Talk:
        """A new TCP connection to the broker."""
        wire = SyntheticConnection(Endpoint.of((address, next(self.ports))), Endpoint.of(BROKER), "", lambda: 0)
        return Talk(self, wire)


@dataclass
class Talk:
    """One connection, and what both sides say on it."""

    site: Site
    wire: SyntheticConnection

    def open(self, at_ns: int, connect: Connect, connack: Connack) -> None:
        """TCP's handshake, and MQTT's."""
        self.site.frames += [one.frame for one in self.wire.open(at_ns)]
        self.say(True, connect, at_ns + MILLISECOND)
        self.say(False, connack, at_ns + 3 * MILLISECOND)

    def say(self, from_client: bool, packet: ControlPacket, at_ns: int) -> None:
        """A packet in a segment of its own."""
        known = self.wire.sent(not from_client)
        data = encode(packet, ProtocolVersion.V5)
        self.site.frames += [one.frame for one in self.wire.data(from_client, data, at_ns, known)]

    def close(self, at_ns: int) -> None:
        """The client says goodbye."""
        self.say(True, Disconnect(), at_ns)
        ends = [*self.wire.close(True, at_ns), *self.wire.close(False, at_ns + MILLISECOND)]
        self.site.frames += [one.frame for one in (*ends, *self.wire.settle(at_ns + 2 * MILLISECOND))]

    def vanish(self, at_ns: int) -> None:
        """The client is gone; the broker notices it by a reset."""
        self.site.frames += [one.frame for one in self.wire.abort(True, at_ns)]


def pump_day(site: Site, number: int, firmware: str, begin_ns: int) -> None:
    """A pump connects in the morning, reports every hour and leaves in the evening."""
    name, address = f"pump-{number:04d}", f"192.0.2.{number}"
    now = begin_ns + 6 * HOUR + int(site.chance.random() * HOUR / 2)
    if firmware == "2.0.0-beta" and begin_ns < STORM < begin_ns + DAY:
        storm(site, name, address, number, firmware)
    talk = site.connection(address)
    open_pump(talk, name, firmware, now)
    alias = ALIASES + 1 if firmware == "1.9.0" else 1
    for turn in range(12):
        now += HOUR - int(site.chance.random() * 60 * SECOND)
        flow = 40 + number / 3 + 5 * site.chance.random()
        payload = f'{{"flow":{flow:.2f},"at":{now // SECOND}}}'.encode()
        topic = f"works/{name}/flow"
        declared = Properties(topic_alias=alias)
        report = Publish(qos=1, topic_name="" if turn else topic, packet_identifier=turn + 1, payload=payload,
                         properties=declared)  # fmt: skip
        talk.say(True, report, now)
        talk.say(False, Puback(turn + 1), now + 2 * MILLISECOND)
        site.heard.append((now, Publish(qos=1, topic_name=topic, payload=payload)))
    talk.close(now + 10 * SECOND)


def open_pump(talk: Talk, name: str, firmware: str, at_ns: int) -> None:
    """CONNECT of a pump, which tells its firmware in a User Property."""
    told = Properties(user_property=[("firmware", firmware)])
    asked = Connect(protocol_level=5, client_identifier=name, clean_start=True, keep_alive=5400, properties=told)
    talk.open(at_ns, asked, Connack(properties=Properties(topic_alias_maximum=ALIASES)))


def storm(site: Site, name: str, address: str, number: int, firmware: str) -> None:
    """Twelve connections in two minutes, none of which says goodbye."""
    for turn in range(12):
        now = STORM + number * SECOND + turn * 9 * SECOND
        talk = site.connection(address)
        open_pump(talk, f"{name}-diag", firmware, now)
        talk.vanish(now + 5 * SECOND)


def dashboard(site: Site) -> None:
    """The dashboard stays connected day and night, over all captures; Wednesday afternoon its reports come late."""
    talk = site.connection("192.0.2.200")
    now = BEGIN_NS + 5 * HOUR
    asked = Connect(protocol_level=5, client_identifier="dashboard", clean_start=True, keep_alive=3600)
    talk.open(now, asked, Connack())
    talk.say(True, Subscribe(1, subscriptions=[Subscription("works/+/flow", 1)]), now + SECOND)
    talk.say(False, Suback(1, reason_codes=[1]), now + SECOND + 2 * MILLISECOND)
    due: list[tuple[int, Publish | None]] = [
        (at_ns, None) for at_ns in range(now + HOUR // 2, BEGIN_NS + 3 * DAY, HOUR)
    ]
    for sent_ns, message in site.heard:
        wait = (4 + 12 * site.chance.random()) * (40 if SLOW[0] <= sent_ns < SLOW[1] else 1)
        due.append((sent_ns + int(wait * MILLISECOND), message))
    identifiers = count(1)
    for due_ns, message in sorted(due, key=lambda one: one[0]):
        now = max(now + 5 * MILLISECOND, due_ns)
        if message is None:
            talk.say(True, Pingreq(), now)
            talk.say(False, Pingresp(), now + MILLISECOND)
        else:
            message.packet_identifier = next(identifiers)
            talk.say(False, message, now)
            talk.say(True, Puback(message.packet_identifier), now + MILLISECOND)


def write_captures(folder: Path) -> list[Path]:
    """Write a capture for each day; returns their paths.  The same bytes each time."""
    site = Site()
    versions = [one for one, pumps in FIRMWARE.items() for _ in range(pumps)]
    for day in range(len(DAYS)):
        for number, firmware in enumerate(versions, 1):
            pump_day(site, number, firmware, BEGIN_NS + day * DAY)
    site.heard.sort(key=lambda one: one[0])
    dashboard(site)
    site.frames.sort(key=lambda one: one.timestamp_ns)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for day, name in enumerate(DAYS):
        paths.append(folder / f"{day + 1}-{name}.pcapng")
        with PcapngWriter(paths[-1]) as out:
            for frame in site.frames:
                if frame.timestamp_ns // DAY == BEGIN_NS // DAY + day:
                    out.write(frame)
    return paths
