"""The questions of docs/questions.md on a generated fleet, in process; tests/spark/test_engine.py asks Spark."""

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

PAGE = ROOT / "docs" / "questions.md"
FLEET = (
    "@1 opened 3.1.1 client=board; @1 > subscribe 1 plant/#:1 other:0; @1 < suback 1 1 0",
    "opened 5.0 client=pump-1 keep_alive=10 user_property=fw:1.9",
    r'> publish plant/1/temperature "{\"t\":1}" qos=1 id=1; < puback 1',
    r'+0.1 @1 < publish plant/1/temperature "{\"t\":1}"',
    r'+1 > publish plant/1/temperature "{\"t\":2,\"u\":9}" qos=1 id=2; < puback 2',
    "+2 > pingreq; +0.02 < pingresp; > publish plant/1/state on retain qos=1 id=3; < puback 3",
    "+0.1 @1 < publish plant/1/state on",
    "+1 > publish plant/1/temperature warm qos=1 id=4; +5 > publish plant/1/temperature warm qos=1 id=4 dup",
    "< puback 4; +0.1 @1 < publish plant/1/temperature warm; > publish plant/1/temperature last qos=1 id=5; > fin",
    "+1 @2 opened client=pump-1 user_property=fw:1.9; @2 > pingreq; +30 @2 > pingreq; @2 < pingresp",
    "@3 opened client=pump-1 user_property=fw:1.9; @2 < disconnect code=142; @2 < fin",
    "@4 > connect client=thief; @4 < connack code=135; @4 < fin",
    "@5 opened client=edge; @5 > publish spBv1.0/g/NDATA/e 0x1805; @5 > publish spBv1.0/g/NDATA/e 0x1806",
    "+1 @5 > publish spBv1.0/g/NDATA/e 0x1809; @5 > publish spBv1.0/g/NDATA/e 0x18ff01",
    "@5 > publish spBv1.0/g/NDATA/e 0x1800; +90000 @5 > publish plant/1/temperature bigger-than-all",
    "+100 @6 opened client=a; +100 @7 opened client=b; +100 @8 opened client=c",
    "+100 @9 opened client=d; +100 @9 > pingreq",
    "for 10..24: @{n} opened client=c{n}",
)
"""A board that loses a message; a pump that is cut off, comes back and is taken over; a refused client; a Sparkplug
node with gaps; many clients at once."""
SECOND = 10**9


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("questions")
    frames = [as_frame(segment) for segment in segments(conversation("", *steps_of(*FLEET)))]
    write_lake(write_parts(frames, folder, 1), folder / "lake", options())
    return folder / "lake"


def questions(engine: str) -> dict[int, str]:
    """The queries of the page by number, in the SQL of an engine; 21 is the one after the questions."""
    queries: dict[int, str] = {}
    parts = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.M)[1:]
    for number, part in enumerate(parts, 1):
        blocks = re.findall(r"```sql\n(.*?)```", part, re.S)
        (queries[number],) = [block for block in blocks if not re.match(f"-- (?!{engine})", block)]
    return queries


def check_answers(rows: dict[int, list[list[Any]]]) -> None:
    """Check answers of all questions."""
    assert rows[1] == [["1.9", 1, 2], [None, 22, 0]]
    assert [row[:2] for row in rows[2]] == [["plant", 3]]
    assert [row[:3] for row in rows[3]] == [["board", "plant/1/temperature", 1]]
    assert [row[0] for row in rows[4]]
    assert [row[:2] for row in rows[5]] == [["plant/1/state", "pump-1"]]
    assert [row[0] for row in rows[6]] == ["plant/1/temperature"]
    assert "pump-1" in [row[0] for row in rows[7]]
    assert len(rows[8]) == 10
    assert rows[9] == [["pump-1", 5, 1]]
    assert rows[10] == [[1, 0, 3]]
    assert rows[11] == [["pump-1", 1, 1]]
    assert rows[12] == []
    assert rows[13] == [["plant/1/temperature", 2]]
    assert rows[14] == [["g/e", 2]]
    assert max(row[4] for row in rows[15]) >= 15
    assert ["pump-1", 2, 3] in rows[16]
    assert rows[17] == [["Not authorized", 1, 1]]
    assert [row[:4] for row in rows[18]] == [["board", "plant/#", 1, 1]]
    assert rows[19] == [["pump-1", "client_to_server", "sent", 1]]
    assert [row[:3] for row in rows[20]] == [["pump-1", 3, 1], ["d", 1, 1]]
    assert rows[21] == [["plant/1/temperature", 7]]


def test_questions_in_process(fleet: Path) -> None:
    with LocalEngine(fleet) as engine:
        check_answers({number: list(engine.ask(query).rows) for number, query in questions("duckdb").items()})
