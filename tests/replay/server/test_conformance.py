"""Whatever a conforming device does, what a stand-in says is conforming."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.mqtt import (
    Connack,
    ControlPacket,
    Disconnect,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Unsuback,
    encode,
)
from tests.replay.recordings import EXHAUSTIVE
from tests.replay.server.desk import V5, Desk, Device
from tests.replay.talk import read

RECORDING = """
    dev > connect resume receive_maximum=20 topic_alias_maximum=5
    dev < connack receive_maximum=10 topic_alias_maximum=5
    dev > subscribe 1 t/#:2
    dev < suback 1 2
    dev < publish t/a 1 qos=1 id=1 topic_alias=1
    dev < publish - 2 qos=2 id=2 topic_alias=1
    dev > publish c 1 qos=2 id=1
    dev < pubrec 1
    dev > pubrel 1
    dev < pubcomp 1
    dev < publish t/a 3 qos=1 id=3
    dev > puback 1
    dev > pubrec 2
    dev < pubrel 2
    dev < publish t/b 4 qos=2 id=1
    dev < publish t/b 5
    dev > publish c 2 qos=1 id=1
    dev < puback 1
    dev > pubcomp 2
    dev < publish t/b 6 qos=1 id=5
    dev > fin
    dev > connect resume
    dev < connack present
    dev < publish t/a 3 qos=1 id=3 dup
    dev < publish t/c 7 qos=1 id=9
    dev > disconnect
    dev > fin
"""
STEPS = st.lists(
    st.sampled_from(
        ["subscribe t/#:2", "subscribe t/b:1", "subscribe x:0", "unsubscribe t/#", "unsubscribe y", "publish c 1 0",
         "publish c 1 1", "publish c 2 1", "publish c 1 2", "publish z 9 2", "pingreq", "ack", "ack", "ack", "last",
         "vanish", "wait 1", "wait 7", "disconnect"]
    ),
    max_size=40,
)  # fmt: skip


class Conforming:
    """A device that keeps to the specification and looks whether the server does."""

    def __init__(self, desk: Desk, receive_maximum: int, aliases: int, limit: int) -> None:
        self.desk = desk
        self.limits = receive_maximum, aliases, limit
        self.filters: dict[str, int] = {}
        self.sending: dict[int, Publish] = {}
        """Messages of the device that are not complete."""
        self.released: set[int] = set()
        self.owed: dict[int, Publish] = {}
        """Deliveries that are not complete, of the session."""
        self.recorded: set[int] = set()
        """Those whose PUBREC was sent."""
        self.connect()

    def connect(self) -> None:
        maximum, aliases, limit = self.limits
        self.asked: dict[int, ControlPacket] = {}
        self.pings = 0
        self.aliases: dict[int, str] = {}
        self.under_way: set[int] = set()
        """Deliveries of this connection that count against the Receive Maximum."""
        words = f"receive_maximum={maximum} topic_alias_maximum={aliases} maximum_packet_size={limit}"
        self.device: Device | None = None
        device, _ = self.desk.connect(f"dev connect resume session_expiry_interval=60 {words}")
        self.device = device
        connack, *rest = device.first
        assert isinstance(connack, Connack)
        assert not connack.reason_code
        if not connack.session_present:
            self.owed, self.sending, self.filters = {}, {}, {}
            self.released, self.recorded = set(), set()
        for packet in rest:
            self.heard(packet)
        for number, message in list(self.sending.items()):
            if number in self.released:
                self.say(f"pubrel {number}")
            else:
                text = f"{message.topic_name} {message.payload.decode()} qos={message.qos}"
                self.say(f"publish {text} id={number} dup")

    def say(self, words: str) -> None:
        assert self.device is not None
        self.device.take(read(words))
        self.look()

    def look(self) -> None:
        assert self.device is not None
        for packet in self.device.packets():
            self.heard(packet)
        if self.device.closed is not None:
            self.connect()

    def free(self) -> int:
        return next(number for number in range(1, 100) if number not in self.asked and number not in self.sending)

    def step(self, line: str) -> None:
        kind, *words = line.split()
        assert self.device is not None
        if kind == "wait":
            self.desk.later(int(words[0]))
            self.look()
        elif kind == "vanish":
            self.device.vanish()
            self.connect()
        elif kind == "disconnect":
            self.say("disconnect")
        elif kind == "pingreq":
            self.pings += 1
            self.say(kind)
        elif kind in ("subscribe", "unsubscribe"):
            number = self.free()
            line = f"{kind} {number} {' '.join(words)}"
            self.asked[number] = read(line)
            self.say(line)
        elif kind == "publish":
            topic, payload, qos = words
            if len(self.sending) >= 10:
                return
            number = self.free()
            line = f"publish {topic} {payload}" + (f" qos={qos} id={number}" if qos != "0" else "")
            packet = read(line)
            assert isinstance(packet, Publish)
            if packet.qos:
                self.sending[number] = packet
            self.say(line)
        else:
            self.acknowledge(last=kind == "last")

    def acknowledge(self, *, last: bool) -> None:
        waiting = [number for number in self.owed if number not in self.recorded and number in self.under_way]
        if not waiting:
            return
        number = waiting[-1 if last else 0]
        if self.owed[number].qos == 1:
            del self.owed[number]
            self.under_way.discard(number)
            self.say(f"puback {number}")
        else:
            self.recorded.add(number)
            self.say(f"pubrec {number}")

    def heard(self, packet: ControlPacket) -> None:
        assert len(encode(packet, V5)) <= self.limits[2]
        if isinstance(packet, Publish):
            self.delivered(packet)
        elif isinstance(packet, Puback):
            assert self.sending.pop(packet.packet_identifier).qos == 1
        elif isinstance(packet, Pubrec):
            assert self.sending[packet.packet_identifier].qos == 2
            self.released.add(packet.packet_identifier)
            self.say(f"pubrel {packet.packet_identifier}")
        elif isinstance(packet, Pubcomp):
            assert packet.packet_identifier in self.released
            self.released.discard(packet.packet_identifier)
            del self.sending[packet.packet_identifier]
        elif isinstance(packet, Pubrel):
            assert self.owed.pop(packet.packet_identifier).qos == 2
            assert packet.packet_identifier in self.recorded
            self.recorded.discard(packet.packet_identifier)
            self.under_way.discard(packet.packet_identifier)
            self.say(f"pubcomp {packet.packet_identifier}")
        elif isinstance(packet, Suback):
            asked = self.asked.pop(packet.packet_identifier)
            rows = asked.subscriptions  # type: ignore[attr-defined]
            assert len(rows) == len(packet.reason_codes)
            assert all(code <= row.maximum_qos for row, code in zip(rows, packet.reason_codes, strict=True))
            self.filters |= {row.topic_filter: code for row, code in zip(rows, packet.reason_codes, strict=True)}
        elif isinstance(packet, Unsuback):
            asked = self.asked.pop(packet.packet_identifier)
            assert len(asked.topic_filters) == len(packet.reason_codes or ())  # type: ignore[attr-defined]
            for name in asked.topic_filters:  # type: ignore[attr-defined]
                self.filters.pop(name, None)
        elif isinstance(packet, Pingresp):
            self.pings -= 1
            assert self.pings >= 0
        else:
            assert not isinstance(packet, Connack | Disconnect)

    def delivered(self, publish: Publish) -> None:
        block = publish.properties
        alias = None if block is None else block.topic_alias
        topic = publish.topic_name
        if alias is not None:
            assert 0 < alias <= self.limits[1]
            topic = topic or self.aliases[alias]
            self.aliases[alias] = topic
        assert topic.startswith("t/")
        if not publish.qos:
            return
        number = publish.packet_identifier
        assert number
        assert number not in self.under_way
        if number in self.owed:
            assert publish.dup
            assert self.owed[number].payload == publish.payload
        self.owed[number] = publish
        self.under_way.add(number)
        # What is released counts no longer, but for the PUBCOMP that is sent at once.
        assert len(self.under_way) <= self.limits[0]


@settings(max_examples=600 if EXHAUSTIVE else 80, deadline=None)
@given(
    steps=STEPS,
    maximum=st.integers(1, 5),
    aliases=st.sampled_from([0, 1, 5]),
    limit=st.sampled_from([12, 15, 200]),
)
def test_whatever_a_conforming_device_does(steps: list[str], maximum: int, aliases: int, limit: int) -> None:
    device = Conforming(Desk(RECORDING, patience_ns=2_000_000_000), maximum, aliases, limit)
    for line in steps:
        device.step(line)
    device.desk.later(60)
    device.look()
    # Nothing is left without an answer.
    assert device.asked == {}
    assert device.pings == 0
    assert [number for number in device.sending if number not in device.released] == []
