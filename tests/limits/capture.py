"""Inputs at the limits of the package capture.

A shell is in the place of tshark and dumpcap where a limit is about programs that are slow or silent, and a clock of
the tests is in the place of the system's.
"""

from __future__ import annotations

import io
import math
import os
import re
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import Popen
from unittest.mock import patch

import lz4.frame

from mqttscope.capture import live, ranges, tls, via_tshark
from mqttscope.capture.annotate import cut as cut
from mqttscope.capture.compressed import ByteSource
from mqttscope.capture.fingerprint import KnownFingerprints, ends_crc, fingerprint_of, head_crc
from mqttscope.capture.keylog import KeyLog, Keys
from mqttscope.capture.live import LiveCapture
from mqttscope.capture.taps import Taps, open_taps
from mqttscope.capture.tls import Decryption, DelayedSegment, Passed
from mqttscope.capture.tls_tshark import FRAME_COST, Tshark, frames
from mqttscope.capture.tshark import TsharkProcess
from mqttscope.capture.write import Recorder
from mqttscope.net.flow import StreamData
from mqttscope.net.frame import CaptureError, Frame
from mqttscope.net.headers import segment as segment_of
from mqttscope.net.segment import Segment, endpoints
from tests.capture.doubled import recorded, write
from tests.capture.test_keylog import append, line, random
from tests.capture.test_pcap import pcap_file, read
from tests.capture.test_pcapng import enhanced, interface, option, section
from tests.capture.test_taps import QOS
from tests.capture.test_tls_live import reasons
from tests.capture.test_tls_tshark import FLOW, read_frames
from tests.dissect.scenes import HELLO
from tests.dissect.talk import SECOND, Talk, Tape
from tests.dissect.test_clock_watch import HOUR
from tests.net.hellos import record, server_hello

CONTENT = bytes(range(256)) * 40
FRAMES = recorded(QOS)
SILENT = "exec sleep 60"
SERVER_HELLO, DATA = record(22, server_hello()), record(23, bytes(40))
EMPTY_FRAME = Frame(1, 1, 101, bytes(40), 40, "a")


def changed(at: int) -> bytes:
    """The content with another byte at an offset."""
    return CONTENT[:at] + b"?" + CONTENT[at + 1 :]


def lz4_block(size: int) -> str | None:
    """The fault of a block that claims ``size`` bytes and has none."""
    head = lz4.frame.compress(b"content", store_size=True)[:15]
    source = ByteSource(io.BytesIO(head + size.to_bytes(4, "little")))
    source.fill(b"", 1)
    return source.fault


def has_other_end(distance: int) -> bool:
    """Whether another byte at this distance before the last one is noticed."""
    return ends_crc(io.BytesIO(changed(8_999 - distance)), 9_000) != ends_crc(io.BytesIO(CONTENT), 9_000)


def is_another(at: int) -> bool:
    """Whether another byte at an offset makes another file."""
    return head_crc(io.BytesIO(changed(at)), len(CONTENT)) != head_crc(io.BytesIO(CONTENT), len(CONTENT))


def is_compared(at: int) -> bool:
    """Whether a capture with another byte at an offset is compared with the known one."""
    known = KnownFingerprints.from_manifest(fingerprint_of(io.BytesIO(CONTENT)).manifest_entry)
    return known.may_begin(fingerprint_of(io.BytesIO(changed(at))))


def following(folder: Path, content: bytes) -> KeyLog:
    """A key log that is followed."""
    path = folder / "keys.txt"
    path.write_bytes(content)
    return KeyLog(str(path))


def sessions(folder: Path, count: int) -> list[int]:
    """Sessions that are kept of ``count`` sessions."""
    log = following(folder, b"".join(map(line, range(1, count + 1))))
    return [number for number in range(1, count + 1) if log.complete(random(number))]


def sessions_of_backlog(folder: Path, size: int) -> list[int]:
    """Sessions that are read of three in a log of ``size`` bytes."""
    lines = b"".join(map(line, (1, 2, 3)))
    log = following(folder, lines.replace(b" ", b" " * (size - len(lines) + 1), 1))
    return [number for number in (1, 2, 3) if log.complete(random(number))]


def is_read_in_parts(folder: Path, size: int) -> bool:
    """Whether a line is read whose first ``size`` bytes come alone."""
    log = following(folder, line(2) + line(1)[:-1].ljust(size, b"a"))
    append(Path(log.path), b"a\n")
    log.poll()
    return log.complete(random(1))


def first_other(folder: Path, count: int) -> int:
    """Number of the first line that is kept of ``count`` lines without a client random."""
    log = following(folder, b"".join(b"RSA %d 00\n" % number for number in range(1, count + 1)))
    return int(log.lines(b"").split()[1])


@dataclass
class ManualClock:
    """A monotonic clock that stands still until it is set."""

    now: float = 0.0
    later: tuple[float, ...] = ()
    """Times of the next calls; infinity follows them."""

    def __call__(self) -> float:
        if self.later:
            self.now, *later = self.later
            self.later = (*later, math.inf)
        return self.now


@contextmanager
def clock_of_tests() -> Iterator[ManualClock]:
    clock = ManualClock()
    with patch.object(time, "monotonic", clock):
        yield clock


@contextmanager
def live_capture() -> Iterator[LiveCapture]:
    """A capture whose dumpcap is not started."""
    with patch.object(live, "find_dumpcap", lambda: "dumpcap"):
        yield LiveCapture(["eth9"])


def is_ended_after(seconds: float) -> bool:
    """Whether dumpcap is told to end, this time after a stop."""
    with live_capture() as capture, clock_of_tests() as clock:
        capture.stop()
        clock.now = seconds
        capture._check()
        return capture._signalled


def is_killed_after(seconds: float) -> bool:
    """Whether a dumpcap that does not end is killed, this time after it was told to."""
    with live_capture() as capture, clock_of_tests() as clock, Popen(["sleep", "60"]) as process:
        capture._process = process
        capture.stop(settle=False)
        capture._signalled = True
        clock.now = seconds
        capture._check()
        process.terminate()
    return process.returncode == -signal.SIGKILL


def unheard(size: int) -> tuple[int, str, str]:
    """Number of bytes lost of dumpcap's standard error, and the first and the last words that are kept."""
    with live_capture() as capture:
        capture._keep_complaints(b"begin" + bytes(size - 8) + b"end")
        text = capture._stderr_text()
        return size - len(text), text[:5], text[-3:]


def longest_frame(size: int) -> list[str | None]:
    """The faults that a reader, and a walk over the records, report of a frame of ``size`` bytes that is cut off."""
    content = pcap_file([], snap_length=1 << 30) + struct.pack("<IIII", 1, 0, size, size)
    (error,) = read(content)
    boundaries = ranges.boundaries(content)
    assert isinstance(error, CaptureError)
    assert boundaries is not None
    walk = boundaries.walk(io.BytesIO(content), boundaries.first, len(content), len(content))
    return [error.message, walk.fault]


def latest(time_ns: int) -> list[int | str]:
    """The time of a frame as it is read, and what is reported of it."""
    clock = option(9, b"\x09") + option(14, (1).to_bytes(8, "little"))
    items = read(section() + interface(options=clock) + enhanced(b"data", time_ns - 1_000_000_000))
    return [item.timestamp_ns if isinstance(item, Frame) else getattr(item, "message", "") for item in items]


def sync(*records: tuple[int, int]) -> int | None:
    """The offset at which records, of times and lengths, are recognised before 300,000 other bytes."""
    content = pcap_file([(seconds, 0, bytes(size)) for seconds, size in records]) + b"\xff" * 300_000
    boundaries = ranges.boundaries(content)
    assert boundaries is not None
    return boundaries.sync(io.BytesIO(content), boundaries.first, len(content))


def chain(size: int) -> int | None:
    """The offset at which four records of ``size`` bytes in total are recognised."""
    return sync((1, 100), (1, 100), (1, 100), (1, size - 3 * 116 - 16))


def chain_with_pause(seconds: int) -> int | None:
    """The offset at which records are recognised with a pause after the first one, which takes 26 bytes."""
    return sync((1, 10), *[(1 + seconds, 60_000)] * 5)


def beyond_head(size: int) -> int:
    """Number of bytes of a pcapng file that do not count as its head."""
    return size - len(ranges.read_head(io.BytesIO(section() + bytes(size - len(section())))))


def splits(size: int) -> int:
    """Number of ranges of a capture."""
    return len(ranges.split(ranges.boundaries(pcap_file()), size))


def taps_of(folder: Path, *captures: list[Frame]) -> Taps:
    """Taps that are read as one, each with these frames."""
    taps = Taps()
    names = [str(write(folder / f"{number}.pcapng", capture)) for number, capture in enumerate(captures)]
    list(open_taps(names, taps))
    return taps


def at_once(ahead_ns: int = 0) -> list[Frame]:
    """Frames of one moment, by a clock that is ahead."""
    return [replace(frame, timestamp_ns=FRAMES[0].timestamp_ns + ahead_ns) for frame in FRAMES]


def measured_ns(folder: Path, ahead_ns: int) -> int:
    """The measured difference of two clocks."""
    return taps_of(folder, at_once(), at_once(ahead_ns)).sources[-1].ahead_ns


def corrections(folder: Path, ahead_ns: int) -> int:
    """Number of clocks that are reported as corrected."""
    return len(taps_of(folder, at_once(), at_once(ahead_ns)).corrected())


def an_hour_apart(folder: Path, count: int) -> list[str]:
    """What is said of copies with a clock an hour ahead, if the originals are in the first of ``count`` captures."""
    others = [[replace(frame, data=bytes(60)) for frame in at_once(number)[:1]] for number in range(1, count)]
    sentences = taps_of(folder, at_once(), *others, at_once(HOUR * SECOND)).sentences()
    return [sentence for sentence in sentences if sentence.startswith(("no copy", "limit"))]


def named_taps(folder: Path, count: int) -> list[int | str]:
    """Number of taps that are named, and the sentence about further ones."""
    sentences = list(taps_of(folder, *[FRAMES] * count).sentences())
    named = sum(sentence.startswith("tap ") for sentence in sentences)
    return [named, *(sentence for sentence in sentences if sentence.startswith("further"))]


@contextmanager
def shell(script: str = SILENT, program: str = "/bin/sh") -> Iterator[None]:
    """A shell in the place of tshark."""
    with (
        patch.object(tls, "find_tshark", lambda: program),
        patch.object(tls, "decrypting", lambda *_: [program, "-c", script]),
        patch.object(via_tshark, "find_tshark", lambda: program),
        patch.object(via_tshark, "command", lambda *_: [program, "-c", script]),
    ):
        yield


class CountingDecryption(Decryption):
    """Counts its waits, and does not sleep."""

    waits = 0

    def _wait(self, seconds: float) -> None:
        self.waits += 1
        super()._wait(0.0)


def talks(count: int) -> list[Talk]:
    """Connections on one tape, of which only the handshakes were captured yet."""
    tape = Tape()
    return [Talk(tape, port=8883, client_port=50_000 + number).handshake() for number in range(count)]


def tls_segments(*payloads: bytes, count: int = 1) -> list[Segment]:
    """Connections that begin TLS, with payloads of the clients, and end."""
    connections = talks(count)
    for talk in connections:
        talk.client(HELLO)
        talk.server(SERVER_HELLO)
        for payload in payloads:
            talk.client(payload)
    for talk in connections:
        talk.close()
    return connections[0].tape.segments


def with_keys(folder: Path) -> CountingDecryption:
    """Live decryption with the keys of all sessions."""
    return CountingDecryption(following(folder, b"CLIENT_RANDOM %s %s\n" % (b"00" * 32, b"ab" * 48)))


def without_keys(folder: Path) -> CountingDecryption:
    """Live decryption whose key log never exists."""
    return CountingDecryption(KeyLog(str(folder / "keys.txt")))


def passed(
    segments: list[Segment], decryption: Decryption, clock: ManualClock, at_end: Callable[[list[Passed]], object] = len
) -> list[Passed]:
    """What comes out of segments.

    ``at_end`` is called after the last segment, with what came out before; then all time-outs are over.
    """
    items: list[Passed] = []

    def source() -> Iterator[Segment]:
        yield from segments
        at_end(items)
        clock.now = clock.now if clock.later else math.inf

    for item in decryption.join(source()):
        items += (item,)
    return items


def waits_for_keys(folder: Path, seconds: float, *, is_end: bool = False) -> bool:
    """Whether a session still waits for its keys after this time."""
    segments = tls_segments(DATA)
    held: list[bool] = []
    with shell(), clock_of_tests() as clock:
        decryption = without_keys(folder)

        def look(items: list[Passed]) -> None:
            clock.now = seconds
            if is_end:
                decryption._wait(0.0)
            held.append(len(items) + len(list(decryption.arrived())) < len(segments))

        passed(segments, decryption, clock, look)
    return held[0]


def held_back(folder: Path, *sizes: int) -> list[bool]:
    """Whether segments are held back of each session without keys, by the bytes that were sent."""
    connections = talks(len(sizes))
    for talk, size in zip(connections, sizes, strict=True):
        talk.client(HELLO)
        talk.server(SERVER_HELLO)
        for at in range(len(HELLO + SERVER_HELLO), size, 1 << 20):
            talk.client(bytes(min(size - at, 1 << 20)))
    held: list[bool] = []

    def look(items: list[Passed]) -> None:
        left = [segment for segment in connections[0].tape.segments if segment not in items]
        held.extend(any(segment.key == talk.keys["client"] for segment in left) for talk in connections)

    with shell(), clock_of_tests() as clock:
        passed(connections[0].tape.segments, without_keys(folder), clock, look)
    return held


def waits_at_end(folder: Path, seconds: float) -> tuple[int, list[str]]:
    """Number of waits for tshark if this time has passed since the end of a capture, and the reasons reported."""
    with shell(), clock_of_tests() as clock:
        decryption = with_keys(folder)
        times = (0.0, seconds)
        items = passed(tls_segments(DATA), decryption, clock, lambda _: setattr(clock, "later", times))
        return decryption.waits, reasons(items)


def has_one_tshark(folder: Path, cost: int) -> bool:
    """Whether a tshark that has grown by ``cost`` bytes gets new sessions."""
    with shell():
        decryption = with_keys(folder)
        first = decryption._worker()
        assert first is not None
        first.cost = cost
        is_same = decryption._worker() is first
        decryption.close()
        return is_same


def grown(folder: Path, size: int) -> list[str]:
    """The reasons reported if a tshark has grown by ``size`` bytes."""
    segments = tls_segments(DATA)
    at = [segment.payload for segment in segments].index(DATA)
    with shell(), clock_of_tests() as clock:
        decryption = with_keys(folder)

        def source() -> Iterator[Segment]:
            yield from segments[:at]
            (worker,) = decryption._workers
            worker.cost = size - FRAME_COST - 40 - len(DATA)
            yield from segments[at:]
            clock.now = math.inf

        return reasons(list(decryption.join(source())))


def unanswered(folder: Path, size: int) -> list[str]:
    """The reasons reported if tshark has not answered ``size`` bytes of frames when more are to be read."""
    payload = bytes(size - 3 * 40 - len(HELLO) - len(SERVER_HELLO))
    with shell(), clock_of_tests() as clock:
        return reasons(passed(tls_segments(payload, DATA), with_keys(folder), clock))


def crowd(folder: Path, count: int) -> list[str]:
    """The reasons reported if each session needs another tshark."""
    with shell(), clock_of_tests() as clock, patch.object(tls, "GENERATION_BYTES", 0):
        return sorted(reasons(passed(tls_segments(count=count), with_keys(folder), clock)))


def failures(folder: Path, count: int) -> tuple[int, str, int]:
    """Number of errors if no tshark can be started, the last one, and the number of sessions without an attempt."""
    segments = tls_segments(count=count)
    with shell(program="/nowhere/tshark"), clock_of_tests() as clock:
        items = passed(segments, with_keys(folder), clock)
    assert [item for item in items if isinstance(item, Segment)] == segments
    errors = [item.message for item in items if isinstance(item, CaptureError)]
    return len(errors), errors[-1], count - len(errors)


def early(size: int) -> list[str]:
    """The reasons reported if the server sends ``size`` bytes before the hello of the client."""
    (talk,) = talks(1)
    talk.server(SERVER_HELLO + record(23, bytes(size - len(SERVER_HELLO) - 5)))
    talk.client(HELLO)
    talk.close()
    with shell():
        return reasons(list(Decryption(Keys()).join(iter(talk.tape.segments))))


def is_too_far_ahead(count: int, size: int) -> bool:
    """Whether tshark is waited for if ``count`` segments are held back, and ``size`` bytes have no answer."""
    with shell():
        decryption = Decryption(Keys())
        lane, worker = decryption._lane, decryption._worker()
        assert lane is not None
        lane.held.extend([DelayedSegment(None, 1)] * count)
        with patch.object(worker, "unanswered", size), patch.object(decryption, "_wait", lambda _: lane.held.clear()):
            decryption._keep_up(lane)
        decryption.close()
        return not lane.held


def payloads(size: int) -> list[int]:
    """Lengths of the payloads of the frames for tshark."""
    return [len(segment.payload) for segment in read_frames(bytes(size))]


def address_of(session: int) -> str:
    """The client of a session in the frames for tshark."""
    piece = StreamData(FLOW, True, b"a", 0, 1, 1, "a")
    (frame,) = frames(piece, 0, session, 0, from_client=True)
    segment = segment_of(frame)
    assert isinstance(segment, Segment)
    return endpoints(segment.key)[0]


def padding(size: int) -> int:
    """Number of bytes between two lines of keys of ``size`` bytes in total, the second of which has 200."""
    tshark = Tshark[str](["/bin/sh", "-c", SILENT])
    tshark.keys(b"a" * (size - 201) + b"\n")
    tshark.keys(b"b" * 199 + b"\n")
    written = os.fstat(tshark._keys).st_size
    tshark.close()
    return written - size


def fault_of(text: str | None) -> str | None:
    """The cause in a sentence about a tshark that failed."""
    return None if text is None else re.split(r"[(;)]", text)[1]


def stalls(looks: int, seconds: float) -> str | None:
    """The fault of a silent tshark that has a frame to read, after a number of looks at an interval.

    It was as silent before it got the frame.
    """
    # The shell ends at once, so that giving it up takes no time; another process holds its output open.
    tshark = Tshark[str](["/bin/sh", "-c", "exec 3<&0; { cat <&3 >/dev/null; exit; } & exit"])
    with clock_of_tests() as clock:
        tshark._looked_at = tshark._moved_at = -50 * seconds
        for look in range(-50, looks):
            clock.now = look * seconds
            assert not list(tshark.answers())
            if not look:
                tshark.feed(EMPTY_FRAME, "a")
    fault = fault_of(tshark.fault)
    tshark.close()
    return fault


def unheard_of_tshark(size: int) -> int:
    """Number of bytes lost of a line on tshark's standard error."""
    process = TsharkProcess(["/bin/sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x >&2"])
    _, last = process.give_up(20)
    process.close()
    return size - len(last.removeprefix(": "))


def not_given(count: int) -> int:
    """Number of frames that tshark is not given before it has answered."""
    source = iter([EMPTY_FRAME] * count)
    with shell():
        dissection = via_tshark.Dissection(source)
    dissection._fill()
    dissection.close()
    return len(list(source))


def answer(size: int) -> str | None:
    """The fault of a tshark whose output has ``size`` bytes and no complete answer."""
    with shell(f"head -c {size} /dev/zero"):
        dissection = via_tshark.Dissection(iter([EMPTY_FRAME]))
    dissection._fill()
    while len(dissection._output) < size:
        dissection._exchange()
    fault = fault_of(dissection.fault)
    dissection.close()
    return fault


def cut_off(folder: Path, size: int) -> int:
    """Number of bytes of a frame that tshark is not given."""
    with shell(f"cat > '{folder}/given.pcapng'; exit"):
        dissection = via_tshark.Dissection(iter([Frame(1, 1, 1, bytes(size), size, "a")]))
    dissection._fill()
    dissection._fill()
    while dissection.fault is None:
        dissection._exchange()
    dissection.close()
    (frame,) = recorded(folder / "given.pcapng")
    assert frame.original_length == size
    return size - len(frame.data)


def written(folder: Path, size: int) -> int:
    """Number of bytes in the file once ``size`` bytes were recorded."""
    recorder = Recorder(str(folder / "a.pcapng"))
    frame = Frame(1, 1, 1, bytes(60), 60, "a")
    recorder.write(frame)
    recorder.flush()
    before = recorder.path.stat().st_size
    assert recorder._file_buffer is not None
    recorder._file_buffer.write(bytes(size - 32 - len(frame.data)))
    recorder.write(frame)
    after = recorder.path.stat().st_size
    recorder.close()
    return after - before
