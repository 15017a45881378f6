"""TLS that is decrypted while it is captured: what comes out is what comes out of a file, whenever the keys come."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqttscope.capture import tls_live
from mqttscope.capture.tls_live import LiveDecryption, TlsFlow, Tshark, begins, start_of
from mqttscope.dissect import Dissector, Options, dissect_segments
from mqttscope.events import ConnectionClosed, Event, PacketEvent
from mqttscope.net.frame import CaptureError, CaptureNotice, Frame, Plaintext
from mqttscope.net.segment import ACK, FIN, SYN, Segment
from tests.capture.test_tls import VERSIONS, converse, raw, read
from tests.dissect.secure import Secure, write
from tests.dissect.talk import CONNACK, PINGREQ, Talk, connect, only, wire
from tests.each import some
from tests.net.framing import frame as websocket_frame
from tests.net.framing import request, response

HELLO = b"\x16\x03\x01\x00\xff\x01\x00\x00\xfb\x03\x03" + bytes(range(32)) + bytes(50)


def segment(start: int, end: int, flags: int = ACK) -> Segment:
    return Segment(b"k" * 12, (start - 5) % 2**32, 0, flags, 100, HELLO[start:end], 0, 1, 1, "a")


def test_segments_of_any_size() -> None:
    for size in (6, 7, 43, 93):
        flow = TlsFlow(b"k" * 12)
        flow.begin(segment(0, size), 3)
        for start in range(0, 93, size):
            assert bool(flow.random) == (start >= 43)
            flow.gather(segment(start, start + size))
            # Once more, and from the middle.
            flow.gather(segment(start, start + size))
            flow.gather(segment(60, 70))
        assert (flow.random, flow.number) == (bytes(range(32)), 3)


def test_where_it_begins() -> None:
    assert begins(segment(0, 93))
    assert not begins(segment(0, 5))
    assert not begins(segment(1, 93))
    assert start_of(segment(5, 6, SYN)) == 1


pytestmark = pytest.mark.tshark
Passed = Segment | CaptureNotice | Plaintext


def passed(segments: list[Segment], live: LiveDecryption) -> list[Passed]:
    """What comes out of the segments."""
    return list(live.join(iter(segments)))


def events(items: list[Passed]) -> list[Event]:
    return list(dissect_segments(items, dissector=Dissector(Options(decrypting=True))))


def decrypted(segments: list[Segment], keys: Path) -> list[Event]:
    live = LiveDecryption(str(keys))
    found = events(passed(segments, live))
    assert not live.limits()
    return found


def told(items: list[Event]) -> list[tuple[object, ...]]:
    """What matters of packets and the ends of connections."""
    return [
        (one.type, one.frame, one.timestamp_ns, one.packet.raw)
        if isinstance(one, PacketEvent)
        else (type(one).__name__, getattr(one, "frame", None))
        for one in items
    ]


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

    found = decrypted(talk.tape.segments, secure.keylog)

    assert len(raw(found)) > 10
    assert told(found) == told(expected)


@VERSIONS
def test_resumed_sessions_and_ports_that_are_used_again(version: ssl.TLSVersion) -> None:
    secure = Secure(version)
    first = spoken(secure, Talk(port=9_443, client_port=50_001).handshake())
    spoken(secure, first.again())

    found = decrypted(first.tape.segments, secure.keylog)

    half = len(raw(found)) // 2
    assert raw(found)[:half] == raw(found)[half:] != []
    assert len(only(found, ConnectionClosed)) == 2


@pytest.mark.parametrize("alpn", some(["h2", "http/1.1", "mqtt"]))
def test_names_of_protocols_change_nothing(alpn: str) -> None:
    secure, plain = Secure(alpn=alpn), Talk().handshake()
    converse(plain)
    talk = spoken(secure, Talk(port=443).handshake(), 1_000)

    assert raw(decrypted(talk.tape.segments, secure.keylog)) == raw(plain.events())


def test_websocket_inside() -> None:
    secure, talk = Secure(alpn="http/1.1"), Talk(port=443).handshake()
    inside = secure.connection(talk)
    inside.say("client", request())
    inside.say("server", response())
    inside.say("client", websocket_frame(wire(connect(), PINGREQ), key=b"abcd"))
    inside.say("server", websocket_frame(wire(CONNACK)))
    talk.close()

    found = decrypted(talk.tape.segments, secure.keylog)

    assert [event.type for event in only(found, PacketEvent)] == ["connect", "pingreq", "connack"]


def test_what_is_no_mqtt_and_what_is_no_tls() -> None:
    secure, talk, plain = Secure(), Talk(port=443).handshake(), Talk().handshake()
    secure.connection(talk).say("client", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    converse(plain)

    assert not raw(decrypted(talk.tape.segments, secure.keylog))
    assert raw(decrypted(plain.tape.segments, secure.keylog)) == raw(plain.events())


@VERSIONS
def test_keys_that_come_late(version: ssl.TLSVersion, tmp_path: Path) -> None:
    """The connection is held back meanwhile, another one is not."""
    secure, keys = Secure(version), tmp_path / "keys.txt"
    talk, plain = spoken(secure, Talk(port=8_883).handshake()), Talk().handshake()
    converse(plain)
    lines = secure.keylog.read_bytes()
    live = LiveDecryption(str(keys))
    before: list[Passed] = []

    def source() -> Iterator[Segment]:
        yield from talk.tape.segments
        yield from plain.tape.segments
        before.extend(items)
        assert not list(live.arrived())
        keys.write_bytes(lines[:-20])
        assert not any(isinstance(one, Plaintext) for one in live.arrived())
        keys.write_bytes(lines)

    items: list[Passed] = []
    for item in live.join(source()):
        items += (item,)

    begun = next(number for number, one in enumerate(talk.tape.segments) if one.payload)
    assert before == [*talk.tape.segments[:begun], *plain.tape.segments]
    assert raw(events(items))[: len(raw(plain.events()))] == raw(plain.events())
    assert live.records > 5
    assert raw(events([one for one in items if one not in plain.tape.segments])) == raw(plain.events())


def test_keys_that_never_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the connection is passed on as it is."""
    monkeypatch.setattr(tls_live, "KEY_SECONDS", 0.05)
    secure, other = Secure(), Secure()
    talk = spoken(secure, Talk(port=8_883).handshake())
    other.connection(Talk().handshake())
    live = LiveDecryption(str(other.keylog))
    late: list[Passed] = []

    def source() -> Iterator[Segment]:
        yield from talk.tape.segments
        time.sleep(0.06)
        late.extend(live.arrived())

    early = passed_by(live, source())

    assert early + late == talk.tape.segments
    assert (live.sessions, live.records, live.watched()) == (1, 0, [])


def passed_by(live: LiveDecryption, source: Iterator[Segment]) -> list[Passed]:
    return list(live.join(source))


@pytest.mark.parametrize("limit", ["MAX_WAITING_BYTES", "MAX_HELD_BYTES"])
def test_not_too_much_is_held_back(limit: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tls_live, limit, 2_000)
    talk = spoken(Secure(), Talk(port=8_883).handshake())
    live = LiveDecryption(str(tmp_path / "keys.txt"))
    joined = live.join(iter([*talk.tape.segments, talk.tape.segments[0]]))

    found = [next(joined) for _ in talk.tape.segments]

    assert found == talk.tape.segments


def test_the_end_of_a_connection_comes_behind_its_plaintext() -> None:
    secure = Secure()
    talk = spoken(secure, Talk(port=8_883).handshake())

    items = passed(talk.tape.segments, LiveDecryption(str(secure.keylog)))

    assert [one for one in items if isinstance(one, Segment)] == talk.tape.segments
    last = max(number for number, one in enumerate(items) if isinstance(one, Plaintext))
    ends = [number for number, one in enumerate(items) if isinstance(one, Segment) and one.flags & FIN]
    assert last < ends[0]


def test_what_came_while_no_segment_comes() -> None:
    secure, talk = Secure(), Talk(port=8_883).handshake()
    converse(secure.connection(talk))
    live = LiveDecryption(str(secure.keylog))
    found: list[Passed] = []

    def source() -> Iterator[Segment]:
        yield from talk.tape.segments
        deadline = time.monotonic() + 20
        while len(found) < len(talk.tape.segments) + 3 and time.monotonic() < deadline:
            found.extend(live.arrived())
            time.sleep(0.01)
        assert live.watched()

    found[:0] = live.join(source())

    assert any(isinstance(one, Plaintext) for one in found)


@pytest.mark.long
def test_new_connections_go_to_a_new_tshark_and_the_old_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_live, "GENERATION_BYTES", 1)
    monkeypatch.setattr(tls_live, "LINGER_SECONDS", 0.0)
    monkeypatch.setattr(tls_live, "LOOK_SECONDS", 0.0)
    secure = Secure()
    first = spoken(secure, Talk(port=8_883, client_port=50_001).handshake())
    middle = len(first.tape.segments)
    second = spoken(secure, Talk(first.tape, port=8_883, client_port=50_002).handshake())
    live = LiveDecryption(str(secure.keylog))
    found: list[Passed] = []
    most = 0

    def source() -> Iterator[Segment]:
        nonlocal most
        yield from second.tape.segments[:middle]
        deadline = time.monotonic() + 20
        while live.records < 8 and time.monotonic() < deadline:
            found.extend(live.arrived())
        for segment in second.tape.segments[middle:]:
            yield segment
            most = max(most, len(live.watched()) // 2)
        while len(live.watched()) > 2 and time.monotonic() < deadline:
            found.extend(live.arrived())
        assert len(live.watched()) == 2

    for item in live.join(source()):
        found += (item,)

    half = len(raw(events(found))) // 2
    assert raw(events(found))[:half] == raw(events(found))[half:] != []
    assert most == 2
    assert not live.limits()


def test_a_tshark_that_has_grown_too_large_gives_up_what_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_live, "LARGEST_BYTES", 9_000)
    secure, talk = Secure(), Talk(port=8_883).handshake()
    converse(secure.connection(talk))
    live = LiveDecryption(str(secure.keylog))

    items = passed(talk.tape.segments, live)

    assert [one for one in items if isinstance(one, Segment)] == talk.tape.segments
    assert 0 < live.records < 14
    assert live.limits() == ["limit: 1 TLS connection no longer decrypted: tshark had grown by 0 MiB"]


@pytest.mark.long
def test_not_too_many_of_them_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_live, "GENERATION_BYTES", 1)
    monkeypatch.setattr(tls_live, "MAX_TSHARKS", 1)
    secure, first = Secure(), Talk(port=8_883, client_port=50_001).handshake()
    converse(secure.connection(first))
    converse(secure.connection(Talk(first.tape, port=8_883, client_port=50_002).handshake()))
    live = LiveDecryption(str(secure.keylog))

    found = events(passed(first.tape.segments, live))

    for number in (0, 1):
        assert len(raw([one for one in only(found, PacketEvent) if one.connection.number == number])) == 14
    assert live.limits() == [
        "limit: 1 TLS connection no longer decrypted: more than 1 of tshark would have been needed"
    ]


def test_a_tshark_that_cannot_keep_up_loses_connections_not_memory(
    monkeypatch: pytest.MonkeyPatch, fake_tshark: Path
) -> None:
    fake_tshark.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(tls_live, "MAX_UNANSWERED_BYTES", 3_000)
    monkeypatch.setattr(tls_live, "END_SECONDS", 0.1)
    secure = Secure()
    talk = spoken(secure, Talk(port=8_883).handshake())
    live = LiveDecryption(str(secure.keylog))

    items = passed(talk.tape.segments, live)

    assert items == talk.tape.segments
    assert "tshark could not keep up" in live.limits()[0]
    assert "too slow at the end" in live.limits()[1]


@pytest.fixture
def fake_tshark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in tshark's place, to be written."""
    path = tmp_path / "tshark"
    path.write_text("#!/bin/sh\nexit 0\n")
    path.chmod(0o755)
    monkeypatch.setattr(tls_live, "find_tshark", lambda: str(path))
    monkeypatch.setattr(tls_live, "decrypting", lambda *_: [str(path), "{keys}"])
    return path


@pytest.mark.parametrize("script", ["echo 'no memory' >&2; exit 2", "echo nonsense; exec sleep 60", "kill -9 $$"])
def test_a_tshark_that_fails_is_told_and_the_capture_goes_on(script: str, fake_tshark: Path) -> None:
    fake_tshark.write_text(f"#!/bin/sh\n{script}\n")
    secure = Secure()
    talk = spoken(secure, Talk(port=8_883).handshake())
    live = LiveDecryption(str(secure.keylog))

    items = passed(talk.tape.segments, live)

    assert [one for one in items if isinstance(one, Segment)] == talk.tape.segments
    (error,) = (one for one in items if isinstance(one, CaptureError))
    assert error.capture == "tshark"
    assert "failed while it decrypted TLS" in error.message
    assert "what it had not decrypted is missing" in error.message
    assert ("no memory" in error.message) == ("no memory" in script)


def test_after_some_failures_no_other_is_started(fake_tshark: Path) -> None:
    fake_tshark.unlink()
    secure, first = Secure(), Talk(port=8_883, client_port=50_000).handshake()
    for port in range(5):
        converse(secure.connection(Talk(first.tape, port=8_883, client_port=50_001 + port).handshake()))
    live = LiveDecryption(str(secure.keylog))

    items = passed(first.tape.segments, live)

    assert [one for one in items if isinstance(one, Segment)] == first.tape.segments
    errors = [one for one in items if isinstance(one, CaptureError)]
    assert len(errors) == live.failures == tls_live.MAX_FAILURES
    assert "cannot be started" in errors[0].message


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where the system has no files in memory."""
    monkeypatch.delattr(os, "memfd_create")
    secure, talk = Secure(), Talk(port=8_883).handshake()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    converse(secure.connection(talk))
    live = LiveDecryption(str(secure.keylog))
    joined = live.join(iter(talk.tape.segments))

    while not list((tmp_path / "temporary").iterdir()):
        next(joined)
    (made,) = (tmp_path / "temporary").iterdir()
    assert made.stat().st_mode & 0o777 == 0o600
    assert raw(events(list(joined)))

    assert not list((tmp_path / "temporary").iterdir())


def test_idle_connections_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_live, "IDLE_SECONDS", -1.0)
    monkeypatch.setattr(tls_live, "GENERATION_BYTES", 1)
    secure, talk = Secure(), Talk(port=8_883).handshake()
    converse(secure.connection(talk))
    live = LiveDecryption(str(secure.keylog))

    def source() -> Iterator[Segment]:
        yield from talk.tape.segments
        list(live.arrived())
        assert all(flow.worker is None for flow in live._flows.values())

    list(live.join(source()))

    assert not live._flows


FRAME = Frame(1, 1, 101, bytes(1_000), 1_000, "a")


def running(tmp_path: Path, script: str) -> Tshark[str]:
    path = tmp_path / "tshark"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Tshark([str(path), "keys={keys}"])


def answers(tshark: Tshark[str], count: int) -> list[tuple[str, list[bytes]]]:
    found: list[tuple[str, list[bytes]]] = []
    deadline = time.monotonic() + 20
    while len(found) < count and tshark.fault is None and time.monotonic() < deadline:
        found += tshark.answers()
        time.sleep(0.005)
    return found


def test_answers(tmp_path: Path) -> None:
    """Data right inside TCP is none that was decrypted."""
    tshark = running(tmp_path, r"printf '1\ta:tls:data\t0102,03\n2\ta:tcp:data\t04\n3\ta:tcp:tls\t\n'; exec sleep 60")
    for name in "abc":
        tshark.feed(FRAME, name)

    assert answers(tshark, 3) == [("a", [b"\1\2", b"\3"]), ("b", []), ("c", [])]
    assert (tshark.unanswered, list(tshark.waiting), tshark.cost) == (0, [], 3 * (1_000 + tls_live.FRAME_COST))
    assert len(tshark.watched()) == 2
    tshark.close()


def test_keys_are_there_for_it_alone(tmp_path: Path) -> None:
    tshark = running(
        tmp_path,
        r"""read line <&0; printf '1\t\t'; f=${1#keys=}; od -An -v -tx1 "$f" | tr -d ' \n'; echo; exec sleep 60""",
    )
    tshark.keys(b"CLIENT_RANDOM a\nRSA b\n")
    tshark.keys(b"CLIENT_RANDOM c\nRSA b\n")
    tshark.feed(FRAME, "a")
    tshark._process.write(b"\n")

    assert answers(tshark, 1) == [("a", [b"CLIENT_RANDOM a\nRSA b\nCLIENT_RANDOM c\n"])]
    tshark.close()


def test_what_it_does_not_take_is_kept(tmp_path: Path) -> None:
    tshark = running(tmp_path, "exec sleep 60")
    for _ in range(2_000):
        tshark.feed(FRAME, "a")

    assert not list(tshark.answers())
    # Who waits for it waits until it has ended.
    assert not tshark._process.ended
    assert tshark.unanswered == 2_000_000
    tshark.close()


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo out of memory >&2; exit 3", "ended early; exit code 3): out of memory"),
        ("kill -9 $$", "ended early; signal 9)"),
        ("echo nonsense; exec sleep 60", "said b'nonsense')"),
        (r"printf '2\t\t\n'; exec sleep 60", "said b'2"),
    ],
)
def test_how_it_fails(script: str, told: str, tmp_path: Path) -> None:
    tshark = running(tmp_path, script)
    tshark.feed(FRAME, "a")

    assert answers(tshark, 1) == []
    assert tshark.fault is not None
    assert told in tshark.fault
    assert list(tshark.waiting) == ["a"]
    assert tshark.watched() == []
    tshark.feed(FRAME, "b")
    assert list(tshark.waiting) == ["a", "b"]
    tshark.close()


def test_one_that_is_silent_for_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_live, "STALL_SECONDS", 0.1)
    tshark = running(tmp_path, "exec sleep 60")
    assert not list(tshark.answers())
    time.sleep(0.15)
    assert not list(tshark.answers())
    assert tshark.fault is None
    tshark.feed(FRAME, "a")

    assert answers(tshark, 1) == []
    assert "silent for" in str(tshark.fault)
    tshark.close()
