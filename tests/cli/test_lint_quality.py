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
    ExampleStep,
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
from tests.cli.running import capture
from tests.cli.test_lint import CLEAN, FAILING, configure, refused, run
from tests.dissect.secure import as_frame

WHOLE = (*opened(client_identifier="c1"), client(Pingreq()), server(Pingresp()), closes("client"))
"""A connection of which nothing is missing."""
LEVELS = "usable", "complete"


@pytest.fixture(autouse=True)
def _in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def captured(*steps: ExampleStep, handshake: bool = True) -> list[Segment]:
    """The segments of a conversation."""
    return segments(conversation("", *steps, handshake=handshake))


def numbered(recorded: Iterable[Segment]) -> list[Frame]:
    """The frames of segments."""
    return [as_frame(replace(segment, frame=number)) for number, segment in enumerate(recorded, 1)]


def write(path: Path, frames: Iterable[Segment | Frame], drops: int = 0) -> Path:
    """Write segments, or frames as they are, and the statistics of the interface."""
    with path.open("wb") as file:
        writer = PcapngWriter(file)
        for number, item in enumerate(frames, 1):
            writer.write(item if isinstance(item, Frame) else as_frame(replace(item, frame=number)))
        if drops:
            writer.write_drops(None, drops)
    return path


def half(recorded: Sequence[Segment], *, clients: bool = True) -> list[Segment]:
    """The segments of one direction."""
    return [segment for segment in recorded if (segment.key == recorded[0].key) is clients]


def without_answer(recorded: Sequence[Segment], count: int) -> list[Segment]:
    """All segments except the last ``count`` ones with data of the server; nothing is missing after them but data."""
    answers = [segment for segment in recorded if segment.payload and segment.key != recorded[0].key][-count:]
    return [segment for segment in recorded if segment not in answers]


def cut(recorded: Sequence[Segment], length: int) -> list[Frame]:
    """Frames of at most this length, as a snap length leaves them."""
    return [replace(frame, data=frame.data[:length]) for frame in numbered(recorded)]


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


def moved(recorded: Iterable[Segment], seconds: float) -> list[Segment]:
    """Segments at a later time."""
    by_ns = round(seconds * 1_000_000_000)
    return [replace(segment, timestamp_ns=segment.timestamp_ns + by_ns) for segment in recorded]


ALL = captured(*WHOLE)
PINGS = (client(Pingreq()), server(Pingresp()))
JOINED = captured(*PINGS * 2, closes("client"), handshake=False)
LOST_AT_THE_END = (*WHOLE[:-1], server(Publish(topic_name="a")), acknowledges("client"), closes("client", "reset"))
LONG = captured(*opened(), client(Publish(topic_name="a", payload=bytes(500))), closes("client"))
UNFINISHED = bytes.fromhex("30 7f 00 01 61") + b"half of a payload"


def overlapping() -> list[Segment]:
    """The client sends the bytes of a packet again, with others in it."""
    steps = (*opened(), client(Publish(topic_name="b", payload=b"one")), acknowledges("server"))
    recorded, whole = captured(*steps), captured(*steps, closes("client"))
    sent = next(segment for segment in recorded if b"one" in segment.payload)
    at_ns = recorded[-1].timestamp_ns + 1_000_000
    again = replace(sent, payload=sent.payload.replace(b"one", b"two"), timestamp_ns=at_ns)
    return [*recorded, again, *moved(whole[len(recorded) :], 0.002)]


def stray() -> list[Segment]:
    """A segment with numbers far from those of its connection, between those that have the right ones."""
    at = next(index for index, segment in enumerate(ALL) if segment.payload == b"\xc0\x00")
    far = replace(ALL[at], sequence=(ALL[at].sequence + (1 << 30) + 4_096) & 0xFFFFFFFF)
    return [*ALL[:at], far, *ALL[at:]]


def early() -> list[Segment]:
    """The capture begins in the middle, and then an older segment of the client comes again."""
    recorded = captured(*PINGS * 4, closes("client"), handshake=False)
    return [*recorded[1:4], recorded[0], *recorded[4:]]


def damaged() -> list[Frame]:
    """A frame whose TCP header contradicts itself."""
    frames = numbered(ALL)
    bad = frames[-1]
    header = bad.data.index(ALL[-1].key[8:12])
    return [*frames, replace(bad, data=bad.data[: header + 12] + b"\x10" + bad.data[header + 13 :])]


def fragment() -> list[Frame]:
    """The first fragment of a datagram whose second one is missing."""
    frames = numbered(ALL)
    last = frames[-1]
    ip = last.data.index(ALL[-1].key[:8]) - 12
    payload = last.data[ip + 20 :][: (len(last.data) - ip - 20) // 8 * 8]
    length = (20 + len(payload)).to_bytes(2, "big")
    header = last.data[ip : ip + 2] + length + b"\x12\x34\x20\x00" + last.data[ip + 8 : ip + 20]
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
    for path in (CLEAN, write(tmp_path / "whole.pcapng", ALL)):
        result = run(path, "--require-quality", level)
        assert (result.code, result.err) == (0, "")
    assert run(FAILING, "--require-quality", level).code == 1, "a device at fault is no fault of its capture"


def broken_websocket() -> list[ExampleStep]:
    reserved = bytes((0x83,)) + framed(Pingreq())[1:]
    return [*web_opened(), client(reserved), client(framed(Pingreq())), closes("client")]


Source = Sequence[Segment | Frame] | Callable[[Path], Path]
"""What is written to a file, or what writes it."""
ONE_SIDED = "1 connection with one direction only"
INSIDE: dict[str, tuple[Source, str]] = {
    "dropped, by the statistics of the interface": (
        lambda path: write(path, ALL, drops=3),
        "3 frames dropped by the capture",
    ),
    "dropped, by a packet": (lambda path: with_drop_count(write(path, ALL), 2), "2 frames dropped by the capture"),
    "a gap that an acknowledgment proves": (
        captured(*opened(), lost(client(Pingreq())), server(Pingresp()), closes("client")),
        "1 connection with lost bytes; 2 bytes lost",
    ),
    "a gap before a reset, where nothing comes after it": (
        without_answer(captured(*LOST_AT_THE_END), 1),
        "1 connection with lost bytes; 6 bytes lost",
    ),
    "the client alone": (half(ALL), ONE_SIDED),
    "the server alone": (half(ALL, clients=False), ONE_SIDED),
    "the client alone, in the middle": (half(captured(*PINGS * 4, handshake=False)), ONE_SIDED),
    "no CONNACK before the end of the connection": (
        captured(opened()[0], closes("server")),
        "1 connection without CONNACK",
    ),
    "no CONNACK in the time for it": (early_end(CONNACK_WAIT_NS), "1 connection without CONNACK"),
    "cut by the snap length": (cut(LONG, 300), "cut by the snap length"),
    "cut in the headers": ([*ALL, *cut(ALL[-1:], 30)], "1 frame cut inside their headers by the snap length"),
    "damaged headers": (damaged(), "1 frame with malformed headers"),
    "a fragment alone": (fragment(), "1 frame with IP fragments of TCP whose other fragments are missing"),
    "a segment that no connection took": (stray(), "1 segment that no connection took"),
    "other bytes in the same place": (
        overlapping(),
        "1 connection with bytes that came again with other content, or with a wrong checksum",
    ),
    "TLS without keys": (lambda _: capture("tls-13"), "1 connection inside TLS, not checked"),
    "WebSocket frames that break their layout": (
        lambda path: write_capture(path, *broken_websocket(), to="10.0.0.2:8080"),
        "bytes not read",
    ),
    "a file that ends inside a record": (lambda path: truncated(write(path, ALL), 10), "1 capture not read to the end"),
    "no packet": (captured(client(b"SSH-2.0-x\r\n"), closes("client")), "no MQTT packet"),
    "no frame": ([], "no MQTT packet"),
}
"""What neither level allows, by the words that name it."""
UNANSWERED_AT_THE_END = "1 connection without CONNACK when the capture ended"
OUTSIDE: dict[str, tuple[Source, str]] = {
    "joined in the middle": (JOINED, "1 connection joined after the CONNECT"),
    "open at the end": (captured(*WHOLE[:-1]), "1 connection without an end in the capture"),
    "a packet not complete at the end": (
        captured(*opened(), client(UNFINISHED)),
        "bytes of packets that begin or end outside the capture",
    ),
    "the end of the capture right after the CONNECT": (captured(opened()[0]), UNANSWERED_AT_THE_END),
    "the end of the capture before a CONNACK is due": (early_end(CONNACK_WAIT_NS - 1), UNANSWERED_AT_THE_END),
    "an older segment after the beginning": (early(), "joined after the CONNECT"),
}
"""What a usable capture may lack, by the words that name it."""


def written(case: str, path: Path) -> Path:
    """The capture of a case."""
    source, _ = {**INSIDE, **OUTSIDE}[case]
    return source(path) if callable(source) else write(path, source)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", INSIDE)
def test_what_is_missing_inside_a_capture_is_exit_code_3(case: str, level: str, tmp_path: Path) -> None:
    path = written(case, tmp_path / "bad.pcapng")

    result = run(path, "--require-quality", level)
    sentence = re.search(rf"^mqttscope: {re.escape(str(path))} is not {level}: (.*)$", result.err, re.MULTILINE)
    assert result.code == 3
    assert sentence is not None, result.err
    assert INSIDE[case][1] in sentence[1]
    assert f"{path} is not {level}: {sentence[1]}" in result.text or "not read to the end" in sentence[1]
    # It is named beside good captures.
    result = run(CLEAN, path, "--require-quality", level, "--format", "json")
    (shortfall,) = result.document["summary"]["shortfalls"]
    assert (result.code, shortfall["capture"]) == (3, str(path))
    assert INSIDE[case][1] in "; ".join(shortfall["causes"])


@pytest.mark.parametrize("case", OUTSIDE)
def test_what_is_outside_a_capture_leaves_it_usable_and_not_complete(case: str, tmp_path: Path) -> None:
    path, cause = written(case, tmp_path / "part.pcapng"), OUTSIDE[case][1]

    assert run(path, "--require-quality", "usable").code == 0
    result = run(path, "--require-quality", "complete")
    assert result.code == 3
    assert re.search(rf"^mqttscope: {re.escape(str(path))} is not complete: .*{cause}", result.err, re.MULTILINE)


def test_a_capture_of_a_later_time_does_not_make_an_earlier_one_longer(tmp_path: Path) -> None:
    early_one = write(tmp_path / "early.pcapng", early_end(CONNACK_WAIT_NS - 1))
    for path in (write(tmp_path / "later.pcapng", moved(ALL, 6)), CLEAN):
        assert run(early_one, path, "--require-quality", "usable").code == 0
    late = write(tmp_path / "late.pcapng", early_end(CONNACK_WAIT_NS))
    assert run(late, CLEAN, "--require-quality", "usable").code == 3


FAULTS: dict[str, tuple[ExampleStep, ...]] = {
    "a length of five bytes": (*opened(), client(hexadecimal("30 ff ff ff ff 01 00 01 61")), closes("server")),
    "a malformed CONNACK": (opened()[0], server(hexadecimal("20 03 02 00 00")), closes("client")),
    "reset inside a packet": (*opened(), client(UNFINISHED), closes("client", "reset")),
}
"""What devices and brokers did, and the capture shows."""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_of_a_device_or_broker_is_none_of_the_capture(case: str, level: str, tmp_path: Path) -> None:
    path = write_capture(tmp_path / "fault.pcapng", *FAULTS[case])
    result = run(path, "--require-quality", level, "--select", "CON108")

    assert (result.code, "is not" in result.text + result.err) == (0, False)


@pytest.mark.parametrize("level", LEVELS)
def test_attempts_to_reach_a_broker_that_is_down_lack_nothing(level: str, tmp_path: Path) -> None:
    syn = captured(client(Pingreq()))[0]
    attempts = [replace(syn, timestamp_ns=START_NS + seconds * 1_000_000_000) for seconds in (0, 1, 3)]
    later_on = moved(captured(*on(1, *WHOLE)), 9)
    path = write(tmp_path / "down.pcapng", [*attempts, *later_on])
    assert run(path, "--require-quality", level).code == 0
    path = write(tmp_path / "half.pcapng", [*attempts, *half(captured(opened()[0]))[1:], *later_on])
    assert run(path, "--require-quality", level).code == 3, "data shows that one was answered"


def test_the_version_that_the_user_names_does_not_make_a_connection_complete(tmp_path: Path) -> None:
    path = write(tmp_path / "joined.pcapng", JOINED)

    result = run(path, "--require-quality", "complete", "--mqtt-version", "5.0")
    assert result.code == 3
    assert "1 connection joined after the CONNECT" in result.err


@pytest.mark.parametrize("form", FINDING_FORMATS)
def test_the_exit_code_is_3_in_every_format(form: str, tmp_path: Path) -> None:
    path = write(tmp_path / "bad.pcapng", ALL, drops=3)

    result = run(path, "--require-quality", "usable", "--format", form)
    assert result.code == 3
    assert f"{path} is not usable: 3 frames dropped by the capture\n" in result.err
    assert run(path, "--require-quality", "usable", "--format", form, "--exit-zero").code == 0
    assert run(path, "--format", form).code == 0


def test_each_format_says_what_is_missing_where_it_says_such_things(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.pcapng", half(ALL))

    def output(form: str) -> str:
        return run(path, "--require-quality", "complete", "--format", form).text

    sentence = f"{path} is not complete: {ONE_SIDED}"
    shown = json.loads(output("json"))["summary"]
    assert shown["required_quality"] == "complete"
    (shortfall,) = shown["shortfalls"]
    assert (shortfall["capture"], shortfall["causes"][0]) == (str(path), ONE_SIDED)
    (sarif,) = json.loads(output("sarif"))["runs"][0]["invocations"]
    assert sarif["executionSuccessful"] is False
    (note,) = [notice for notice in sarif["toolExecutionNotifications"] if notice["level"] == "error"]
    assert note["message"]["text"].startswith(sentence)
    assert note["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("/bad.pcapng")
    case = rf'<testcase [^>]*name="captures are complete"[^>]*>\s*<error message="{sentence}'
    assert re.search(case, output("junit"))
    assert re.search(rf"^::error title=mqttscope::.*%0A{sentence}", output("github"), re.MULTILINE)
    assert output("markdown").splitlines()[0].endswith(", captures not complete")
    assert sentence in html.unescape(output("markdown"))
    assert sentence in html.unescape(output("html"))
    for form in ("full", "concise"):
        assert sentence in output(form)
    assert 'name="captures are complete"' in run(CLEAN, "--require-quality", "complete", "--format", "junit").text
    assert "captures are" not in run(path, "--format", "junit").text


@pytest.mark.parametrize(
    ("case", "word"),
    [
        ("the client alone", "warning"),
        ("dropped, by a packet", "warning"),
        ("cut by the snap length", "warning"),
        ("joined in the middle", "notice"),
    ],
)
def test_what_is_missing_inside_is_a_warning_on_github(case: str, word: str, tmp_path: Path) -> None:
    path = written(case, tmp_path / "bad.pcapng")

    assert f"::{word} title=mqttscope::" in run(path, "--format", "github").text


def test_the_line_about_quality_and_the_option_agree(tmp_path: Path) -> None:
    for case in (*INSIDE, *OUTSIDE):
        path = written(case, tmp_path / "bad.pcapng")
        sentence = run(path, "--require-quality", "complete", "--format", "concise").text
        line = re.search(r"^quality of the capture: (.*)$", sentence, re.MULTILINE)
        summary = run(path, "--require-quality", "complete", "--format", "json").document["summary"]
        causes = {*summary["shortfalls"][0]["causes"]} - {"no MQTT packet to judge"}
        assert causes <= {*(line[1].split("; ") if line else ())}, case
    sentence = run(CLEAN, "--require-quality", "complete", "--format", "concise").text
    assert "quality of the capture" not in sentence


def test_a_finding_that_fails_the_run_does_not_hide_a_bad_capture(tmp_path: Path) -> None:
    wildcard = client(Publish(topic_name="a/+"))
    path = write(tmp_path / "bad.pcapng", captured(*opened(), wildcard, closes("client")), drops=1)

    assert run(path, "--select", "PUB").code == 1
    assert run(path, "--select", "PUB", "--require-quality", "usable").code == 3


def test_the_level_comes_from_the_command_line_the_environment_or_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = written("joined in the middle", tmp_path / "joined.pcapng")

    configure(tmp_path, '[lint]\nrequire-quality = "complete"\n')
    assert run(joined).code == 3
    assert "require-quality: complete" in run("--show-settings").text
    assert run("--show-settings", "--format", "json").document["require_quality"] == "complete"
    monkeypatch.setenv("MQTTSCOPE_REQUIRE_QUALITY", "usable")
    assert run(joined).code == 0
    assert run(joined, "--require-quality", "complete").code == 3
    monkeypatch.setenv("MQTTSCOPE_REQUIRE_QUALITY", "good")
    assert "'good' is not one of 'usable', 'complete'" in refused(joined)
    assert "'' is not one of 'usable', 'complete'" in refused(joined, "--require-quality", "")
    configure(tmp_path, '[lint]\nrequire-quality = "perfect"\n')
    monkeypatch.delenv("MQTTSCOPE_REQUIRE_QUALITY")
    assert "lint.require-quality is 'perfect', not one of usable, complete" in refused(joined)


def test_a_bad_capture_makes_no_baseline(tmp_path: Path) -> None:
    path, baseline = write(tmp_path / "bad.pcapng", ALL, drops=3), tmp_path / "baseline.json"

    result = run(path, "--require-quality", "usable", "--baseline", baseline, "--update-baseline")
    assert result.code == 3
    assert f"baseline {baseline}: not written, because the captures are not usable\n" in result.err
    assert not baseline.exists()


def test_each_file_of_a_directory_is_judged_by_itself(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    for number in range(3):
        write(folder / f"{number}.pcapng", moved(ALL, number * 3_600) if number != 1 else [])

    assert run(folder).code == 0, "a quiet part of a rotated set"
    result = run(folder, "--require-quality", "usable")
    assert result.code == 3
    assert f"{folder / '1.pcapng'} is not usable: no MQTT packet to judge\n" in result.err
    assert result.err.count("is not usable") == 1
    assert run(folder, "--require-quality", "usable", "--require-packets", "0").code == 0


def test_many_bad_captures_are_counted(tmp_path: Path) -> None:
    paths = [
        write_capture(tmp_path / f"{number}.pcapng", *WHOLE, to=f"10.0.1.{number}:1883", drops=1) for number in range(7)
    ]

    result = run(*paths[:6], "--require-quality", "usable")
    assert result.err.count("is not usable: 1 frame dropped by the capture") == 5
    assert "mqttscope: 1 more capture is not usable\n" in result.err
    result = run(*paths, "--require-quality", "usable", "--format", "json")
    assert "mqttscope: 2 more captures are not usable\n" in result.err
    assert len(result.document["summary"]["shortfalls"]) == 7


def test_packets_are_required_of_each_capture(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty.pcapng", [])
    few = write_capture(tmp_path / "few.pcapng", *opened(client_identifier="few"), closes("client"))
    sentence = f"no MQTT packet to judge in {empty}"

    for more in ((), ("--require-packets", "1")):
        result = run(CLEAN, empty, *more)
        assert (result.code, result.err) == (3, f"mqttscope: {sentence}\n")
        assert sentence in result.text
    assert run(CLEAN, empty, "--require-packets", "0").code == 0
    assert run(CLEAN, few, "--require-packets", "2").code == 0
    result = run(CLEAN, few, "--require-packets", "3")
    assert (result.code, result.err) == (
        3,
        f"mqttscope: too little to judge: 3 MQTT packets are required of each capture, {few} has 2\n",
    )
    result = run(CLEAN, few, empty, "--require-packets", "3", "--format", "json")
    assert result.document["summary"]["nothing"].endswith(f"{few} has 2, {empty} has 0")
    names = [write(tmp_path / f"{number}.pcapng", []) for number in range(6)]
    sentence = run(CLEAN, *names[:5], "--require-packets", "3").err
    assert sentence.endswith(f"{names[4]} has 0\n")
    sentence = run(CLEAN, *names, "--require-packets", "3").err
    assert sentence.endswith(f"{names[4]} has 0, and 1 more capture too few\n")


def test_a_capture_that_was_not_read_is_named_once() -> None:
    result = run(CLEAN, "gone.pcap", "--require-quality", "complete")

    assert result.code == 3
    assert result.err.splitlines() == [
        "mqttscope: gone.pcap: does not exist",
        "mqttscope: gone.pcap is not complete: 1 capture not read to the end",
    ]


def test_a_finding_that_fails_the_run_is_worth_more_than_an_empty_capture_beside_it(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty.pcapng", [])

    assert run(FAILING, empty).code == 1
    assert run(FAILING, empty, "--require-packets", "1").code == 3
