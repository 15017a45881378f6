"""``mqttscope inspect``: formats and options."""

from __future__ import annotations

import csv
import io
import os
import re
from pathlib import Path
from typing import Any

import pytest

from mqttscope.cli.options import PACKET_FORMATS as OFFERED
from mqttscope.report.escape import cells
from tests.cli.running import CAPTURES, FORMATS, capture, inspected, invoke
from tests.each import sampled
from tests.report.html.reader import documents

QOS = capture("v5-qos")
TWICE = (
    "mqttscope: 31 segments were captured twice (two taps or a mirrored port?); --deduplicate reads each frame once\n"
)
ONE_SIDED = "mqttscope: {} connections have one direction only in the capture\n"
NOTES = {"duplicated": TWICE, "client-side-only": ONE_SIDED.format(2), "server-side-only": ONE_SIDED.format(3)}
"""What standard error says of captures beside their packets."""


def test_all_formats_are_tested() -> None:
    assert FORMATS == OFFERED


@sampled("path", CAPTURES, ids=lambda path: str(path.parent.name))
def test_every_capture_in_every_format(path: Path) -> None:
    for form in FORMATS:
        done = invoke("inspect", path, "--format", form)

        assert (done.code, done.err) == (0, NOTES.get(path.parent.name, "")), form
        # What a device sent must never drive the terminal.
        assert not {byte for byte in done.out if byte < 32} - {10, 13 if form == "csv" else 10}, form
        assert done.text.endswith("\n"), form


def test_text_is_the_default() -> None:
    assert invoke("inspect", QOS).out == invoke("inspect", QOS, "--format", "text").out


def test_csv_has_one_row_for_each_packet() -> None:
    rows = list(csv.DictReader(io.StringIO(invoke("inspect", QOS, "--format", "csv").text)))
    packets = inspected(QOS).packets

    assert [row["type"] for row in rows] == [line["type"] for line in packets]
    assert [row["topic"] for row in rows] == [line.get("topic") or "" for line in packets]
    assert [int(row["timestamp_ns"]) for row in rows] == [line["timestamp_ns"] for line in packets]


def test_filter_selects_events() -> None:
    everything = inspected(QOS)
    chosen = inspected(QOS, "--filter", "publish and qos > 0")

    assert chosen.lines == [
        line for line in everything.lines if line.get("type") == "publish" and line["publish"]["qos"] > 0
    ]
    assert 0 < len(chosen.lines) < len(everything.packets)
    assert inspected(QOS, "-f", "publish and qos > 0").out == chosen.out


@pytest.mark.parametrize(
    ("expression", "marked"),
    [
        ('type == publish and topik == "a"', "topik"),
        ("qos > foo", "foo"),
        ("qos >", ""),
        ('topic matches "a/#/b"', '"a/#/b"'),
        ("(qos == 1", ""),
        ('topic ~ "("', "("),
    ],
)
@pytest.mark.parametrize("name", ["inspect", "stats"])
def test_filter_errors_point_at_the_place(name: str, expression: str, marked: str) -> None:
    done = invoke(name, QOS, "--filter", expression)

    assert (done.code, done.out) == (2, b"")
    lines = done.err.splitlines()
    shown = lines.index("  " + expression)
    assert lines[shown - 1].startswith("Error: --filter: ")
    pointer = lines[shown + 1]
    assert set(pointer) <= {" ", "^"}
    start = pointer.index("^") - 2
    if marked:
        assert (start, pointer.count("^")) == (expression.index(marked), len(marked))
    else:
        assert start <= len(expression)


@pytest.mark.parametrize(
    ("expression", "expected"), [("", "the expression is empty\n"), ("nonsense ==", "")], ids=["empty", "nonsense"]
)
def test_filter_is_checked_before_anything_is_read(expression: str, expected: str) -> None:
    done = invoke("inspect", "no-such-file.pcap", "--filter", expression)

    assert done.code == 2
    assert f"Error: --filter: {expected}" in done.err
    assert "does not exist" not in done.err


def test_connection_selects_connections() -> None:
    everything = inspected(QOS).lines

    assert inspected(QOS, "--connection", "1").lines == [line for line in everything if line["connection"] == 1]
    assert inspected(QOS, "--connection", "1", "--connection", "0").lines == everything
    done = invoke("inspect", QOS, "--format", "jsonl", "--connection", "7")
    assert (done.code, done.out) == (0, b"")
    assert done.err == "mqttscope: connection 7 does not exist: numbers go from 0 to 1\n"


@pytest.mark.parametrize("limit", [1, 5, 24])
def test_limit_ends_after_so_many_packets(limit: int) -> None:
    everything = inspected(QOS).lines
    limited = inspected(QOS, "--limit", str(limit)).lines

    assert limited == everything[: len(limited)]
    assert sum("packet" in line for line in limited) == limit
    assert limited[-1]["event"] == "packet"
    # It counts what the filter lets through.
    assert [line["type"] for line in inspected(QOS, "--limit", "2", "--filter", "publish").lines] == ["publish"] * 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("--limit", "0"),
        ("--limit", "-1"),
        ("--connection", "-1"),
        ("--payload-limit", "-1"),
        ("--payload", "xml"),
        ("--time", "mars"),
        ("--format", "pdf"),
        ("--mqtt-version", "4"),
    ],
    ids=" ".join,
)
def test_values_that_make_no_sense_are_usage_errors(arguments: tuple[str, str]) -> None:
    done = invoke("inspect", QOS, *arguments)

    assert (done.code, done.out) == (2, b"")
    assert f"Invalid value for '{arguments[0]}'" in done.err


def test_payload_none_hides_payloads_of_people_and_hex_shows_bytes() -> None:
    published = ("--filter", "publish", "--limit", "1")

    assert "21.0" in invoke("inspect", QOS, *published).text
    assert "21.0" not in invoke("inspect", QOS, *published, "--payload", "none").text
    assert "32312e30" in invoke("inspect", QOS, *published, "--payload", "hex").text.replace(" ", "")


def test_payload_limit_cuts_payloads_and_says_so() -> None:
    def payloads(*limit: str) -> list[dict[str, Any]]:
        return [line["publish"]["payload"] for line in inspected(QOS, "--filter", "publish", *limit).packets]

    assert {payload["text"] for payload in payloads()} == {"21.0", "21.1", "21.2"}
    for limit, text in (("2", "21"), ("0", "")):
        assert payloads("--payload-limit", limit) == [{"length": 4, "text": text, "truncated": True}] * 6


@pytest.mark.parametrize("form", ["text", "tree", "ladder"])
def test_times(form: str) -> None:
    iso, relative, delta = (
        invoke("inspect", QOS, "--format", form, *more).text
        for more in ((), ("--time", "relative"), ("--time", "delta"))
    )

    assert "2026-11-20T20:47:53.810682471Z" in iso
    assert "0.000000" in relative
    assert "0.000123" in relative
    assert "+0.000123" in delta
    assert len({iso, relative, delta}) == 3
    # JSON Lines hold whole times whatever is asked for.
    assert inspected(QOS, "--time", "relative").out == inspected(QOS).out


@pytest.mark.parametrize("form", FORMATS)
def test_passwords_are_shown_on_demand_only(form: str) -> None:
    path = capture("refused-connect")
    secrets = {
        line["connect"]["password"]["text"]
        for line in inspected(path, "--show-secrets").packets
        if line["type"] == "connect" and line["connect"]["password"]
    }
    assert secrets

    hidden = invoke("inspect", path, "--format", form)
    shown = invoke("inspect", path, "--format", form, "--show-secrets")
    for secret in secrets:
        for text in (secret, secret.encode().hex(), secret.encode().hex(" ")):
            assert text not in hidden.text
    if form in ("tree", "jsonl"):
        assert all(secret in shown.text for secret in secrets)


class TestColour:
    @pytest.mark.parametrize("form", ["text", "tree", "ladder"])
    def test_only_on_demand_when_the_output_is_no_terminal(self, form: str) -> None:
        plain, coloured = (invoke("inspect", QOS, "--format", form, *more).text for more in ((), ("--color",)))

        assert "\x1b" not in plain
        assert "\x1b[" in coloured
        if form == "tree":
            # The letters under a hexdump say what its colours say.
            plain = re.sub(r"^ {8}[-a-z ]*-[-a-z ]*\n", "", plain, flags=re.MULTILINE)
        assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain

    def test_environment_variables_and_options(self) -> None:
        assert b"\x1b" in invoke("inspect", QOS, env={"FORCE_COLOR": "1"}).out
        assert b"\x1b" not in invoke("inspect", QOS, "--no-color", env={"FORCE_COLOR": "1"}).out

    @pytest.mark.parametrize("form", ["jsonl", "csv"])
    def test_machine_formats_have_none(self, form: str) -> None:
        assert b"\x1b" not in invoke("inspect", QOS, "--format", form, "--color").out


@pytest.mark.parametrize("form", ["text", "tree", "ladder"])
@pytest.mark.parametrize("columns", [40, 80, 120])
def test_lines_keep_to_the_width_that_columns_says(form: str, columns: int) -> None:
    for path in (QOS, capture("v5-publish-properties"), capture("five-byte-length")):
        done = invoke("inspect", path, "--format", form, env={"COLUMNS": str(columns)})
        assert max(cells(line) for line in done.text.splitlines()) <= columns


@pytest.mark.parametrize("value", ["", "wide", "0", "-5", os.fsdecode("²".encode())])
def test_a_columns_variable_that_makes_no_sense_is_no_reason_to_fail(value: str) -> None:
    done = invoke("inspect", QOS, env={"COLUMNS": value})

    assert (done.code, done.err) == (0, "")
    assert "PUBLISH" in done.text


def test_a_page_has_the_lines_of_json_lines_and_charts(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = invoke("inspect", QOS, "--output", page)

    assert (done.code, done.out, done.err) == (0, b"", "")
    written = page.read_bytes()
    assert documents(written) == [line for line in inspected(QOS).lines if line["event"] != "connection_ending"]
    assert b"Packets over time" in written
    assert b"Response times" in written
    assert invoke("inspect", QOS, "--format", "html").out == written


def test_a_page_is_limited_and_says_so(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = invoke("inspect", QOS, "--output", page, "--limit", "5")

    assert done.code == 0
    assert done.err == "mqttscope: the page ends after 5 packets (--limit); the capture may contain more\n"
    assert sum(row["event"] == "packet" for row in documents(page.read_bytes())) == 5
    assert b"(--limit); the capture" in page.read_bytes()


@pytest.mark.parametrize(
    ("chosen", "types", "expected"),
    [(("--filter", "type == publish"), {"publish"}, ""), (("--connection", "99"), set(), "99")],
)
def test_a_page_of_what_is_selected_and_of_nothing(
    chosen: tuple[str, str], types: set[str], expected: str, tmp_path: Path
) -> None:
    page = tmp_path / "page.htm"
    done = invoke("inspect", QOS, "--output", page, *chosen)

    assert done.code == 0
    assert expected in done.err
    assert {row["type"] for row in documents(page.read_bytes())} == types


def test_a_page_is_not_written_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.cli.output.is_terminal", lambda: True)
    for command in ("inspect", "stats", "explain"):
        done = invoke(command, QOS, "--format", "html")
        assert (done.code, done.out) == (2, b""), command
        assert "write it to a file: --output FILE.html" in done.err


def test_a_page_refuses_views_that_it_does_not_have(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    for words, expected in (
        (("--time", "relative"), "--time is for text, tree and ladder: a page shows times in UTC"),
        (("--payload", "hex"), "--payload hex is for text, tree and ladder"),
    ):
        for more in (("--output", page), ("--format", "html")):
            done = invoke("inspect", QOS, *more, *words)
            assert (done.code, done.out, page.exists()) == (2, b"", False)
            assert expected in done.err
    assert invoke("inspect", QOS, "--output", page, "--payload", "protobuf").code == 0


EVERY = "--filter", "connect or not connect"


def test_a_filter_for_what_tcp_acknowledged() -> None:
    never = "pingreq and not tcp_acknowledged"
    (line,) = invoke("inspect", capture("half-open"), "--format", "jsonl", "--filter", never).text.splitlines()
    assert line.endswith(',"tcp_acknowledged":false}')
    tree = invoke("inspect", capture("half-open"), "--format", "tree").text
    assert tree.count("TCP: never acknowledged") == 1
    tree, every = (invoke("inspect", capture("keep-alive"), "--format", "tree", *only).text for only in ((), EVERY))
    assert tree.count("TCP: ") == every.count("TCP: ") > 10
    refused = invoke("stats", capture("half-open"), "--filter", never)
    assert (refused.code, "only inspect supports the field tcp_acknowledged" in refused.err) == (2, True)


def test_standard_input_is_read_once() -> None:
    raw = capture("half-open").read_bytes()
    done = invoke("inspect", "-", "--format", "tree", stdin=raw)
    assert ("TCP:" in done.text, done.err) == (False, "")
    done = invoke("inspect", "-", "--format", "tree", "--filter", "not tcp_acknowledged", stdin=raw)
    assert done.err == "mqttscope: the captures can be read only once: which packets TCP acknowledged is not shown\n"


def test_the_tree_shows_metrics_of_sparkplug_unless_payload_decides() -> None:
    path, only = (
        capture("sparkplug-deviations"),
        ("--format", "tree", "--filter", 'topic == "spBv1.0/plant/NDATA/valve"'),
    )

    assert '"name": "Flow",' in invoke("inspect", path, *only).text
    for view in ("hex", "none"):
        assert 'Flow"' not in invoke("inspect", path, *only, "--payload", view).text
    assert "sparkplug-b" not in invoke("inspect", path).text
