"""``mqttscope decode``: bytes from the command line and from lines of input."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.cli import pasted
from mqttscope.cli.pasted import to_bytes
from tests.cli.running import decoded, invoke, run, started
from tests.each import each
from tests.mqtt.case import Case
from tests.mqtt.cases import CASES

CONNECT = "10 0f 0004 4d515454 04 02 003c 0003 616263"
PUBLISH = "32 07 0003 612f62 000a"
SOME = [case for case in CASES if case.raw]


class TestHexadecimal:
    @pytest.mark.parametrize(
        "text",
        [
            "c000",
            "C0 00",
            "c0:00",
            "c0-00",
            "0xc0 0x00",
            "0xc0, 0x00",
            "\\xc0\\x00",
            "c\t0\n0\r0",
            "c0|00",
            "c0_00;",
            "0XC000",
        ],
    )
    def test_bytes_are_read_however_they_are_written(self, text: str) -> None:
        assert to_bytes(text) == (b"\xc0\x00", None)

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("c00", "an odd number of hexadecimal digits (3)"),
            ("c0 0g", "'g' is not a hexadecimal digit"),
            ("c0 0é", "'é' is not a hexadecimal digit"),
            ("٣٣", "'٣' is not a hexadecimal digit"),
        ],
    )
    def test_what_is_wrong_is_named(self, text: str, problem: str) -> None:
        assert to_bytes(text) == (b"", problem)

    @given(st.binary(max_size=40), st.sampled_from(("", " ", ":", "-", ", ", "\t")))
    @settings(max_examples=50, deadline=None)
    def test_what_was_written_is_read(self, raw: bytes, between: str) -> None:
        assert to_bytes(between.join(f"{byte:02x}" for byte in raw)) == (raw, None)
        assert to_bytes("".join(f"\\x{byte:02X}" for byte in raw)) == (raw, None)


class TestArguments:
    def test_one_sequence_may_be_many_arguments(self) -> None:
        whole = invoke("decode", PUBLISH, "--format", "jsonl")

        assert invoke("decode", *PUBLISH.split(), "--format", "jsonl").out == whole.out
        assert "line" not in whole.lines[0]

    def test_a_sequence_may_hold_several_packets_that_share_a_connection(self) -> None:
        done = invoke("decode", "1010 0004 4d515454 05 02 003c 00 0003 616263 c000", "--format", "jsonl")

        assert [line["type"] for line in done.lines] == ["connect", "pingreq"]
        assert [line["packet"] for line in done.lines] == [0, 1]
        assert {line["client_identifier"] for line in done.lines} == {"abc"}
        assert {(line["version"], line["version_known"]) for line in done.lines} == {("5.0", True)}
        # They share topic aliases, too.
        raw = "30 08 0001 61 03 23 0001 78  30 07 0000 03 23 0001 79"
        done = invoke("decode", raw, "--mqtt-version", "5.0", "--from", "client", "--format", "jsonl")
        assert [line["topic"] for line in done.lines] == ["a", "a"]

    def test_an_incomplete_last_packet_is_malformed(self) -> None:
        done = invoke("decode", "c000 32 07 0003 61", "--format", "jsonl")

        assert done.code == 1
        assert [line["event"] for line in done.lines] == ["packet", "malformed"]
        last = done.lines[1]
        assert (last["malformed"]["reason"], last["malformed"]["missing"], last["length"]) == ("truncated", 4, 9)

    @each("cut", range(1, 17))
    def test_a_packet_cut_anywhere_is_malformed(self, cut: int) -> None:
        raw = bytes.fromhex(CONNECT)[:cut].hex()
        line = decoded(raw, code=1)

        assert line["event"] == "malformed"
        assert (line["malformed"]["reason"], line["malformed"]["raw"]) == ("truncated", raw)

    @each(
        "sender, direction",
        [(("--from", "client"), "client_to_server"), (("--from", "server"), "server_to_client"), ((), None)],
    )
    def test_the_sender_decides_the_direction(self, sender: tuple[str, ...], direction: str | None) -> None:
        assert decoded("d000", *sender)["direction"] == direction

    def test_without_a_sender_text_shows_the_direction_that_the_packet_type_demands(self) -> None:
        assert "← broker PINGRESP" in invoke("decode", "d000").text
        assert "→ broker PINGREQ" in invoke("decode", "c000").text
        assert "→ broker PINGRESP" in invoke("decode", "d000", "--from", "client").text

    @pytest.mark.parametrize(("name", "has"), [("3.1.1", False), ("5.0", True)])
    def test_the_version_decides_the_layout(self, name: str, has: bool) -> None:
        line = decoded("40 02 000a", "--mqtt-version", name)

        assert ("reason_code" in line["puback"]) is has
        assert (line["version"], line["version_known"]) == (name, True)
        assert decoded("c000")["version_known"] is False, "nobody said it"

    def test_text_shows_nothing_that_only_a_capture_has(self) -> None:
        assert (
            invoke("decode", PUBLISH, "--mqtt-version", "5.0")
            .text.splitlines()[0]
            .startswith("client → broker PUBLISH MALFORMED  packet 0 · 9 bytes")
        )
        assert invoke("decode", CONNECT + "c000").text.splitlines()[0] == (
            "abc    → broker CONNECT  packet 0 · 17 bytes · MQTT 3.1.1"
        )
        assumed, unparsed = (invoke("decode", raw).text for raw in ("40 02 000a", "40 02 000a" + "ff" * 30))
        assert assumed.startswith("── MQTT 3.1.1? (assumed, ")
        for shown in (assumed, unparsed):
            assert not re.search(r"0\.000|#0|frame", shown)

    def test_colour_on_demand(self) -> None:
        assert "\x1b" not in invoke("decode", PUBLISH).text
        assert "\x1b[" in invoke("decode", PUBLISH, "--color").text

    def test_passwords(self) -> None:
        raw = "10 19 0004 4d515454 04 c2 003c 0000 0002 6d65 0006 736563726574"
        hidden, shown = invoke("decode", raw).text, invoke("decode", raw, "--show-secrets").text

        assert "secret" not in hidden.replace("--show-secrets", "")
        assert "73 65 63" not in hidden
        assert "secret" in shown

    @each("case", SOME, ids=[case.id for case in SOME])
    def test_every_case_of_the_decoder(self, case: Case) -> None:
        raw, version = case.raw, case.version
        for form in ("text", "jsonl"):
            done = invoke("decode", raw.hex(), "--mqtt-version", version.text, "--format", form)
            assert done.err == ""
            assert done.code in (0, 1)
            assert done.out
        assert done.code == int(any(line["event"] != "packet" for line in done.lines))


class TestLines:
    @pytest.mark.parametrize("end", [b"\n", b"\r\n"])
    def test_each_line_is_a_sequence_with_its_number_from_1(self, end: bytes) -> None:
        raw = end.join((b"c000", b"d0 00 c0 00", b"", b"  ", b"e000"))
        done = invoke("decode", "-", "--format", "jsonl", stdin=raw)

        assert (done.code, done.err) == (0, "")
        assert [(line["line"], line["packet"], line["type"]) for line in done.lines] == [
            (1, 0, "pingreq"), (2, 0, "pingresp"), (2, 1, "pingreq"), (5, 0, "disconnect"),
        ]  # fmt: skip
        assert [list(line)[:3] for line in done.lines] == [["schema", "event", "line"]] * 4

    def test_lines_know_nothing_of_each_other(self) -> None:
        done = invoke("decode", "-", "--format", "jsonl", stdin=f"{CONNECT}\n{PUBLISH}\n".encode())

        assert [line["client_identifier"] for line in done.lines] == ["abc", None]
        assert [line["version_known"] for line in done.lines] == [True, False]

    def test_a_line_that_is_not_hexadecimal_is_told_and_the_others_are_decoded(self) -> None:
        done = invoke("decode", "-", "--format", "jsonl", stdin=b"c000\nrx: d000\ne00\n\xff\xfe\nd000\n")

        assert done.code == 3
        assert done.err == (
            "mqttscope: line 2: 'r' is not a hexadecimal digit\n"
            "mqttscope: line 3: an odd number of hexadecimal digits (3)\n"
            "mqttscope: line 4: '\N{REPLACEMENT CHARACTER}' is not a hexadecimal digit\n"
        )
        assert [(line["line"], line["event"]) for line in done.lines] == [
            (1, "packet"), (2, "capture_error"), (3, "capture_error"), (4, "capture_error"), (5, "packet"),
        ]  # fmt: skip

    def test_a_malformed_line_makes_exit_code_1_and_the_others_are_decoded(self) -> None:
        done = invoke("decode", "-", "--format", "jsonl", stdin=b"30\nc000\n")

        assert done.code == 1
        assert [line["event"] for line in done.lines] == ["malformed", "packet"]

    def test_text_names_the_line(self) -> None:
        done = invoke("decode", "-", stdin=b"c000\n\nd000\n")

        assert [line for line in done.text.splitlines() if line.startswith("line")] == ["line 1", "line 3"]

    def test_no_input_gives_no_output(self) -> None:
        done = invoke("decode", "-", stdin=b"")

        assert (done.code, done.out, done.err) == (0, b"", "")

    def test_a_line_that_is_too_long_is_told_and_passed_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pasted, "MAX_LINE_BYTES", 10)
        raw = b"c000\n" + b"00" * 40 + b"\nd000\n" + b"00" * 40
        done = invoke("decode", "-", "--format", "jsonl", stdin=raw)

        assert done.code == 3
        assert [(line["line"], line["event"]) for line in done.lines] == [
            (1, "packet"), (2, "capture_error"), (3, "packet"), (4, "capture_error"),
        ]  # fmt: skip
        assert done.lines[1]["message"] == "longer than 10 bytes"

    def test_an_answer_comes_line_by_line_while_input_is_still_written(self) -> None:
        with started("decode", "-", "--format", "jsonl") as running:
            for number, raw in enumerate((b"c000", b"d000"), 1):
                running.input.write(raw + b"\n")
                assert f'"line":{number}'.encode() in running.out.readline()
            running.input.close()
            assert running.process.wait(30) == 0

    def test_the_program_itself(self) -> None:
        done = run("decode", "-", "--from", "server", "--mqtt-version", "5.0", "--format", "jsonl", stdin=b"d000\nzz\n")

        assert done.code == 3
        assert done.lines[0]["direction"] == "server_to_client"
        assert done.lines[0]["version"] == "5.0"
