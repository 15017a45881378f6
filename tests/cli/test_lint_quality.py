"""``lint --require-quality`` and ``--require-packets``: when captures are no basis for a verdict, one by one."""

from __future__ import annotations

import html
import json
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mqttscope.capture import PcapngWriter
from mqttscope.cli.options import FINDING_FORMATS
from mqttscope.lint.examples import (
    START_NS,
    Step,
    acknowledges,
    conversation,
    framed,
    hexadecimal,
    lost,
    make_connect,
    segments,
    web_opened,
)
from mqttscope.lint.quality import CONNACK_WAIT_NS
from mqttscope.mqtt.packets import Pingreq, Pingresp
from mqttscope.net.frame import Frame
from mqttscope.net.segment import Segment
from tests.cli.made import Publish, client, closes, on, opened, server, write_capture
from tests.cli.test_lint import CLEAN, FAILING, configure, refused, run
from tests.conftest import ROOT
from tests.dissect.secure import as_frame

WHOLE = (*opened(client_identifier="c1"), client(Pingreq()), server(Pingresp()), closes("client"))
"""A connection of which nothing is missing."""
LEVELS = "usable", "complete"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def captured(*steps: Step, handshake: bool = True) -> list[Segment]:
    """The segments of a conversation."""
    return segments(conversation("", *steps, handshake=handshake))


def write(path: Path, frames: Iterable[Segment | Frame], drops: int = 0) -> Path:
    """Write segments, or frames as they are, and the statistics of the interface."""
    with path.open("wb") as file:
        writer = PcapngWriter(file)
        for number, item in enumerate(frames, 1):
            writer.write(item if isinstance(item, Frame) else as_frame(replace(item, frame=number)))
        if drops:
            writer.write_drops(None, drops)
    return path


def clients_half(recorded: Sequence[Segment]) -> list[Segment]:
    return [segment for segment in recorded if segment.key == recorded[0].key]


def servers_half(recorded: Sequence[Segment]) -> list[Segment]:
    return [segment for segment in recorded if segment.key != recorded[0].key]


def without_answer(recorded: Sequence[Segment], count: int) -> list[Segment]:
    """All segments except the last ``count`` ones with data of the server; nothing is missing after them but data."""
    answers = [segment for segment in recorded if segment.payload and segment.key != recorded[0].key][-count:]
    return [segment for segment in recorded if segment not in answers]


def cut(recorded: Sequence[Segment], length: int) -> list[Frame]:
    """Frames of at most this length, as a snap length leaves them."""
    frames = [as_frame(replace(segment, frame=number)) for number, segment in enumerate(recorded, 1)]
    return [replace(frame, data=frame.data[:length]) for frame in frames]


def with_drop_count(path: Path, drops: int) -> Path:
    """Give the last packet block of a capture the option ``epb_dropcount``."""
    data = path.read_bytes()
    at, last = 0, 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        last = at if kind == 6 else last
        at += length
    (length,) = struct.unpack_from("<I", data, last + 4)
    options = struct.pack("<HHQHH", 4, 8, drops, 0, 0)
    block = data[last : last + length - 4] + options
    whole = block[:4] + struct.pack("<I", length + len(options)) + block[8:] + struct.pack("<I", length + len(options))
    path.write_bytes(data[:last] + whole + data[last + length :])
    return path


def truncated(path: Path, left: int) -> Path:
    """Take the last bytes of a file away."""
    path.write_bytes(path.read_bytes()[:-left])
    return path


def later(path: Path, seconds: int) -> Path:
    """Move the packet blocks of a capture, whose times are in nanoseconds, to a later time."""
    data = bytearray(path.read_bytes())
    at = 0
    while at + 20 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 6:
            high, low = struct.unpack_from("<II", data, at + 12)
            time = (high << 32 | low) + seconds * 1_000_000_000
            struct.pack_into("<II", data, at + 12, time >> 32, time & 0xFFFFFFFF)
        at += length
    path.write_bytes(data)
    return path


LOST_AT_THE_END = (*WHOLE[:-1], server(Publish(topic_name="a")), acknowledges("client"), closes("client", "reset"))
UNFINISHED = bytes.fromhex("30 7f 00 01 61") + b"half of a payload"
AGAIN = client(Publish(topic_name="other", payload=b"different content"))


def overlapping() -> list[Segment]:
    """The client sends the bytes of a packet again, with others in it."""
    recorded = captured(*opened(), client(Publish(topic_name="b", payload=b"one")), acknowledges("server"))
    sent = next(segment for segment in recorded if b"one" in segment.payload)
    last = replace(recorded[-1], timestamp_ns=recorded[-1].timestamp_ns + 1_000_000)
    again = replace(sent, payload=sent.payload.replace(b"one", b"two"), timestamp_ns=last.timestamp_ns)
    rest = captured(
        *opened(), client(Publish(topic_name="b", payload=b"one")), acknowledges("server"), closes("client")
    )
    return [
        *recorded,
        again,
        *[replace(segment, timestamp_ns=segment.timestamp_ns + 2_000_000) for segment in rest[len(recorded) :]],
    ]


def stray() -> list[Segment]:
    """A segment with numbers far from those of its connection, between those that have the right ones."""
    recorded = captured(*WHOLE)
    at = next(index for index, segment in enumerate(recorded) if segment.payload == b"\xc0\x00")
    far = replace(recorded[at], sequence=(recorded[at].sequence + (1 << 30) + 4_096) & 0xFFFFFFFF)
    return [*recorded[:at], far, *recorded[at:]]


def early() -> list[Segment]:
    """The capture begins in the middle, and then an older segment of the client comes again."""
    recorded = captured(*(client(Pingreq()), server(Pingresp())) * 4, closes("client"), handshake=False)
    return [*recorded[1:4], recorded[0], *recorded[4:]]


def damaged() -> list[Frame]:
    """A frame whose TCP header contradicts itself."""
    frames = [as_frame(replace(segment, frame=number)) for number, segment in enumerate(captured(*WHOLE), 1)]
    bad = frames[-1]
    header = bad.data.index(captured(*WHOLE)[-1].key[8:12])
    data = bad.data[: header + 12] + b"\x10" + bad.data[header + 13 :]
    return [*frames, replace(bad, data=data)]


def fragment() -> list[Frame]:
    """The first fragment of a datagram whose second one is missing."""
    frames = [as_frame(replace(segment, frame=number)) for number, segment in enumerate(captured(*WHOLE), 1)]
    last = frames[-1]
    address = last.data.index(captured(*WHOLE)[-1].key[:8])
    ip = address - 12
    length = len(last.data) - ip
    header = last.data[ip : ip + 4] + b"\x12\x34\x20\x00" + last.data[ip + 8 : ip + 20]
    payload = last.data[ip + 20 :][: (length - 20) // 8 * 8]
    header = header[:2] + (20 + len(payload)).to_bytes(2, "big") + header[4:]
    data = last.data[:ip] + header + payload
    return [*frames, replace(last, data=data, original_length=len(data))]


def early_end(nanoseconds: int) -> list[Segment]:
    """A CONNECT without answer, and another connection that goes on for some time after its beginning."""
    other = on(1, client(Pingreq(), after=nanoseconds / 1_000_000_000))
    recorded = captured(client(make_connect()), acknowledges("server"), *on(1, *opened(client_identifier="c2")), *other)
    begun = next(segment.timestamp_ns for segment in recorded if segment.payload)
    return [*recorded[:-1], replace(recorded[-1], timestamp_ns=begun + nanoseconds)]


@pytest.mark.parametrize("level", LEVELS)
def test_a_whole_capture_is_good_enough(level: str, tmp_path: Path) -> None:
    for path in (CLEAN, write(tmp_path / "whole.pcapng", captured(*WHOLE))):
        result = run(path, "--require-quality", level)
        assert (result.return_value, result.stderr) == (0, "")
    assert run(FAILING, "--require-quality", level).return_value == 1, "a device at fault is no fault of its capture"


INSIDE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "dropped, by the statistics of the interface": (
        lambda path: write(path, captured(*WHOLE), drops=3),
        "3 frames dropped by the capture",
    ),
    "dropped, by a packet": (
        lambda path: with_drop_count(write(path, captured(*WHOLE)), 2),
        "2 frames dropped by the capture",
    ),
    "a gap that an acknowledgment proves": (
        lambda path: write_capture(path, *opened(), lost(client(Pingreq())), server(Pingresp()), closes("client")),
        "1 connection with lost bytes; 2 bytes lost",
    ),
    "a gap before a reset, where nothing comes after it": (
        lambda path: write(path, without_answer(captured(*LOST_AT_THE_END), 1)),
        "1 connection with lost bytes; 6 bytes lost",
    ),
    "the client alone": (
        lambda path: write(path, clients_half(captured(*WHOLE))),
        "1 connection with one direction only",
    ),
    "the server alone": (
        lambda path: write(path, servers_half(captured(*WHOLE))),
        "1 connection with one direction only",
    ),
    "the client alone, in the middle": (
        lambda path: write(path, clients_half(captured(*(client(Pingreq()), server(Pingresp())) * 4, handshake=False))),
        "1 connection with one direction only",
    ),
    "no CONNACK before the end of the connection": (
        lambda path: write_capture(path, opened()[0], closes("server")),
        "1 connection without CONNACK",
    ),
    "no CONNACK in the time for it": (
        lambda path: write(path, early_end(CONNACK_WAIT_NS)),
        "1 connection without CONNACK",
    ),
    "cut by the snap length": (
        lambda path: write(
            path, cut(captured(*opened(), client(Publish(topic_name="a", payload=bytes(500))), closes("client")), 300)
        ),
        "cut by the snap length",
    ),
    "cut in the headers": (
        lambda path: write(path, [*captured(*WHOLE), *cut(captured(*WHOLE)[-1:], 30)]),
        "1 frame cut inside their headers by the snap length",
    ),
    "damaged headers": (lambda path: write(path, damaged()), "1 frame with malformed headers"),
    "a fragment alone": (
        lambda path: write(path, fragment()),
        "1 frame with IP fragments of TCP whose other fragments are missing",
    ),
    "a segment that no connection took": (
        lambda path: write(path, stray()),
        "1 segment that no connection took",
    ),
    "other bytes in the same place": (
        lambda path: write(path, overlapping()),
        "1 connection with bytes that came again with other content, or with a wrong checksum",
    ),
    "TLS without keys": (
        lambda path: write_tls(path),
        "1 connection inside TLS, not checked",
    ),
    "WebSocket frames that break their layout": (
        lambda path: write_capture(path, *broken_websocket(), to="10.0.0.2:8080"),
        "bytes not read",
    ),
    "a file that ends inside a record": (
        lambda path: truncated(write(path, captured(*WHOLE)), 10),
        "1 capture not read to the end",
    ),
    "no packet": (lambda path: write(path, captured(client(b"SSH-2.0-x\r\n"), closes("client"))), "no MQTT packet"),
    "no frame": (lambda path: write(path, []), "no MQTT packet"),
}
"""What neither level allows, by the words that name it."""


def broken_websocket() -> list[Step]:
    reserved = bytes((0x83,)) + framed(Pingreq())[1:]
    return [*web_opened(), client(reserved), client(framed(Pingreq())), closes("client")]


def write_tls(path: Path) -> Path:
    path.write_bytes((ROOT / "captures" / "tls-13" / "capture.pcapng").read_bytes())
    return path


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", INSIDE)
def test_what_is_missing_inside_a_capture_is_exit_code_3(case: str, level: str, tmp_path: Path) -> None:
    make, cause = INSIDE[case]
    path = make(tmp_path / "bad.pcapng")

    result = run(path, "--require-quality", level)
    sentence = re.search(rf"^mqttscope: {re.escape(str(path))} is not {level}: (.*)$", result.stderr, re.MULTILINE)
    assert result.return_value == 3
    assert sentence is not None, result.stderr
    assert cause in sentence[1]
    assert f"{path} is not {level}: {sentence[1]}" in result.stdout or "not read to the end" in sentence[1]


@pytest.mark.parametrize("case", INSIDE)
def test_the_capture_is_named_beside_good_ones(case: str, tmp_path: Path) -> None:
    make, cause = INSIDE[case]
    path = make(tmp_path / "bad.pcapng")

    shown = json.loads(run(CLEAN, path, "--require-quality", "usable", "--format", "json").stdout)["summary"]
    assert [shortfall["capture"] for shortfall in shown["shortfalls"]] == [str(path)]
    assert cause in "; ".join(shown["shortfalls"][0]["causes"])
    assert run(CLEAN, path, "--require-quality", "usable").return_value == 3


OUTSIDE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "joined in the middle": (
        lambda path: write(
            path, captured(*(client(Pingreq()), server(Pingresp())) * 2, closes("client"), handshake=False)
        ),
        "1 connection joined after the CONNECT",
    ),
    "open at the end": (
        lambda path: write(path, captured(*WHOLE[:-1])),
        "1 connection without an end in the capture",
    ),
    "a packet not complete at the end": (
        lambda path: write_capture(path, *opened(), client(UNFINISHED)),
        "bytes of packets that begin or end outside the capture",
    ),
    "the end of the capture right after the CONNECT": (
        lambda path: write(path, captured(opened()[0])),
        "1 connection without CONNACK when the capture ended",
    ),
    "the end of the capture before a CONNACK is due": (
        lambda path: write(path, early_end(CONNACK_WAIT_NS - 1)),
        "1 connection without CONNACK when the capture ended",
    ),
    "an older segment after the beginning": (
        lambda path: write(path, early()),
        "joined after the CONNECT",
    ),
}
"""What a usable capture may lack, by the words that name it."""


@pytest.mark.parametrize("case", OUTSIDE)
def test_what_is_outside_a_capture_leaves_it_usable_and_not_complete(case: str, tmp_path: Path) -> None:
    make, cause = OUTSIDE[case]
    path = make(tmp_path / "part.pcapng")

    assert run(path, "--require-quality", "usable").return_value == 0
    result = run(path, "--require-quality", "complete")
    assert result.return_value == 3
    assert re.search(rf"^mqttscope: {re.escape(str(path))} is not complete: .*{cause}", result.stderr, re.MULTILINE)


def test_a_capture_of_a_later_time_does_not_make_an_earlier_one_longer(tmp_path: Path) -> None:
    early_one = write(tmp_path / "early.pcapng", early_end(CONNACK_WAIT_NS - 1))
    for path in (later(write(tmp_path / "later.pcapng", captured(*WHOLE)), 6), CLEAN):
        assert run(early_one, path, "--require-quality", "usable").return_value == 0
    late = write(tmp_path / "late.pcapng", early_end(CONNACK_WAIT_NS))
    assert run(late, CLEAN, "--require-quality", "usable").return_value == 3


FAULTS: dict[str, tuple[Step, ...]] = {
    "a length of five bytes": (client(hexadecimal("30 ff ff ff ff 01 00 01 61")), closes("server")),
    "a malformed CONNACK": (),
    "reset inside a packet": (client(UNFINISHED), closes("client", "reset")),
}
"""What devices and brokers did, and the capture shows."""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_of_a_device_or_broker_is_none_of_the_capture(case: str, level: str, tmp_path: Path) -> None:
    steps = (*opened(), *FAULTS[case])
    if not FAULTS[case]:
        steps = (opened()[0], server(hexadecimal("20 03 02 00 00")), closes("client"))
    result = run(write_capture(tmp_path / "fault.pcapng", *steps), "--require-quality", level, "--select", "CON108")

    assert (result.return_value, "is not" in result.stdout + result.stderr) == (0, False)


@pytest.mark.parametrize("level", LEVELS)
def test_attempts_to_reach_a_broker_that_is_down_lack_nothing(level: str, tmp_path: Path) -> None:
    attempts = [
        replace(captured(client(Pingreq()))[0], timestamp_ns=START_NS + seconds * 1_000_000_000)
        for seconds in (0, 1, 3)
    ]
    later_on = [
        replace(segment, timestamp_ns=segment.timestamp_ns + 9_000_000_000) for segment in captured(*on(1, *WHOLE))
    ]
    path = write(tmp_path / "down.pcapng", [*attempts, *later_on])
    assert run(path, "--require-quality", level).return_value == 0
    half = write(tmp_path / "half.pcapng", [*attempts, *clients_half(captured(opened()[0]))[1:], *later_on])
    assert run(half, "--require-quality", level).return_value == 3, "data shows that one was answered"


def test_the_version_that_the_user_names_does_not_make_a_connection_complete(tmp_path: Path) -> None:
    pings = (client(Pingreq()), server(Pingresp())) * 2
    path = write(tmp_path / "joined.pcapng", captured(*pings, closes("client"), handshake=False))

    result = run(path, "--require-quality", "complete", "--mqtt-version", "5.0")
    assert result.return_value == 3
    assert "1 connection joined after the CONNECT" in result.stderr


@pytest.mark.parametrize("form", FINDING_FORMATS)
def test_the_exit_code_is_3_in_every_format(form: str, tmp_path: Path) -> None:
    path = write(tmp_path / "bad.pcapng", captured(*WHOLE), drops=3)

    result = run(path, "--require-quality", "usable", "--format", form)
    assert result.return_value == 3
    assert f"{path} is not usable: 3 frames dropped by the capture\n" in result.stderr
    assert run(path, "--require-quality", "usable", "--format", form, "--exit-zero").return_value == 0
    assert run(path, "--format", form).return_value == 0


def test_each_format_says_what_is_missing_where_it_says_such_things(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.pcapng", clients_half(captured(*WHOLE)))

    def output(form: str) -> str:
        return run(path, "--require-quality", "complete", "--format", form).stdout

    sentence = f"{path} is not complete: 1 connection with one direction only"
    shown = json.loads(output("json"))["summary"]
    assert shown["required_quality"] == "complete"
    (shortfall,) = shown["shortfalls"]
    assert (shortfall["capture"], shortfall["causes"][0]) == (str(path), "1 connection with one direction only")
    (sarif,) = json.loads(output("sarif"))["runs"][0]["invocations"]
    assert sarif["executionSuccessful"] is False
    (note,) = [notice for notice in sarif["toolExecutionNotifications"] if notice["level"] == "error"]
    assert note["message"]["text"].startswith(sentence)
    assert note["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("/bad.pcapng")
    assert re.search(
        rf'<testcase [^>]*name="captures are complete"[^>]*>\s*<error message="{sentence}', output("junit")
    )
    assert re.search(rf"^::error title=mqttscope::.*%0A{sentence}", output("github"), re.MULTILINE)
    assert output("markdown").splitlines()[0].endswith(", captures not complete")
    assert sentence in html.unescape(output("markdown"))
    assert sentence in html.unescape(output("html"))
    for form in ("full", "concise"):
        assert sentence in output(form)
    assert 'name="captures are complete"' in run(CLEAN, "--require-quality", "complete", "--format", "junit").stdout
    assert "captures are" not in run(path, "--format", "junit").stdout


@pytest.mark.parametrize("case", ["the client alone", "dropped, by a packet", "cut by the snap length"])
def test_what_is_missing_inside_is_a_warning_on_github(case: str, tmp_path: Path) -> None:
    path = INSIDE[case][0](tmp_path / "bad.pcapng")

    assert "::warning title=mqttscope::" in run(path, "--format", "github").stdout
    joined = OUTSIDE["joined in the middle"][0](tmp_path / "joined.pcapng")
    assert "::notice title=mqttscope::" in run(joined, "--format", "github").stdout


def test_the_line_about_quality_and_the_option_agree(tmp_path: Path) -> None:
    for case, (make, _) in {**INSIDE, **OUTSIDE}.items():
        path = make(tmp_path / "bad.pcapng")
        sentence = run(path, "--require-quality", "complete", "--format", "concise").stdout
        line = re.search(r"^quality of the capture: (.*)$", sentence, re.MULTILINE)
        summary = json.loads(run(path, "--require-quality", "complete", "--format", "json").stdout)["summary"]
        causes = {*summary["shortfalls"][0]["causes"]} - {"no MQTT packet to judge"}
        assert causes <= {*(line[1].split("; ") if line else ())}, case
    sentence = run(CLEAN, "--require-quality", "complete", "--format", "concise").stdout
    assert "quality of the capture" not in sentence


def test_a_finding_that_fails_the_run_does_not_hide_a_bad_capture(tmp_path: Path) -> None:
    wildcard = client(Publish(topic_name="a/+"))
    path = write(tmp_path / "bad.pcapng", captured(*opened(), wildcard, closes("client")), drops=1)

    assert run(path, "--select", "PUB").return_value == 1
    assert run(path, "--select", "PUB", "--require-quality", "usable").return_value == 3


def test_the_level_comes_from_the_command_line_the_environment_or_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = OUTSIDE["joined in the middle"][0](tmp_path / "joined.pcapng")

    configure(tmp_path, '[lint]\nrequire-quality = "complete"\n')
    assert run(joined).return_value == 3
    assert "require-quality: complete" in run("--show-settings").stdout
    assert json.loads(run("--show-settings", "--format", "json").stdout)["require_quality"] == "complete"
    monkeypatch.setenv("MQTTSCOPE_REQUIRE_QUALITY", "usable")
    assert run(joined).return_value == 0
    assert run(joined, "--require-quality", "complete").return_value == 3
    monkeypatch.setenv("MQTTSCOPE_REQUIRE_QUALITY", "good")
    assert "'good' is not one of 'usable', 'complete'" in refused(joined)
    assert "'' is not one of 'usable', 'complete'" in refused(joined, "--require-quality", "")
    configure(tmp_path, '[lint]\nrequire-quality = "perfect"\n')
    monkeypatch.delenv("MQTTSCOPE_REQUIRE_QUALITY")
    assert "lint.require-quality is 'perfect', not one of usable, complete" in refused(joined)


def test_a_bad_capture_makes_no_baseline(tmp_path: Path) -> None:
    path, baseline = write(tmp_path / "bad.pcapng", captured(*WHOLE), drops=3), tmp_path / "baseline.json"

    result = run(path, "--require-quality", "usable", "--baseline", baseline, "--update-baseline")
    assert result.return_value == 3
    assert f"baseline {baseline}: not written, since the captures are not usable\n" in result.stderr
    assert not baseline.exists()


def test_each_file_of_a_directory_is_judged_by_itself(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    for number in range(3):
        later = [
            replace(segment, timestamp_ns=segment.timestamp_ns + number * 3_600_000_000_000)
            for segment in captured(*WHOLE)
        ]
        write(folder / f"{number}.pcapng", later if number != 1 else [])

    assert run(folder).return_value == 0, "a quiet part of a rotated set"
    result = run(folder, "--require-quality", "usable")
    assert result.return_value == 3
    assert f"{folder / '1.pcapng'} is not usable: no MQTT packet to judge\n" in result.stderr
    assert result.stderr.count("is not usable") == 1
    assert run(folder, "--require-quality", "usable", "--require-packets", "0").return_value == 0


def test_many_bad_captures_are_counted(tmp_path: Path) -> None:
    paths = [
        write_capture(tmp_path / f"{number}.pcapng", *WHOLE, to=f"10.0.1.{number}:1883", drops=1) for number in range(7)
    ]

    result = run(*paths[:6], "--require-quality", "usable")
    assert result.stderr.count("is not usable: 1 frame dropped by the capture") == 5
    assert "mqttscope: 1 more capture is not usable\n" in result.stderr
    result = run(*paths, "--require-quality", "usable", "--format", "json")
    assert "mqttscope: 2 more captures are not usable\n" in result.stderr
    assert len(json.loads(result.stdout)["summary"]["shortfalls"]) == 7


def test_packets_are_required_of_each_capture(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty.pcapng", [])
    few = write_capture(tmp_path / "few.pcapng", *opened(client_identifier="few"), closes("client"))
    sentence = f"no MQTT packet to judge in {empty}"

    for more in ((), ("--require-packets", "1")):
        result = run(CLEAN, empty, *more)
        assert (result.return_value, result.stderr) == (3, f"mqttscope: {sentence}\n")
        assert sentence in result.stdout
    assert run(CLEAN, empty, "--require-packets", "0").return_value == 0
    assert run(CLEAN, few, "--require-packets", "2").return_value == 0
    result = run(CLEAN, few, "--require-packets", "3")
    assert (result.return_value, result.stderr) == (
        3,
        f"mqttscope: too little to judge: 3 MQTT packets are required of each capture, {few} has 2\n",
    )
    result = run(CLEAN, few, empty, "--require-packets", "3", "--format", "json")
    assert json.loads(result.stdout)["summary"]["nothing"].endswith(f"{few} has 2, {empty} has 0")
    names = [write(tmp_path / f"{number}.pcapng", []) for number in range(6)]
    sentence = run(CLEAN, *names[:5], "--require-packets", "3").stderr
    assert sentence.endswith(f"{names[4]} has 0\n")
    sentence = run(CLEAN, *names, "--require-packets", "3").stderr
    assert sentence.endswith(f"{names[4]} has 0, and 1 more capture too few\n")


def test_a_capture_that_was_not_read_is_named_once(tmp_path: Path) -> None:
    result = run(CLEAN, "gone.pcap", "--require-quality", "complete")

    assert result.return_value == 3
    assert result.stderr.splitlines() == [
        "mqttscope: gone.pcap: does not exist",
        "mqttscope: gone.pcap is not complete: 1 capture not read to the end",
    ]


def test_a_finding_that_fails_the_run_is_worth_more_than_an_empty_capture_beside_it(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty.pcapng", [])

    assert run(FAILING, empty).return_value == 1
    assert run(FAILING, empty, "--require-packets", "1").return_value == 3
