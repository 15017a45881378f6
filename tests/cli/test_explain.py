"""``mqttscope explain``."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import CAPTURES, Done, invoke
from tests.cli.running import run as run_program
from tests.each import sampled
from tests.explain.running import capture
from tests.report.html.reader import blocks


def run(*arguments: str | Path, given: bytes = b"") -> Done:
    return invoke("explain", *arguments, given=given)


def told(*arguments: str | Path) -> dict[str, Any]:
    return run(*arguments, "--format", "json").document


def connections(*arguments: str | Path) -> list[int]:
    return [one["connection"] for one in told(*arguments)["explanations"]]


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
    assert "there is no connection 7" in run(path, "--connection", "7").err


@pytest.mark.parametrize("message", [(), ("--message", "plant/7/alarm")])
def test_clients_that_the_capture_does_not_have_are_named_with_their_nearest(message: tuple[str, ...]) -> None:
    path = capture("undelivered")
    absent, nearest = run(path, *message, "--client", "nobody"), run(path, *message, "--client", "LAT")

    assert absent.code == 0
    assert "No client nobody is in the capture.\n" in absent.text
    assert "No client LAT is in the capture; the nearest: late" in nearest.text
    assert "in the capture:" not in absent.text, "no message is counted"
    both = told(path, *message, "--client", "right", "--client", "nobody")
    assert both["remarks"][0] == "No client nobody is in the capture."
    assert not any("right" in one for one in both["remarks"])


def test_captures_without_mqtt_are_no_answer() -> None:
    empty = run_program("explain", "-", given=b"no capture at all, but long enough to look at")

    assert empty.code == 3
    assert "Traceback" not in empty.err


def test_standard_input_and_compressed_captures_say_the_same() -> None:
    raw = capture("half-open").read_bytes()
    piped, unpacked = (run("-", "--format", "json", given=given).document for given in (raw, gzip.compress(raw)))

    assert piped == unpacked
    assert [one["cause"] for one in piped["explanations"]] == ["half_open"]


def test_several_captures_are_one_run() -> None:
    found = told(capture("half-open"), capture("reset-by-middlebox"))

    assert [one["cause"] for one in found["explanations"]] == ["middlebox_reset", "half_open"]
    assert found["totals"]["connections"] == 3


def test_a_file_takes_the_report(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    result = run(capture("half-open"), "--format", "markdown", "--output", path)

    assert result.text == ""
    assert path.read_text("utf-8").startswith("* **What broke**: ")


def test_messages_are_explained_instead_of_ends() -> None:
    result = run(capture("undelivered"), "--message", "plant/7/alarm")
    one = told(capture("undelivered"), "--message", "plant/7/alarm", "--client", "upp*")

    assert result.code == 0
    assert "delivered to 1 client, not to 3" in result.text
    assert [each["client"] for each in one["messages"][0]["clients"]] == ["upper"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--message", "a/#/b"), "--message: 'a/#/b' is no Topic Filter: # must be the last level"),
        (("--message", ""), "--message: '' is no Topic Filter: it is empty"),
        (("--message", "a", "--all"), "--message goes with --client alone"),
        (("--message", "a", "--connection", "1"), "--message goes with --client alone"),
        (("--output", "x.pcapng"), "named like a capture"),
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
            assert run("-", "--format", form, *arguments, given=bytes(raw)).code in (0, 3), path


@sampled("path", CAPTURES, ids=lambda path: str(path.parent.name))
def test_every_capture_is_explained_without_its_secrets(path: Path) -> None:
    for form in ("text", "json", "markdown"):
        assert b"s3cret" not in run(path, "--format", form, "--all").out


def test_a_page_has_the_explanations_of_json(tmp_path: Path) -> None:
    page = tmp_path / "why.html"
    capture_file = capture("hasty-clients")
    assert run(capture_file, "--output", page).code == 0

    assert blocks(page.read_bytes(), "explanations") == told(capture_file)["explanations"]
    assert run(capture_file, "--output", page, "--message", "#").code == 0
    assert b"<h2>Messages</h2>" in page.read_bytes()
