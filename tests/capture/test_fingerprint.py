"""Captures by their content."""

from __future__ import annotations

import gzip
import io
import random
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import pytest

from mqttscope.capture import fingerprint as module
from mqttscope.capture.fingerprint import (
    HEAD_BYTES,
    Fingerprint,
    KnownFingerprints,
    LongerCaptures,
    fingerprint_at,
    fingerprint_of,
    head_crc,
    is_replaced,
    resume_offset,
)
from mqttscope.capture.read import NO_FRAME
from tests.capture.test_pcap import pcap_file


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def test_content_is_known_by_all_its_bytes(tmp_path: Path) -> None:
    path, other = tmp_path / "one", tmp_path / "other"
    path.write_bytes(b"a" * 3_000_000 + b"b" + b"c" * 3_000_000)
    other.write_bytes(path.read_bytes())

    assert fingerprint_at(path).digest == fingerprint_at(other).digest
    other.write_bytes(b"a" * 3_000_000 + b"x" + b"c" * 3_000_000)
    assert fingerprint_at(path).digest != fingerprint_at(other).digest


def test_the_content_of_the_first_bytes(tmp_path: Path) -> None:
    path, other = tmp_path / "one", tmp_path / "other"
    path.write_bytes(b"a" * 3_000_000 + b"more")
    other.write_bytes(b"a" * 3_000_000)

    assert (
        fingerprint_at(path, 3_000_000).digest
        == fingerprint_at(other).digest
        == fingerprint_at(other, 3_000_000).digest
    )
    assert fingerprint_at(path, 2).digest != fingerprint_at(other).digest


def test_what_was_compressed_has_the_same_content(tmp_path: Path) -> None:
    content = bytes(range(256)) * 9_000
    plain, packed, cut = tmp_path / "plain", tmp_path / "packed", tmp_path / "cut"
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content))
    cut.write_bytes(gzip.compress(content)[:-2])

    assert fingerprint_at(packed).digest == fingerprint_at(plain).digest
    assert fingerprint_at(cut).digest == sha256(cut.read_bytes()).hexdigest()


def known(*parts: bytes) -> KnownFingerprints:
    return KnownFingerprints.from_manifest(
        {digest(part): [len(part), crc32(part[: module.HEAD_BYTES])] for part in parts}
    )


def content(data: bytes, begun: int = 0) -> Fingerprint:
    return Fingerprint(digest(data), digest(data), len(data), crc32(data[: module.HEAD_BYTES]), begun)


@pytest.mark.parametrize("piece", [1, 3, 500, 1 << 20])
def test_what_a_capture_begins_with(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PIECE", piece)
    chance = random.Random(piece)
    data, other = chance.randbytes(2_000), chance.randbytes(2_000)
    sizes = (1, 8, 9, 511, 512, 513, 1_000, 1_500)
    all_of_them = known(
        b"", other[:8], other[:999], data[:600] + bytes([data[600] ^ 1]), *(data[:size] for size in sizes)
    )

    for size in (*range(1, 30), *range(500, 530), 999, 1_000, 1_001, 1_499, 1_500, 1_501, 2_000):
        part = data[:size]
        expected = content(part, max((number for number in sizes if number <= size), default=0))
        assert fingerprint_of(io.BytesIO(part), all_of_them) == expected, size
        assert fingerprint_of(io.BytesIO(gzip.compress(part)), all_of_them) == expected, size
    assert fingerprint_of(io.BytesIO(), all_of_them) == content(b"")


def test_only_those_that_begin_alike_are_compared() -> None:
    raw, other = b"a" * 9_000, b"b" * 9_000

    assert known(raw, other, b"a" * 3, b"").like(b"a" * HEAD_BYTES) == {9_000: {digest(raw)}, 3: {digest(b"aaa")}}
    assert known(raw).like(b"a" * (HEAD_BYTES - 1)) == {}
    assert [known(raw).may_begin(content(data)) for data in (raw, raw + b"a", other)] == [True, True, False]
    assert not KnownFingerprints.from_manifest(content(raw).manifest_entry, [digest(raw)]).may_begin(content(raw))


def test_what_longer_ones_begin_with(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(20_000)
    (tmp_path / "plain").write_bytes(data)
    (tmp_path / "packed").write_bytes(gzip.compress(data))
    (tmp_path / "other").write_bytes(data[:10_000] + bytes(10_000))

    def holds(name: str, part: bytes) -> bool:
        longer, whole, fingerprint = LongerCaptures(), content(data), content(part)
        longer.add(whole.size, whole.head, str(tmp_path / name))
        return longer.holds(fingerprint, lambda path: open(path, "rb"))

    for name in ("plain", "packed"):
        assert [holds(name, data[:size]) for size in (100, 5_000, 15_000, 20_000)] == [False, True, True, False]
    assert [holds("other", data[:size]) for size in (5_000, 15_000)] == [True, False]
    assert not holds("none", data[:5_000])


def test_what_is_damaged_has_a_name_of_its_own() -> None:
    data = random.Random(1).randbytes(3_000)
    cut = gzip.compress(data)[:-1_000]
    fingerprint = fingerprint_of(io.BytesIO(cut), known(data[:1_000]))
    part = data[: fingerprint.size]

    assert 1_000 < len(part) < 3_000
    assert fingerprint == replace(content(part, 1_000), digest=digest(cut))
    # When it is whole, it continues there.
    assert fingerprint_of(
        io.BytesIO(gzip.compress(data)), KnownFingerprints.from_manifest(fingerprint.manifest_entry)
    ).known == len(part)
    assert fingerprint_of(io.BytesIO(cut), KnownFingerprints.from_manifest(fingerprint.manifest_entry)).known == len(
        part
    )


def test_how_much_was_read_before() -> None:
    data = pcap_file([(1, 0, b"one"), (2, 0, b"two")])
    file = io.BytesIO(data)

    assert resume_offset(file, content(data, 43)) == (43, 2_000_000_000)
    assert resume_offset(file, content(data)) == (0, NO_FRAME)
    assert resume_offset(file, content(data, len(data))) == (len(data), NO_FRAME)
    # All captures of one tool begin alike.
    assert resume_offset(file, content(data, 24)) == (0, NO_FRAME)


def test_a_file_that_has_been_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(content := bytes(range(256)) * 20)
    with path.open("rb") as file:
        begins = head_crc(file, 5_000)

    def replaced(now: bytes) -> bool:
        path.write_bytes(now)
        with path.open("rb") as file:
            result = is_replaced(file, 5_000, begins)
            assert file.tell() == 0 or result
        return result

    assert not replaced(content)
    assert not replaced(content + b"more")
    assert replaced(content[:4_999])
    assert replaced(b"x" + content[1:])
    # What comes later shows when it is read.
    assert not replaced(content[:4_500] + bytes(900))
    with path.open("rb") as file:
        assert head_crc(file, 3) == crc32(content[:3])
