"""Edge nodes of Sparkplug and gaps in their sequences, and the queries of docs/sparkplug.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mqttscope.analysis.local import LocalEngine
from mqttscope.lake.writer import write_lake
from mqttscope.lint.examples import conversation, segments
from tests.conftest import ROOT
from tests.dissect.secure import as_frame
from tests.lake.parts import write_parts
from tests.lake.reading import options
from tests.lint.lint_help import steps_of

BIRTH = "publish spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64={} T:Int32=20)"
PLANT = (
    "@1 opened 3.1.1 client=host; @1 > subscribe 1 spBv1.0/#:1; @1 < suback 1 1",
    "opened 3.1.1 client=e will=spBv1.0/g/NDEATH/e will_payload=spb(bdSeq:Int64=0) will_qos=1",
    f"> {BIRTH.format(0)}; @1 < {BIRTH.format(0)}; > publish spBv1.0/g/NDATA/e spb(seq=1 T=21)",
    "> publish spBv1.0/g/DBIRTH/e/d spb(seq=2 S:Double=1.5); > publish spBv1.0/g/NDATA/e spb(seq=5 T=21)",
    "> publish spBv1.0/g/NDATA/e spb(seq=6 T=-3); > reset; @1 < publish spBv1.0/g/NDEATH/e spb(bdSeq:Int64=0)",
    f"@2 opened 3.1.1 client=f; @2 > {BIRTH.format(7).replace('/e', '/f')}",
    "@3 opened 3.1.1 client=y; @3 > publish spBv1.0/g/NDATA/y spb(seq=1 T=1)",
    "lost @3 > publish spBv1.0/g/NDATA/y spb(seq=2 T=1); @3 > publish spBv1.0/g/NDATA/y spb(seq=3 T=1)",
    "@2 > publish spBv1.0/g/NDEATH/f spb(bdSeq:Int64=8); @1 < publish spBv1.0/g/NDEATH/f spb(bdSeq:Int64=8)",
    "@1 < publish spBv1.0/g/NDATA/x spb(seq=9 T=1); +70 @1 > pingreq; @1 < pingresp",
)
"""An edge node that leaves out two numbers and dies, one with a death that does not count, and two without a birth.

The capture lacks a message of the last one.
"""


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plant")
    frames = [as_frame(segment) for segment in segments(conversation("", *steps_of(*PLANT)))]
    write_lake(write_parts(frames, folder, 1), folder / "lake", options())
    return folder / "lake"


def queries() -> list[str]:
    """The queries of the page."""
    return re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "sparkplug.md").read_text("utf-8"), re.S)


def check_answers(answers: list[list[Any]]) -> None:
    """Check the answers to the queries of the page."""
    gaps, silent, changes = answers
    assert [row[:3] for row in gaps] == [["g/e", 2, 5]]
    assert [row[0] for row in silent] == ["g/f"]
    assert [row[1:] for row in changes] == [["20", "21"], ["21", "-3"]]


def test_queries_of_the_page_in_process(plant: Path) -> None:
    with LocalEngine(plant) as engine:
        check_answers([list(engine.ask(query).rows) for query in queries()])


def test_nodes(plant: Path) -> None:
    with LocalEngine(plant) as engine:
        engine.make_views(["sparkplug_nodes", "sparkplug_gaps"])
        nodes = {row["node"]: row for row in engine.rows("select * from sparkplug_nodes")}
        (gap,) = engine.rows("select * from sparkplug_gaps")
    facts = ("births", "deaths", "data", "devices", "bdseq", "state")
    assert {name: tuple(row[fact] for fact in facts) for name, row in nodes.items()} == {
        "g/e": (1, 1, 3, 1, 0, "offline"), "g/f": (1, 1, 0, 0, 7, "online"), "g/x": (0, 0, 1, 0, None, "unknown"),
        "g/y": (0, 0, 2, 0, None, "unknown"),
    }  # fmt: skip
    assert nodes["g/e"]["last_ns"] < nodes["g/e"]["died_ns"]
    assert (gap["missing"], gap["direction"], gap["client_identifier"]) == (2, "client_to_server", "e")
