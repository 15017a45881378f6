"""Judging that hangs, falls behind and is not waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from mqttscope.dissect import Dissector
from mqttscope.events import ConnectionClosed, Event, GapEvent, PacketEvent
from mqttscope.lint.catalogue import select
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding, Severity
from mqttscope.mqtt import Connack, Connect, ProtocolVersion, Publish, encode
from mqttscope.net.frame import CaptureDrops
from mqttscope.transport import judging as module
from mqttscope.transport.judging import Judging
from mqttscope.transport.recording import Recording
from mqttscope.transport.wire import Wire
from tests.proxy.rig import until
from tests.transport.wires import CLIENT, SERVER, V4

V311 = ProtocolVersion.V3_1_1
SECOND_NS = 1_000_000_000


class Gate:
    """A listener that takes as long as a test wants."""

    def __init__(self) -> None:
        self.heard: list[Event] = []
        self.notes: list[str] = []
        self.open = threading.Event()

    def hear(self, event: Event) -> None:
        self.open.wait(30)
        self.heard.append(event)

    def packets(self) -> list[PacketEvent]:
        return [one for one in self.heard if isinstance(one, PacketEvent)]


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


def begun(gate: Gate) -> tuple[Recording, Judging, Wire]:
    """A connection that was accepted, whose judging hangs."""
    recording = Recording("it", listener=gate.hear, note=gate.notes.append)
    recording.start()
    wire = recording.wire(*V4)
    connect = encode(Connect(client_identifier="dev1"), V311)
    recording.take(wire.open(recording.now()))
    recording.take(wire.data(CLIENT, connect, recording.now()))
    recording.take(wire.data(SERVER, encode(Connack(), V311), recording.now(), len(connect)))
    assert recording.judging is not None
    return recording, recording.judging, wire


def publish(number: int, size: int = 1_000) -> bytes:
    return encode(Publish(topic_name=f"a/{number}", payload=bytes(size)), V311)


def test_what_waits_of_a_stream_is_bounded_and_the_rest_is_a_gap(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STREAM_BYTES", 20_000)
    recording, judging, wire = begun(gate)
    for number in range(100):
        recording.take(wire.data(CLIENT, publish(number), recording.now()))
    assert judging.unjudged_bytes > 80_000
    assert judging.streams_left_out == 1
    assert len(gate.notes) == 1
    assert "further bytes are forwarded but not judged" in gate.notes[0]
    gate.open.set()
    until(lambda: not judging.busy)
    # There is room again: the stream continues after the gap, which the other side's acknowledgment proves.
    recording.take(wire.data(CLIENT, publish(100), recording.now()))
    recording.take(wire.acknowledge(SERVER, wire.sent(CLIENT), recording.now()))
    recording.take(wire.data(CLIENT, publish(101), recording.now()))
    recording.close()

    topics = [one.topic for one in gate.packets() if one.topic is not None]
    kept = len(topics) - 2
    assert topics == [*(f"a/{number}" for number in range(kept)), "a/100", "a/101"]
    assert 5 < kept < 25
    (gap,) = [one for one in gate.heard if isinstance(one, GapEvent)]
    assert gap.length == sum(len(publish(number)) for number in range(kept, 100))
    assert [one.dropped for one in gate.heard if isinstance(one, CaptureDrops)] == [1]
    assert isinstance(gate.heard[-1], ConnectionClosed)
    assert recording.unjudged_bytes == gap.length
    assert recording.told()[-1].startswith(f"{gap.length:,} bytes forwarded but not judged; 1 time a stream had more")


def test_who_fills_the_queue_leaves_room_for_others(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 100_000)
    monkeypatch.setattr(module, "MAX_STREAM_BYTES", 60_000)
    monkeypatch.setattr(module, "MAX_CROWDED_BYTES", 20_000)
    recording, judging, wire = begun(gate)
    for number in range(200):
        recording.take(wire.data(CLIENT, publish(number), recording.now()))
    others = recording.wire(V4[0]._replace(port=5), V4[1])
    before = judging.unjudged_bytes
    recording.take(others.open(recording.now()))
    connect = encode(Connect(client_identifier="good"), V311)
    recording.take(others.data(CLIENT, connect, recording.now()))
    left_out = before + len(connect) - judging.unjudged_bytes
    assert left_out == 0
    gate.open.set()
    recording.close()
    names = [one.connection.client_identifier for one in gate.heard if isinstance(one, ConnectionClosed)]
    assert names == ["dev1", "good"]


def test_what_all_streams_wait_with_is_bounded(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 100_000)
    recording, judging, _ = begun(gate)
    for port in range(2_000, 4_000):
        wire = recording.wire(V4[0]._replace(port=port), V4[1])
        recording.take(wire.open(recording.now()))
        recording.take(wire.data(CLIENT, publish(port), recording.now()))
        recording.take(wire.abort(CLIENT, recording.now()))
    assert judging._given - judging._done <= 100_000
    assert judging._queue.qsize() < 300
    gate.open.set()
    recording.close()


def test_the_thread_keeps_nothing_of_streams_that_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Recording("it", listener=lambda event: None)
    recording.start()
    for port in range(1, 5_000):
        wire = recording.wire(V4[0]._replace(port=port), V4[1])
        recording.take(wire.open(recording.now()))
        recording.take(wire.abort(CLIENT, recording.now()))
        if not port % 500:
            recording.ask(lambda: None).result(10)
    assert recording.judging is not None
    assert len(recording.judging._waiting) < 4_000
    recording.close()


def test_who_is_behind_says_so_each_time_it_is_twice_as_far() -> None:
    notes: list[str] = []
    free = threading.Event()
    now = [10 * SECOND_NS]

    def hang(event: Event) -> None:
        free.wait(30)

    judging = Judging(Dissector(), hang, notes.append, lambda error: None, now=lambda: now[0])
    recording = Recording("it")
    recording.judging = judging
    recording.now = lambda: now[0]  # type: ignore[method-assign]
    wire = recording.wire(*V4)
    recording.take(wire.open(recording.now()))
    recording.take(wire.data(CLIENT, encode(Connect(client_identifier="dev1"), V311), recording.now()))
    until(lambda: judging._queue.empty())
    for seconds in (0.5, 0.4, 0.3, 0.5, 1, 5):
        now[0] += int(seconds * SECOND_NS)
        recording.take(wire.data(CLIENT, publish(1), recording.now()))
    free.set()
    recording.close()
    told = [one.split()[2] for one in notes]
    assert told[:3] == ["1.2", "2.7", "7.7"]
    assert "findings came up to 7.7 s late" in recording.told()


def test_the_end_does_not_wait_for_a_packet_that_takes_long(gate: Gate) -> None:
    recording, judging, wire = begun(gate)
    recording.take(wire.data(CLIENT, publish(1), recording.now()))
    began = time.monotonic()
    recording.close(0.1)
    # Without the limits this would be the 30 s of the listener.
    assert time.monotonic() - began < 10
    assert judging.unjudged_bytes > 1_000
    assert "forwarded but not judged" in recording.told()[0]
    heard = len(gate.heard)
    gate.open.set()
    judging._thread.join(10)
    assert len(gate.heard) <= heard + 1


def test_gaps_of_judging_accuse_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A good conversation of which parts were left out has no finding that is an error for certain."""
    monkeypatch.setattr(module, "MAX_STREAM_BYTES", 6_000)
    linter, found = Linter([rule() for rule in select(("ALL",), (), ()).values()]), list[Finding]()
    gate = Gate()

    def hear(event: Event) -> None:
        gate.hear(event)
        found.extend(linter.feed(event))

    recording = Recording("it", listener=hear)
    recording.start()
    wire = recording.wire(*V4)
    connect = encode(Connect(client_identifier="dev1", keep_alive=60), V311)
    recording.take(wire.open(recording.now()))
    recording.take(wire.data(CLIENT, connect, recording.now()))
    recording.take(wire.data(SERVER, encode(Connack(), V311), recording.now(), len(connect)))
    for number in range(1, 60):
        sent = encode(Publish(topic_name="a/b", qos=1, packet_identifier=number, payload=bytes(500)), V311)
        recording.take(wire.data(CLIENT, sent, recording.now(), wire.sent(SERVER)))
        answer = b"\x40\x02" + number.to_bytes(2, "big")
        recording.take(wire.data(SERVER, answer, recording.now(), wire.sent(CLIENT)))
        if number == 40:
            gate.open.set()
            until(lambda: not recording.busy)
    recording.take(wire.data(CLIENT, b"\xe0\0", recording.now(), wire.sent(SERVER)))
    recording.take(wire.close(CLIENT, recording.now()))
    recording.take(wire.close(SERVER, recording.now()))
    recording.close()
    assert recording.unjudged_bytes > 10_000
    assert [one for one in found if one.severity is Severity.ERROR] == []
