"""TLS that is decrypted while it is captured: what comes out is what comes out of a file, whenever the keys come."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqttscope.capture import tls
from mqttscope.capture.keylog import KeyLog
from mqttscope.capture.tls import Decryption
from mqttscope.dissect import Dissector, Options, dissect_segments
from mqttscope.events import Event, PacketEvent
from mqttscope.net.flow_expiry import IDLE_TIMEOUT_NS
from mqttscope.net.frame import CaptureError, Decrypted, Plaintext, SegmentItem, UndecryptedSession
from mqttscope.net.segment import FIN, Segment
from tests.capture.test_tls import VERSIONS, converse, raw, read
from tests.dissect.secure import Secure, write
from tests.dissect.talk import Talk, only

pytestmark = pytest.mark.tshark
Passed = SegmentItem | Decrypted


def following(keys: Path) -> Decryption:
    return Decryption(KeyLog(str(keys)))


def passed(segments: list[Segment], live: Decryption) -> list[Passed]:
    """What comes out of the segments."""
    return list(live.join(iter(segments)))


def events(items: list[Passed]) -> list[Event]:
    return list(dissect_segments(items, dissector=Dissector(Options(decrypting=True))))


def decrypted(segments: list[Segment], keys: Path) -> list[Event]:
    live = following(keys)
    items = passed(segments, live)
    assert not reasons(items)
    return events(items)


def reasons(items: list[Passed]) -> list[str]:
    """Why sessions were not decrypted."""
    return [item.reason for item in items if isinstance(item, UndecryptedSession)]


def of_capture(items: list[Passed]) -> list[Passed]:
    """The segments and notices among what was passed."""
    return [item for item in items if not isinstance(item, Plaintext | UndecryptedSession)]


def told(items: list[Event]) -> list[tuple[object, ...]]:
    """What matters of packets and the ends of connections."""
    return [
        (event.type, event.frame, event.timestamp_ns, event.packet.raw)
        if isinstance(event, PacketEvent)
        else (type(event).__name__, getattr(event, "frame", None))
        for event in items
    ]


def closed(secure: Secure) -> list[Segment]:
    """Of a conversation that ends."""
    return spoken(secure, Talk(port=8_883).handshake()).tape.segments


def left_open(secure: Secure, clients: int = 1) -> list[Segment]:
    """Of conversations one after another that nobody ends."""
    first = Talk(port=8_883)
    for number in range(clients):
        converse(secure.connection(Talk(first.tape, port=8_883, client_port=50_001 + number).handshake()))
    return first.tape.segments


def spoken(secure: Secure, talk: Talk, chunk: int = 0) -> Talk:
    """A conversation, closed."""
    converse(secure.connection(talk, chunk=chunk))
    talk.close()
    return talk


@pytest.mark.long
@VERSIONS
@pytest.mark.parametrize("chunk", [0, 7, 1_000])
def test_the_same_as_from_a_file(version: ssl.TLSVersion, chunk: int, tmp_path: Path) -> None:
    """Packets, frames, times, and the end of the connection after all of them."""
    secure = Secure(version)
    talk = spoken(secure, Talk(port=9_883).handshake(), chunk)
    expected = read(write(talk.tape, tmp_path / "a.pcapng"), secure.keylog.read_bytes())
    for segment in talk.tape.segments:
        segment.capture = str(tmp_path / "a.pcapng")

    actual_events = decrypted(talk.tape.segments, secure.keylog)

    assert len(raw(actual_events)) > 10
    assert told(actual_events) == told(expected)


def test_what_is_no_tls_passes() -> None:
    plain = Talk().handshake()
    converse(plain)

    assert raw(decrypted(plain.tape.segments, Secure().keylog)) == raw(plain.events())


@VERSIONS
def test_keys_that_come_late(version: ssl.TLSVersion, tmp_path: Path) -> None:
    """The connection is held back meanwhile, another one is not."""
    secure, keys = Secure(version), tmp_path / "keys.txt"
    talk, plain = spoken(secure, Talk(port=8_883).handshake()), Talk().handshake()
    converse(plain)
    lines = secure.keylog.read_bytes()
    live = following(keys)
    before: list[Passed] = []

    def source() -> Iterator[Segment]:
        yield from talk.tape.segments
        yield from plain.tape.segments
        before.extend(items)
        assert not list(live.arrived())
        keys.write_bytes(lines[:-20])
        assert not any(isinstance(segment, Plaintext) for segment in live.arrived())
        keys.write_bytes(lines)

    items: list[Passed] = []
    for item in live.join(source()):
        items += (item,)

    begun = next(number for number, segment in enumerate(talk.tape.segments) if segment.payload)
    assert before == [*talk.tape.segments[:begun], *plain.tape.segments]
    assert raw(events(items))[: len(raw(plain.events()))] == raw(plain.events())
    assert live.records > 5
    assert raw(events([segment for segment in items if segment not in plain.tape.segments])) == raw(plain.events())


def test_keys_that_never_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the connection is passed on as it is."""
    monkeypatch.setattr(tls, "KEY_SECONDS", 0.05)
    segments, other = closed(Secure()), Secure()
    other.connection(Talk().handshake())
    live = following(other.keylog)
    late: list[Passed] = []

    def source() -> Iterator[Segment]:
        yield from segments
        time.sleep(0.06)
        late.extend(live.arrived())

    early = list(live.join(source()))

    assert of_capture(early + late) == segments
    assert reasons(early + late) == ["the key log has no keys for this session"]
    assert (live.sessions, live.records, live.watched()) == (1, 0, [])


def test_the_end_of_a_connection_comes_behind_its_plaintext() -> None:
    secure = Secure()
    segments = closed(secure)

    items = passed(segments, following(secure.keylog))

    assert [segment for segment in items if isinstance(segment, Segment)] == segments
    last = max(number for number, segment in enumerate(items) if isinstance(segment, Plaintext))
    ends = [number for number, segment in enumerate(items) if isinstance(segment, Segment) and segment.flags & FIN]
    assert last < ends[0]


def test_what_came_while_no_segment_comes() -> None:
    secure = Secure()
    segments, live = left_open(secure), following(secure.keylog)
    result: list[Passed] = []

    def source() -> Iterator[Segment]:
        yield from segments
        deadline = time.monotonic() + 20
        while len(result) < len(segments) + 3 and time.monotonic() < deadline:
            result.extend(live.arrived())
            time.sleep(0.01)
        assert live.watched()

    result[:0] = live.join(source())

    assert any(isinstance(segment, Plaintext) for segment in result)


@pytest.mark.long
def test_new_connections_go_to_a_new_tshark_and_the_old_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "GENERATION_BYTES", 1)
    monkeypatch.setattr(tls, "LOOK_SECONDS", 0.0)
    secure = Secure()
    first = spoken(secure, Talk(port=8_883, client_port=50_001).handshake())
    middle = len(first.tape.segments)
    second = spoken(secure, Talk(first.tape, port=8_883, client_port=50_002).handshake())
    live = following(secure.keylog)
    result: list[Passed] = []
    most = 0

    def source() -> Iterator[Segment]:
        nonlocal most
        yield from second.tape.segments[:middle]
        deadline = time.monotonic() + 20
        while live.records < 8 and time.monotonic() < deadline:
            result.extend(live.arrived())
        for segment in second.tape.segments[middle:]:
            yield segment
            most = max(most, len(live.watched()) // 2)
        while len(live.watched()) > 2 and time.monotonic() < deadline:
            result.extend(live.arrived())
        assert len(live.watched()) == 2

    for item in live.join(source()):
        result += (item,)

    half = len(raw(events(result))) // 2
    assert raw(events(result))[:half] == raw(events(result))[half:] != []
    assert most == 2
    assert not reasons(result)


def test_a_tshark_that_has_grown_too_large_gives_up_what_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "LARGEST_BYTES", 9_000)
    secure = Secure()
    segments, live = left_open(secure), following(secure.keylog)

    items = passed(segments, live)

    assert [segment for segment in items if isinstance(segment, Segment)] == segments
    assert 0 < live.records < 14
    assert reasons(items) == ["tshark had grown by 0 MiB"]


@pytest.mark.long
def test_not_too_many_of_them_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "GENERATION_BYTES", 1)
    monkeypatch.setattr(tls, "MAX_TSHARKS", 1)
    secure = Secure()

    items = passed(left_open(secure, clients=2), following(secure.keylog))
    actual_events = events(items)

    for number in (0, 1):
        assert (
            len(raw([event for event in only(actual_events, PacketEvent) if event.connection.number == number])) == 14
        )
    assert reasons(items) == ["more than 1 of tshark would have been needed"]


@pytest.fixture
def fake_tshark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in tshark's place, to be written."""
    path = tmp_path / "tshark"
    path.write_text("#!/bin/sh\nexit 0\n")
    path.chmod(0o755)
    monkeypatch.setattr(tls, "find_tshark", lambda: str(path))
    monkeypatch.setattr(tls, "decrypting", lambda *_: [str(path), "{keys}"])
    return path


@pytest.mark.parametrize("script", ["echo 'no memory' >&2; exit 2", "echo nonsense; exec sleep 60", "kill -9 $$"])
def test_a_tshark_that_fails_is_told_and_the_capture_goes_on(script: str, fake_tshark: Path) -> None:
    fake_tshark.write_text(f"#!/bin/sh\n{script}\n")
    secure = Secure()
    segments = closed(secure)

    items = passed(segments, following(secure.keylog))

    assert [segment for segment in items if isinstance(segment, Segment)] == segments
    (error,) = (segment for segment in items if isinstance(segment, CaptureError))
    assert error.capture == "tshark"
    assert "failed while decrypting TLS" in error.message
    assert "data not yet decrypted is missing" in error.message
    assert ("no memory" in error.message) == ("no memory" in script)


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where the system has no files in memory."""
    monkeypatch.delattr(os, "memfd_create")
    secure = Secure()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    joined = following(secure.keylog).join(iter(left_open(secure)))

    items: list[Passed] = []
    while not list((tmp_path / "temporary").iterdir()):
        items.append(next(joined))
    (path,) = (tmp_path / "temporary").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert raw(events([*items, *joined]))

    assert not list((tmp_path / "temporary").iterdir())


def test_idle_connections_are_forgotten() -> None:
    """Also while no segment comes."""
    secure = Secure()
    segments, live = left_open(secure), following(secure.keylog)
    idle_ns = segments[-1].timestamp_ns + IDLE_TIMEOUT_NS

    def source() -> Iterator[Segment]:
        yield from segments
        live.advance(idle_ns)
        assert live._lanes
        live.advance(idle_ns + 2)
        deadline = time.monotonic() + 20
        while live._lanes and time.monotonic() < deadline:
            list(live.arrived())
        assert not live._lanes

    assert list(live.join(source()))
