"""``compare``: options, what cannot be compared, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqttscope.capture import PcapngWriter
from mqttscope.cli import compare
from mqttscope.replay.verify import captures
from tests.cli.made import Publish, client, on, opened, write_capture
from tests.cli.running import CAPTURES, capture, inspected, invoke
from tests.each import each

QOS, OLD = capture("v5-qos"), capture("v311-qos")


@each(
    "options, expected",
    [
        ((QOS,), "Missing argument 'B'"),
        (("-", "-"), "standard input can be only one of the two captures"),
        ((QOS, OLD, "--ignore", "times"), "'times' is not one of payload, properties"),
        ((QOS, OLD, "--count", "payload"), "'payload' is not one of packet-identifier"),
        ((QOS, OLD, "--ignore-topic", "a/#/b"), "'a/#/b' is not a Topic Filter: # must be the last level"),
        ((QOS, OLD, "--timing", "-1"), "--timing"),
        ((QOS, OLD, "--timing", "nan"), "--timing"),
        ((QOS, OLD, "--output", str(OLD)), "is an input capture"),
        ((QOS, OLD, "--output", "new.pcapng"), "is named like a capture"),
        ((QOS, OLD, "--output", ""), "the name of the file is empty"),
        ((QOS, OLD, "--output", "c.html"), "c.html has the suffix of an unsupported format; compare writes text"),
        ((QOS, OLD, "--output", "c.csv"), "c.csv has the suffix of an unsupported format"),
        ((QOS, OLD, "--ignore", ""), "the value is empty; use one or more of payload, "),
    ],
)
def test_what_makes_no_sense_is_said(options: tuple[str | Path, ...], expected: str) -> None:
    done = invoke("compare", *options)

    assert (done.code, done.text) == (2, "")
    assert expected in done.err


def test_the_name_of_the_output_says_the_format(tmp_path: Path) -> None:
    for name, first in (("c.json", b'{"schema":1,'), ("c.JSONL", b'{"schema":1,"event"'), ("c.txt", b""), ("c", b"")):
        invoke("compare", QOS, OLD, "--output", tmp_path / name)
        written = (tmp_path / name).read_bytes()
        assert written.startswith(first), name
        assert (b'"schema":1' in written) == bool(first), name
    invoke("compare", QOS, OLD, "--output", tmp_path / "d.json", "--format", "text")
    assert b'"schema":1' not in (tmp_path / "d.json").read_bytes()


def test_the_words_are_those_of_the_engine() -> None:
    assert (compare.IGNORABLE, compare.COUNTABLE) == (captures.IGNORABLE, captures.COUNTABLE)


def test_a_capture_equals_itself() -> None:
    for path in CAPTURES[::6]:
        done = invoke("compare", path, path, "--timing", "0", "--count", "packet-identifier,topic-alias,dup,ping")
        name = path.parent.name
        if done.code == 3:
            assert "encrypted, or empty" in done.err, name
        else:
            assert done.code == 0, (name, done.text)
            assert "no differences" in done.text


def test_the_cut_into_segments_does_not_count() -> None:
    """These were derived of one recording: bytes one by one or sent twice, other frames, other times."""
    for source, name in (
        ("v5-limits", "byte-by-byte"),
        ("v311-qos", "duplicated"),
        ("v311-qos", "split-at-odd-places"),
    ):
        done = invoke("compare", capture(source), capture(name))
        assert done.code == 0, (name, done.text)


def test_a_firmware_release(tmp_path: Path) -> None:
    def release(name: str, qos: int, topics: list[str]) -> Path:
        identifier = 7 if qos else None
        steps = [
            client(Publish(topic_name=topic, payload=b"21.5", qos=qos, packet_identifier=identifier))
            for topic in topics
        ]
        return write_capture(tmp_path / name, *on(0, *opened(client_identifier="pump1")), *on(0, *steps))

    before, after = release("a.pcapng", 1, ["plant/a"]), release("b.pcapng", 0, ["plant/a", "plant/b"])

    done = invoke("compare", before, after)
    same = invoke("compare", before, before)
    piped = invoke("compare", "-", after, "--format", "jsonl", stdin=before.read_bytes())
    ignored = invoke("compare", before, after, "--ignore", "qos", "--ignore-topic", "plant/b")
    written = invoke("compare", before, after, "--format", "json", "-o", tmp_path / "found.json")

    assert (done.code, same.code, piped.code, ignored.code, written.code) == (1, 0, 1, 0, 1)
    assert "pump1 (1 connection)" in done.text
    assert "~ client PUBLISH to plant/a: qos 1 in A, 0 in B" in done.text
    assert "+ client PUBLISH to plant/b: only in B" in done.text
    assert piped.of("comparison")[0]["captures"] == {"a": "-", "b": str(after)}
    assert len(json.loads((tmp_path / "found.json").read_text())["differences"]) == 2


def test_what_was_compared_is_counted() -> None:
    other_path, other = capture("v5-qos"), capture("byte-by-byte")
    document = invoke("compare", other_path, other, "--format", "jsonl").of("comparison")[0]

    for side, path in (("a", other_path), ("b", other)):
        closed = inspected(path).of("connection_closed")
        lengths = [line["length"] for line in inspected(path).packets]
        assert document["connections"][side] == len(closed)
        assert (document["packets"][side], document["bytes"][side]) == (len(lengths), sum(lengths))
        wanted = sum(half["data_segments"] for line in closed for half in line["tcp"].values())
        assert document["segments"][side] == wanted
    # One has as many segments as packets, the other as many as bytes.
    assert document["segments"]["a"] <= document["packets"]["a"] + 2
    assert document["segments"]["b"] > document["packets"]["b"]


@pytest.mark.parametrize("side", [0, 1])
def test_what_cannot_be_compared(tmp_path: Path, side: int) -> None:
    def compared(other: Path, *options: str) -> tuple[int, str, str]:
        paths = [QOS, other] if side else [other, QOS]
        done = invoke("compare", *paths, *options)
        return done.code, done.text, done.err

    garbage, short = tmp_path / "garbage.pcap", tmp_path / "short.pcapng"
    garbage.write_bytes(b"no capture at all")
    short.write_bytes(QOS.read_bytes()[:-10])
    empty = tmp_path / "empty.pcapng"
    with empty.open("wb") as file:
        PcapngWriter(file)

    for other in (tmp_path / "none.pcap", garbage, empty):
        code, out, err = compared(other)
        assert (code, out) == (3, ""), other
        assert other.name in err
    code, out, err = compared(short)
    assert code == 3
    assert "not compared to the end" in out
    assert "short.pcapng" in err
    code, out, err = compared(capture("tls-13"))
    assert (code, out) == (3, "")
    assert "tls-13/capture.pcapng: no packet can be read in 1 connection: they are encrypted, or empty" in err
    code, out, err = compared(QOS, "--client", "nobody")
    assert (code, out) == (3, "")
    assert "no connection of nobody can be compared" in err


def test_too_much_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.replay.verify.captures.MAX_KEPT_BYTES", 5_000)

    done = invoke("compare", QOS, OLD)

    assert done.code == 3
    assert "wait for their counterparts in the other capture; select clients with --client" in done.err


def test_what_was_found_before_a_signal_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: captures.CaptureComparison) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(captures.CaptureComparison, "finish", interrupted)

    done = invoke("compare", QOS, OLD, "--format", "json")

    assert done.code == 130
    assert done.document["comparison"]["complete"] is False
    assert done.document["comparison"]["differences"] == len(done.document["differences"]) == 6
