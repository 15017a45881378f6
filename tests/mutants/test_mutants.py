"""Faults are planted where they are said to be, and what makes no difference is not counted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.each import each
from tests.mutants import __main__ as command
from tests.mutants import running
from tests.mutants.points import Mutant, mutants_in, mutants_of
from tests.mutants.running import AREAS, ROOT, Verdict, drawn, equivalent, identity, stages

HEAD = 'LIMIT = 5\n\n\ndef check(x: int | None = 3, y: str = \'é\') -> bool:\n    """If x < 3."""\n    '


@each(
    "line, changed",
    [
        ("return x < 5", ["return x <= 5", "return x < 6"]),
        ("return 'é' + y", ["return 'é' - y"]),
        ("return x is None or y", ["return x is not None or y", "return x is None and y"]),
        ("return not x", ["return bool(x)"]),
        ("return True", ["return False"]),
        ("if x:\n        return y", ["if False:\n        return y"]),
        ("if x:\n        y = x\n        return y", []),
        ("x += y", ["pass"]),
        ("log(x)", ["pass"]),
        ("y = x not in y", ["y = x in y"]),
        # Texts, types and what begins another function are left as they are.
        ("return f'{x + 1}'", []),
        ("z: dict[int, 3] = y", []),
        ("return isinstance(x, int | Path)", []),
        ("assert x > 1", []),
    ],
)
def test_each_operator_constant_guard_and_statement(line: str, changed: list[str]) -> None:
    source = HEAD + line + "\n"
    assert [mutant.apply(source).removeprefix(HEAD).strip() for mutant in mutants_of("a.py", source)] == changed


def test_every_fault_of_the_core_can_be_compiled() -> None:
    for area in AREAS.values():
        paths = area.paths()
        assert paths
        for mutant in mutants_in(ROOT, paths[:2])[::25]:
            source = (ROOT / mutant.path).read_text("utf-8")
            changed = mutant.apply(source)
            assert changed != source
            compile(changed, mutant.path, "exec")


def test_a_seed_draws_the_same_faults_of_all_areas() -> None:
    rows = drawn(7, 20, ["mqtt", "filter", "session"])

    assert rows == drawn(7, 20, ["mqtt", "filter", "session"])
    assert rows != drawn(8, 20, ["mqtt", "filter", "session"])
    assert sorted([area for area, _ in rows].count(name) for name in ("mqtt", "filter", "session")) == [6, 7, 7]


def test_the_nearest_tests_run_first() -> None:
    mutant = Mutant("mqttscope/net/headers.py", 1, 0, 1, "", "")
    assert [arguments[0] for arguments in stages("net", mutant)][:3] == [
        "tests/net/test_headers.py", "tests/net", "tests/test_limits.py",
    ]  # fmt: skip
    assert all(Path(ROOT, argument).exists() for area in AREAS.values() for argument in area.elsewhere)


def test_known_equivalent_faults_are_still_there() -> None:
    for name in equivalent():
        path = ROOT / name.split(" :: ")[0]
        source = path.read_text("utf-8")
        names = {identity(mutant, source) for mutant in mutants_of(name.split(" :: ")[0], source)}
        assert name in names


def verdict(area: str, result: bool) -> Verdict:
    return Verdict(area, Mutant("a.py", 1, 0, 1, "", ""), "a test" if result else "")


@each(
    "expected, lost, is_good",
    [((75, 95), (25, 5), True), ((75, 94), (25, 6), False), ((74, 100), (26, 0), False)],
)  # fmt: skip
def test_how_many_faults_have_to_be_found(expected: tuple[int, int], lost: tuple[int, int], is_good: bool) -> None:
    rows = [verdict(area, True) for area, count in zip(("net", "mqtt"), expected, strict=True) for _ in range(count)]
    rows += [verdict(area, False) for area, count in zip(("net", "mqtt"), lost, strict=True) for _ in range(count)]

    assert command.is_good(rows) is is_good


def test_the_report_lists_what_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def judged(rows: list[tuple[str, Mutant]], build: Path, jobs: int) -> list[Verdict]:
        assert (build, jobs) == (tmp_path, 2)
        return [Verdict(area, mutant, "" if number else "a test") for number, (area, mutant) in enumerate(rows)]

    monkeypatch.setattr(command, "judged", judged)
    monkeypatch.setattr("sys.argv", ["mutants", "--count", "2", "--area", "filter", "--build", str(tmp_path)])

    assert command.main() == 1
    assert "| filter | 2 | 1 | 50 | 0 |" in capsys.readouterr().out
    _, survivors, text = re.split("\n## .*\n", (tmp_path / "report.md").read_text())
    assert survivors.count(" -> ") == 2
    assert text.strip().startswith("a test: ")


@pytest.mark.long
def test_a_fault_is_found_and_a_change_without_effect_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "mqttscope/mqtt/topics.py"
    source = (ROOT / path).read_text("utf-8")
    fault = next(mutant for mutant in mutants_of(path, source) if mutant.kind == "negation")
    nothing = Mutant(path, fault.line, fault.start, fault.end, source[fault.start : fault.end], "nothing")
    monkeypatch.setattr(running, "stages", lambda area, mutant: [["tests/mqtt/test_topics.py"]])
    monkeypatch.setattr(running, "_all_stages", lambda area: [["tests/mqtt/test_topics.py"]])
    verdicts = running.judged([("mqtt", fault), ("mqtt", nothing)], tmp_path, 1)

    assert [bool(verdict.found_by) for verdict in verdicts] == [True, False]


@pytest.mark.long
def test_tests_that_fail_without_a_fault_prove_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_all_stages", lambda area: [["tests/mqtt/no_such_test.py"]])

    with pytest.raises(running.BrokenTestsError, match="no_such_test"):
        list(running.judged(drawn(1, 1, ["mqtt"]), tmp_path, 1))
