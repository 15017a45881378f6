"""Decompression to a limit, of what is recognised and of what is said to be compressed."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable
from random import Random

import lz4.frame
import pytest
import zstandard

from mqttscope import compressed
from mqttscope.compressed import FORMATS, decompress, unpack
from tests.each import each

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress, "zlib": zlib.compress, "zstd": zstandard.compress, "lz4": lz4.frame.compress
}  # fmt: skip


def test_all_formats_are_tested_and_what_is_not_compressed_is_none() -> None:
    assert set(PACK) == set(FORMATS)
    assert unpack(b"text", 100) is None


@each("name", FORMATS)
def test_what_was_packed_comes_out_again(name: str) -> None:
    assert decompress(PACK[name](b"hello"), 1000, name) == (b"hello", False, "")
    unpacked_data = unpack(PACK[name](b"hello"), 1000)
    assert unpacked_data is not None
    assert (unpacked_data.data, unpacked_data.steps, unpacked_data.note) == (b"hello", [name], "")


@each("name", FORMATS)
def test_bombs_stop_at_the_limit(name: str) -> None:
    raw, more, problem = decompress(PACK[name](b"\0" * 20_000_000), 1000, name)
    assert (raw, more, problem) == (b"\0" * 1000, True, "")


@each("name", FORMATS)
def test_damage_has_a_reason(name: str) -> None:
    packed = PACK[name](bytes(range(256)) * 8)
    for data in (b"", b"nothing of it", packed[:-6], packed[:12], packed + b"more"):
        _, _, problem = decompress(data, 10_000, name)
        assert problem or (name == "zstd" and data == packed + b"more"), data


@pytest.mark.parametrize("size", [1, 7, 4_096])
def test_what_comes_out_before_a_fault_is_the_same_in_pieces_of_any_size(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed, "_PIECE_BYTES", size)
    packed = bytearray(zlib.compress(Random(1).randbytes(9_000)))
    packed[-2] ^= 1
    raw, more, problem = decompress(bytes(packed), 10_000, "zlib")
    assert (raw, more, problem) == (Random(1).randbytes(9_000), False, "incorrect data check")


@pytest.mark.parametrize(("module", "name"), [("zstandard", "zstd"), ("lz4.frame", "lz4")])
def test_a_missing_library_is_named(module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = PACK[name](b"hello")
    monkeypatch.setitem(sys.modules, module, None)
    assert f"pip install {module.partition('.')[0]}" in decompress(packed, 100, name)[2]
