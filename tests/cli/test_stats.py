"""``mqttscope stats``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mqttscope.cli.main import group
from tests import forked
from tests.cli.running import command
from tests.stats.talk import path


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def run(*arguments: str | Path, given: bytes | None = None) -> Result:
    return CliRunner().invoke(group, ["stats", *map(str, arguments)], input=given, standalone_mode=False)


def told(*arguments: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--format", "json").stdout)
    return found


def program(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    found: subprocess.CompletedProcess[str] = forked.run(
        command("stats", *arguments), text=True, env=forked.environment()
    )
    return found


def test_text_has_an_overview_and_every_table() -> None:
    result = run(path("v5-topic-alias-client"), path("v5-qos"))

    assert result.return_value == 0
    assert result.stdout.startswith("2 captures · 123 frames · ")
    for title in ("Packets", "PUBLISH", "Latency", "Captures", "Connections", "Clients", "Topics"):
        assert f"\n{title}\n" in result.stdout
    assert "\x1b" not in result.stdout


def test_json_is_one_line() -> None:
    result = run(path("v5-qos"), "--format", "json")

    assert result.stdout.count("\n") == 1
    assert list(json.loads(result.stdout)) == ["schema", "captures", "connections", "clients", "topics", "totals"]


def test_colour_on_demand() -> None:
    assert "\x1b[" in run(path("v5-qos"), "--color").stdout


def test_tables_rows_and_order() -> None:
    found = told(path("v5-topic-alias-client"), "--by", "topic,client", "--top", "1", "--sort", "bytes")

    assert [row["client_identifier"] for row in found["clients"]] == ["logger"]
    assert [row["topic"] for row in found["topics"]] == ["plant/line1/humidity"]
    assert "connections" not in found


@pytest.mark.parametrize(
    "arguments", [("--by", "topics"), ("--by", ""), ("--sort", "beauty"), ("--top", "0"), ("--filter", "qos >")]
)
def test_wrong_options_are_usage_errors(arguments: tuple[str, str]) -> None:
    done = program(path("v5-qos"), *arguments)

    assert done.returncode == 2
    assert done.stdout == ""
    assert "rror" in done.stderr


def test_a_filter_restricts_what_is_counted() -> None:
    found = told(path("v5-qos"), "--filter", "type == publish and qos == 2")

    assert list(found["totals"]["types"]) == ["publish"]
    assert found["totals"]["packets"] == {"client_to_server": 1, "server_to_client": 1}
    assert [sum(row["packets"].values()) for row in found["connections"]] == [1, 1]
    assert found["totals"]["frames"] == 53
    ends = {row["connection"]: (row["closed_how"], row["ended_ns"]) for row in found["connections"]}
    assert ends == {
        row["connection"]: (row["closed_how"], row["ended_ns"]) for row in told(path("v5-qos"))["connections"]
    }


def test_a_filter_for_answers_gives_their_latencies() -> None:
    found = told(path("v5-qos"), "--filter", "type == puback")

    assert found["totals"]["latencies"]["publish_puback"]["client_to_server"]["maximum_ns"] == 353_855


def test_connections_are_chosen_by_number() -> None:
    found = told(path("v5-qos"), "--connection", "1")

    assert [row["connection"] for row in found["connections"]] == [1]
    assert [row["client_identifier"] for row in found["clients"]] == ["sensor-1"]
    assert found["totals"]["connections"]["opened"] == 1


def test_the_sums_of_filters_that_exclude_each_other_are_the_whole() -> None:
    one, other = (told(path("v5-qos"), "--filter", filter_) for filter_ in ("type == publish", "type != publish"))
    whole = told(path("v5-qos"))

    for direction in ("client_to_server", "server_to_client"):
        parts = one["totals"]["packets"][direction] + other["totals"]["packets"][direction]
        assert parts == whole["totals"]["packets"][direction]


def test_a_truncated_capture_is_counted_as_far_as_it_goes_and_ends_with_3(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(path("v5-qos").read_bytes()[:-30])
    done = program(cut, "--format", "json")
    found = json.loads(done.stdout)

    assert done.returncode == 3
    assert "cut.pcapng" in done.stderr
    assert found["totals"]["packets"]["client_to_server"] > 5
    assert found["captures"][0]["error_count"] == 1
    assert found["captures"][0]["errors"][0]["frames"] == found["captures"][0]["frames"]


def test_a_missing_capture_ends_with_3_and_the_others_are_counted(tmp_path: Path) -> None:
    done = program(tmp_path / "none.pcap", path("v5-qos"))

    assert done.returncode == 3
    assert "24 packets" in done.stdout


def test_a_capture_without_mqtt_is_told(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000"))
    result = run(empty)

    assert result.return_value == 0
    assert "no TCP connection found" in result.stderr
    assert "0 packets" in result.stdout


def test_standard_input() -> None:
    result = run("-", "--format", "json", given=path("v5-qos").read_bytes())

    assert json.loads(result.stdout)["captures"][0]["capture"] == "-"
    assert json.loads(result.stdout)["totals"]["frames"] == 53


def test_the_reader_may_leave() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$0" -m mqttscope stats "$1" | head -n 1', sys.executable, path("v5-qos")],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert done.stdout.startswith("1 capture")
    assert done.stderr == ""


def test_json_needs_no_rich() -> None:
    code = (
        "import sys; from mqttscope.cli.main import group;"
        f"group.main(['stats', {str(path('v5-qos'))!r}, '--format', 'json'], standalone_mode=False);"
        "sys.stderr.write(str([name for name in sys.modules if name.split('.')[0] == 'rich']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stderr == "[]"


def test_interrupted_it_shows_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    from mqttscope.stats.collect import Statistics

    feed = Statistics.feed
    seen = 0

    def interrupted(self: Statistics, event: Any) -> None:
        nonlocal seen
        seen += 1
        if seen > 10:
            raise KeyboardInterrupt
        feed(self, event)

    monkeypatch.setattr(Statistics, "feed", interrupted)
    result = run(path("v5-qos"))

    assert result.stdout.startswith("1 capture")
    assert isinstance(result.exception, KeyboardInterrupt | SystemExit) or result.exception is not None


def test_a_page_by_one_process_or_several(tmp_path: Path) -> None:
    one, two = tmp_path / "one.html", tmp_path / "two.html"
    assert run(path("misdelivered"), "--output", one).return_value == 0
    assert run(path("misdelivered"), "--output", two, "--jobs", "2").return_value == 0

    assert b"Packets along the time" in one.read_bytes()
    assert one.read_bytes() == two.read_bytes()


def test_text_and_json_go_to_a_file_too(tmp_path: Path) -> None:
    for form in ("text", "json"):
        target = tmp_path / form
        run(path("v5-qos"), "--format", form, "--output", target)
        shown = run(path("v5-qos"), "--format", form).stdout
        assert target.read_text("utf-8") == shown
    refused = run(path("v5-qos"), "--output", path("v5-qos"))
    assert "is a capture that is read" in str(refused.exception)
