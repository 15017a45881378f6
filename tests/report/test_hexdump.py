"""The hexdump of a packet: every byte once, spans with their letters, faults with carets."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttscope.mqtt import trace
from mqttscope.mqtt.declare import FieldSpan
from mqttscope.report.base import View
from mqttscope.report.hexdump import Hexdump, HexdumpMark, letter
from mqttscope.report.style import Painter
from mqttscope.report.tree import Tree
from tests.each import each
from tests.mqtt.cases import CASES
from tests.report.make import Talk, block_of, publish, shown

ROW = re.compile(r"^  ([0-9a-f]{4,})  ((?:[0-9a-f*]{2} )*[0-9a-f*]{2})(?:  |$)")


def dump(raw: bytes, *spans: tuple[int, int], width: int = 80, **more: Any) -> list[str]:
    """The lines of a dump without colour."""
    painter = Painter(View(width=width))
    return [*Hexdump(raw, [FieldSpan(f"f{start}", start, end) for start, end in spans], painter, **more).lines()]


def test_bytes_that_never_came_are_pointed_at_behind_the_last_one() -> None:
    lines = block_of(bytes.fromhex("30 20") + b"\0\x05topic" + b"\0" + b"x" * 6)
    at = next(index for index, line in enumerate(lines) if "^^ truncated" in line)
    assert lines[at] == "        ^^ truncated"
    assert lines[at - 1] == "  0010"
    assert "  18 bytes of this packet never came" in lines


@each("case", CASES, ids=[case.id for case in CASES])
def test_every_byte_of_every_packet_is_in_the_dump_and_every_span_in_the_list(case: object) -> None:
    raw, version = case.raw[:4000], case.version  # type: ignore[attr-defined]
    lines = shown(Tree, [Talk(version).say(raw)], width=0, show_secrets=True, payload="hex")
    digits = re.compile(r"^  [0-9a-f]{4,}  ((?:[0-9a-f]{2} )*[0-9a-f]{2}) ")
    dumped = "".join(result[1] for line in lines if (result := digits.match(line + " ")))
    assert bytes.fromhex(dumped) == raw
    listed = [line for line in lines if re.match(r"  [a-zA-Z] +\d+(-\d+)? ", line)]
    spans = trace(raw, version)
    assert len(listed) == len(spans)
    for line, span in zip(listed, spans, strict=True):
        assert span.field.rpartition(".")[2] in line


def test_a_long_payload_is_left_out_in_the_middle() -> None:
    lines = block_of(publish("t", bytes(5000)))
    assert any(re.search(r"… 47\d\d bytes$", line) for line in lines)
    assert sum(line.startswith(("  0", "  1")) for line in lines) < 25
    assert not any(re.search(r"  … \d+ bytes$", line) for line in block_of(publish("t", bytes(5000)), payload="hex"))


def test_without_payload_the_dump_ends_before_it_and_in_40_columns_rows_have_eight_bytes() -> None:
    lines = block_of(publish("topic/name", b"A" * 300), payload="none")
    assert sum("41 41 41 41" in line for line in lines) <= 1
    lines = shown(Tree, [Talk().say(publish("a/b", bytes(range(20))))], width=40)
    assert "  0000  30 1a 00 03 61 2f 62 00" in lines


@given(st.binary(max_size=200), st.sets(st.integers(0, 200), max_size=8), st.sampled_from([40, 60, 80, 120]))
def test_every_byte_is_there_once_and_in_its_place(raw: bytes, edges: set[int], width: int) -> None:
    cuts = sorted(edge for edge in edges if edge <= len(raw))
    lines = dump(raw, *zip(cuts[::2], cuts[1::2], strict=False), width=width)
    rows = [result for line in lines if (result := ROW.match(line))]

    assert bytes.fromhex("".join(row[2] for row in rows)) == raw
    at = 0
    for row in rows:
        assert int(row[1], 16) == at
        at += len(row[2].split())
    assert all(len(line) <= width for line in lines)


@given(st.binary(min_size=1, max_size=100), st.integers(0, 100), st.integers(1, 40))
def test_what_is_hidden_is_in_no_row(raw: bytes, first: int, length: int) -> None:
    hidden = (first, first + length)
    rows = [result[2].split() for line in dump(raw, (0, len(raw)), hidden=[hidden]) if (result := ROW.match(line))]

    expected = ["**" if hidden[0] <= at < hidden[1] else f"{byte:02x}" for at, byte in enumerate(raw)]
    assert [digits for row in rows for digits in row] == expected


def test_hidden_bytes_are_no_text_either_and_long_packets_have_longer_places() -> None:
    (line, _) = dump(b"abcdefgh", (0, 4), hidden=[(2, 5)])
    first, *_, last = dump(bytes(0x10001), skip=[(16, 0x10000)])

    assert dump(b"") == []
    assert line.endswith("ab***fgh")
    assert first.startswith("  00000  ")
    assert last.startswith("  10000  00")


def test_each_span_begins_with_its_letter_and_what_is_between_has_none() -> None:
    text, letters = dump(bytes(8), (0, 1), (1, 4), (6, 8))

    assert text.startswith("  0000  00 00 00 00 00 00 00 00")
    assert letters == "        a- b-------       c----"
    # A row within one long span needs none.
    assert [line[2:6] for line in dump(bytes(40), (0, 40))] == ["0000", "    ", "0010", "0020"]
    assert [letter(number) for number in (0, 25, 26, 51, 52, 53)] == ["a", "z", "A", "Z", "a", "b"]


def test_what_is_skipped_is_counted_by_whole_rows() -> None:
    lines = dump(bytes(range(100)), skip=[(16, 90)])

    assert [line.strip() for line in lines if "bytes" in line] == ["… 64 bytes"]
    assert [line[2:6] for line in lines if ROW.match(line)] == ["0000", "0050", "0060"]
    assert dump(bytes(64), skip=[(17, 32)]) == dump(bytes(64))


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        (HexdumpMark(2, 4, "wrong"), ["        " + " " * 6 + "^^^^^ wrong"]),
        (HexdumpMark(3, 3, "empty"), ["        " + " " * 9 + "^^ empty"]),
        (HexdumpMark(14, 18, "long"), ["        " + " " * 42 + "^^^^^ long", "        ^^^^^"]),
        (HexdumpMark(15, 16, "x" * 60), ["        " + " " * 45 + "^^", "  " + "x" * 60]),
        (HexdumpMark(20, 20, "after"), ["        " + " " * 12 + "^^ after"]),
    ],
)
def test_carets_stand_under_the_bytes_of_a_mark(mark: HexdumpMark, expected: list[str]) -> None:
    assert [
        line for line in dump(bytes(20), marks=[mark]) if not ROW.match(line) and line.strip() != "0020"
    ] == expected
