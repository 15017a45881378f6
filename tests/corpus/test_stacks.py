"""Recordings of TCP stacks in trouble: packets and gaps of each connection, and nobody accused but who broke something.

`tests/data/captures/stacks/truth.json` has the packets that the applications wrote to their sockets, as far as the
capture has their bytes; an independent reader of TCP counted those.  One client of each recording breaks a rule on
purpose.  The client with DIS503 waits for the server's FIN, which comes after all that its window keeps back.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import corpora
from tests.cli.running import invoke

FOLDER = corpora.DATA / "captures" / "stacks"
TRUTH: dict[str, dict[str, Any]] = json.loads((FOLDER / "truth.json").read_text(encoding="utf-8"))
each_capture = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.tshark if "keys" in row else ()) for name, row in TRUTH.items()]
)


def words(name: str) -> list[str | Path]:
    """The capture, with its keys if it is encrypted."""
    keys = TRUTH[name].get("keys")
    return [FOLDER / name, *(["--keylog", FOLDER / keys] if keys else [])]


def shown(name: str) -> dict[str, dict[str, Any]]:
    """What is shown of each connection, by client, in the form of the truth: ``cut`` are packets without some bytes."""
    done = invoke("inspect", "--format", "jsonl", *words(name))
    assert done.code == 0
    connections: dict[str, dict[str, Any]] = {}
    for line in done.lines:
        kind = line["event"]
        if kind == "connection_opened":
            assert line["client"] not in connections, "two connections for one"
            connections[line["client"]] = {"client": line["client"], "server": line["server"]}
        row = connections.get(line.get("client", ""), {})
        way = line.get("direction", "")
        if kind == "packet" and "missing" in line:
            row.setdefault("cut", {}).setdefault(way, Counter())[line["type"]] += 1
        elif kind in ("packet", "malformed"):
            row.setdefault(way, Counter())[line["type"]] += 1
        elif kind == "gap":
            row.setdefault("missing", Counter())[way] += line["length"]
        assert kind not in ("unparsed", "discarded"), line
    return connections


@each_capture
def test_packets_are_shown_once_and_gaps_where_bytes_are_missing(name: str) -> None:
    expected = {row["client"]: row for row in TRUTH[name]["connections"]}

    # An empty direction is not shown.
    assert shown(name) == {client: {key: row[key] for key in row if row[key]} for client, row in expected.items()}


@each_capture
def test_the_linter_accuses_only_who_broke_something(name: str) -> None:
    texts: dict[str, list[str]] = {}
    for finding in json.loads(invoke("lint", "--format", "json", "--exit-zero", *words(name)).text)["findings"]:
        texts.setdefault(finding["rule"], []).append(finding["client"])

    assert texts == TRUTH[name]["findings"]


@each_capture
def test_ends_are_explained_by_what_happened(name: str) -> None:
    explanations = json.loads(invoke("explain", "--format", "json", *words(name)).text)["explanations"]

    assert {row["client"]: row["cause"] for row in explanations} == TRUTH[name]["ends"]


@each_capture
def test_the_first_look_shows_a_fault_only_if_there_is_one(name: str) -> None:
    screen = invoke(*words(name)).text
    truth = TRUTH[name]
    lacks = any("missing" in row for row in truth["connections"])

    assert ("What broke" in screen) is bool(truth["findings"] or truth["ends"] or lacks)
    assert "did not get the message" not in screen


def test_all_captures_have_a_truth() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.pcap.gz")) == sorted(TRUTH)
    assert all(row["shows"] and row["connections"] for row in TRUTH.values())
