"""What is written about lakes fits the schemas; of the lake of all captures: tests/cli/pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import tools

tools.package("jsonschema", "pyarrow", "duckdb")

import jsonschema

from mqttscope.capture import PcapngWriter
from mqttscope.lake.schemas import TABLES
from mqttscope.report.fleet.text import document
from tests.capture.doubled import recorded, two_taps, write
from tests.cli.running import CAPTURES, capture, invoke
from tests.dev.schemas import fits, unnoticed
from tests.report.fleet.samples import empty, full
from tests.spark.collection import CUT, collection

FEW = ("planted-violations", "v5-qos", "v5-topic-alias-client", "failing-device")


def ingested(lake: Path, *words: str | Path) -> dict[str, Any]:
    """The summary of an ingest."""
    reported_document: dict[str, Any] = json.loads(
        invoke("pipeline", "ingest", *words, "--lake", lake, "--format", "json").out
    )
    assert fits("ingest", [reported_document]) == 1
    return reported_document


def asked(lake: Path, *words: str) -> dict[str, Any]:
    """A report, or the answer to a question."""
    done = invoke("pipeline", *words, "--lake", lake, "--format", "json")
    assert (done.code, done.err) == (0, "")
    reported_document: dict[str, Any] = json.loads(done.out)
    assert fits("fleet-report" if words[0] == "report" else "answer", [reported_document]) == 1
    return reported_document


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of a few captures."""
    folder = tmp_path_factory.mktemp("few") / "lake"
    reported_document = ingested(folder, *map(capture, FEW), "--payload-limit", "64")
    assert reported_document["findings"]
    return folder


@pytest.mark.long
def test_what_is_written_of_all_captures_fits(tmp_path: Path) -> None:
    ingested(tmp_path / "lake", *CAPTURES)
    asked(tmp_path / "lake", "report", "--top", "1000")
    for table in TABLES:
        rows = asked(tmp_path / "lake", "sql", f"select * from {table}")["rows"]
        # All of them can be read to their ends.
        assert bool(rows) is (table != "ingest_errors")


def test_reports_fit(lake: Path, tmp_path: Path) -> None:
    assert asked(lake, "report", "--since", "9999w", "--client", "*")["overview"]["packets"]
    for report in (document(full()), document(empty())):
        assert fits("fleet-report", [report]) == 1
    assert unnoticed("fleet-report", document(full())) == set()

    with (tmp_path / "none.pcapng").open("wb") as file:
        PcapngWriter(file)
    ingested(tmp_path / "nothing", tmp_path / "none.pcapng")
    assert asked(tmp_path / "nothing", "report")["overview"]["captures"] == 0


def test_what_no_report_is_is_refused() -> None:
    report = document(full())
    for change in (
        {"schema": 2}, {"rules": report["rules"]["rows"]}, {"part_seconds": None}, {"overview": None},
        {"endings": {**report["endings"], "ways": [{"how": "somehow", "by": None, "connections": 1}]}},
    ):  # fmt: skip
        with pytest.raises(jsonschema.ValidationError):
            fits("fleet-report", [{**report, **change}])


VALUES = """select null as nothing, true as flag, 1.5::decimal(9, 2) as exact, 'nan'::double as odd, 9e300 as large,
 170141183460469231731687303715884105727 as huge, '\\xff\\x00'::blob as bytes, 'ü' as text, date '2026-01-31' as day,
 timestamp '2026-01-31 12:00:00' as local, timestamptz '2026-01-31 12:00:00+01' as moment, interval 3 days as span,
 [1, null] as list, {'a': {'b': [{'c': 1}]}} as nested, map {'k': 1} as mapped, gen_random_uuid() as name"""


def test_answers_fit(lake: Path) -> None:
    for table in TABLES:
        reported_document = asked(lake, "sql", f"select * from {table}")
        assert len(reported_document["columns"]) == len(TABLES[table].names)
    (row,) = asked(lake, "sql", VALUES)["rows"]
    assert row["nothing"] is None
    assert row["bytes"] == {"length": 2, "hex": "ff00"}
    assert row["nested"] == {"a": {"b": [{"c": 1}]}}
    assert asked(lake, "sql", "select 1 as a where false")["rows"] == []
    assert unnoticed("answer", asked(lake, "sql", "select 1 as a")) == {"rows[].a"}


OF_TABLES = ("rows.", "open_rows.", "findings.", "not_read.")
"""Objects of a summary that name what there is."""


def unexpected(reported_document: dict[str, Any]) -> set[str]:
    """Keys of a summary that nobody would miss, but should."""
    return {text for text in unnoticed("ingest", reported_document) if not text.startswith(OF_TABLES)}


def test_ingests_fit(tmp_path: Path) -> None:
    (cut,) = collection(tmp_path / "captures", [CUT])
    none = tmp_path / "none.pcap"
    first = ingested(tmp_path / "lake", cut, none)
    again = ingested(tmp_path / "lake", cut, capture("v5-qos"))
    assert first["errors"]
    assert first["unreadable"]
    assert again["known_errors"]
    assert unexpected(first) == set()
    assert unexpected(again) == set()

    paths = [str(tmp_path / name) for name in ("one.pcap", "other.pcap")]
    for path, tap in zip(
        paths, two_taps(recorded(capture("planted-violations")), loss=0.05, shift_ns=1_003_000_000), strict=True
    ):
        write(Path(path), tap)
    taps = ingested(tmp_path / "taps", *paths, "--deduplicate", "--engine", "local")
    assert unexpected(taps) == {"taps"}
