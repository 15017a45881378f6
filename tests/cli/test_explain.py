"""``mqttscope explain``."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pytest

from tests.capture.test_pcap import pcap_file
from tests.cli.running import CAPTURES, Done, invoke
from tests.cli.running import run as run_program
from tests.each import sampled
from tests.explain.running import capture
from tests.net.dns import asking, datagram, failure, query
from tests.report.html.reader import documents


def run(*arguments: str | Path, stdin: bytes = b"") -> Done:
    return invoke("explain", *arguments, stdin=stdin)


def told(*arguments: str | Path) -> dict[str, Any]:
    return run(*arguments, "--format", "json").document


def connections(*arguments: str | Path) -> list[int]:
    return [row["connection"] for row in told(*arguments)["explanations"]]


def test_trouble_is_no_failure_and_without_it_one_sentence_says_so() -> None:
    assert run(capture("keep-alive")).code == 0
    result = run(capture("v311-qos"))
    assert result.text == (
        "No connection ended in trouble: 2 connections ended with DISCONNECT.\n"
        "To see why a message did not arrive, add --message TOPIC.\n"
    )


def test_selections_explain_what_they_name_however_it_ended() -> None:
    path = capture("keep-alive")

    assert connections(path) == [1]
    assert connections(path, "--all") == [1, 0], "in the order of the ends"
    assert connections(path, "--connection", "0") == [0]
    assert connections(path, "--client", "aw*") == [0]
    assert connections(path, "--client", "aw*", "--connection", "1") == []
    assert "connection 7 does not exist" in run(path, "--connection", "7").err


@pytest.mark.parametrize("message", [(), ("--message", "plant/7/alarm")])
def test_clients_that_the_capture_does_not_have_are_named_with_their_nearest(message: tuple[str, ...]) -> None:
    path = capture("undelivered")
    absent, nearest = run(path, *message, "--client", "nobody"), run(path, *message, "--client", "LAT")

    assert absent.code == 0
    assert "The capture contains no client nobody.\n" in absent.text
    assert "The capture contains no client LAT; similar: late" in nearest.text
    assert "in the capture:" not in absent.text, "no message is counted"
    both = told(path, *message, "--client", "right", "--client", "nobody")
    assert both["remarks"][0] == "The capture contains no client nobody."
    assert not any("right" in each for each in both["remarks"])


def test_failed_lookups_come_first_and_with_messages_too(tmp_path: Path) -> None:
    frames = [asking(query("broker.example")), datagram(failure("broker.example", 3))]
    path = tmp_path / "dns.pcap"
    path.write_bytes(pcap_file([(1_700_000_000, number, frame) for number, frame in enumerate(frames)], network=101))

    assert "What broke  1 client could not resolve a name\n" in run(path).text
    assert "because it could not resolve broker.example: " in run(path, "--message", "a").text


def test_captures_without_mqtt_are_no_answer() -> None:
    empty = run_program("explain", "-", stdin=b"no capture at all, but long enough to look at")

    assert empty.code == 3
    assert "Traceback" not in empty.err


def test_standard_input_and_compressed_captures_say_the_same() -> None:
    raw = capture("half-open").read_bytes()
    piped, unpacked = (
        run("-", "--format", "json", stdin=input_raw).document for input_raw in (raw, gzip.compress(raw))
    )

    assert piped == unpacked
    assert [row["cause"] for row in piped["explanations"]] == ["half_open"]


def test_several_captures_are_one_run() -> None:
    document = told(capture("half-open"), capture("reset-by-middlebox"))

    assert [row["cause"] for row in document["explanations"]] == ["middlebox_reset", "half_open"]
    assert document["totals"]["connections"] == 3


def test_a_file_takes_the_report(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    result = run(capture("half-open"), "--format", "markdown", "--output", path)

    assert result.text == ""
    assert path.read_text("utf-8").startswith("* **What broke**: ")


def test_messages_are_explained_instead_of_ends() -> None:
    result = run(capture("undelivered"), "--message", "plant/7/alarm")
    document = told(capture("undelivered"), "--message", "plant/7/alarm", "--client", "upp*")

    assert result.code == 0
    assert "delivered to 1 client, not to 3" in result.text
    assert [each["client"] for each in document["messages"][0]["clients"]] == ["upper"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--message", "a/#/b"), "--message: 'a/#/b' is not a Topic Filter: # must be the last level"),
        (("--message", ""), "--message: '' is not a Topic Filter: it is empty"),
        (("--message", "a", "--all"), "--message can be combined with --client"),
        (("--message", "a", "--connection", "1"), "--message can be combined with --client"),
        (("--format", "text", "--output", "x.pcapng"), "named like a capture"),
        (("--format", "sarif"), "sarif"),
        (("--format", "html", "--time", "epoch"), "--time is for text: --format html has times in UTC"),
        (("--output", "x.html", "--time", "iso"), "--time is for text: --format html has times in UTC"),
    ],
)
def test_contradictions_are_usage_errors(arguments: tuple[str, ...], complaint: str) -> None:
    result = run(capture("half-open"), *arguments)

    assert result.code == 2
    assert complaint in result.err


def test_times_are_shown_as_asked() -> None:
    path = capture("half-open")

    assert "1767225600." in run(path, "--time", "epoch").text
    assert "  0.000000 frame" in run(path, "--time", "relative").text
    assert "00:20:00.013000 frame 13" in run(path).text


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_damaged_captures_end_without_a_traceback(form: str) -> None:
    dice = random.Random(7)
    for path in dice.sample(CAPTURES, 12):
        raw = bytearray(path.read_bytes())
        for _ in range(40):
            raw[dice.randrange(200, len(raw))] = dice.randrange(256)
        for arguments in (("--all",), ("--message", "#")):
            assert run("-", "--format", form, *arguments, stdin=bytes(raw)).code in (0, 3), path


@sampled("path", CAPTURES, ids=lambda path: str(path.parent.name))
def test_every_capture_is_explained_without_its_secrets(path: Path) -> None:
    for form in ("text", "json", "markdown"):
        assert b"s3cret" not in run(path, "--format", form, "--all").out


def test_a_page_has_the_explanations_of_json(tmp_path: Path) -> None:
    page = tmp_path / "why.html"
    capture_file = capture("hasty-clients")
    assert run(capture_file, "--output", page).code == 0

    assert documents(page.read_bytes()) == told(capture_file)["explanations"]
    assert run(capture_file, "--output", page, "--message", "#").code == 0
    assert b"<h2>Messages</h2>" in page.read_bytes()


@sampled("path", CAPTURES, every=12)
def test_captures_are_explained_alike_with_and_without_the_kernel(path: Path) -> None:
    arguments = ("explain", path, "--all", "--format", "json")

    assert invoke(*arguments).out == invoke(*arguments, env={"MQTTSCOPE_KERNEL": "0"}).out


def test_edge_nodes_of_sparkplug_are_explained_with_the_selected_clients() -> None:
    path = capture("sparkplug-deviations")
    rows = told(path)["edge_nodes"]

    assert [(row["question"], row["certainty"]) for row in rows] == [
        ("offline", "likely"), ("stale", "likely"), ("rebirth", "likely"), ("no_birth", "certain"),
    ]  # fmt: skip
    assert [row["question"] for row in told(path, "--client", "room")["edge_nodes"]] == ["rebirth"]
    assert [row["question"] for row in told(path, "--connection", "2")["edge_nodes"]] == ["offline"]
    assert "edge_nodes" not in told(capture("keep-alive"))
    assert "edge node plant/valve: rebirth requested (likely)\n" in run(path).text
