"""A missing tool is a skipped test, or a failed one where tools are required."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import tools
from tests.conftest import ROOT

pytest_plugins = ["pytester"]

ABSENT = "mqttscope-of-another-name"
CALLS = {
    "program": (lambda: tools.program(ABSENT, f"{ABSENT}-too"), f"{ABSENT} is not installed"),
    "package": (
        lambda: tools.package("json", "mqttscope_of_another_name"),
        "mqttscope_of_another_name is not installed",
    ),
    "missing": (lambda: tools.missing("no tool at all"), "no tool at all"),
    "java": (tools.java, "Spark needs Java"),
}
each_call = pytest.mark.parametrize(("call", "message"), CALLS.values(), ids=CALLS)


@each_call
@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_tool_is_skipped(
    call: Callable[[], object], message: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/no/java")
    monkeypatch.delenv(tools.VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(tools.VARIABLE, value)

    with pytest.raises(pytest.skip.Exception, match=message) as caught:
        call()
    assert caught.value.allow_module_level


@each_call
def test_a_missing_tool_fails_if_tools_are_required(
    call: Callable[[], object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/no/java")
    monkeypatch.setenv(tools.VARIABLE, "1")

    with pytest.raises(pytest.fail.Exception, match=f"{message}.*, and {tools.VARIABLE} is set"):
        call()


def test_a_program_is_found_by_any_of_its_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "there"
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(tools.VARIABLE, "1")

    assert tools.program(ABSENT, "there") == str(program)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(tools, "SBIN", str(tmp_path))
    assert tools.program("there") == str(program)


def test_packages_are_imported_and_the_first_is_returned() -> None:
    import json

    assert tools.package("json", "csv") is json


def test_tools_are_asked_for_in_one_place() -> None:
    """All but the module grp, which belongs to the operating system."""
    ask = re.compile(r"importorskip\((?!\"grp\")|skip(if)?\(.*\b(which|find_spec)\(")
    asking = [path for path in (ROOT / "tests").rglob("*.py") if path.name != "test_tools.py"]

    assert [str(path) for path in asking if ask.search(path.read_text("utf-8"))] == []


def test_a_module_that_needs_one_fails_to_import(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile(f"from tests import tools\ntools.program({ABSENT!r})\ndef test_it(): pass\n")
    options = ("-p", "no:randomly", "-p", "no:cacheprovider")
    monkeypatch.delenv(tools.VARIABLE, raising=False)
    assert pytester.runpytest_inprocess(*options).parseoutcomes() == {"skipped": 1}

    monkeypatch.setenv(tools.VARIABLE, "1")
    assert pytester.runpytest_inprocess(*options).parseoutcomes() == {"errors": 1}
