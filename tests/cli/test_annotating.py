"""Annotated copies: comments that Wireshark shows, and packets and findings as in the capture."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mqttscope.capture import open_capture
from mqttscope.net.frame import Frame
from tests import tools
from tests.cli.running import CAPTURES, Done, capture, inspected, invoke, without
from tests.conftest import ROOT
from tests.each import some

BROKEN = capture("deviations-rabbitmq")
RESTART = capture("broker-restarts")
SCRIPT = ROOT / "docs" / "wireshark" / "mqttscope.lua"
PROFILE = ROOT / "docs" / "wireshark" / "profile"
PLACES = ("capture", "frame", "related", "connection", "packet")
"""Keys that differ in a copy without the frames of other connections."""


def lint(*arguments: str | Path) -> Done:
    done = invoke("lint", "--no-config", "--exit-zero", *arguments)
    assert done.code == 0, done.err
    return done


def findings(*arguments: str | Path) -> list[dict[str, Any]]:
    return lint("--format", "jsonl", *arguments).lines


def comments(path: Path) -> dict[int, list[str]]:
    """The comments of frames, as tshark reads them."""
    words = ["-r", str(path), "-Y", "frame.comment", "-T", "json", "-e", "frame.number", "-e", "frame.comment"]
    layers = [row["_source"]["layers"] for row in json.loads(tshark(*words))]
    return {int(layer["frame.number"][0]): layer["frame.comment"][0].split("\n") for layer in layers}


def tshark(*arguments: str | Path, **environment: str) -> str:
    program = tools.program("tshark")
    done = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, env=os.environ | environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def frames(*paths: Path) -> list[tuple[int, bytes]]:
    return [(item.timestamp_ns, item.data) for item in open_capture(paths) if isinstance(item, Frame)]


@pytest.mark.tshark
def test_each_finding_is_a_comment_on_its_frame(tmp_path: Path) -> None:
    copy = tmp_path / "annotated.pcapng"
    lint(BROKEN, "--all-frames", "--output", f"pcapng={copy}")

    expected: dict[int, list[str]] = {}
    for row in findings(BROKEN):
        sure = "" if row["confidence"] == "certain" else f", {row['confidence']}"
        text = f"{row['rule']} {row['severity']}{sure}: {row['message']}"
        expected.setdefault(row["frame"], []).append(text)
    copied = comments(copy)
    assert copied.keys() == expected.keys()
    for frame, texts in expected.items():
        assert [line[: len(text)] for line, text in zip(copied[frame], texts, strict=True)] == texts
    assert "[3.1.1 MQTT-3.3.4-1] (client sender)" in copied[22][0]
    assert tshark("-r", copy, "-Y", 'frame.comment contains "ACK204"', "-T", "fields", "-e", "frame.number") == "22\n"


@pytest.mark.parametrize("path", some(CAPTURES, 12), ids=lambda path: path.parent.name)
def test_a_copy_has_the_same_packets_and_findings(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.pcapng"
    rules = ("--select", "ALL")
    lint(path, *rules, "--output", copy)

    assert set(frames(copy)) <= set(frames(path))
    assert [without(row, *PLACES) for row in findings(copy, *rules)] == [
        without(row, *PLACES) for row in findings(path, *rules)
    ]
    packets = [
        [without(row, "capture", "frame", "connection") for row in inspected(capture_path).packets]
        for capture_path in (path, copy)
    ]
    assert packets[0] == packets[1]

    lint(path, *rules, "--all-frames", "--output", copy)
    assert frames(copy) == frames(path)
    assert [without(row, "capture") for row in findings(copy, *rules)] == [
        without(row, "capture") for row in findings(path, *rules)
    ]


def test_several_captures_become_sections_in_the_order_of_time(tmp_path: Path) -> None:
    copy = tmp_path / "copy.pcapng"
    lint(BROKEN, RESTART, "--all-frames", "--output", copy)

    assert frames(copy) == frames(BROKEN, RESTART)


@pytest.mark.tshark
def test_causes_are_comments_on_the_frames_of_ends_and_evidence(tmp_path: Path) -> None:
    copy = tmp_path / "annotated.pcapng"
    assert invoke("explain", RESTART, "--output", copy, "--all-frames").code == 0

    document = invoke("explain", RESTART, "--format", "json").document
    copied = comments(copy)
    for row in document["explanations"]:
        start = f"END {row['cause']} ({row['certainty']}), connection {row['connection']}: {row['headline']}"
        assert any(line.startswith(start) for line in copied[row["ended_frame"]])
        for evidence in row["causes"][0]["for"]:
            if evidence["frame"]:
                assert any(line.endswith(evidence["text"]) for line in copied[evidence["frame"]])


@pytest.mark.tshark
def test_messages_are_comments_too(tmp_path: Path) -> None:
    copy = tmp_path / "annotated.pcapng"
    assert invoke("explain", capture("v5-qos"), "--message", "#", "--format", "pcapng", "--output", copy).code == 0

    lines = [line for texts in comments(copy).values() for line in texts]
    assert any(line.startswith("MESSAGE ") for line in lines)
    assert any(line.startswith("DELIVERED ") for line in lines)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("lint", "-", "--output", "x.pcapng"), "needs captures that can be read twice, not standard input"),
        (("lint", BROKEN, "--all-frames"), "--all-frames is for a copy of the captures: --output FILE.pcapng"),
        (("lint", BROKEN, "--output", "pcapng="), "--output pcapng=: no file after the ="),
        (("lint", BROKEN, "--output", "a.pcapng", "--output", "pcapng=b.pcapng"), "an annotated copy is given twice"),
        (("lint", BROKEN, "--output", "a.pcapng", "--output", "json=a.pcapng"), "two outputs go to the same file"),
        (("lint", BROKEN, "--output", "pcapng=a.pcap"), "writes pcapng, and a.pcap is named like pcap"),
        (("lint", BROKEN, "--output", "pcapng=a.json"), "a.json is named like a report"),
        (("lint", BROKEN, "--engine", "spark", "--output", "a.pcapng"), "--engine spark writes no copy"),
        (("lint", BROKEN, "--output", BROKEN), "is an input capture"),
        (("explain", BROKEN, "--output", BROKEN), "is an input capture"),
        (("explain", BROKEN, "--format", "pcapng"), "--format pcapng writes a copy of the captures"),
        (("explain", BROKEN, "--all-frames"), "--all-frames is for a copy of the captures"),
        (("explain", BROKEN, "--format", "text", "--output", "a.pcapng"), "named like a capture"),
    ],
    ids=lambda value: " ".join(map(str, value)).replace(str(ROOT), "") if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_refused(
    words: tuple[str | Path, ...], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke(*words)

    assert done.code == 2
    assert error in done.err
    assert not [*tmp_path.iterdir()]


def test_where_nothing_was_read_no_copy_is_left(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pcapng"
    bad.write_bytes(b"nothing")
    done = invoke("lint", bad, "--output", tmp_path / "copy.pcapng")

    assert done.code == 3
    assert "copy.pcapng is not written: nothing could be read" in done.err
    assert [*tmp_path.iterdir()] == [bad]


def test_a_damaged_capture_is_copied_up_to_the_damage(tmp_path: Path) -> None:
    part, copy = tmp_path / "part.pcapng", tmp_path / "copy.pcapng"
    part.write_bytes(BROKEN.read_bytes()[:-2])
    done = invoke("lint", part, "--output", copy, "--all-frames")

    assert done.code == 3
    assert f"{copy}: the copy of {part} ends after frame {len(frames(copy))}" in done.err
    assert frames(copy) == frames(part)


@pytest.mark.tshark
class TestWireshark:
    """The script and the profile, loaded by tshark."""

    def rows(self, path: Path, *words: str | Path, **environment: str) -> list[list[str]]:
        fields = ("frame.number", "mqttscope.rule", "mqttscope.severity", "mqttscope.confidence", "mqttscope.message")
        named = [word for field in (*fields, "mqttscope.statement") for word in ("-e", field)]
        text = tshark(
            "-X", f"lua_script:{SCRIPT}", *words, "-r", path, "-Y", "mqttscope.rule", "-T", "fields",
            "-E", "separator=|", "-E", "occurrence=a", "-E", "aggregator=;", *named, **environment,
        )  # fmt: skip
        return [line.split("|") for line in text.splitlines()]

    def test_the_script_shows_findings_as_fields(self, tmp_path: Path) -> None:
        path = tmp_path / "findings.jsonl"
        lint(BROKEN, "--output", f"jsonl={path}")
        by_frame: dict[int, list[dict[str, Any]]] = {}
        for row in findings(BROKEN):
            by_frame.setdefault(row["frame"], []).append(row)
        expected = [
            [
                str(frame),
                *(";".join(row[name] for row in rows) for name in ("rule", "severity", "confidence", "message")),
                ";".join(statement for row in rows for statement in row["statements"]),
            ]
            for frame, rows in sorted(by_frame.items())
        ]

        assert self.rows(BROKEN, "-o", f"mqttscope.findings:{path}") == expected
        assert self.rows(BROKEN, MQTTSCOPE_FINDINGS=str(path)) == expected

    def test_the_script_chooses_a_capture_and_reads_any_text(self, tmp_path: Path) -> None:
        path = tmp_path / "findings.jsonl"
        message = 'quotes " and \\ and / and \n, é, 😀, { } [ ] , : and "frame":7'
        row = {"rule": "PUB103", "severity": "error", "confidence": "likely", "message": message, "frame": 3}
        rows = [
            {
                **row,
                "capture": "a.pcapng",
                "statements": [],
                "related": [{"frame": 1, "deep": [[], {}, None, True, -1.5]}],
            },
            {**row, "capture": "b.pcapng", "frame": 4, "statements": ["5.0 MQTT-1", "5.0 MQTT-2"]},
        ]
        odd = ["", "{", "[1, 2", "null", '{"frame": 5}', '{"rule": "X', "7"]
        texts = [*odd, *(json.dumps(row) for row in rows), *(json.dumps(row, ensure_ascii=False) for row in rows)]
        path.write_text("\n".join(texts))

        chosen = self.rows(BROKEN, "-o", f"mqttscope.findings:{path}", "-o", "mqttscope.capture:b.pcapng")
        assert [row[:3] for row in chosen] == [["4", "PUB103;PUB103", "error;error"]]
        assert chosen[0][5] == "5.0 MQTT-1;5.0 MQTT-2;5.0 MQTT-1;5.0 MQTT-2"
        assert {row[0] for row in self.rows(BROKEN, "-o", f"mqttscope.findings:{path}")} == {"3", "4"}
        shown = json.loads(
            tshark(
                "-X", f"lua_script:{SCRIPT}", "-o", f"mqttscope.findings:{path}", "-r", BROKEN, "-T", "json",
                "-Y", "frame.number == 3", "-e", "mqttscope.message",
            )
        )  # fmt: skip
        assert shown[0]["_source"]["layers"]["mqttscope.message"] == [message, message]

    def test_without_findings_the_script_shows_none(self, tmp_path: Path) -> None:
        assert self.rows(BROKEN) == []
        assert self.rows(BROKEN, "-o", f"mqttscope.findings:{tmp_path / 'absent'}") == []

    def test_the_profile_has_columns_with_comments(self, tmp_path: Path) -> None:
        shutil.copytree(PROFILE, tmp_path / "wireshark" / "profiles" / "mqttscope")
        copy = tmp_path / "copy.pcapng"
        lint(BROKEN, "--output", copy)
        text = tshark("-C", "mqttscope", "-r", copy, XDG_CONFIG_HOME=str(tmp_path), HOME=str(tmp_path))

        assert sum(" ACK204 error: PUBACK with identifier 1" in line for line in text.splitlines()) == 1

    @pytest.mark.parametrize("name", ["colorfilters", "dfilter_buttons"])
    def test_filters_of_the_profile_select_frames(self, name: str, tmp_path: Path) -> None:
        lint_copy, explained = tmp_path / "lint.pcapng", tmp_path / "explain.pcapng"
        lint(BROKEN, "--output", lint_copy)
        invoke("explain", RESTART, "--output", explained)
        rows = [line for line in (PROFILE / name).read_text().splitlines() if not line.startswith("#")]
        expressions = [row.split("@")[2] if name == "colorfilters" else json.loads(f"[{row}]")[2] for row in rows]

        assert len(expressions) >= 3
        for expression in expressions:
            assert any(tshark("-r", copy, "-Y", expression) for copy in (lint_copy, explained)), expression
