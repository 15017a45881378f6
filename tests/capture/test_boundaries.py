"""Where records begin: walks that are right, and guesses that are the same for all that ask."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from random import Random
from unittest.mock import patch

import pytest

from mqttscope.capture.boundaries import CHAIN_BYTES, HEAD_LIMIT, Walk, boundaries, read_head
from mqttscope.net.frame import CaptureError
from tests.capture.test_pcap import pcap_file, read
from tests.capture.test_pcapng import block, enhanced, interface, option, section


def long_pcap(seed: int = 1, *, payload: bytes | None = None) -> tuple[bytes, list[int]]:
    """A capture of some megabytes and the offsets of its records."""
    random = Random(seed)
    records = [
        (
            1_700_000_000 + number // 50,
            number % 1_000_000,
            random.randbytes(random.randrange(1500)) if payload is None else payload,
        )
        for number in range(3000)
    ]
    offsets = [24]
    for _, _, data in records:
        offsets.append(offsets[-1] + 16 + len(data))
    return pcap_file(records), offsets


def long_pcapng() -> tuple[bytes, list[int]]:
    random = Random(2)
    head = section() + interface()
    packets = [enhanced(random.randbytes(random.randrange(1500))) for _ in range(3000)]
    offsets = [len(head)]
    for one in packets:
        offsets.append(offsets[-1] + len(one))
    return head + b"".join(packets), offsets


@pytest.fixture(scope="module", params=["pcap", "pcapng", "zeros"])
def long(request: pytest.FixtureRequest) -> tuple[bytes, list[int]]:
    if request.param == "zeros":
        return long_pcap(payload=bytes(700))
    return long_pcap() if request.param == "pcap" else long_pcapng()


def places(size: int) -> Iterator[int]:
    random = Random(3)
    yield from (random.randrange(size) for _ in range(60))
    yield from (0, 10, size - 1, size, size + 5)


def test_records_are_found_from_anywhere(long: tuple[bytes, list[int]]) -> None:
    content, offsets = long
    found = boundaries(content[:HEAD_LIMIT])
    assert found is not None

    for at in places(len(content)):
        expected = next((offset for offset in offsets if offset >= at), len(content))
        assert found.sync(io.BytesIO(content), at, len(content)) == expected


def test_walks_lead_to_the_first_record_at_or_behind_a_place(long: tuple[bytes, list[int]]) -> None:
    content, offsets = long
    found = boundaries(content[:HEAD_LIMIT])
    assert found is not None
    assert found.first == offsets[0]

    for until in places(len(content)):
        if offsets[100] <= until <= len(content):
            position = next(offset for offset in offsets if offset >= until)
            walk = found.walk(io.BytesIO(content), offsets[100], until, len(content))
            assert walk == Walk(position, offsets.index(position) - 100)


@pytest.mark.parametrize("removed", [1, 15, 16, 30, 700])
def test_a_walk_stops_before_the_record_that_is_cut(removed: int) -> None:
    content, _ = long_pcap()
    found = boundaries(content)
    assert found is not None
    short = content[:-removed]

    walk = found.walk(io.BytesIO(short), 24, len(short), len(short))

    (error,) = (item for item in read(short) if type(item) is CaptureError)
    assert walk == Walk(error.offset or 0, error.frames, "it ends inside a record")


def test_a_file_that_has_become_shorter() -> None:
    for content, first in ((pcap_file(), 24), (section() + interface() + enhanced(b"data"), 48)):
        found = boundaries(content)
        assert found is not None
        assert (
            found.walk(io.BytesIO(content[:first]), first, len(content), len(content)).fault
            == "it is shorter than it was"
        )


def test_nothing_plausible_within_the_longest_record_is_no_place() -> None:
    noise = Random(4).randbytes(5 * CHAIN_BYTES)
    found = boundaries(pcap_file())
    assert found is not None

    assert found.sync(io.BytesIO(noise), 1000, len(noise)) is None
    # At the end of the file there may be nothing but the rest of a record.
    assert found.sync(io.BytesIO(noise), len(noise) - 1000, len(noise)) == len(noise)


def test_searching_hostile_bytes_takes_linear_time() -> None:
    """Chains everywhere, each of which ends in nothing."""
    chain = struct.pack("<IIII", 1, 1, 0, 1) * (CHAIN_BYTES // 16 - 8) + b"\xff" * 64
    hostile = chain * 6
    found = boundaries(pcap_file())
    assert found is not None

    with patch.object(found, "_plausible", wraps=found._plausible) as looked:
        found.sync(io.BytesIO(hostile), 24, len(hostile))
        found.sync(io.BytesIO(hostile), len(hostile) - CHAIN_BYTES, len(hostile))

    assert looked.call_count < 4 * CHAIN_BYTES


def test_heads() -> None:
    secrets = block(10, struct.pack("<II", 0x544C534B, 5) + b"LINE\n")
    head = section() + interface() + secrets + interface(options=option(9, b"\x09"))
    found = boundaries(head + enhanced(b"data"))

    assert found is not None
    assert found.first == len(head)
    # Secrets are told once, by who reads the first range.
    assert found.head == head.replace(secrets, b"")
    for content in (
        b"",
        b"text",
        section(),
        head,
        head + section() + enhanced(b""),
        b"\xd4\xc3\xb2\xa1",
        section()[:-1] + b"\0",
    ):
        assert boundaries(content) is None


def test_damaged_interfaces_cannot_be_cut() -> None:
    assert boundaries(section() + block(1, b"\0\0") + enhanced(b"data")) is None
    assert boundaries(section() + interface(options=option(9, b"1234")[:-4]) + enhanced(b"data")) is None


def test_only_pcapng_has_a_long_head() -> None:
    long_head = section() + block(0xBAD, bytes(100_000)) + interface() + enhanced(b"data") + bytes(2 * HEAD_LIMIT)

    assert read_head(io.BytesIO(long_head)) == long_head[:HEAD_LIMIT]
    assert len(read_head(io.BytesIO(pcap_file() + bytes(1 << 20)))) == 1 << 16
    assert boundaries(read_head(io.BytesIO(long_head))) is not None
