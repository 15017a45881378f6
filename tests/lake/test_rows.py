"""Rows say exactly what JSON Lines says: every packet, every field, every finding."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import Options, dissect, dissect_segments
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import TABLES
from mqttscope.lint.engine import Linter
from mqttscope.lint.rule import Rule
from mqttscope.report.base import View
from mqttscope.report.findings.shown import make_reporter
from mqttscope.secrets.forms import LENGTH
from tests.dissect.scenes import mixed_tape
from tests.each import each
from tests.lake import as_json
from tests.lake.reading import (
    CAPTURES,
    Lines,
    Row,
    Tables,
    all_of_them,
    collect,
    in_process,
    options,
    usual,
)

SHOWN = ("packet", "malformed")


def lines_of(path: Path) -> list[Row]:
    lines = Lines()
    for event in dissect(open_capture([path])):
        lines.feed(event)
    return lines.lines


def without_run(line: Row) -> Row:
    return {name: value for name, value in line.items() if name not in ("connection", "packet")}


@each("path", CAPTURES, ids=lambda path: path.parent.name)
def test_every_field_of_every_packet_is_that_of_json_lines(path: Path) -> None:
    wanted = lines_of(path)
    tables = usual(path)

    packets = [without_run(document) for document in wanted if document["event"] in SHOWN]
    assert [as_json.packet(row) for row in tables.get("packets", [])] == packets
    gaps = [without_run(document) for document in wanted if document["event"] in ("gap", "unparsed")]
    assert [as_json.gap(row) for row in tables.get("gaps", [])] == gaps
    check_connections(wanted, tables)
    check_numbers(wanted, tables)


@each("path", CAPTURES, ids=lambda path: path.parent.name)
def test_keys_name_one_row(path: Path) -> None:
    for name, rows in usual(path).items():
        if name not in TABLES:
            continue
        keys = [tuple(row[column] for column in TABLES[name].key) for row in rows]
        assert len(set(keys)) == len(keys), name


def check_connections(wanted: list[Row], tables: Tables) -> None:
    closed = [document for document in wanted if document["event"] == "connection_closed"]
    for line, row in zip(closed, tables["connections"], strict=True):
        texts = as_json.Texts(row)
        shown: dict[str, Any] = {"schema": 1, "event": "connection_closed", "connection": line["connection"]}
        shown |= {name: row[f"closed_{name}"] for name in ("capture", "frame")} | {"timestamp_ns": row["closed_ns"]}
        shown["timestamp"] = as_json.CLOCK.iso(row["closed_ns"])
        names = (
            "client", "server", "transport", "handshake_seen", "roles_known", "roles_evidence", "version",
            "version_known", "version_evidence", "disconnect_by", "disconnect_reason", "packets", "bytes",
            "gaps", "gap_bytes", "tcp",
        )  # fmt: skip
        shown |= {name: row[name] for name in names} | {"how": row["closed_how"], "by": row["closed_by"]}
        shown |= {name: row[name] for name in ("copied_segments", "one_sided")}
        shown["discarded"] = {name: row[f"discarded_{name}"] for name in ("segments", "bytes")}
        end = row["also_closed"]
        if end is not None:
            end = {name: end[name] for name in ("how", "frame", "timestamp_ns")}
            end["timestamp"] = as_json.CLOCK.iso(end["timestamp_ns"])
        shown["also_closed"] = end
        shown["client_identifier"] = texts(row["client_identifier"], "client_identifier")
        if row["details"] is not None:
            shown[row["transport"]] = json.loads(row["details"])
        if row["proxy"] is not None:
            shown["proxy"] = row["proxy"]
        # Only a report that has shown the packets can name them.
        shown["tcp_unacknowledged"] = line["tcp_unacknowledged"]
        # Damaged segments are rows of gaps; the column has no counter of them.
        shown["tcp"] = {side: {"damaged_segments": 0} | counts for side, counts in shown["tcp"].items()}
        assert shown == line


def check_numbers(wanted: list[Row], tables: Tables) -> None:
    """The numbers of `inspect` come back as ranks."""
    ranked = sorted(tables["connections"], key=lambda row: (row["found_ns"], row["found_frame"], row["frame"]))
    numbers = {row["connection_id"]: number for number, row in enumerate(ranked)}
    pairs = [(numbers[row["connection_id"]], row["frame"]) for row in tables.get("packets", [])]
    assert pairs == [(document["connection"], document["frame"]) for document in wanted if document["event"] in SHOWN]


def linted(path: Path, rules: Iterable[Rule], reading: Options | None = None) -> list[Row]:
    """The lines of ``lint``."""
    sink = Lines()
    report = make_reporter("jsonl", sink, View(width=0, payload_limit=256, secret_length=LENGTH))
    linter = Linter(rules)
    for event in dissect(open_capture([path]), reading):
        for finding in linter.feed(event):
            report.feed(finding)
    return sink.lines


@pytest.mark.long
@each("path", CAPTURES, ids=lambda path: path.parent.name)
def test_findings_are_those_of_the_linter(path: Path) -> None:
    lake_options = options()
    lines = linted(
        path, [rule for rule in all_of_them() if rule.scope in ("packet", "connection")], lake_options.reading()
    )
    tables = in_process([path], lake_options)

    documents = [as_json.finding(row) for row in tables.get("findings", [])]
    assert documents == [{name: value for name, value in line.items() if name != "connection"} for line in lines]
    names = {(row["connection_id"], row["scope"], row["finding_in_connection"]) for row in tables.get("findings", [])}
    assert len(names) == len(documents)


@pytest.mark.long
def test_findings_of_one_connection_are_those_of_the_command_line() -> None:
    """There, numbers of packets are those of the run, which are the same where nothing else is in it.

    Rules of wide scopes find nothing in a stage that reads flow by flow.
    """
    compared = 0
    for path in CAPTURES:
        tables = usual(path)
        if len(tables["connections"]) == 1:
            lines = linted(path, options().narrow_rules())
            assert [as_json.finding(row) | {"connection": 0} for row in tables.get("findings", [])] == lines
            compared += len(lines)
    assert compared > 50


def test_passwords_are_nowhere() -> None:
    secrets = 0
    for path in CAPTURES:
        passwords = set()
        for event in dissect(open_capture([path])):
            password = getattr(getattr(event, "packet", None), "password", None)
            if password and len(password) > 4:
                passwords.add(password)
        if not passwords:
            continue
        tables = in_process([path], options())
        raw = repr(tables).encode()
        for password in passwords:
            secrets += 1
            assert password not in raw
            assert repr(password)[2:-1].encode() not in raw
    assert secrets >= 2


def test_payloads_are_kept_only_where_asked_for() -> None:
    for path in CAPTURES[:20]:
        bare = in_process([path], LakeOptions())
        some = in_process([path], LakeOptions(payload_limit=3))
        for document, other in zip(bare.get("packets", []), some.get("packets", []), strict=True):
            assert document["payload"] is None
            if other["payload"] is not None:
                assert len(other["payload"]) == min(3, other["payload_length"] - (other["missing"] or 0))
            assert document["payload_sha256"] == other["payload_sha256"]


def test_other_transports() -> None:
    lake_options = options(dissect=Options(ports={8080: "ws", 22: "mqtt"}))
    lines = Lines()
    for event in dissect_segments(mixed_tape().segments, lake_options.dissect):
        lines.feed(event)
    tables = collect(dissect_segments(mixed_tape().segments, lake_options.reading()), lake_options)

    wanted = [without_run(line) for line in lines.lines if line["event"] in SHOWN]
    assert [as_json.packet(row) for row in tables["packets"]] == wanted
    check_connections(lines.lines, tables)
