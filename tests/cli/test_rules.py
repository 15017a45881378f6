"""``mqttscope rules``."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.lint.catalogue import all_rules
from tests.cli.running import invoke, run


def test_all_rules_are_listed() -> None:
    done = run("rules")

    assert (done.code, done.err) == (0, "")
    codes = [line.split()[0] for line in done.text.splitlines() if not line.startswith("──")]
    assert codes == list(all_rules())


def test_a_prefix_lists_an_area() -> None:
    lines = invoke("rules", "ENC").text.splitlines()

    assert lines[0] == "── encoding"
    assert all(line.startswith("ENC") for line in lines[1:])
    assert len(invoke("rules", "PUB", "con212").text.splitlines()) > len(invoke("rules", "PUB").text.splitlines())


@pytest.mark.parametrize("names", [("CON212",), ("con212",), ("second-connect",), ("ENC101", "CON212")], ids=" ".join)
def test_a_code_or_name_is_explained(names: tuple[str, ...]) -> None:
    done = invoke("rules", *names)

    assert done.code == 0
    assert done.text.startswith("CON212 second-connect  error\n")
    assert "^ CON212 error: second CONNECT on one connection\n" in done.text
    assert ("\n\nENC101 utf8-ill-formed  error\n" in done.text) == ("ENC101" in names)


@pytest.mark.parametrize(("name", "hint"), [("PUBB", "did you mean PUB?"), ("second-conect", "second-connect?")])
def test_an_unknown_code_is_a_usage_error_with_a_suggestion(name: str, hint: str) -> None:
    done = invoke("rules", name)

    assert done.code == 2
    assert done.out == b""
    assert hint in done.err


def test_json() -> None:
    def rules(*names: str) -> list[dict[str, Any]]:
        documents: list[dict[str, Any]] = invoke("rules", *names, "--format", "json").document["rules"]
        return documents

    assert [rule["code"] for rule in rules()] == list(all_rules())
    (rule,) = rules("CON212")
    assert rule["examples"]["bad"]
    assert "examples" not in rules("CON")[0]


def test_coverage() -> None:
    words = ("rules", "--coverage", "--format", "json")
    text, shown = invoke("rules", "--coverage").text, invoke(*words).document

    assert text.startswith("── MQTT 5.0\n")
    assert len(shown["coverage"]) == sum(row["statements"] for row in shown["totals"].values())
    assert text.count("\n") >= len(shown["coverage"])
    assert [(row["version"], row["identifier"]) for row in invoke(*words, "CON212").document["coverage"]] == [
        ("5.0", "MQTT-3.1.0-2"),
        ("3.1.1", "MQTT-3.1.0-2"),
    ]


def test_colour_only_where_it_is_wanted() -> None:
    assert b"\x1b[" not in invoke("rules").out
    assert b"\x1b[" in invoke("rules", "--color").out


def test_lines_fit_the_terminal() -> None:
    for arguments in ((), ("CON212",), ("--coverage",)):
        assert all(len(line) <= 60 for line in invoke("rules", *arguments, env={"COLUMNS": "60"}).text.splitlines())
