"""Options that are declared as the fields of a class."""

from __future__ import annotations

import ast
import re
from dataclasses import FrozenInstanceError
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mqttscope.cli.command import (
    OTHER,
    OUTPUT,
    READING,
    SECTIONS,
    Option,
    argument,
    collect,
    group,
    make_command,
    on_command_line,
    option,
    options,
    parameters,
)
from mqttscope.dev.generate import command_names, find_command, help_text
from tests.conftest import ROOT


@options
class Shared:
    """Options that several commands have."""

    ports: tuple[int, ...] = option(READING, "--port", type=int, multiple=True, help="A port.")
    keylog: str | None = option(READING, "--keylog", metavar="FILE", help="A file.")
    loud: bool = option(OUTPUT, "--loud", is_flag=True, help="Shout.")


@options
class Made:
    """Options of one command."""

    captures: tuple[str, ...] = argument("CAPTURE...", nargs=-1)
    limit: int = option(OTHER, "--limit", "-l", type=int, default=3, help="How many.")
    size: dict[str, int] = option(
        OUTPUT, "--size", multiple=True, value={}, callback=lambda *arguments: {"x": len(arguments[2])}
    )
    shared: Shared = group(Shared)

    def __post_init__(self) -> None:
        if self.limit == 13:
            raise click.UsageError("--limit is not to be 13")


def run(*words: str) -> tuple[Made, list[tuple[str, str]], list[str]]:
    """What a command gets for some words, which of them it says are given, and the headings of its help."""
    got: list[Made] = []
    spelled: list[tuple[str, str]] = []

    @make_command(Made, epilog="The end.")
    def command(input_argument: Made) -> int:
        """Do something."""
        got.append(input_argument)
        spelled.extend(on_command_line())
        return 7

    assert command.main(list(words), standalone_mode=False) == 7
    page = command.get_help(click.Context(command, info_name="made"))
    assert "\n  Do something.\n" in page
    assert page.endswith("The end.")
    return got[0], spelled, re.findall(r"^(\w[^:]*):$", page, re.MULTILINE)


def test_values_go_into_the_class_and_the_classes_in_it() -> None:
    input_argument, spelled, headings = run("a", "b", "-l", "5", "--port", "1", "--port", "2", "--loud", "--size", "9")

    assert input_argument == Made(
        captures=("a", "b"), limit=5, size={"x": 1}, shared=Shared(ports=(1, 2), keylog=None, loud=True)
    )
    assert spelled == [
        ("captures", "CAPTURE"), ("limit", "--limit"), ("size", "--size"), ("ports", "--port"), ("loud", "--loud"),
    ]  # fmt: skip
    # In the order of all sections.
    assert headings == [READING, OUTPUT, OTHER]


def test_nothing_given_is_what_the_class_says_on_its_own() -> None:
    input_argument, spelled, _ = run()

    assert (input_argument.captures, input_argument.limit, input_argument.shared, spelled) == ((), 3, Shared(), [])
    with pytest.raises(FrozenInstanceError):
        input_argument.limit = 4  # type: ignore[misc]


def test_contradictions_are_usage_errors() -> None:
    @make_command(Made)
    def command(input_argument: Made) -> int:
        return 0

    done = CliRunner().invoke(command, ["--limit", "13"])
    assert (done.exit_code, done.output.splitlines()[-1]) == (2, "Error: --limit is not to be 13")


def test_a_group_may_be_hidden_but_for_some_with_other_texts() -> None:
    @options
    class Quiet:
        shared: Shared = group(Shared, shown={"loud": "Whisper."})

    actual_options = {parameter.name: parameter for parameter in parameters(Quiet) if isinstance(parameter, Option)}
    assert {name: option.hidden for name, option in actual_options.items()} == {
        "ports": True,
        "keylog": True,
        "loud": False,
    }
    assert (actual_options["loud"].help, actual_options["loud"].section) == ("Whisper.", OUTPUT)
    assert {parameter.name: parameter.help for parameter in parameters(Shared) if isinstance(parameter, Option)}[
        "loud"
    ] == "Shout."
    assert collect(Quiet, {"ports": (), "keylog": "k", "loud": False}) == Quiet(shared=Shared(keylog="k"))


COMMANDS = [names for names in command_names() if names != ("pipeline",)]


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_each_command_has_sections_that_line_up(names: tuple[str, ...]) -> None:
    page = help_text(*names)
    headings = re.findall(r"^(\w[^:\n]*):$", page, re.MULTILINE)

    assert headings == [section for section in SECTIONS if section in headings]
    assert len(headings) >= 2
    # A text begins in one column, or on a line of its own below a long option.
    columns = {match.end() for match in re.finditer(r"^  -.*?\S {2,}(?=\S)", page, re.MULTILINE)}
    starts = [re.match(r"  -\S.*?\s{2,}(?=\S)", line) for line in page.splitlines()]
    assert len({start.end() for start in starts if start is not None}) == 1
    assert columns


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_each_help_names_the_arguments_of_the_command(names: tuple[str, ...]) -> None:
    command = find_command(*names)
    context = click.Context(command)
    for param in command.params:
        if isinstance(param, click.Argument):
            metavars = re.findall(r"[A-Z]{2,}", param.make_metavar(context))
            assert all(re.search(rf"\b{word}\b", command.help or "") for word in metavars), param.name
    # Of two options with one name, groups would overwrite each other's values.
    texts = [parameter.name for parameter in command.params]
    assert len(texts) == len(set(texts))


FOLDER = ROOT / "mqttscope" / "cli"
MODULES = {"mqttscope.cli." + ".".join(p.relative_to(FOLDER).with_suffix("").parts): p for p in FOLDER.rglob("*.py")}


def imported(path: Path) -> set[str]:
    """Modules of the command line that a file imports, wherever in it."""
    texts: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            texts |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return texts & MODULES.keys()


def test_commands_do_not_import_commands() -> None:
    """What they share is in modules that are none, so that each can change alone."""
    counts = {name: path.read_text("utf-8").count("\n@make_command(") for name, path in MODULES.items()}
    commands = {name for name, count in counts.items() if count}

    assert sum(counts.values()) == len(COMMANDS)
    assert {name: both for name in MODULES if (both := imported(MODULES[name]) & commands)} == {}
