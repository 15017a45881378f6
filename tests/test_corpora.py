"""The data of the repository is complete and described, and absent corpora are never a passed test."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from tests import corpora
from tests.conftest import ROOT

pytest_plugins = ["pytester"]

LARGEST = 3 * 1024 * 1024
LICENCES = {"Apache-2.0", "BSD-3-Clause", "MIT", "Unlicense"}
OURS = "the authors of mqttscope"
MIT = (corpora.DATA / "licences" / "MIT.txt").read_text("utf-8")

HOOKS = """\
from tests import corpora

def pytest_configure(config):
    for name in ("corpora", "long"):
        config.addinivalue_line("markers", f"{name}: as in pyproject.toml")

def pytest_runtest_setup(item):
    corpora.prepare(item)
"""
READERS = """\
import pytest
from tests import corpora
from tests.each import sampled

@pytest.mark.parametrize("path", corpora.cases("captures/big/*.pcap"), ids=lambda path: path.stem)
def test_file(path):
    assert path.read_bytes() == b"x"

@sampled("row", corpora.cases("captures/INDEX.tsv", corpora.index(corpora.folder())), ids=lambda row: row["file"])
def test_row(row):
    assert row["file"].endswith(".pcap")

@corpora.needs("captures/big/*")
def test_inside():
    assert corpora.path("captures", "big", "a.pcap").read_bytes() == b"x"

def test_without_corpora():
    assert corpora.path("captures", "INDEX.tsv").is_file()
"""


@pytest.fixture
def readers(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A test file that reads corpora in each of the ways there are."""
    monkeypatch.delenv(corpora.VARIABLE, raising=False)
    pytester.makeconftest(HOOKS)
    pytester.makepyfile(READERS)
    return pytester


def run(readers: pytest.Pytester) -> tuple[dict[str, int], str]:
    result = readers.runpytest_inprocess("-rsfE", "-p", "no:randomly", "-p", "no:cacheprovider")
    return result.parseoutcomes(), result.stdout.str()


def test_not_set_is_skipped_with_the_reason(readers: pytest.Pytester) -> None:
    outcomes, text = run(readers)

    assert outcomes == {"passed": 1, "skipped": 3}
    assert re.search(r"SKIPPED \[3\] .*: MQTTSCOPE_CORPORA is not set", text)


INDEX, ONE, OTHER = (f"captures/{name}" for name in ("INDEX.tsv", "big/a.pcap", "big/b.pcap"))


@pytest.mark.parametrize(
    ("name", "files", "outcomes", "expected"),
    [
        ("absent", {}, {"passed": 1, "errors": 3}, [" is not a folder"] * 3),
        (
            ".",
            {},
            {"passed": 1, "errors": 3},
            [" has no case for captures/big/*.pcap", f" has no case for {INDEX}"],
        ),
        (".", {ONE: "x", INDEX: "file\n"}, {"passed": 3, "errors": 1}, [f" has no case for {INDEX}"]),
        (".", {ONE: "x", OTHER: "x", INDEX: "file\nbig/a.pcap\n"}, {"passed": 5}, []),
    ],
    ids=["absent", "without cases", "an index without rows", "filled"],
)
def test_what_a_folder_lacks_fails_and_is_named(
    readers: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    name: str, files: dict[str, str], outcomes: dict[str, int], expected: list[str],
) -> None:  # fmt: skip
    folder = tmp_path / name
    monkeypatch.setenv(corpora.VARIABLE, str(folder))
    for inner, text in files.items():
        (folder / inner).parent.mkdir(parents=True, exist_ok=True)
        (folder / inner).write_text(text)

    counts, shown_text = run(readers)

    assert counts == outcomes
    for other_text in expected:
        assert shown_text.count(f"{folder}{other_text}") >= expected.count(other_text)


def test_a_file_of_the_corpora_needs_the_mark(
    readers: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(corpora.VARIABLE, str(tmp_path))
    (tmp_path / "a").write_bytes(b"x")
    readers.makepyfile(
        "from tests import corpora\n"
        "def test_unmarked():\n    corpora.path('a')\n"
        "@corpora.needs('*')\ndef test_marked():\n    corpora.path('a')\n"
        "@corpora.needs('*')\ndef test_absent():\n    corpora.path('b')\n"
    )

    outcomes, text = run(readers)

    assert outcomes == {"passed": 1, "failed": 2}
    assert "a is not in tests/data" in text
    assert f"{tmp_path} has no b" in text


def test_what_the_repository_has_is_not_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(corpora.VARIABLE, str(tmp_path))
    folder = tmp_path / "captures" / "trials"
    folder.mkdir(parents=True)
    for name in ("half.pcap", "new.pcap"):
        (folder / name).write_bytes(b"x")

    assert [path.name for path in corpora.further("captures/trials/*")] == ["new.pcap"]
    assert corpora.path("captures", "trials", "half.pcap").is_relative_to(corpora.DATA)
    assert corpora.relative(folder / "new.pcap") == "trials/new.pcap"
    assert corpora.relative(corpora.DATA / "captures" / "trials" / "half.pcap") == "trials/half.pcap"


ROWS = corpora.index(corpora.DATA)


def test_every_capture_of_the_data_is_described() -> None:
    described = {row["file"] for row in ROWS}
    files = {path for path in corpora.committed("captures/**/*") if path.is_file()}
    captures = {corpora.relative(path) for path in files if path.suffix not in (".json", ".tsv", ".keys")}

    assert len(ROWS) == len(described)
    assert captures == described
    assert all(row["source"] and row["author"] and row["packets"] for row in ROWS)


def test_licences_allow_it_and_their_texts_are_there() -> None:
    assert {row["licence"] for row in ROWS} == LICENCES
    for row in ROWS:
        assert (ROOT / row["notice"]).is_file(), row
        assert row["author"] == OURS or row["licence"] != "MIT" or row["author"].removesuffix(f"; {OURS}") in MIT, row


def test_the_data_stays_small() -> None:
    assert sum(path.stat().st_size for path in corpora.committed("**/*") if path.is_file()) < LARGEST


def test_rows_of_vectors_say_where_they_are_from() -> None:
    for path in corpora.committed("vectors/*.jsonl"):
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        assert rows
        assert all(row["source"] for row in rows)


def test_tables_have_no_empty_key() -> None:
    for name, key in (("rules.tsv", "code"), ("statements.tsv", "identifier")):
        with (corpora.DATA / name).open(encoding="utf-8", newline="") as file:
            assert all(row[key] for row in csv.DictReader(file, delimiter="\t"))
