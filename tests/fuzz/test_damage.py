"""Damaged captures through the commands that read them: some of the 20,000 of ``python -m tests.fuzz.damage``."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests import tools

tools.package("pyarrow")

from mqttscope.stats import as_json
from tests.conftest import EXHAUSTIVE
from tests.fuzz import damage

COUNT = 4_000 if EXHAUSTIVE else 120
KINDS = {
    b"\x0a\x0d\x0d\x0a",
    b"\xd4\xc3\xb2\xa1",
    b"\xa1\xb2\x3c\x4d",
    b"\x1f\x8b\x08\x00",
    b"\x28\xb5\x2f\xfd",
    b"\x04\x22\x4d\x18",
}


def test_the_originals_are_of_every_format() -> None:
    assert {original[:4] for original in damage.originals()} >= KINDS
    assert len(damage.originals()) > 200


def test_the_same_captures_come_in_every_run() -> None:
    assert list(damage.damaged(50)) == list(islice(damage.damaged(80), 50))
    assert len(set(damage.damaged(200))) > 190


@pytest.mark.long
def test_no_command_ends_with_a_traceback(tmp_path: Path) -> None:
    chunks = list(damage.damaged(COUNT))
    for start in range(0, COUNT, damage.TOGETHER):
        assert damage.run(chunks[start : start + damage.TOGETHER], tmp_path) == []


def test_a_command_that_breaks_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(as_json, "NAMED_CAPTURE")

    (broken,) = damage.run([damage.originals()[0]], tmp_path)

    assert broken.words == ("stats", "--format", "json")
    assert isinstance(broken.error, NameError)
