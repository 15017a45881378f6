"""Where captures come from: files, directories, standard input, whatever their names; and what cannot be read.

Captures that were made at the same time are given together: one for each direction, or for each tap.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import dpkt
import lz4.frame
import pytest
import zstandard

from mqttscope.capture import PcapngWriter
from mqttscope.lint.examples import conversation, segments
from mqttscope.mqtt import Pingreq, Pingresp
from mqttscope.net.segment import reverse_key
from tests import forked, tools
from tests.capture.doubled import in_one, recorded, two_taps, write
from tests.cli.made import client, closes, opened, server
from tests.cli.running import FORMATS, capture, command, environment, inspected, invoke, python, run, without
from tests.dissect.secure import as_frame
from tests.each import each, some

QOS = capture("v5-qos")


class TestSources:
    @pytest.mark.parametrize(
        "pack",
        [bytes, gzip.compress, zstandard.compress, lz4.frame.compress],
        ids=["plain", "gzip", "zstd", "lz4"],
    )
    def test_standard_input(self, pack: Callable[[bytes], bytes]) -> None:
        done = inspected("-", stdin=pack(QOS.read_bytes()))

        assert unplaced(done.lines) == unplaced(inspected(QOS).lines)
        assert {line["capture"] for line in done.lines} == {"-"}

    def test_standard_input_of_the_program(self) -> None:
        done = run("inspect", "-", "--format", "jsonl", stdin=QOS.read_bytes())

        assert (done.code, done.err) == (0, "")
        assert done.out == inspected("-", stdin=QOS.read_bytes()).out

    def test_several_captures_are_read_in_the_order_of_time(self, tmp_path: Path) -> None:
        later = shutil.copy(capture("v5-qos"), tmp_path / "a.pcapng")
        earlier = shutil.copy(capture("v311-qos"), tmp_path / "b.pcapng")
        lines = inspected(later, earlier).packets

        assert [line["timestamp_ns"] for line in lines] == sorted(line["timestamp_ns"] for line in lines)
        assert lines[0]["capture"] == str(earlier)
        assert [line["packet"] for line in lines] == list(range(len(lines)))
        assert len(lines) == len(inspected(later).packets) + len(inspected(earlier).packets)

    def test_directories_and_globs(self, tmp_path: Path) -> None:
        path, other = (shutil.copy(capture(name), tmp_path / f"{name}.pcapng") for name in ("v5-qos", "v311-qos"))
        (tmp_path / "notes.txt").write_text("no capture")
        by_name = inspected(path, other)

        assert inspected(tmp_path).out == by_name.out
        assert inspected(tmp_path / "*.pcapng").out == by_name.out
        # A file that a glob names once more is read once.
        assert inspected(path, tmp_path / "*.pcapng").out == by_name.out

    def test_a_name_that_is_not_utf8(self, tmp_path: Path) -> None:
        name = os.fsencode(tmp_path) + b"/caf\xe9\xff.pcapng"
        try:
            shutil.copy(os.fsencode(QOS), name)
        except OSError:
            pytest.skip("this file system takes UTF-8 only")

        for form in FORMATS:
            done = run(b"inspect", name, b"--format", form.encode())
            assert (done.code, done.err) == (0, "")
            assert done.out
        lines = run("inspect", name, "--format", "jsonl").lines
        assert {line["capture"]["hex"] for line in lines} == {name.hex()}
        done = run("inspect", os.fsencode(tmp_path) + b"/\xff.pcap", "--format", "jsonl")
        assert done.code == 3
        assert "does not exist" in done.err
        assert done.lines[0]["event"] == "capture_error"

    def test_a_name_that_would_drive_the_terminal_is_escaped(self, tmp_path: Path) -> None:
        for form in FORMATS:
            done = run("inspect", tmp_path / "\x1b[31mred.pcap", "--format", form)
            assert done.code == 3
            assert "\x1b" not in done.err
            assert b"\x1b" not in done.out


def unplaced(lines: Iterable[dict[str, Any]], *more: str) -> list[dict[str, Any]]:
    """JSON Lines without the name of their capture."""
    return [without(line, "capture", *more) for line in lines]


HUGE = "d4c3b2a1 0200 0400 00000000 00000000 00000400 01000000  00000000 00000000 ffffff7f ffffff7f" + "00" * 100
"""A frame whose length cannot be true."""


class TestUnreadable:
    @pytest.mark.parametrize(
        ("name", "data", "expected"),
        [
            ("nowhere/no.pcap", None, "does not exist\n"),
            ("", None, "is a directory without captures\n"),
            ("*.pcap", None, "matches no file\n"),
            ("empty.pcap", b"", "is empty\n"),
            ("letter.txt", b"Dear reader,\n", "is not a capture file"),
            ("huge.pcap", bytes.fromhex(HUGE), "at offset 24"),
        ],
        ids=["missing", "empty directory", "glob", "empty", "no capture", "a length that cannot be true"],
    )
    def test_it_is_said_in_one_line(self, name: str, data: bytes | None, expected: str, tmp_path: Path) -> None:
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        code, text = self.told(path)

        assert code == 3
        assert text.startswith(f"mqttscope: {path}: ")
        assert expected in text

    def told(self, path: str | Path) -> tuple[int, str]:
        done = run("inspect", path, "--format", "jsonl")
        assert done.err.count("\n") == 1
        assert done.err.startswith("mqttscope: ")
        assert done.of("capture_error")[0]["message"] in done.err
        return done.code, done.err

    def test_a_file_without_permission(self, tmp_path: Path) -> None:
        path = Path(shutil.copy(QOS, tmp_path / "mine.pcapng"))
        path.chmod(0)
        if os.access(path, os.R_OK):
            pytest.skip("this user may read everything")

        code, text = self.told(path)
        assert code == 3
        assert "Permission denied" in text

    def test_a_device_that_cannot_be_read(self) -> None:
        if not Path("/proc/self/mem").exists():
            pytest.skip("no /proc")
        code, _ = self.told("/proc/self/mem")

        assert code == 3

    def test_a_fifo_nobody_writes_to_any_more(self, tmp_path: Path) -> None:
        path = tmp_path / "fifo"
        os.mkfifo(path)
        keeper = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        os.write(keeper, QOS.read_bytes()[:1000])
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.close(keeper)
        os.set_blocking(reader, True)
        done = forked.run(command("inspect", "-"), stdin=reader, env=environment())
        os.close(reader)

        assert done.returncode == 3
        assert b"CONNECT" in done.stdout

    def test_what_was_readable_of_a_cut_file_is_shown(self, tmp_path: Path) -> None:
        path = tmp_path / "cut.pcapng"
        path.write_bytes(QOS.read_bytes()[:-90])
        done = invoke("inspect", path, "--format", "jsonl")

        assert done.code == 3
        documents = unplaced(done.packets)
        assert documents == unplaced(inspected(QOS).packets)[: len(documents)]
        assert len(documents) > 20
        (error,) = done.of("capture_error")
        assert error["frames"] > 40
        assert f"{error['frames']:,} frames before it were read" in done.err
        assert f"{error['offset']:,}" in done.err

    @pytest.mark.parametrize(
        ("names", "expected"),
        [(("no.pcap", QOS), "no.pcap: does not exist"), (("-", "-"), "named before")],
        ids=["missing", "standard input twice"],
    )
    def test_the_other_captures_are_read_all_the_same(self, names: tuple[str | Path, ...], expected: str) -> None:
        done = invoke("inspect", *names, "--format", "jsonl", stdin=QOS.read_bytes())

        assert done.code == 3
        assert len(done.packets) == 24
        assert expected in done.err

    @pytest.mark.parametrize("form", FORMATS)
    def test_the_code_is_the_same_in_every_format(self, form: str) -> None:
        done = invoke("inspect", "no.pcap", "--format", form)

        assert (done.code, done.err) == (3, "mqttscope: no.pcap: does not exist\n")


class TestNothingFound:
    def test_tls_on_another_port_is_named_with_the_option_that_lists_it(self) -> None:
        stream = io.BytesIO()
        writer = PcapngWriter(stream)
        for frame in recorded(capture("tls-13")):
            ethernet = dpkt.ethernet.Ethernet(frame.data)
            tcp = ethernet.data.data
            tcp.sport, tcp.dport = (4433 if port == 8883 else port for port in (tcp.sport, tcp.dport))
            frame.data = bytes(ethernet)
            writer.write(frame)
        done = invoke("inspect", "-", stdin=stream.getvalue())

        assert done.code == 0
        if "opened" not in done.text:  # an ALPN of mqtt lists it anyway
            assert "(--port 4433:tls lists them as MQTT)" in done.err
        listed = invoke("inspect", "-", "--port", "4433:tls", stdin=stream.getvalue())
        assert listed.err == ""
        assert "TLS" in listed.text

    @pytest.mark.parametrize(
        ("link_and_frames", "code", "expected"),
        [
            ("01000000", 0, "mqttscope: no TCP connection found\n"),
            ("93000000 00000000 00000000 04000000 04000000 00000000", 3, "link type 147"),
        ],
        ids=["no TCP", "an unsupported link type"],
    )
    def test_it_is_said(self, link_and_frames: str, code: int, expected: str) -> None:
        header = "d4c3b2a1 0200 0400 00000000 00000000 00000400"
        done = invoke("inspect", "-", stdin=bytes.fromhex(header + link_and_frames))

        assert done.code == code
        assert expected in done.err
        assert code or not done.out


BARE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": ""}
"""A locale without UTF-8, which Python does not replace."""


def needs_python(env: Mapping[str, str]) -> None:
    """Skip the calling test where Python itself does not start, as in a path that the locale cannot name."""
    if "Fatal Python error" in python("import mqttscope", env=env).stderr:
        pytest.skip("Python does not start in this locale here: its path is not ASCII")


@pytest.mark.parametrize("form", some(FORMATS, 4))
@pytest.mark.parametrize(
    "env", [{"PYTHONIOENCODING": "ascii"}, BARE, {"PYTHONIOENCODING": "latin-1"}], ids=["ascii", "C", "latin-1"]
)
def test_a_locale_without_utf8_gets_output_without_exceptions(form: str, env: dict[str, str]) -> None:
    needs_python(env)
    path = capture("v311-qos")
    # The folder may have any name.
    done = run("inspect", path.name, "--format", form, env=env, cwd=path.parent)

    assert (done.code, done.err) == (0, "")
    if form != "jsonl":
        assert done.out.isascii()


def test_errors_in_a_locale_without_utf8(tmp_path: Path) -> None:
    needs_python(BARE)
    done = run("inspect", os.fsencode(tmp_path) + "/größe.pcap".encode(), env=BARE)

    assert done.code == 3
    assert "does not exist" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("s3://me:s3cret@bucket/x.pcap", "s3://***@bucket/x.pcap"),
        ("https://h/x.pcap?sig=s3cret", "https://h/x.pcap?sig=***"),
        ("https://h/x.pcap%3Fsig%3Ds3cret", "https://h/x.pcap%3Fsig%3D***"),
    ],
)
def test_a_url_that_is_no_capture_is_named_without_its_secrets(name: str, shown: str, tmp_path: Path) -> None:
    commands = [("inspect", "--format", form) for form in FORMATS] + [("stats",), ("stats", "--format", "json")]
    commands += [
        ("lint", "--no-config", "--format", form)
        for form in ("full", "json", "jsonl", "sarif", "junit", "markdown", "github", "gitlab")
    ]
    written = ("--write", str(tmp_path / "out.pcapng"))
    commands += [("mutate", *written, "--mutation", "publish:qos-3", "--format", "json"), ("replay", "--dry-run")]
    for words in commands:
        done = invoke(*words, name, QOS)

        assert "s3cret" not in done.text + done.err, words
        assert shown in done.text + done.err or words[0] == "replay", words


def directions(folder: Path) -> tuple[Path, Path]:
    """The two directions of a connection, each in a capture of its own."""
    pings = (client(Pingreq(), after=5), server(Pingresp()))
    new_segments = segments(conversation("both", *opened(), *pings, *pings, closes("client")))
    paths = folder / "up.pcapng", folder / "down.pcapng"
    for path, key in zip(paths, (new_segments[0].key, reverse_key(new_segments[0].key)), strict=True):
        with PcapngWriter(path) as out:
            for number, segment in enumerate((segment for segment in new_segments if segment.key == key), 1):
                out.write(as_frame(replace(segment, frame=number)))
    return paths


@pytest.mark.parametrize("command", ["inspect", "stats"])
def test_captures_that_overlap_are_named(tmp_path: Path, command: str) -> None:
    up, down = directions(tmp_path)
    text = (
        f"mqttscope: {down} overlaps in time with an earlier capture and is read after it, so times go back;"
        " mergecap merges them, --deduplicate merges several taps\n"
    )

    assert text in invoke(command, up, down).err
    assert "overlaps in time with an earlier capture" in invoke(command, tmp_path).err
    assert "mergecap" not in invoke(command, up).err


def test_no_answer_comes_before_its_request(tmp_path: Path) -> None:
    up, down = directions(tmp_path)

    shown = [line for line in invoke("inspect", up, down).text.splitlines() if "PINGRESP" in line]
    table = invoke("stats", up, down, "--format", "json").text

    assert len(shown) == 2
    assert all(line.endswith("PINGRESP") for line in shown)
    assert not re.search(r":\s*-\d", table)


def two_of(folder: Path, name: str = "v5-qos", **argument: Any) -> tuple[Path, Path, Path]:
    """A capture, and the captures of two taps of the same traffic."""
    frames = recorded(capture(name))
    other_frames, other = two_taps(frames, **argument)
    return capture(name), write(folder / "near.pcapng", other_frames), write(folder / "far.pcapng", other)


class TestTaps:
    """``--deduplicate``."""

    def test_captures_of_two_taps_are_one(self, tmp_path: Path) -> None:
        single, near, far = two_of(tmp_path, loss=0.05, shift_ns=1_003_000_000)
        done, expected = invoke("inspect", near, far, "--deduplicate", "--format", "jsonl"), inspected(single)

        places = ("frame", "timestamp", "timestamp_ns")
        assert unplaced(done.packets, *places) == unplaced(expected.packets, *places)
        assert [line["timestamp"] for line in done.lines] == [line["timestamp"] for line in expected.lines]
        assert {line["capture"] for line in done.lines} == {str(near), str(far)}
        assert done.err.splitlines() == [
            f"mqttscope: the clock of {far} is 1.003 s ahead of the clock of {near}: its times are corrected",
            "mqttscope: 46 of 99 frames with TCP are copies and were left out",
            f"mqttscope: tap {near}: 47 frames, 1 only on this tap, 6 missed",
            f"mqttscope: tap {far}: 52 frames, 6 only on this tap, 1 missed",
        ]

    @each("word", ["lint", "explain", "stats", "inspect"])
    def test_every_command_reads_taps_as_one(self, tmp_path: Path, word: str) -> None:
        single, near, far = two_of(tmp_path, "planted-violations", loss=0.05, shift_ns=1_003_000_000)
        form = ("--format", "concise") if word == "lint" else ()
        lines = invoke(word, near, far, "--deduplicate", *form)
        wanted = invoke(word, single, *form)

        assert lines.code == wanted.code
        assert "frames with TCP are copies and were left out" in lines.err
        if word in ("lint", "inspect"):
            place = re.compile(r"(?m)^.*?pcapng:|frame [0-9]+")
            assert place.sub("", lines.text) == place.sub("", wanted.text)

    def test_statistics_count_what_each_tap_lost(self, tmp_path: Path) -> None:
        single, near, far = two_of(tmp_path, loss=0.05, shift_ns=1_003_000_000)
        document = json.loads(invoke("stats", near, far, "--deduplicate", "--format", "json").out)
        wanted = json.loads(invoke("stats", single, "--format", "json").out)

        alike = {"interface": 0, "place": 1}
        assert document["taps"] == {
            "frames": 99,
            "copies": 46,
            "clocks": [{"capture": str(near), "ahead_ns": 0}, {"capture": str(far), "ahead_ns": 1_003_000_000}],
            "taps": [
                {"capture": str(near), "vlans": [], "frames": 47, "copies": 0, "only": 1, "missed": 6, **alike},
                {"capture": str(far), "vlans": [10], "frames": 52, "copies": 46, "only": 6, "missed": 1, **alike},
            ],
        }
        for name in ("frames", "duration_ns", "packets", "rates", "tcp", "latencies"):
            assert document["totals"][name] == wanted["totals"][name], name
        assert "taps" not in wanted
        for form in ("text", "html"):
            done = invoke("stats", near, far, "--deduplicate", "--format", form, "--output", tmp_path / f"stats.{form}")
            assert done.code == 0
            shown = (tmp_path / f"stats.{form}").read_text("utf-8")
            assert "Taps" in shown
            assert "only here" in shown

    def test_a_tap_whose_frames_are_all_copies_is_not_empty(self, tmp_path: Path) -> None:
        _, near, far = two_of(tmp_path)
        done = invoke("lint", near, far, "--deduplicate", "--format", "json")
        document = json.loads(invoke("stats", near, far, "--deduplicate", "--format", "json").out)

        assert "no MQTT packet to judge" not in done.err
        assert document["totals"]["captures"] == 2
        assert invoke("stats", near, far, "--deduplicate").text.startswith("2 captures")

    def test_one_file_with_two_taps_and_with_one(self, tmp_path: Path) -> None:
        both = write(tmp_path / "both.pcapng", in_one(*two_taps(recorded(QOS))))
        done, result = (invoke("inspect", path, "--deduplicate") for path in (both, QOS))

        assert done.text == result.text == invoke("inspect", QOS).text
        assert done.err.splitlines() == [
            "mqttscope: 53 of 106 frames with TCP are copies and were left out",
            f"mqttscope: tap {both}, no VLAN: 53 frames, 0 only on this tap, 0 missed",
            f"mqttscope: tap {both}, VLAN 10: 53 frames, 0 only on this tap, 0 missed",
        ]
        assert "--deduplicate reads each frame once" in invoke("inspect", both).err
        assert result.err == "mqttscope: no copy among 53 frames with TCP: nothing was captured twice\n"

    def test_the_frames_that_were_read_are_written(self, tmp_path: Path) -> None:
        single, near, far = two_of(tmp_path, loss=0.05, shift_ns=1_003_000_000)
        target = tmp_path / "joined.pcapng"

        assert invoke("inspect", near, far, "--deduplicate", "--write", target).code == 0
        assert [frame.timestamp_ns for frame in recorded(target)] == [frame.timestamp_ns for frame in recorded(single)]

    def test_directions_in_captures_of_their_own_come_in_order(self, tmp_path: Path) -> None:
        up, down = directions(tmp_path)
        done = invoke("inspect", up, down, "--deduplicate", "--format", "jsonl")
        times = [line["timestamp_ns"] for line in done.lines if line["event"] == "packet"]

        assert times == sorted(times)
        assert "overlaps" not in done.err

    def test_tshark_dissects_the_frames_of_taps_too(self, tmp_path: Path) -> None:
        tools.program("tshark")
        single, near, far = two_of(tmp_path, loss=0.05)
        done = invoke("inspect", near, far, "--deduplicate", "--via", "tshark", "--format", "jsonl")

        assert [line["type"] for line in done.packets] == [line["type"] for line in inspected(single).packets]

    def test_a_browser_of_lakes_and_interfaces_refuses_it(self) -> None:
        for pair in (("--lake", "lake"), ("-i", "lo")):
            done = invoke("browse", *pair, "--deduplicate")
            assert (done.code, "--deduplicate is for captures" in done.err) == (2, True)
