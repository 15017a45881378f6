"""Recordings, the record of one link, and judging that hangs, falls behind and is not waited for."""

from __future__ import annotations

import errno
import io
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqttscope.capture import open_capture
from mqttscope.capture.write import open_alone
from mqttscope.dissect import Dissector, Options
from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, GapEvent, PacketEvent
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding, Severity
from mqttscope.mqtt import Connect, ProtocolVersion, Publish, encode
from mqttscope.net.frame import CaptureDrops, Frame
from mqttscope.net.segment import ACK, FIN, PSH, RST, SYN
from mqttscope.transport import recording as module
from mqttscope.transport.recording import JudgingThread, Recording, UnbufferedFile
from mqttscope.transport.sockets import DeliveryTracker
from mqttscope.transport.wire import SyntheticConnection
from tests.proxy.rig import until
from tests.transport import linking
from tests.transport.linking import CONNACK, CONNECT, Transport, frames, recorder, sound_story
from tests.transport.wires import CLIENT, SERVER, V4, V6

V311 = ProtocolVersion.V3_1_1
SECOND_NS = 1_000_000_000


def conversation(recording: Recording) -> SyntheticConnection:
    """A connection that is opened and gets a CONNACK."""
    wire = recording.wire(*V4)
    recording.write(wire.open(recording.now()))
    recording.write(wire.data(CLIENT, CONNECT, recording.now()))
    recording.write(wire.data(SERVER, CONNACK, recording.now(), len(CONNECT)))
    return wire


def test_frames_are_in_the_file_at_once_and_events_come(tmp_path: Path) -> None:
    heard: list[Event] = []
    path = tmp_path / "it.pcapng"
    recording = Recording("it", path=str(path), listener=heard.append)
    conversation(recording)

    frames = [frame for frame in open_capture([path]) if isinstance(frame, Frame)]
    assert [frame.number for frame in frames] == [1, 2, 3, 4, 5]
    assert sorted(frame.timestamp_ns for frame in frames) == [frame.timestamp_ns for frame in frames]
    assert [type(event) for event in heard] == [ConnectionOpened, PacketEvent, PacketEvent]
    recording.close()
    assert isinstance(heard[-1], ConnectionClosed)
    assert heard[-1].connection.closed_how == "capture_end"
    recording.close()
    recording.write([])


def test_events_are_made_in_a_thread_of_their_own_once_there_is_traffic() -> None:
    heard: list[tuple[Event, str]] = []
    recording = Recording("it", listener=lambda event: heard.append((event, threading.current_thread().name)))
    recording.start()
    recording.start()
    wire = conversation(recording)
    assert recording.ask(lambda: len(heard)).result(10) == 3
    recording.write(wire.data(CLIENT, encode(Publish(topic_name="a"), V311), recording.now()))
    recording.close()
    assert [type(event) for event, _ in heard[3:]] == [PacketEvent, ConnectionClosed]
    assert {name for _, name in heard} == {"judging"}
    assert recording.closing_remarks() == []
    assert not recording.busy


def test_a_question_without_a_thread_is_answered_at_once() -> None:
    recording = Recording("it", listener=lambda event: None)
    assert recording.ask(lambda: 5).result(0) == 5
    assert (recording.unjudged_bytes, recording.closing_remarks()) == (0, [])


def test_what_happens_after_the_seal_is_no_part_of_the_record(tmp_path: Path) -> None:
    recording = Recording("it")
    wire = conversation(recording)
    recording.sealed = True
    recording.write(wire.close(CLIENT, recording.now()))
    assert recording.frames == 5


@pytest.mark.parametrize("failing", [object, ConnectionClosed])
def test_who_listens_and_fails_ends_only_the_listening(failing: type, tmp_path: Path) -> None:
    """At the first event, or at the last."""
    notes: list[str] = []

    def broken(event: Event) -> None:
        if isinstance(event, failing):
            raise ZeroDivisionError("oh")

    path = tmp_path / "it.pcapng"
    recording = Recording("it", path=str(path), listener=broken, note=notes.append)
    wire = conversation(recording)
    recording.write(wire.close(CLIENT, recording.now()))
    recording.close()

    assert notes == ["internal error: ZeroDivisionError: oh; forwarding and recording continue without the linter"]
    assert isinstance(recording.judge_error, ZeroDivisionError)
    assert len(list(open_capture([path]))) == 6


class Full(io.RawIOBase):
    """A disk with room for so many bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.data = bytearray()

    def write(self, data: Any, /) -> int:
        number = min(len(data), self.room - len(self.data), 100)
        if number <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.data += data[:number]
        return number

    def truncate(self, size: int | None = None, /) -> int:
        del self.data[size:]
        return len(self.data)


@pytest.mark.parametrize("activity", ["forwarding", "replaying"])
def test_a_full_disk_ends_the_record_with_a_whole_frame(tmp_path: Path, activity: str) -> None:
    notes: list[str] = []
    recording = Recording("it", path=str(tmp_path / "it.pcapng"), note=notes.append, activity=activity)
    assert recording._file is not None
    room = Full(200)
    recording._file._file, old = room, recording._file._file  # type: ignore[assignment]
    room.data += (tmp_path / "it.pcapng").read_bytes()
    conversation(recording)
    old.close()

    assert recording.frames == 5
    path = tmp_path / "kept.pcapng"
    path.write_bytes(room.data)
    left_frames = list(open_capture([path]))
    assert 0 < len(left_frames) < 5
    assert all(isinstance(frame, Frame) for frame in left_frames)
    assert recording.write_error is not None
    (note,) = notes
    assert note.endswith(f"it.pcapng: No space left on device; {activity} continues without a record")


def test_what_cannot_be_written_is_told_at_once() -> None:
    with pytest.raises(FileNotFoundError):
        Recording("it", path="/nowhere/it.pcapng")
    with pytest.raises(OSError, match="No space left"):
        Recording("it", path="/dev/full")


def test_whole_blocks_is_a_file(tmp_path: Path) -> None:
    file = UnbufferedFile(open_alone(tmp_path / "x"))
    assert file.writable()
    assert file.write(b"12") == 2
    file.close()
    assert (tmp_path / "x").read_bytes() == b"12"


def test_time_does_not_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Recording("it", dissector=Dissector(Options()))
    before = recording.now()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert recording.now() >= before


async def test_a_link_of_ours_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "it.pcapng"
    link_recorder = recorder(path)
    transport = Transport()
    tap = link_recorder.tap(*V4, DeliveryTracker(transport), is_client=True)
    tap.sent(CONNECT)
    transport.waiting = 2
    tap.received(CONNACK)
    assert tap.acknowledge()
    transport.waiting = 0
    assert not tap.acknowledge()
    tap.finished(local=True)
    tap.finished(local=True)
    tap.finished(local=False)
    tap.gone()
    assert not tap.acknowledge()
    link_recorder.close()

    assert sound_story(path) == (CONNECT, CONNACK, ["FlowOpened", "client fin", "server fin", "closed fin"])
    segments = [frame.segment for frame in frames(path)]
    assert [segment.flags for segment in segments] == [
        SYN, SYN | ACK, ACK, PSH | ACK, PSH | ACK, ACK, ACK, FIN | ACK, FIN | ACK, ACK, ACK
    ]  # fmt: skip
    behind = [segments[at].acknowledgment - segments[0].sequence - 1 for at in (4, 6)]
    assert behind == [len(CONNECT) - 2, len(CONNECT)]


async def test_a_client_of_ours_stands_on_the_other_side(tmp_path: Path) -> None:
    path = tmp_path / "it.pcapng"
    link_recorder = recorder(path)
    client, server = V6
    tap = link_recorder.tap(server, client, DeliveryTracker(Transport()), is_client=False)
    tap.received(CONNECT)
    tap.sent(CONNACK)
    tap.aborted(local=False)
    tap.sent(b"never")
    tap.gone()
    link_recorder.close()

    assert sound_story(path) == (CONNECT, CONNACK, ["FlowOpened", "client reset", "server reset", "closed reset"])
    assert frames(path)[-1].segment.flags & RST


async def test_what_is_confirmed_is_recorded_soon(tmp_path: Path) -> None:
    link_recorder = recorder(tmp_path / "it.pcapng")
    tap = link_recorder.tap(*V4, DeliveryTracker(Transport()), is_client=True)
    tap.sent(CONNECT)
    assert tap.wire.acknowledged(False) == 0
    await linking.until(lambda: tap.wire.acknowledged(False) == len(CONNECT))
    link_recorder.close()


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
        return [event for event in self.heard if isinstance(event, PacketEvent)]


@pytest.fixture
def gate() -> Iterator[Gate]:
    new_gate = Gate()
    yield new_gate
    new_gate.open.set()


def test_frames_are_in_the_file_while_judging_hangs(gate: Gate, tmp_path: Path) -> None:
    path = tmp_path / "it.pcapng"
    recording = Recording("it", path=str(path), listener=gate.hear)
    recording.start()
    conversation(recording)
    assert len(list(open_capture([path]))) == 5
    assert recording.busy
    assert recording.unjudged_bytes == len(CONNECT) + len(CONNACK)
    gate.open.set()
    recording.close()
    assert recording.unjudged_bytes == 0


def begun(gate: Gate) -> tuple[Recording, JudgingThread, SyntheticConnection]:
    """A connection that was accepted, whose judging hangs."""
    recording = Recording("it", listener=gate.hear, note=gate.notes.append)
    recording.start()
    wire = conversation(recording)
    assert recording.judging is not None
    return recording, recording.judging, wire


def test_a_question_that_nobody_waits_for_any_longer_does_not_end_the_judging(gate: Gate) -> None:
    _, judging, _ = begun(gate)
    assert judging.ask(lambda: 1).cancel()
    gate.open.set()
    assert judging.ask(lambda: 2).result(10) == 2
    assert judging.close()


def publish(number: int, size: int = 1_000) -> bytes:
    return encode(Publish(topic_name=f"a/{number}", payload=bytes(size)), V311)


def test_what_waits_of_a_stream_is_bounded_and_the_rest_is_a_gap(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STREAM_BYTES", 20_000)
    recording, judging, wire = begun(gate)
    for number in range(100):
        recording.write(wire.data(CLIENT, publish(number), recording.now()))
    assert judging.unjudged_bytes > 80_000
    assert judging.streams_left_out == 1
    assert len(gate.notes) == 1
    assert "further bytes are forwarded but not judged" in gate.notes[0]
    gate.open.set()
    until(lambda: not judging.busy)
    # There is room again: the stream continues after the gap, which the other side's acknowledgment proves.
    recording.write(wire.data(CLIENT, publish(100), recording.now()))
    recording.write(wire.acknowledge(SERVER, wire.sent(CLIENT), recording.now()))
    recording.write(wire.data(CLIENT, publish(101), recording.now()))
    recording.close()

    topics = [packet.topic for packet in gate.packets() if packet.topic is not None]
    left_number = len(topics) - 2
    assert topics == [*(f"a/{number}" for number in range(left_number)), "a/100", "a/101"]
    assert 5 < left_number < 25
    (gap,) = [event for event in gate.heard if isinstance(event, GapEvent)]
    assert gap.length == sum(len(publish(number)) for number in range(left_number, 100))
    assert [event.dropped for event in gate.heard if isinstance(event, CaptureDrops)] == [1]
    assert isinstance(gate.heard[-1], ConnectionClosed)
    assert recording.unjudged_bytes == gap.length
    assert recording.closing_remarks()[-1].startswith(
        f"{gap.length:,} bytes forwarded but not judged; 1 time a stream had more"
    )


def test_who_fills_the_queue_leaves_room_for_others(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 100_000)
    monkeypatch.setattr(module, "MAX_STREAM_BYTES", 60_000)
    monkeypatch.setattr(module, "MAX_CROWDED_BYTES", 20_000)
    recording, judging, wire = begun(gate)
    for number in range(200):
        recording.write(wire.data(CLIENT, publish(number), recording.now()))
    others = recording.wire(V4[0]._replace(port=5), V4[1])
    before = judging.unjudged_bytes
    recording.write(others.open(recording.now()))
    connect = encode(Connect(client_identifier="good"), V311)
    recording.write(others.data(CLIENT, connect, recording.now()))
    left_out = before + len(connect) - judging.unjudged_bytes
    assert left_out == 0
    gate.open.set()
    recording.close()
    names = [event.connection.client_identifier for event in gate.heard if isinstance(event, ConnectionClosed)]
    assert names == ["dev1", "good"]


def test_what_all_streams_wait_with_is_bounded(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 100_000)
    recording, judging, _ = begun(gate)
    for port in range(2_000, 4_000):
        wire = recording.wire(V4[0]._replace(port=port), V4[1])
        recording.write(wire.open(recording.now()))
        recording.write(wire.data(CLIENT, publish(port), recording.now()))
        recording.write(wire.abort(CLIENT, recording.now()))
    assert judging._accepted - judging._finished <= 100_000
    assert judging._queue.qsize() < 300
    gate.open.set()
    recording.close()


@pytest.mark.long
def test_the_thread_keeps_nothing_of_streams_that_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Recording("it", listener=lambda event: None)
    recording.start()
    for port in range(1, 5_000):
        wire = recording.wire(V4[0]._replace(port=port), V4[1])
        recording.write(wire.open(recording.now()))
        recording.write(wire.abort(CLIENT, recording.now()))
        if not port % 500:
            recording.ask(lambda: None).result(10)
    assert recording.judging is not None
    assert len(recording.judging._waiting) < 4_000
    recording.close()


def test_who_is_behind_says_so_each_time_it_is_twice_as_far(gate: Gate) -> None:
    now = [10 * SECOND_NS]
    judging = JudgingThread(Dissector(), gate.hear, gate.notes.append, lambda error: None, now=lambda: now[0])
    recording = Recording("it")
    recording.judging = judging
    recording.now = lambda: now[0]  # type: ignore[method-assign]
    wire = recording.wire(*V4)
    recording.write(wire.open(recording.now()))
    recording.write(wire.data(CLIENT, CONNECT, recording.now()))
    until(lambda: judging._queue.empty())
    for seconds in (0.5, 0.4, 0.3, 0.5, 1, 5):
        now[0] += int(seconds * SECOND_NS)
        recording.write(wire.data(CLIENT, publish(1), recording.now()))
    gate.open.set()
    recording.close()
    texts = [note.split()[2] for note in gate.notes]
    assert texts[:3] == ["1.2", "2.7", "7.7"]
    assert "findings came up to 7.7 s late" in recording.closing_remarks()


def test_the_end_does_not_wait_for_a_packet_that_takes_long(gate: Gate) -> None:
    recording, judging, wire = begun(gate)
    recording.write(wire.data(CLIENT, publish(1), recording.now()))
    recording.close(0.1)
    # The packet is still being judged: the listener waits for the gate.
    assert judging._thread.is_alive()
    assert judging.unjudged_bytes > 1_000
    assert "forwarded but not judged" in recording.closing_remarks()[0]
    heard = len(gate.heard)
    gate.open.set()
    judging._thread.join(10)
    assert len(gate.heard) <= heard + 1


def test_gaps_of_judging_accuse_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A good conversation of which parts were left out has no finding that is an error for certain."""
    monkeypatch.setattr(module, "MAX_STREAM_BYTES", 6_000)
    linter, findings = Linter([usual_rule(rule) for rule in select(("ALL",), (), ()).values()]), list[Finding]()
    gate = Gate()

    def hear(event: Event) -> None:
        gate.hear(event)
        findings.extend(linter.feed(event))

    recording = Recording("it", listener=hear)
    recording.start()
    wire = conversation(recording)
    for number in range(1, 60):
        sent = encode(Publish(topic_name="a/b", qos=1, packet_identifier=number, payload=bytes(500)), V311)
        recording.write(wire.data(CLIENT, sent, recording.now(), wire.sent(SERVER)))
        answer = b"\x40\x02" + number.to_bytes(2, "big")
        recording.write(wire.data(SERVER, answer, recording.now(), wire.sent(CLIENT)))
        if number == 40:
            gate.open.set()
            until(lambda: not recording.busy)
    recording.write(wire.data(CLIENT, b"\xe0\0", recording.now(), wire.sent(SERVER)))
    recording.write(wire.close(CLIENT, recording.now()))
    recording.write(wire.close(SERVER, recording.now()))
    recording.close()
    assert recording.unjudged_bytes > 10_000
    assert [finding for finding in findings if finding.severity is Severity.ERROR] == []
