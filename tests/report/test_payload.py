from __future__ import annotations

import gzip
import sys
import zlib
from itertools import islice
from typing import Any

import pytest

from tests import tools

tools.package("cbor2")

import cbor2
import msgpack
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from mqttscope.compressed import unpack
from mqttscope.payloads.decoders import DecodedPayload, Decoders, PayloadTable
from mqttscope.payloads.values import compact
from mqttscope.report.payload import KINDS, PayloadView, indented
from tests.each import each
from tests.payloads.samples import published

JSON = b'{"t": 21.5, "a": [1, 2], "s": "a: b, c"}'


@each(
    "payload, about, expected",
    [
        pytest.param(b"on", {}, "on", id="short text"),
        pytest.param(b"", {}, "(empty)", id="nothing"),
        pytest.param(JSON, {}, '{"t":21.5,"a":[1,2],"s":"a: b, c"}', id="JSON loses its blanks, its strings keep them"),
        pytest.param(b"{not json, really}", {}, "{not json, really}", id="what only looks like JSON stays"),
        pytest.param(b"\x00\x01\xff", {}, "0x0001ff (3 bytes)", id="binary"),
        pytest.param(b"\x07", {}, "0x07 (1 byte)", id="a control character alone"),
        pytest.param(b"a\nb", {}, "a\\nb", id="a line end"),
        pytest.param(b"x" * 99, {}, "x" * 46 + "… (99 bytes)", id="long text"),
        pytest.param(bytes(99), {}, "0x" + "00" * 22 + "… (99 bytes)", id="long binary"),
        pytest.param(gzip.compress(b'{"a": 1}', mtime=0), {}, 'gzip, json: {"a":1}', id="gzip"),
        pytest.param(zlib.compress(b"hello"), {}, "zlib, text: hello", id="zlib"),
        pytest.param(zstandard.compress(b"hello"), {}, "zstd, text: hello", id="zstd"),
        pytest.param(zlib.compress(gzip.compress(b"in")), {}, "zlib, gzip, text: in", id="compressed twice"),
        pytest.param(b"x^2 + 1", {}, "x^2 + 1", id="text that begins like zlib"),
        pytest.param(b"\x1f\x8bzz", {}, "0x1f8b7a7a (4 bytes)", id="gzip that is none"),
        pytest.param(
            cbor2.dumps({"a": [1, None]}), {"content_type": "application/cbor"}, 'cbor: {"a":[1,null]}', id="CBOR"
        ),
        pytest.param(
            msgpack.packb({"a": 1}), {"content_type": "application/x-msgpack"}, 'msgpack: {"a":1}', id="MessagePack"
        ),
        pytest.param(
            b"hi", {"content_type": "application/json"},
            "hi (2 bytes; not JSON despite the content type)",
            id="a content type that lies",
        ),
        pytest.param(b"abc", {"missing": 4}, "abc (3 of 7 bytes captured)", id="bytes that were not captured"),
        pytest.param(b"", {"missing": 4}, "(4 bytes, none captured)", id="nothing captured"),
        pytest.param(b"\xff", {"indicator": 1}, "0xff (1 byte)", id="indicator that lies, little room"),
    ],
)  # fmt: skip
def test_preview(payload: bytes, about: dict[str, Any], expected: str) -> None:
    assert PayloadView().preview(payload, 70 if "content_type" in about else 58, **about) == expected


UNLIMITED = 1 << 40


@pytest.mark.parametrize("unicode", [True, False])
def test_where_a_line_has_no_limit_binary_is_shortened_and_text_is_not(unicode: bool) -> None:
    view, dots = PayloadView(unicode=unicode), "…" if unicode else "..."
    assert view.preview(bytes(60_000), UNLIMITED) == f"0x{'00' * 64}{dots} (60000 bytes)"
    assert view.preview(b"x" * 60_000, UNLIMITED) == "x" * 60_000
    unpacked = view.preview(gzip.compress(bytes(1000), mtime=0), UNLIMITED)
    assert unpacked.startswith("gzip, hex: 00 00 ")
    assert unpacked.count("00") == 64
    assert "the first 64 unpacked" in unpacked


def test_hexadecimal_that_was_asked_for_is_whole_up_to_the_limit() -> None:
    assert PayloadView("hex").preview(bytes(999), UNLIMITED) == f"0x{'00' * 999} (999 bytes)"
    assert PayloadView("hex", limit=100).preview(bytes(999), UNLIMITED).startswith(f"0x{'00' * 100}… (999 bytes")
    assert PayloadView(limit=3).preview(bytes(999), UNLIMITED) == "0x000000… (999 bytes)"
    # An indicator that lies is told where there is room.
    text = "0xff (1 byte; not UTF-8 despite payload_format_indicator)"
    assert PayloadView().preview(b"\xff", 120, indicator=1) == text


@pytest.mark.parametrize(
    ("kind", "payload", "expected"),
    [
        ("text", b"\xff\x00a", "\\xff\\x00a"),
        ("hex", b"ab", "0x6162 (2 bytes)"),
        ("none", b"ab", "(2 bytes)"),
        ("json", b'[1, "x"]', '[1,"x"]'),
        ("json", b"nope", "nope (4 bytes; it is not JSON)"),
        ("json", b"[NaN]", "[NaN] (5 bytes; it is not JSON)"),
        ("json", b"1e999", "1e999 (5 bytes; it is JSON with a number beyond the range of double precision)"),
        ("msgpack", msgpack.packb([1, b"\xff", {"k": None}]), "msgpack: [1,h'ff',{\"k\":null}]"),
        ("cbor", cbor2.dumps([1.5, True, b"x"]), "cbor: [1.5,true,h'78']"),
        ("cbor", b"\x01\x02", "0x0102 (2 bytes; not shown as CBOR: the value ends at byte 1 of 2)"),
    ],
)
def test_preview_as_asked_for(kind: str, payload: bytes, expected: str) -> None:
    assert PayloadView(kind).preview(payload, 100) == expected


@given(st.binary(max_size=200), st.integers(8, 100), st.sampled_from(KINDS), st.booleans())
@settings(max_examples=400, derandomize=True, deadline=None)
def test_a_preview_fits_and_is_harmless(payload: bytes, room: int, kind: str, unicode: bool) -> None:
    shown = PayloadView(kind, unicode=unicode).preview(payload, room)
    assert cell_len(shown) <= room
    assert shown.isprintable()
    assert unicode or shown.isascii()


@given(st.binary(max_size=300), st.sampled_from([b"", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x78\x9c"]))
@settings(max_examples=300, derandomize=True, deadline=None)
def test_hostile_compressed_payloads_never_raise(rest: bytes, head: bytes) -> None:
    for kind in KINDS:
        list(islice(PayloadView(kind).show(head + rest).body, 50))


def test_json_is_indented_without_touching_numbers_or_keys() -> None:
    assert list(indented('{"a":[],"b":{},"c":[1,{"d":1e400,"d":1.10}],"e":"x\\"y{, "}')) == [
        "{",
        '  "a": [],',
        '  "b": {},',
        '  "c": [',
        "    1,",
        "    {",
        '      "d": 1e400,',
        '      "d": 1.10',
        "    }",
        "  ],",
        '  "e": "x\\"y{, "',
        "}",
    ]


def test_cbor_is_indented() -> None:
    shown = PayloadView("cbor").show(cbor2.dumps({"a": [1, []], 2: cbor2.CBORTag(99, {"k": cbor2.undefined})}))
    assert list(shown.body) == [
        "{",
        '  "a": [',
        "    1,",
        "    []",
        "  ],",
        "  2: 99({",
        '      "k": undefined',
        "    })",
        "}",
    ]


@pytest.mark.parametrize("module", ["cbor2", "msgpack"])
def test_a_missing_library_is_named_with_the_way_to_get_it(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    shown = PayloadView("cbor" if module == "cbor2" else "msgpack").show(b"\xa1aa\x01")
    assert shown.label == "hex"
    assert f"{module} is not installed (pip install {module})" in shown.note


@pytest.mark.parametrize(
    "bomb",
    [
        pytest.param(gzip.compress(bytes(20_000_000)), id="gzip"),
        pytest.param(zlib.compress(bytes(20_000_000)), id="zlib"),
        pytest.param(zstandard.compress(bytes(20_000_000)), id="zstd"),
        pytest.param(gzip.compress(gzip.compress(bytes(20_000_000))), id="gzip in gzip"),
    ],
)
def test_a_bomb_is_cut_at_the_limit(bomb: bytes) -> None:
    unpacked_data = unpack(bomb, 1 << 20)
    assert unpacked_data is not None
    assert unpacked_data.data == bytes(1 << 20)
    assert unpacked_data.cut
    assert "1048576" in unpacked_data.note


def test_a_zstd_window_beyond_the_limit_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    machine = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    frame = machine.compress(b"x" * 1000) + machine.flush()
    unpacked_data = unpack(frame, 1 << 20)
    assert unpacked_data is not None
    assert unpacked_data.steps == []
    assert unpacked_data.note.startswith("zstd does not unpack")


@pytest.mark.parametrize(
    "compressed",
    [
        pytest.param(gzip.compress(b"words " * 5000, mtime=0), id="gzip"),
        pytest.param(zlib.compress(b"words " * 5000), id="zlib"),
        pytest.param(zlib.compress(bytes(i * i % 251 for i in range(50_000)), 1), id="zlib over several pieces"),
    ],
)
def test_what_a_damaged_stream_gave_before_the_damage_is_kept(compressed: bytes) -> None:
    damaged = compressed[: len(compressed) - 6] + b"\xff" * 6
    unpacked_data = unpack(damaged, 1 << 20)
    assert unpacked_data is not None
    assert len(unpacked_data.data) >= 30_000
    assert unpacked_data.note


def test_a_compressed_payload_with_bytes_missing_says_so() -> None:
    shown = PayloadView().show(gzip.compress(bytes(range(256)) * 20)[:100], missing=50)
    assert shown.label.startswith("gzip")
    assert shown.note == "gzip is incomplete"


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"\x81" * 300 + b"\x01", id="deep arrays"),
        pytest.param(b"\xd8\x63" * 200 + b"\x01", id="deep tags"),
        pytest.param(b"\xd8\x1c\x81\xd8\x1d\x00", id="an array that holds itself"),
        pytest.param(b"\xc2\x59\x10\x00" + b"\xff" * 4096, id="an integer of 4096 bytes"),
        pytest.param(b"\xa1\x63pin\xc2\x59\x10\x00" + b"\xff" * 4096, id="a secret integer of 4096 bytes"),
        pytest.param(b"\xa1\x65value\xc2\x59\x10\x00" + b"\xff" * 4096, id="a value of 4096 bytes"),
        pytest.param(b"\xc4\x82\x3a\x7f\xff\xff\xff\x01", id="a decimal with a huge exponent"),
    ],
)
def test_hostile_cbor_stays_small(value: bytes) -> None:
    shown = PayloadView("cbor").show(value)
    text = "\n".join(islice(shown.body, 10_000))
    assert shown.kind in ("cbor", "hex")
    assert len(text) < 20_000


def test_shared_references_do_not_multiply() -> None:
    inner: list[Any] = [1] * 10
    for _ in range(12):
        inner = [inner] * 10
    assert len(compact(inner)) < 100_000


@given(st.binary(max_size=120))
@settings(max_examples=300, derandomize=True, deadline=None)
def test_any_bytes_as_cbor_or_messagepack_never_raise(payload: bytes) -> None:
    for kind in ("cbor", "msgpack"):
        list(PayloadView(kind).show(payload).body)


def decoded(payload: bytes, table: PayloadTable) -> DecodedPayload | None:
    return Decoders((table,)).decode(published(("a", payload))[0])


@pytest.mark.parametrize(
    ("payload", "table", "line", "lines"),
    [
        (cbor2.dumps({"t": 1}), PayloadTable("#", "cbor"), 'cbor: {"t":1}', ["{", '  "t": 1', "}"]),
        (b'{"t": 1.50}', PayloadTable("#", "json"), '{"t":1.50}', ["{", '  "t": 1.50', "}"]),
        (zlib.compress(b"a\nb"), PayloadTable("#", "text", ("zlib",)), "zlib, text: a\\nb", ["a", "b"]),
        (b"\x08\x05", PayloadTable("#", "protobuf"), "protobuf: {1:5}", ["{", "  1: 5", "}"]),
        (b"on", PayloadTable("#", "json"), "on (2 bytes; not shown as json: it is not JSON)", ["on"]),
    ],
)
def test_what_a_decoder_made_is_shown(payload: bytes, table: PayloadTable, line: str, lines: list[str]) -> None:
    decoded_payload = decoded(payload, table)
    assert PayloadView().preview(payload, 200, decoded=decoded_payload) == line
    shown = PayloadView().show(payload, decoded=decoded_payload)
    assert list(shown.body) == lines
    # Another view was asked for.
    assert PayloadView("hex").show(payload, decoded=decoded_payload).label == "hex"


def test_text_of_a_decoder_is_cut_at_the_limit() -> None:
    shown = PayloadView(limit=10).show(b"x" * 50, decoded=decoded(b"x" * 50, PayloadTable("#", "text")))
    assert list(shown.body) == ["x" * 10]
    assert shown.note == "first 10 of 50 characters"
