"""Small captures for the kernel: connections of MQTT with faults of TCP and of bytes, drawn from a seed.

``python -m tests.kernel.mutation --count 10000`` reads each with the kernel and with Python alone, and stops at the
first difference.  ``--alone`` runs the kernel only, many times faster: for a build with sanitizers.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random

from mqttscope.capture import open_capture
from mqttscope.net.frame import Frame
from mqttscope.net.headers import locate
from tests.conftest import ROOT

_SMALL = 400
"""Maximum number of frames of a capture that is changed."""


@dataclass
class Record:
    """One frame to write."""

    timestamp_ns: int
    data: bytes
    original_length: int


@cache
def originals() -> list[tuple[int, list[Record]]]:
    """Link type and frames of the committed captures that the kernel can read, with short intervals."""
    captures = []
    for path in sorted((ROOT / "captures").glob("*/capture.pcap*")):
        frames = [item for item in open_capture([str(path)]) if isinstance(item, Frame)]
        links = {frame.link_type for frame in frames}
        if not frames or len(frames) > _SMALL or len(links) != 1 or not links <= {1, 101, 113, 276}:
            continue
        records, now = [], frames[0].timestamp_ns
        before = now
        for frame in frames:
            # An interval of a second or more is for Python to judge.
            now += max(-10_000_000, min(frame.timestamp_ns - before, 400_000_000))
            before = frame.timestamp_ns
            records.append(Record(now, frame.data, frame.original_length))
        captures.append((links.pop(), records))
    return captures


def written(link_type: int, records: list[Record], *, next_generation: bool = False) -> bytes:
    """A capture file of frames."""
    if not next_generation:
        parts = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, link_type)]
        for record in records:
            second, past = divmod(record.timestamp_ns, 1_000_000_000)
            parts += [struct.pack("<IIII", second, past, len(record.data), record.original_length), record.data]
        return b"".join(parts)
    parts = [struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)]
    options = struct.pack("<HHBxxxHH", 9, 1, 9, 0, 0)
    size = 20 + len(options)
    interface = struct.pack("<IIHHI", 1, size, link_type, 0, 0) + options + struct.pack("<I", size)
    for number, record in enumerate(records):
        if number % 7 == 0:
            parts.append(interface)  # another one, also after an interval
        padded = record.data + bytes(-len(record.data) % 4)
        ticks = record.timestamp_ns >> 32, record.timestamp_ns & 0xFFFFFFFF
        length = 32 + len(padded)
        head = struct.pack("<IIIIIII", 6, length, number // 7, *ticks, len(record.data), record.original_length)
        parts += [head, padded, struct.pack("<I", length)]
    return b"".join(parts)


def changed(random: Random, link_type: int, records: list[Record]) -> list[Record]:
    """Frames with some faults."""
    records = list(records)
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 6))):
        if records:
            random.choice(_FAULTS)(random, link_type, records)
    return records


def _swap(random: Random, link_type: int, records: list[Record]) -> None:
    at = random.randrange(len(records))
    other = min(len(records) - 1, at + random.choice((1, 1, 2, 5)))
    first, second = records[at], records[other]
    records[at] = replace(second, timestamp_ns=first.timestamp_ns)
    records[other] = replace(first, timestamp_ns=second.timestamp_ns)


def _repeat(random: Random, link_type: int, records: list[Record]) -> None:
    at = random.randrange(len(records))
    later = min(len(records) - 1, at + random.choice((0, 0, 1, 3, 10)))
    now = records[later].timestamp_ns + random.choice((0, 1_000, 900_000, 2_000_000))
    records.insert(later + 1, replace(records[at], timestamp_ns=now))


def _drop(random: Random, link_type: int, records: list[Record]) -> None:
    del records[random.randrange(len(records))]


def _cut(random: Random, link_type: int, records: list[Record]) -> None:
    del records[random.randrange(len(records)) :]


def _delay(random: Random, link_type: int, records: list[Record]) -> None:
    at = random.randrange(len(records))
    by = random.choice(
        (
            1_000_000,
            100_000_000,
            260_000_000,
            990_000_000,
            1_000_000_000,
            3_000_000_000,
            61_000_000_000,
            20_000_000_000_000,
            -500_000_000,
        )
    )
    for later in range(at, len(records)):
        records[later] = replace(records[later], timestamp_ns=records[later].timestamp_ns + by)


def _flip(random: Random, link_type: int, records: list[Record]) -> None:
    """Another byte, in most cases of the payload, and in most cases without a checksum."""
    at = random.randrange(len(records))
    data = bytearray(records[at].data)
    key, _, _, _, _, options, start, end = locate(bytes(data), 0, len(data), link_type)
    if key and start < end and random.random() < 0.8:
        data[random.randrange(start, end)] = random.choice((0, 1, 0x10, 0x30, 0x7F, 0x80, 0xFF, random.randrange(256)))
    elif data:
        data[random.randrange(len(data))] = random.randrange(256)
    if key and random.random() < 0.9:
        data[options - 4 : options - 2] = b"\0\0"
    records[at] = replace(records[at], data=bytes(data))


def _number(random: Random, link_type: int, records: list[Record]) -> None:
    """Another sequence or acknowledgment number, flags or window."""
    at = random.randrange(len(records))
    data = bytearray(records[at].data)
    key, _, _, _, _, options, _, _ = locate(bytes(data), 0, len(data), link_type)
    if not key:
        return
    header = options - 20
    place = random.choice((4, 8))
    if random.random() < 0.6:
        number = int.from_bytes(data[header + place : header + place + 4], "big")
        number += random.choice((1, -1, 2, -2, 100, -100, 70_000, -70_000, 1 << 21))
        data[header + place : header + place + 4] = (number & 0xFFFFFFFF).to_bytes(4, "big")
    elif random.random() < 0.5:
        data[header + 13] ^= random.choice((1, 2, 4, 16, 17))
    else:
        data[header + 14 : header + 16] = b"\0\0"
    data[header + 16 : header + 18] = b"\0\0"
    records[at] = replace(records[at], data=bytes(data))


def _split(random: Random, link_type: int, records: list[Record]) -> None:
    """A segment as two (IPv4 alone)."""
    at = random.randrange(len(records))
    data = records[at].data
    key, sequence, _, _, _, options, start, end = locate(data, 0, len(data), link_type)
    if len(key) != 12 or end - start < 2:
        return
    cut = random.randrange(start + 1, end)
    for place, (low, high) in ((at, (start, cut)), (at + 1, (cut, end))):
        part = bytearray(data[:start] + data[low:high])
        ip = options - 40
        part[ip + 2 : ip + 4] = (len(part) - ip).to_bytes(2, "big")
        part[options - 16 : options - 12] = ((sequence + low - start) & 0xFFFFFFFF).to_bytes(4, "big")
        part[options - 4 : options - 2] = b"\0\0"
        piece = Record(records[at].timestamp_ns, bytes(part), len(part))
        if place == at:
            first = piece
        else:
            records[at : at + 1] = [first, replace(piece, timestamp_ns=piece.timestamp_ns + 1000)]


def _join(random: Random, link_type: int, records: list[Record]) -> None:
    """Frames of another capture among them."""
    other_link, others = random.choice(originals())
    if other_link != link_type or len(others) + len(records) > 2 * _SMALL:
        return
    shift = records[0].timestamp_ns - others[0].timestamp_ns
    records += [replace(other, timestamp_ns=other.timestamp_ns + shift) for other in others]
    records.sort(key=lambda record: record.timestamp_ns)


_FAULTS = (_swap, _swap, _repeat, _repeat, _drop, _cut, _delay, _flip, _flip, _number, _split, _split, _join)


TEXTS = (
    b'"password":"s3cret"',
    b"token=abcd1234efgh5",
    b"eyJhbGciOiJI.eyJzdWIi",
    b"AKIAABCDEFGHIJKLMNOP",
    b"ghp_0123456789abcdef",
    b"https://u:p@host/?a",
    b"pin: 1234, sig=abcd",
    b"Bearer abcdef012345",
    b"-----BEGIN PRIVATE ",
    b"mosquitto_pub -P abc",
    b"&amp;password=abc12",
    b"%70assword=abc12345",
    b"\\u0070assword=abc12",
    "é\u202eabc\u200bdéfgh".encode(),
    "\U000e0041tag\ufeffabcde".encode(),
    b'quote " back\\slash',
    b"tab\tline\nreturn\rend",
    b"del\x7fnul\0esc\x1babcd",
    b"\xed\xa0\x80surrogate\xff",
    b"\xc2\x85next line, C1 ctl",
    b"H4sIAAAAAAAAA0vMyQ==",
    b"\x1f\x8b\x08\0gzip or not..",
    b"ya29.abcdefghijklmno",
    b"p1a2s3s4 digits in it",
    b"(parenthesis first)",
    b"xylophone first byte",
)
"""Payloads that a line shows in a special way, or hides."""


def with_texts(texts: Sequence[bytes] = TEXTS) -> Iterator[bytes]:
    """Captures with such a text as the payload of a PUBLISH of 3.1.1: each text in several captures."""
    for text in texts:
        for link_type, records in originals():
            if any(b"MQTT\x05" in record.data for record in records):
                continue
            for at, record in enumerate(records):
                data = record.data
                key, _, _, _, _, options, start, end = locate(data, 0, len(data), link_type)
                length = end - start - 2
                if key and len(text) + 3 <= length < 128 and data[start] >> 4 == 3 and data[start + 1] == length:
                    packet = b"\x30" + bytes((length,)) + b"\0\1a" + text.rjust(length - 3, b".")
                    changed_data = data[: options - 4] + b"\0\0" + data[options - 2 : start] + packet
                    yield written(link_type, [*records[:at], replace(record, data=changed_data), *records[at + 1 :]])
                    break


def mutated(count: int, seed: int = 1) -> Iterator[bytes]:
    """Captures with faults, reproducible by their seed."""
    for number in range(count):
        random = Random(f"{seed}/{number}")
        link_type, records = random.choice(originals())
        data = written(link_type, changed(random, link_type, records), next_generation=random.random() < 0.3)
        if random.random() < 0.05:
            damaged = bytearray(data)
            damaged[random.randrange(len(damaged))] = random.randrange(256)
            data = bytes(damaged)
        yield data


def main() -> None:
    """Compare many captures."""
    from tests.kernel.comparison import difference, read_natively

    parser = argparse.ArgumentParser(prog="python -m tests.kernel.mutation", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="the kernel alone")
    parser.add_argument("--judged", action="store_true", help="events and findings, instead of lines")
    parser.add_argument("--counted", action="store_true", help="statistics, instead of lines")
    parser.add_argument("--keep", type=Path, default=Path("build") / "kernel.pcap", help="file for the last capture")
    options = parser.parse_args()
    options.keep.parent.mkdir(parents=True, exist_ok=True)
    read = 0
    for number, data in enumerate(mutated(options.count, options.seed)):
        if options.alone:
            options.keep.write_bytes(data)
            read += read_natively(data) is not None
            continue
        try:
            why = difference(data, judged=options.judged, counted=options.counted)
        except Exception as error:
            why = repr(error)
        if why is not None:
            options.keep.write_bytes(data)
            sys.exit(f"capture {number} of seed {options.seed}, in {options.keep}: {why}")
        read += 1
    sys.stdout.write(f"{options.count} captures, {read} read\n")


if __name__ == "__main__":
    main()
