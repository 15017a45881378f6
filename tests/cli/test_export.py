"""``inspect --output``: the frames of what was shown, as a capture of their own."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqttscope.capture import open_capture
from mqttscope.capture.write import PcapngWriter
from mqttscope.cli import export
from mqttscope.dissect import Dissector, dissect
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.context import WIDE
from mqttscope.net.frame import Frame
from mqttscope.replay.script import read_scripts
from tests import corpora
from tests.capture.doubled import recorded
from tests.cli.running import CAPTURES, FORMATS, capture, inspected, invoke, run, without
from tests.each import some

QOS = capture("v5-qos")


def frames(path: Path) -> list[Frame]:
    actual_frames = list(open_capture([path]))
    assert all(isinstance(frame, Frame) for frame in actual_frames)
    return actual_frames  # type: ignore[return-value]


def told(path: Path, *arguments: str) -> list[dict[str, Any]]:
    """What a capture shows, without what changes when frames are left out."""
    return [
        without(line, "capture", "frame")
        for line in inspected(path, *arguments).lines
        if line["event"] in ("packet", "malformed")
    ]


def exported(tmp_path: Path, *arguments: str | Path, stdin: bytes = b"") -> Path:
    target = tmp_path / "out.pcapng"
    done = invoke("inspect", "--format", "jsonl", *arguments, "--write", target, stdin=stdin)
    assert done.code == 0
    known = "captured twice", "one direction only", "mergecap merges them"
    assert all(any(words in line for words in known) for line in done.err.splitlines()), done.err
    return target


@pytest.mark.parametrize("path", some(CAPTURES, 4), ids=lambda path: str(path.parent.name))
def test_reading_the_export_gives_the_same_packets(path: Path, tmp_path: Path) -> None:
    target = exported(tmp_path, path)

    if path.parent.name.startswith("joined"):
        # Which connection is seen first depends on frames without data.
        assert Counter(map(of_packet, told(target))) == Counter(map(of_packet, told(path)))
    elif inspected(path).packets:
        assert told(target) == told(path)
    whole = iter(frames(path))
    assert all(any(left_frame.data == frame.data for frame in whole) for left_frame in frames(target))


def of_packet(line: dict[str, Any]) -> str:
    """A packet itself, wherever and whenever it came."""
    return str((line["client"], line["direction"], line["type"], line.get(line["type"])))


DAMAGED = {
    "lost-in-payload": "what surrounds a hole is not shown",
    "strange-port-joined": "nothing says that it is MQTT",
    "joined-v5": "the version is a guess from all packets",
    "planted-violations": "a packet that breaks rules is no proof of where packets begin after a hole",
    "misdelivered": "a packet that breaks rules is no proof of where packets begin after a hole",
    "websocket-cut-frame": "a WebSocket frame that ends within a packet",
    "failing-device": "a packet that breaks rules is no proof of where packets begin after a hole",
    "split-at-odd-places": "an acknowledgement that lies inside two others",
}


@pytest.mark.long
@pytest.mark.parametrize("expression", ["publish", "publish and qos == 0", "puback or suback"])
@pytest.mark.parametrize(
    "path", [path for path in CAPTURES if path.parent.name not in DAMAGED], ids=lambda path: str(path.parent.name)
)
def test_reading_what_a_filter_chose_gives_the_same_packets(path: Path, expression: str, tmp_path: Path) -> None:
    before = inspected(path, "--filter", expression).packets
    target = exported(tmp_path, path, "--filter", expression)
    if not before:
        assert not invoke("inspect", "--format", "jsonl", target).packets
        return

    after = inspected(target, "--filter", expression).packets
    # Holes are open to the end where nobody shows what filled them, so that order and time may differ.
    assert Counter(map(of_packet, after)) == Counter(map(of_packet, before))


def test_frames_keep_their_bytes_and_times_to_the_nanosecond(tmp_path: Path) -> None:
    target = exported(tmp_path, QOS)
    left_frames = frames(target)
    by_time = {frame.timestamp_ns: frame.data for frame in frames(QOS)}

    assert left_frames
    for frame in left_frames:
        assert by_time[frame.timestamp_ns] == frame.data
    assert target.stat().st_mode & 0o077 == 0, "it is for its owner alone"


def test_a_filter_leaves_out_the_frames_of_other_connections(tmp_path: Path) -> None:
    target = exported(tmp_path, QOS, "--filter", 'client_identifier == "sensor-1"')
    lines = inspected(target).packets

    assert {line["client_identifier"] for line in lines} == {"sensor-1"}
    assert len(lines) == 10
    assert 10 < len(frames(target)) < len(frames(QOS)) - 10


def test_handshake_and_connect_come_with_what_was_chosen(tmp_path: Path) -> None:
    target = exported(tmp_path, capture("strange-port"), "--filter", "publish", "--limit", "1")
    lines = inspected(target)

    assert lines.of("connection_opened")[0]["handshake_seen"]
    assert [line["type"] for line in lines.packets] == ["connect", "publish"]


def test_limit(tmp_path: Path) -> None:
    assert told(exported(tmp_path, QOS, "--limit", "3")) == told(QOS)[:3]


def test_nothing_shown_gives_an_empty_capture(tmp_path: Path) -> None:
    target = exported(tmp_path, QOS, "--filter", 'topic == "no such topic"')

    assert target.stat().st_size > 0
    assert frames(target) == []


def test_several_captures_become_one(tmp_path: Path) -> None:
    other = capture("v311-qos")

    assert len(told(exported(tmp_path, QOS, other))) == len(told(QOS)) + len(told(other))


@pytest.mark.parametrize("name", ["v5-qos", "websocket-deflate", "reordered", "byte-by-byte"])
def test_standard_input(name: str, tmp_path: Path) -> None:
    path = capture(name)
    target = exported(tmp_path, "-", stdin=path.read_bytes())

    assert told(target) == told(path)
    assert target.read_bytes() == exported(tmp_path, path).read_bytes()


def test_standard_input_keeps_its_name_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    words = ("inspect", "-", "--format", "jsonl", "-w", tmp_path / "o.pcapng")
    done = run(*words, stdin=QOS.read_bytes(), env={"TMPDIR": str(tmp_path)})

    assert done.code == 0
    assert {line["capture"] for line in done.lines} == {"-"}
    assert [path.name for path in tmp_path.iterdir()] == ["o.pcapng"]


LIKE_A_REPORT = "is named like a report; call it .pcapng, or use --output for the report"
LIKE_A_CAPTURE = "is named like a capture; use --write for the frames"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-w", "folder"), "--write: folder is a directory"),
        (("-w", "nowhere/o.pcapng"), "/nowhere is not a directory"),
        (("-o", "out", "-w", "out"), "--output and --write name the same file"),
        *(
            (
                ("--write", name),
                f"writes a capture, and {name} {LIKE_A_REPORT}",
            )
            for name in ("out.jsonl", "out.csv", "OUT.TXT", "out.json", "out.html")
        ),
        *(
            (
                ("--output", name),
                f"writes the report, and {name} {LIKE_A_CAPTURE}",
            )
            for name in ("out.pcapng", "out.pcap", "out.cap", "out.pcapng.gz")
        ),
        (("--write", "out.pcapng.gz"), "would not be compressed"),
    ],
)
def test_what_cannot_be_written_is_refused(
    words: tuple[str, ...], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    done = invoke("inspect", QOS, *words)

    assert (done.code, done.out) == (2, b"")
    assert expected in done.err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


def test_a_directory_without_permission_and_a_full_device(tmp_path: Path) -> None:
    done = invoke("inspect", QOS, "-w", "/dev/full")
    assert (done.code, done.err) == (2, "Error: --write: /dev/full: No space left on device\n")
    assert "PUBLISH" in done.text

    closed = tmp_path / "closed"
    closed.mkdir(0o500)
    if os.access(closed, os.W_OK):
        pytest.skip("this user may write everywhere")
    done = invoke("inspect", QOS, "-w", closed / "o.pcapng")
    assert (done.code, done.out) == (2, b"")
    assert done.err.endswith("o.pcapng cannot be written\n")


PATTERN = "captures/trials/*.pcap*"
TRIALS = corpora.committed(PATTERN)
NO_END_SEEN = ("idle", "port_reused", "evicted")
"""Ends that only what came later on other connections shows."""
CHALLENGED = "tcp_halfopen_challenge_sameisn.pcap"
"""The server answers a SYN with an ACK of the connection before, which the export of the next one has too."""
RESUMES = "tcp_rst_ignored_conn_goes_on.pcap"
FUZZED_TIMES = "time-jumps-back.pcap"
"""Each connection alone shows other steps of a clock that a fuzzer has set."""
MOST_CONNECTIONS = 4


def findings(path: Path) -> list[dict[str, Any]]:
    done = invoke("lint", path, "--select", "ALL", "--format", "jsonl", "--exit-zero")
    # CON108 is one note for all clients of a run.
    return [line for line in done.lines if "rule" in line and line["rule"] != "CON108"]


def mapped(original: list[Frame], left_frames: list[Frame]) -> dict[int, int]:
    """Numbers of the frames of an export in the capture that they come from."""
    counts, rest = {}, iter(original)
    for frame in left_frames:
        counts[frame.number] = next(
            other_frame.number
            for other_frame in rest
            if (other_frame.timestamp_ns, other_frame.data) == (frame.timestamp_ns, frame.data)
        )
    return counts


def of_connection(documents: list[dict[str, Any]], number: int, numbers: dict[int, int] | None) -> Counter[str]:
    """Findings of one connection, by all that does not count from the beginning of a capture.

    Without those that other connections show: what a session or a broker did, and what is overdue, since that shows
    when a frame of any connection comes late enough.
    """
    told_apart: Counter[str] = Counter()
    for document in documents:
        rule = all_rules()[document["rule"]]
        if rule.scope in WIDE or (rule.implements("check_due") and document["packet"] is None):
            continue
        if document["connection"] == number:
            frame = document["frame"] if numbers is None else numbers.get(document["frame"])
            left_document = without(document, "capture", "connection", "packet", "fingerprint", "frame", "related")
            told_apart[json.dumps({**left_document, "frame": frame}, sort_keys=True)] += 1
    return told_apart


def closing(line: dict[str, Any], numbers: dict[int, int] | None) -> dict[str, Any]:
    # What other connections tell of the same addresses is not exported, and an answer may have been among it.
    document = without(line, "capture", "connection", "tcp_unacknowledged")
    if numbers is not None:
        document["frame"] = numbers.get(document["frame"])
        if document["also_closed"]:
            document["also_closed"] = {
                **document["also_closed"],
                "frame": numbers.get(document["also_closed"]["frame"]),
            }
    return document


def script_of(path: Path, number: int) -> tuple[list[bytes], str, str | None] | None:
    """What is replayed of a connection; ``None`` where it cannot be read, as inside TLS."""
    for read_script in read_scripts(dissect(open_capture([path]))):
        if read_script.connection.number == number:
            return [entry.raw for entry in read_script.entries], read_script.ending.how, read_script.ending.by
    return None


@pytest.mark.long
@pytest.mark.parametrize(
    "path",
    [*CAPTURES, *(path for path in TRIALS if path.name != FUZZED_TIMES), *corpora.cases(PATTERN)],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_the_export_of_a_connection_says_of_it_what_the_capture_says(path: Path, tmp_path: Path) -> None:
    whole = recorded(path)
    events = invoke("inspect", "--format", "jsonl", path)
    judged = findings(path)

    for closed in events.of("connection_closed")[:MOST_CONNECTIONS]:
        target = tmp_path / f"{closed['connection']}.pcapng"
        invoke("inspect", path, "--connection", str(closed["connection"]), "--write", target, "--format", "csv")
        numbers = mapped(whole, frames(target))
        again = invoke("inspect", "--format", "jsonl", target).of("connection_closed")
        # With a connection that a reset did not end comes the one that it resumes.
        place = 1 if path.name == RESUMES and closed["connection"] == 1 else 0
        assert len(again) == place + 1
        before, after = closing(closed, None), closing(again[place], numbers)
        if closed["how"] in NO_END_SEEN:
            before, after = (
                {**document, **dict.fromkeys(("how", "frame", "timestamp", "timestamp_ns"))}
                for document in (before, after)
            )
        if path.name == CHALLENGED:
            del before["tcp"], after["tcp"]
        assert after == before
        number = again[place]["connection"]
        assert of_connection(findings(target), number, numbers) == of_connection(judged, closed["connection"], None)
        assert script_of(target, number) == script_of(path, closed["connection"])


@pytest.mark.parametrize("identifier", ["asleep", "awake"])
def test_the_export_of_a_client_has_its_ends(identifier: str, tmp_path: Path) -> None:
    path, expression = capture("keep-alive"), f'client_identifier == "{identifier}"'
    target = exported(tmp_path, path, "--filter", expression)
    (before,) = [
        document for document in inspected(path).of("connection_closed") if document["client_identifier"] == identifier
    ]
    (after,) = inspected(target).of("connection_closed")

    assert (after["how"], after["by"], after["timestamp_ns"]) == (before["how"], before["by"], before["timestamp_ns"])
    assert [finding["rule"] for finding in findings(target)] == [
        finding["rule"] for finding in findings(path) if finding["client_identifier"] == identifier
    ]


def test_what_a_filter_chose_comes_with_the_end_of_its_connection(tmp_path: Path) -> None:
    target = exported(tmp_path, QOS, "--filter", "subscribe")
    (closed,) = inspected(target).of("connection_closed")
    (before,) = [line for line in inspected(QOS).of("connection_closed") if line["client"] == closed["client"]]

    assert all(closed[name] == before[name] for name in ("how", "by", "timestamp_ns"))
    assert len(frames(target)) < len(frames(QOS)) // 2


def test_the_end_alone(tmp_path: Path) -> None:
    expression = 'event == connection_closed and client_identifier == "asleep"'
    lines = inspected(exported(tmp_path, capture("keep-alive"), "--filter", expression))

    assert [line["type"] for line in lines.packets] == ["connect"]
    assert [(line["how"], line["by"]) for line in lines.of("connection_closed")] == [("fin", "server")]


def fragmented(path: Path, target: Path, size: int = 24) -> None:
    """A capture with every IPv4 packet of more than ``size`` bytes cut into fragments."""
    with PcapngWriter(target) as writer:
        for frame in recorded(path):
            start = frame.data.index(b"\x45\x00")
            head, body = frame.data[start : start + 20], frame.data[start + 20 :]
            length = int.from_bytes(head[2:4], "big") - 20
            body = body[:length]
            for at in range(0, length, size):
                piece = body[at : at + size]
                more = 0x2000 if at + size < length else 0
                header = head[:2] + (20 + len(piece)).to_bytes(2, "big") + frame.number.to_bytes(2, "big")
                header += (more | at // 8).to_bytes(2, "big") + head[8:10] + b"\0\0" + head[12:]
                data = frame.data[:start] + header + piece
                writer.write(replace(frame, data=data, original_length=len(data)))


def test_packets_in_ip_fragments_come_with_all_of_them(tmp_path: Path) -> None:
    whole = tmp_path / "fragments.pcapng"
    fragmented(QOS, whole)
    target = exported(tmp_path, whole, "--filter", 'client_identifier == "sensor-1"')

    expected = [line for line in told(QOS) if line["client_identifier"] == "sensor-1"]
    assert len(frames(whole)) > 2 * len(frames(QOS))
    assert list(map(of_packet, told(target))) == list(map(of_packet, expected))


def test_lines_opened_and_closed_are_those_of_the_client(tmp_path: Path) -> None:
    lines = inspected(QOS, "--filter", 'client_identifier == "sensor-1"')

    assert [line["event"] for line in lines.lines[:2]] == ["connection_opened", "packet"]
    assert {line["connection"] for line in lines.lines} == {1}
    assert len(lines.of("connection_opened")) == len(lines.of("connection_closed")) == 1


def test_flows_that_are_over_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(export, "RECORDS_CHECKED", 2)
    held: list[int] = []
    forget = export.Export._forget

    def seen(self: export.Export, dissector: Dissector) -> None:
        forget(self, dissector)
        held.append(len(self._records))

    monkeypatch.setattr(export.Export, "_forget", seen)
    target = exported(tmp_path, *CAPTURES[:12])

    assert held
    assert told(target)


@pytest.mark.parametrize("form", FORMATS)
def test_the_report_goes_to_a_file(form: str, tmp_path: Path) -> None:
    target = tmp_path / "report"
    done = invoke("inspect", QOS, "--format", form, "-o", target)

    assert (done.code, done.out, done.err) == (0, b"", "")
    assert target.read_bytes() == invoke("inspect", QOS, "--format", form).out


def test_report_and_frames_in_one_run(tmp_path: Path) -> None:
    report, target = tmp_path / "r.jsonl", tmp_path / "c.pcapng"
    done = invoke("inspect", QOS, "--format", "jsonl", "-o", report, "-w", target, "-f", "publish")

    assert (done.code, done.out) == (0, b"")
    assert len(report.read_bytes().splitlines()) == len(inspected(QOS, "-f", "publish").lines)
    assert [line["type"] for line in inspected(target, "-f", "publish").packets] == ["publish"] * 6
