"""Bytes as people have them: dumps of other tools and of this one, literals, arrays."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.cli.pasted import PastedSequence, sequences, to_bytes
from tests.cli.running import capture, invoke

CONNECT = bytes.fromhex("100f 0004 4d515454 04 02 003c 0003 616263")
LONG = b"\x30\x26\x00\x05plant" + bytes(range(0x61, 0x7A)) + b" 1234 "


def read(text: str) -> list[PastedSequence]:
    return list(sequences(enumerate(text.splitlines(keepends=True), 1)))


def only(text: str) -> bytes:
    (sequence,) = read(text)
    assert sequence.problem is None, sequence.problem
    return sequence.raw


def rows(raw: bytes, width: int = 16) -> list[tuple[int, bytes, str]]:
    actual_rows = []
    for at in range(0, len(raw), width):
        piece = raw[at : at + width]
        actual_rows.append((at, piece, "".join(chr(number) if 32 <= number < 127 else "." for number in piece)))
    return actual_rows


def as_tshark(raw: bytes) -> str:
    return "".join(f"{at:04x}  {piece.hex(' '):<47}  {text}\n" for at, piece, text in rows(raw))


def as_wireshark(raw: bytes) -> str:
    return "".join(f"{at:04x}   {piece.hex(' ')}\n" for at, piece, _ in rows(raw))


def as_wireshark_with_text(raw: bytes) -> str:
    return "".join(f"{at:04x}   {piece.hex(' '):<47}   {text}\n" for at, piece, text in rows(raw))


def as_hexdump_c(raw: bytes) -> str:
    lines = [
        f"{at:08x}  {piece[:8].hex(' '):<23}  {piece[8:].hex(' '):<23}  |{text}|\n" for at, piece, text in rows(raw)
    ]
    return "".join(lines) + f"{len(raw):08x}\n"


def as_xxd(raw: bytes) -> str:
    return "".join(f"{at:08x}: {piece.hex(' ', -2):<39}  {text}\n" for at, piece, text in rows(raw))


FORMS = [as_tshark, as_wireshark, as_wireshark_with_text, as_xxd]


class TestDumps:
    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("raw", [CONNECT, LONG, CONNECT * 40, b"\xc0\x00"], ids=len)
    def test_every_form_gives_its_bytes(self, form: object, raw: bytes) -> None:
        assert only(form(raw)) == raw  # type: ignore[operator]

    @pytest.mark.parametrize("raw", [CONNECT, LONG, b"\xc0\x00"], ids=len)
    def test_the_last_offset_of_hexdump_has_no_bytes(self, raw: bytes) -> None:
        pasted_sequences = read(as_hexdump_c(raw))

        assert pasted_sequences[0].raw == raw

    @given(st.binary(min_size=17, max_size=80).map(lambda raw: b"\x30" + raw), st.sampled_from(FORMS))
    @settings(max_examples=100, deadline=None)
    def test_text_beside_the_bytes_is_never_read(self, raw: bytes, form: object) -> None:
        assert read(form(raw))[0].raw == raw  # type: ignore[operator]

    def test_what_this_program_shows_can_be_decoded_again(self) -> None:
        dump = invoke("decode", LONG.hex()).text.splitlines(keepends=True)
        start = next(at for at, line in enumerate(dump) if line.startswith("  0000  "))

        assert only("".join(dump[start:])) == LONG

    def test_two_dumps_are_two_sequences(self) -> None:
        pasted_sequences = read(as_tshark(CONNECT) + "\n" + as_tshark(b"\xc0\x00") + "d000\n")

        assert [(sequence.line, sequence.raw) for sequence in pasted_sequences] == [
            (1, CONNECT),
            (4, b"\xc0\x00"),
            (5, b"\xd0\x00"),
        ]

    def test_a_row_that_is_missing_is_said(self) -> None:
        lines = as_tshark(CONNECT * 4).splitlines(keepends=True)
        (sequence,) = read(lines[0] + lines[2])

        assert sequence.problem == "the row at offset 0x20 does not follow the 16 bytes before it"

    def test_hidden_bytes_are_not_made_up(self) -> None:
        (sequence,) = read("  0000  10 0e ** ** ** 3c  ...\n")

        assert "--show-secrets" in str(sequence.problem)

    @pytest.mark.parametrize("line", ["00 00 c0 00", "0000c000", "0000", "0000 c000", "1000 0000 10 0e"])
    def test_lines_without_an_offset_stay_digits(self, line: str) -> None:
        assert only(line) == bytes.fromhex(line)

    def test_standard_input(self) -> None:
        done = invoke("decode", "-", "--format", "jsonl", stdin=(as_tshark(CONNECT) + as_xxd(b"\xc0\x00")).encode())

        assert done.code == 0
        assert [(line["line"], line["type"]) for line in done.lines] == [(1, "connect"), (3, "pingreq")]

    def test_one_argument(self) -> None:
        done = invoke("decode", as_tshark(CONNECT), "--format", "jsonl")

        assert (done.code, [line["type"] for line in done.lines]) == (0, ["connect"])

    @pytest.mark.tshark
    def test_frames_that_tshark_dumps(self) -> None:
        path = capture("v5-qos")
        dumped = subprocess.run(
            ["tshark", "-r", path, "-x", "-Y", "mqtt"], capture_output=True, check=True, timeout=60
        ).stdout
        done = invoke("decode", "-", "--format", "jsonl", stdin=dumped)
        expected = [line["type"] for line in invoke("inspect", path, "--format", "jsonl").packets]

        assert sorted(line["type"] for line in done.lines) == sorted(expected)
        assert done.err.count("a complete frame: decoded the ") == dumped.count(b"0000  ")


class TestLiterals:
    @given(st.binary(max_size=60))
    @settings(max_examples=200, deadline=None)
    def test_what_python_prints_is_read(self, raw: bytes) -> None:
        assert to_bytes(repr(raw)) == (raw, None)
        assert to_bytes(f"payload = {raw!r}") == (raw, None)
        assert to_bytes(repr(bytearray(raw))) == (raw, None)

    @pytest.mark.parametrize(
        "text",
        [
            r'"\x10\x0e\x00\x04MQTT"',
            r'b"\x10\x0e\x00\x04" b"MQTT"',
            r'"\x10\x0e" "\x00\x04MQTT"',
            '"\\x10\\x0e\\x00\\x04" \\\n"MQTT"\n',
            r"const char *p = '\x10\x0e\x00\x04MQTT';",
            r'static const char p[8] = "\x10\x0e\x00\x04MQTT";',
            r'client.send(b"\x10\x0e\x00\x04MQTT")',
        ],
    )
    def test_strings_of_c(self, text: str) -> None:
        assert only(text) == b"\x10\x0e\x00\x04MQTT"

    @pytest.mark.parametrize("text", ["b'\\x1'", "b'abc", "b'é'", "'", "b'\\xzz'"])
    def test_what_is_wrong_is_a_sentence(self, text: str) -> None:
        raw, problem = to_bytes(text)

        assert raw == b""
        assert problem is not None
        assert problem.startswith("this ")


class TestArrays:
    @pytest.mark.parametrize(
        "text",
        [
            "{0x10, 0x0e, 0x00, 0x04}",
            "{ 0x10, 14, 0, 4, }",
            "[16, 14, 0, 4]",
            "unsigned char packet[4] = { 0x10, 0x0E, 0x00, 0x04 };",
            "static const unsigned char pkt1[4] = {\n0x10, 0x0e, /* ..  */\n0x00, 0x04  // end\n};\n",
        ],
    )
    def test_arrays(self, text: str) -> None:
        assert only(text) == b"\x10\x0e\x00\x04"

    def test_characters(self) -> None:
        assert to_bytes("{'M', 'Q', '\\x00', '\\n'}") == (b"MQ\0\n", None)

    @pytest.mark.parametrize("item", ["256", "-1", "0x100", "x", "1.5", "''"])
    def test_what_is_no_byte_is_named(self, item: str) -> None:
        assert to_bytes(f"{{16, {item}}}") == (b"", f"{item!r} in the array is not a byte")

    def test_an_array_of_many_lines(self) -> None:
        lines = 30_000
        assert only("{\n" + "0x30, 0x31,\n" * lines + "}\n") == b"01" * lines

    def test_an_array_that_never_ends(self) -> None:
        (sequence,) = read("{0x10, 0x0e,\n0x00\n")

        assert sequence.problem is not None


@given(st.lists(st.text(alphabet="0123456789abcdef {}[]'\"\\|:,*\n\tbxR^-zé", max_size=60), max_size=4))
@settings(max_examples=300, deadline=None)
def test_no_input_raises(lines: list[str]) -> None:
    for sequence in read("\n".join(lines)):
        assert (sequence.problem is None) or not sequence.raw
