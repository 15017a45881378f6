"""``mqttscope stats``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Done, interrupt, invoke
from tests.cli.running import run as run_program
from tests.stats.talk import path


def run(*arguments: str | Path, stdin: bytes = b"") -> Done:
    return invoke("stats", *arguments, stdin=stdin)


def told(*arguments: str | Path) -> dict[str, Any]:
    return run(*arguments, "--format", "json").document


def test_text_has_an_overview_and_every_table() -> None:
    result = run(path("v5-topic-alias-client"), path("v5-qos"))

    assert result.code == 0
    assert result.text.startswith("2 captures · 123 frames · ")
    for title in ("Packets", "PUBLISH", "Latency", "Captures", "Connections", "Clients", "Topics"):
        assert f"\n{title}\n" in result.text
    assert "\x1b" not in result.text
    assert "\x1b[" in run(path("v5-qos"), "--color").text


def test_json_is_one_line() -> None:
    result = run(path("v5-qos"), "--format", "json")

    assert result.text.count("\n") == 1
    assert list(result.document) == ["schema", "captures", "connections", "clients", "topics", "totals"]


def test_tables_rows_and_order() -> None:
    document = told(path("v5-topic-alias-client"), "--by", "topic,client", "--top", "1", "--sort", "bytes")

    assert [row["client_identifier"] for row in document["clients"]] == ["logger"]
    assert [row["topic"] for row in document["topics"]] == ["plant/line1/humidity"]
    assert "connections" not in document


@pytest.mark.parametrize(
    "arguments", [("--by", "topics"), ("--by", ""), ("--sort", "beauty"), ("--top", "0"), ("--filter", "qos >")]
)
def test_wrong_options_are_usage_errors(arguments: tuple[str, str]) -> None:
    done = run(path("v5-qos"), *arguments)

    assert (done.code, done.out) == (2, b"")
    assert "\nError: " in done.err


def test_a_filter_restricts_what_is_counted() -> None:
    actual_document = told(path("v5-qos"), "--filter", "type == publish and qos == 2")

    assert list(actual_document["totals"]["types"]) == ["publish"]
    assert actual_document["totals"]["packets"] == {"client_to_server": 1, "server_to_client": 1}
    assert [sum(row["packets"].values()) for row in actual_document["connections"]] == [1, 1]
    assert actual_document["totals"]["frames"] == 53
    ends, all_ends = (
        {row["connection"]: (row["closed_how"], row["ended_ns"]) for row in document["connections"]}
        for document in (actual_document, told(path("v5-qos")))
    )
    assert ends == all_ends
    # Answers keep their latencies.
    actual_document = told(path("v5-qos"), "--filter", "type == puback")
    assert actual_document["totals"]["latencies"]["publish_puback"]["client_to_server"]["maximum_ns"] == 353_855


def test_connections_are_chosen_by_number() -> None:
    document = told(path("v5-qos"), "--connection", "1")

    assert [row["connection"] for row in document["connections"]] == [1]
    assert [row["client_identifier"] for row in document["clients"]] == ["sensor-1"]
    assert document["totals"]["connections"]["opened"] == 1


def test_the_sums_of_filters_that_exclude_each_other_are_the_whole() -> None:
    document, other = (told(path("v5-qos"), "--filter", filter_) for filter_ in ("type == publish", "type != publish"))
    whole = told(path("v5-qos"))

    for direction in ("client_to_server", "server_to_client"):
        parts = document["totals"]["packets"][direction] + other["totals"]["packets"][direction]
        assert parts == whole["totals"]["packets"][direction]


def test_a_truncated_capture_is_counted_as_far_as_it_goes_and_ends_with_3(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(path("v5-qos").read_bytes()[:-30])
    done = run_program("stats", cut, "--format", "json")
    (counted,) = done.document["captures"]

    assert done.code == 3
    assert "cut.pcapng" in done.err
    assert done.document["totals"]["packets"]["client_to_server"] > 5
    assert counted["error_count"] == 1
    assert counted["errors"][0]["frames"] == counted["frames"]


def test_a_missing_capture_ends_with_3_and_the_others_are_counted(tmp_path: Path) -> None:
    done = run_program("stats", tmp_path / "none.pcap", path("v5-qos"))

    assert done.code == 3
    assert "24 packets" in done.text


def test_standard_input() -> None:
    document = run("-", "--format", "json", stdin=path("v5-qos").read_bytes()).document
    assert document["captures"][0]["capture"] == "-"
    assert document["totals"]["frames"] == 53

    empty = run("-", stdin=bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000"))
    assert empty.code == 0
    assert "no TCP connection found" in empty.err
    assert "0 packets" in empty.text


def test_interrupted_it_shows_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    from mqttscope.stats.collect import Statistics

    interrupt(monkeypatch, Statistics, 10)
    result = run(path("v5-qos"))

    assert result.code == 130
    assert result.text.startswith("1 capture")


def test_a_page_shows_packets_over_time(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run(path("misdelivered"), "--output", page).code == 0

    assert b"Packets over time" in page.read_bytes()


def test_text_and_json_go_to_a_file_too(tmp_path: Path) -> None:
    for form in ("text", "json"):
        target = tmp_path / form
        run(path("v5-qos"), "--format", form, "--output", target)
        assert target.read_text("utf-8") == run(path("v5-qos"), "--format", form).text
    assert "is an input capture" in run(path("v5-qos"), "--output", path("v5-qos")).err
