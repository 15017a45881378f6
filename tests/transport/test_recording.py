from __future__ import annotations

import errno
import io
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import Dissector, Options
from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, PacketEvent
from mqttscope.mqtt import Connack, Connect, ProtocolVersion, Publish, encode
from mqttscope.net.frame import Frame
from mqttscope.transport.recording import Recording, WholeBlocks
from mqttscope.transport.wire import Wire
from tests.transport.wires import CLIENT, SERVER, V4

V311 = ProtocolVersion.V3_1_1
CONNECT = encode(Connect(client_identifier="dev1"), V311)
CONNACK = encode(Connack(), V311)


def conversation(recording: Recording) -> Wire:
    """A connection that is opened and gets a CONNACK."""
    wire = recording.wire(*V4)
    recording.take(wire.open(recording.now()))
    recording.take(wire.data(CLIENT, CONNECT, recording.now()))
    recording.take(wire.data(SERVER, CONNACK, recording.now(), len(CONNECT)))
    return wire


def test_frames_are_in_the_file_at_once_and_events_come(tmp_path: Path) -> None:
    heard: list[Event] = []
    path = tmp_path / "it.pcapng"
    recording = Recording("it", path=str(path), listener=heard.append)
    conversation(recording)

    frames = [one for one in open_capture([path]) if isinstance(one, Frame)]
    assert [one.number for one in frames] == [1, 2, 3, 4, 5]
    assert sorted(one.timestamp_ns for one in frames) == [one.timestamp_ns for one in frames]
    assert [type(one) for one in heard] == [ConnectionOpened, PacketEvent, PacketEvent]
    recording.close()
    assert isinstance(heard[-1], ConnectionClosed)
    assert heard[-1].connection.closed_how == "capture_end"
    recording.close()
    recording.take([])


def test_events_are_made_in_a_thread_of_their_own_once_there_is_traffic() -> None:
    heard: list[tuple[Event, str]] = []
    recording = Recording("it", listener=lambda event: heard.append((event, threading.current_thread().name)))
    recording.start()
    recording.start()
    wire = conversation(recording)
    assert recording.ask(lambda: len(heard)).result(10) == 3
    recording.take(wire.data(CLIENT, encode(Publish(topic_name="a"), V311), recording.now()))
    recording.close()
    assert [type(one) for one, _ in heard[3:]] == [PacketEvent, ConnectionClosed]
    assert {name for _, name in heard} == {"judging"}
    assert recording.told() == []
    assert not recording.busy


def test_a_question_without_a_thread_is_answered_at_once() -> None:
    recording = Recording("it", listener=lambda event: None)
    assert recording.ask(lambda: 5).result(0) == 5
    assert (recording.unjudged_bytes, recording.told()) == (0, [])


def test_frames_are_in_the_file_while_judging_hangs(tmp_path: Path) -> None:
    path, free = tmp_path / "it.pcapng", threading.Event()

    def hang(event: Event) -> None:
        free.wait(10)

    recording = Recording("it", path=str(path), listener=hang)
    recording.start()
    conversation(recording)
    assert len(list(open_capture([path]))) == 5
    assert recording.busy
    assert recording.unjudged_bytes == len(CONNECT) + len(CONNACK)
    free.set()
    recording.close()
    assert recording.unjudged_bytes == 0


def test_what_happens_after_the_seal_is_no_part_of_the_record(tmp_path: Path) -> None:
    recording = Recording("it")
    wire = conversation(recording)
    recording.sealed = True
    recording.take(wire.close(CLIENT, recording.now()))
    assert recording.frames == 5


def test_who_listens_and_fails_ends_only_the_listening(tmp_path: Path) -> None:
    notes: list[str] = []

    def broken(event: Event) -> None:
        raise ZeroDivisionError("oh")

    path = tmp_path / "it.pcapng"
    recording = Recording("it", path=str(path), listener=broken, note=notes.append)
    wire = conversation(recording)
    recording.take(wire.close(CLIENT, recording.now()))
    recording.close()

    assert notes == ["internal error: ZeroDivisionError: oh; forwarding and recording continue without the linter"]
    assert isinstance(recording.judge_error, ZeroDivisionError)
    assert len(list(open_capture([path]))) == 6


def test_who_fails_at_the_end_is_told_of_too() -> None:
    notes: list[str] = []

    def broken(event: Event) -> None:
        if isinstance(event, ConnectionClosed):
            raise ZeroDivisionError("oh")

    recording = Recording("it", listener=broken, note=notes.append)
    conversation(recording)
    recording.close()
    assert len(notes) == 1


class Full(io.RawIOBase):
    """A disk with room for so many bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.data = bytearray()

    def write(self, data: Any, /) -> int:
        taken = min(len(data), self.room - len(self.data), 100)
        if taken <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.data += data[:taken]
        return taken

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
    kept = list(open_capture([path]))
    assert 0 < len(kept) < 5
    assert all(isinstance(one, Frame) for one in kept)
    assert recording.write_error is not None
    (note,) = notes
    assert note.endswith(f"it.pcapng: No space left on device; {activity} continues without a record")


def test_what_cannot_be_written_is_told_at_once() -> None:
    with pytest.raises(FileNotFoundError):
        Recording("it", path="/nowhere/it.pcapng")
    with pytest.raises(OSError, match="No space left"):
        Recording("it", path="/dev/full")


def test_whole_blocks_is_a_file(tmp_path: Path) -> None:
    file = WholeBlocks(str(tmp_path / "x"))
    assert file.writable()
    assert file.write(b"12") == 2
    file.close()
    assert (tmp_path / "x").read_bytes() == b"12"


def test_time_does_not_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Recording("it", dissector=Dissector(Options()))
    before = recording.now()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert recording.now() >= before
