"""Damaged captures through the commands: no matter what is wrong with a file, no command ends with a traceback.

``python -m tests.fuzz.damage --count 20000`` runs all of them, the same in every run: whole files in every format,
compression and link type, with flipped bits, cut off, with lengths that lie, ranges twice or gone, other times.
``inspect``, ``lint`` and ``stats`` get each file alone, ``pipeline ingest`` several at a time: it is one collection.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

import lz4.frame
import zstandard
from click.testing import CliRunner

from mqttscope.cli.main import group
from mqttscope.net.frame import Frame
from tests.capture.test_pcapng import statistics
from tests.fuzz.files import pcap
from tests.fuzz.material import captures, frames
from tests.fuzz.mutation import INTERESTING
from tests.fuzz.wrapping import fragments, wrapped
from tests.lake.parts import as_pcapng

COMMANDS = (
    ("inspect",), ("inspect", "--format", "jsonl"), ("lint", "--select", "ALL"), ("stats",),
    ("stats", "--format", "json"),
)  # fmt: skip
INGEST = ("pipeline", "ingest", "--engine", "local", "--lake")
TOGETHER = 40
"""So many captures are one collection."""
EXTREMES = (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE, 0x00010000)
_NANOSECONDS = 0xA1B23C4D
_FEW = 24
"""Frames of a capture in other formats: what comes after them is no other kind of damage."""


@dataclass(slots=True)
class Broken:
    """A command that ended with an exception."""

    words: tuple[str, ...]
    data: bytes
    error: BaseException


@cache
def originals() -> tuple[bytes, ...]:
    """Whole captures in every format."""
    chunks = [raw for _, raw in captures()]
    for number, (name, raw) in enumerate(captures()):
        some = frames(name)[:_FEW]
        chunks.append(pcap(some, "<>"[number % 2], (0xA1B2C3D4, _NANOSECONDS, 0xA1B2CD34)[number % 3]))
        chunks.append(_packed(number, raw if number % 2 else chunks[-1]))
        chunks.append(raw + statistics(interface_drops=1 << number % 64, received=(1 << 64) - 1 - number))
    chunks += _of_links()
    return tuple(chunks)


def _packed(number: int, raw: bytes) -> bytes:
    ways = (
        lambda: gzip.compress(raw, mtime=0),
        lambda: zstandard.ZstdCompressor(write_checksum=True).compress(raw),
        lambda: lz4.frame.compress(raw, content_checksum=True),
    )
    return ways[number % 3]()


def _of_links() -> Iterator[bytes]:
    """Frames of every link type, tunnels and fragments among them."""
    by_link: dict[int, list[Frame]] = {}
    for frame in frames("v5-qos")[:_FEW]:
        datagram = frame.data[14:]
        for link_type, data in wrapped(datagram):
            by_link.setdefault(link_type, []).append(_frame(len(by_link), frame, link_type, data))
        for piece in fragments(datagram):
            by_link.setdefault(101, []).append(_frame(0, frame, 101, piece))
    for actual_frames in by_link.values():
        yield as_pcapng(actual_frames[:_FEW])


def _frame(number: int, like: Frame, link_type: int, data: bytes) -> Frame:
    return Frame(number + 1, like.timestamp_ns, link_type, data, len(data), like.capture)


def damaged(count: int, *, seed: int = 1) -> Iterator[bytes]:
    """``count`` damaged captures, the same in every run."""
    random = Random(seed)
    whole = originals()
    for number in range(count):
        # Some have an original of their own, so that few of them show all kinds of files.
        data = bytearray(whole[number * 7 % len(whole)])
        for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
            random.choice(WAYS)(data, random)
        yield bytes(data)


def _flip(data: bytearray, random: Random) -> None:
    for _ in range(random.choice((1, 1, 4, 16))):
        if data:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set(data: bytearray, random: Random) -> None:
    if data:
        data[random.randrange(len(data))] = random.choice(INTERESTING)


def _truncate(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data) + 1) :]


def _lie(data: bytearray, random: Random) -> None:
    """A number of four bytes, at a place where blocks and records have their lengths and times."""
    if len(data) >= 8:
        at = random.randrange(len(data) // 4) * 4
        data[at : at + 4] = struct.pack(random.choice("<>") + "I", random.choice(EXTREMES))


def _near(data: bytearray, random: Random) -> None:
    """A length that is a little wrong."""
    if len(data) >= 8:
        at = random.randrange(len(data) // 4) * 4
        value = int.from_bytes(data[at : at + 4], "little")
        data[at : at + 4] = ((value + random.choice((-8, -4, -1, 1, 4, 8))) & 0xFFFFFFFF).to_bytes(4, "little")


def _repeat(data: bytearray, random: Random) -> None:
    at, length = _range(data, random)
    data[at:at] = data[at : at + length]


def _remove(data: bytearray, random: Random) -> None:
    at, length = _range(data, random)
    del data[at : at + length]


def _exchange(data: bytearray, random: Random) -> None:
    at, length = _range(data, random)
    other, _ = _range(data, random)
    piece = data[at : at + length]
    del data[at : at + length]
    data[other:other] = piece


def _retime(data: bytearray, random: Random) -> None:
    """The times of records, wherever they are: a pcapng block of a frame has them after its interface."""
    marks = [at for at in range(0, len(data) - 20, 4) if data[at : at + 4] == b"\x06\0\0\0"]
    value = random.choice((0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, random.getrandbits(64)))
    if marks:
        at = random.choice(marks) + 12
        data[at : at + 8] = struct.pack("<II", value >> 32, value & 0xFFFFFFFF)
    elif len(data) >= 40:
        data[24:32] = struct.pack("<II", value >> 32, value & 0xFFFFFFFF)


def _resolve(data: bytearray, random: Random) -> None:
    """Another resolution of times, of an interface that says one or none."""
    resolution = bytes((random.choice((0, 1, 3, 9, 12, 20, 0x7F, 0x80, 0x89, 0xBF, 0xFF)),))
    at = data.find(b"\x09\0\x01\0")
    if at >= 0:
        data[at + 4 : at + 5] = resolution
        return
    at = data.find(b"\x01\0\0\0\x14\0\0\0")
    if at >= 0 and len(data) >= at + 20:
        block = bytes(data[at + 8 : at + 16]) + b"\x09\0\x01\0" + resolution + bytes(3) + bytes(4)
        data[at : at + 20] = struct.pack("<II", 1, 32) + block + struct.pack("<I", 32)


def _count(data: bytearray, random: Random) -> None:
    """Statistics of an interface, with counts as large as they may be."""
    high = (1 << 64) - 1
    data += statistics(
        interface_drops=random.choice((high, 1 << 63, random.getrandbits(64))),
        system_drops=random.choice((high, 0, random.getrandbits(64))), received=random.choice((high, 0)),
    )  # fmt: skip


def _range(data: bytearray, random: Random) -> tuple[int, int]:
    return random.randrange(len(data) + 1), random.choice((1, 4, 16, 64, 256, 1024))


WAYS = (
    _flip, _set, _truncate, _lie, _near, _repeat, _remove, _exchange, _retime, _resolve, _count,
)  # fmt: skip
"""Kinds of damage."""


def run(chunks: Sequence[bytes], folder: Path, *, number: int = 0) -> list[Broken]:
    """All commands over some captures; returns what broke."""
    broken, paths = [], []
    for place, data in enumerate(chunks):
        path = folder / f"{number + place:05d}.pcap"
        path.write_bytes(data)
        paths.append(str(path))
        for words in COMMANDS:
            error = _failed((*words, str(path)))
            if error is not None:
                broken.append(Broken(words, data, error))
    lake = folder / "lake"
    error = _failed((*INGEST, str(lake), *paths))
    if error is not None:
        for data, name in zip(chunks, paths, strict=True):
            alone = _failed((*INGEST, str(folder / "alone"), name))
            shutil.rmtree(folder / "alone", ignore_errors=True)
            if alone is not None:
                broken.append(Broken(INGEST[:-1], data, alone))
                error = None
        if error is not None:
            broken.append(Broken(INGEST[:-1], b"", error))
    for name in paths:
        Path(name).unlink()
    shutil.rmtree(lake, ignore_errors=True)
    return broken


def _failed(words: tuple[str, ...]) -> BaseException | None:
    """The exception that a command ended with; what it reports, whatever its exit code, is none."""
    result = CliRunner().invoke(group, list(words), standalone_mode=False)
    # Exceptions of click are usage, and sentences.
    error = result.exception
    return None if error is None or type(error).__module__.startswith(("click", "mqttscope.cli")) else error


def main(arguments: list[str] | None = None) -> int:
    """Run many; 1 when something broke, which is kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.damage", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--start", type=int, default=0, help="leave out so many at the beginning")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "mqttscope-damage")
    options = parser.parse_args(arguments)
    begun, kinds = time.monotonic(), dict[str, int]()
    waiting: list[bytes] = []
    done = options.start
    with tempfile.TemporaryDirectory() as name:
        for number, data in enumerate(damaged(options.count, seed=options.seed)):
            if number < options.start:
                continue
            waiting.append(data)
            if len(waiting) < TOGETHER and number < options.count - 1:
                continue
            for broken in run(waiting, Path(name), number=done):
                _keep(broken, options.keep, kinds)
            done, waiting = number + 1, []
            if done % 1000 < TOGETHER:
                _say(done, begun, kinds)
    _say(done - options.start, begun, kinds)
    return 1 if kinds else 0


def _say(count: int, begun: float, kinds: dict[str, int]) -> None:
    print(f"{count:,} captures, {time.monotonic() - begun:,.0f} s: {kinds or 'nothing broke'}", flush=True)  # noqa: T201


def _keep(broken: Broken, folder: Path, kinds: dict[str, int]) -> None:
    trace = broken.error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
    kind = f"{' '.join(broken.words)}: {type(broken.error).__name__} at {place}"
    kinds[kind] = kinds.get(kind, 0) + 1
    if kinds[kind] <= 3:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{len(kinds)}-{kinds[kind]}.pcap"
        path.write_bytes(broken.data)
        print(f"{kind}: {broken.error} ({path})", flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
