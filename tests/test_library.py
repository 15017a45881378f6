"""What ``import mqttscope`` offers is what docs/library.md says, and costs nothing until it is asked for."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mqttscope
from tests import tools
from tests.cli.running import environment
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "library.md"
TEXT = PAGE.read_text("utf-8")
PAIRS = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.M | re.S)
"""A program, and what it prints."""
EXAMPLES = PAIRS.findall(TEXT)
PARTS = PAIRS.findall((ROOT / "docs" / "sans-io.md").read_text("utf-8"))
SHOWN = re.search(r"^<!-- held to the code by .*? -->\n```text\n(.*?)^```$", TEXT, re.M | re.S)
MADE_HERE = ("Captures", "Findings", "lake.Lake", "lake.Relation")
"""Classes of which nobody else makes objects."""
WIDTH = 118
SHOWN_METHODS = ("__iter__", "__getitem__", "__len__", "__enter__", "__aenter__")


def signature(made: Any) -> str:
    """A signature as it is written in the source."""
    parts: list[str] = []
    for one in inspect.signature(made).parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        value = str(one.default) if isinstance(one.default, StrEnum) else one.default
        default = "" if one.default is one.empty else f" = {value!r}"
        parts.append(f"{stars}{one.name}: {one.annotation}{default}")
    found = inspect.signature(made).return_annotation
    back = "" if found in (inspect.Signature.empty, None, "None") else f" -> {found}"
    return f"({', '.join(parts)}){back}"


def members(kind: type) -> Iterator[str]:
    """The public attributes and methods of a class, with those that it has of our other classes."""
    for owner in reversed(kind.__mro__):
        if not owner.__module__.startswith("mqttscope."):
            continue
        hidden = {one.name for one in dataclasses.fields(owner) if not one.compare} if is_plain(owner) else set()
        for name, annotation in inspect.get_annotations(owner).items():
            if not name.startswith("_") and name not in hidden:
                yield f"    {name}: {annotation}"
        yield from made_at_first(owner)
        for name, made in vars(owner).items():
            if name.startswith("_") and name not in SHOWN_METHODS:
                continue
            if isinstance(made, property):
                yield f"    {name}: {inspect.signature(made.fget).return_annotation}"  # type: ignore[arg-type]
            elif inspect.isfunction(made):
                waits = "async " if inspect.iscoroutinefunction(made) else ""
                yield f"    {waits}{name}{signature(made)}"


def is_plain(kind: type) -> bool:
    """Whether a class is a dataclass itself."""
    return "__dataclass_fields__" in vars(kind)


def made_at_first(kind: type) -> Iterator[str]:
    """The public attributes that a constructor sets."""
    if is_plain(kind) or "__init__" not in vars(kind):
        return
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(kind.__init__)))):  # type: ignore[misc]
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self" and target.attr[0] != "_":
            known = f": {ast.unparse(node.annotation)}" if isinstance(node, ast.AnnAssign) else ""
            yield f"    {target.attr}{known}"


def stable() -> str:
    """All stable names, with their signatures."""
    lines = []
    for name, made in offered():
        if not inspect.isclass(made):
            lines.append(f"{name}: str" if isinstance(made, str) else f"{name}{signature(made)}")
        elif issubclass(made, Exception):
            lines.append(f"{name}({', '.join(one.__name__ for one in made.__bases__)})")
        else:
            written = "" if dataclasses.is_dataclass(made) or name in MADE_HERE else signature(made.__init__)
            lines += [f"class {name}{written}", *members(made)]

    def wrapped(line: str) -> str:
        more = " " * (len(line) - len(line.lstrip()) + 8)
        kept = re.sub("(?<=[^, ]) ", "\0", line)  # lines end after commas
        made = textwrap.fill(kept, WIDTH, subsequent_indent=more, break_long_words=False, break_on_hyphens=False)
        return made.replace("\0", " ")

    return "\n".join(map(wrapped, lines)) + "\n"


def test_names_and_signatures_are_those_of_the_page() -> None:
    """A name or a signature that changes here is a change for everybody: the page and the changelog say so."""
    assert SHOWN is not None
    assert SHOWN[1] == stable(), "python -m tests.test_library writes them again"


def offered() -> Iterator[tuple[str, Any]]:
    """All that is offered, by the name under which it is; a folder stands for what it offers."""
    for name in mqttscope.__all__:
        made = getattr(mqttscope, name)
        if inspect.ismodule(made) and not callable(made):
            yield from ((f"{name}.{inner}", getattr(made, inner)) for inner in made.__all__)
        else:
            yield name, made


def test_names_are_sorted_and_exist() -> None:
    assert sorted(mqttscope.__all__) == mqttscope.__all__
    assert set(mqttscope.__all__) <= set(dir(mqttscope))
    with pytest.raises(AttributeError, match="module 'mqttscope' has no attribute 'opne'"):
        _ = mqttscope.opne  # type: ignore[attr-defined]
    assert set(mqttscope.lake.__all__) <= set(dir(mqttscope.lake))
    assert sorted(mqttscope.lake.__all__) == mqttscope.lake.__all__


def test_each_name_is_explained_on_the_page() -> None:
    explained = TEXT.partition("## The stable names")[0]
    left = {"lake.LakeError", "__version__", "CaptureError", "Event", "Replayed", "Served"}
    assert [one for one, _ in offered() if one not in explained and one not in left] == []


@pytest.mark.parametrize(("example", "printed"), [*EXAMPLES, *PARTS])
def test_the_examples_of_the_pages_run(
    example: str, printed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if re.search("to_(arrow|pandas|polars)", example):
        tools.package("pyarrow", "pandas")
    monkeypatch.chdir(ROOT)
    exec(compile(example, "library.md", "exec"), {"__name__": "__main__"})

    assert capsys.readouterr().out == printed


def test_every_block_of_the_page_is_run() -> None:
    assert TEXT.count("```python\n") == len(EXAMPLES)
    assert PARTS


def loaded(script: str) -> set[str]:
    """The modules that a program has loaded at its end."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{script}\nprint(*sys.modules)"],
        env=environment(), capture_output=True, text=True, timeout=60, check=True, cwd=ROOT,
    )  # fmt: skip
    return set(done.stdout.split())


@pytest.mark.parametrize("package", [mqttscope, mqttscope.lake], ids=["mqttscope", "mqttscope.lake"])
def test_who_checks_types_sees_each_name_and_no_other(package: ModuleType) -> None:
    """A module with `__getattr__` has every name for a type checker, misspelled ones too."""
    body = ast.parse(inspect.getsource(package)).body
    assert not any(isinstance(one, ast.FunctionDef) and one.name == "__getattr__" for one in body)
    seen = [one for one in body if isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING"]
    always = [one for one in body if isinstance(one, ast.Assign | ast.ImportFrom)]
    imported = [one for part in (*always, *(line for one in seen for line in one.body)) for one in ast.walk(part)]
    names = {one.asname or one.name for one in imported if isinstance(one, ast.alias)}
    names |= {one.id for one in imported if isinstance(one, ast.Name)}
    assert set(package.__all__) <= names
    assert any(isinstance(one, ast.If) and ast.unparse(one.test) == "not TYPE_CHECKING" for one in body)


def test_importing_loads_nothing() -> None:
    before, after = loaded(""), loaded("import mqttscope\ndir(mqttscope)")

    assert {one for one in after if one.startswith("mqttscope")} == {"mqttscope", "mqttscope.errors"}
    # Not even of the standard library.
    assert after - before <= {"mqttscope", "mqttscope.errors", "__future__"}


def test_reading_and_judging_needs_no_optional_package() -> None:
    script = """
import mqttscope
for packet in mqttscope.open("captures/v5-qos/capture.pcapng"):
    packet.to_dict()
mqttscope.lint("captures/v5-qos/capture.pcapng")
mqttscope.decode(b"\\xc0\\0")
"""
    found = {name.partition(".")[0] for name in loaded(script)}

    assert not found & {"pyarrow", "msgspec", "duckdb", "pandas", "polars", "pyspark", "cbor2", "msgpack"}
    # Nor what is of the command line.
    assert not found & {"click", "rich", "pyshark", "asyncio", "pytest"}


def test_opening_a_lake_loads_what_is_asked_of_it(tmp_path: Path) -> None:
    tools.package("pyarrow")
    from mqttscope.lake.writer import write_lake

    write_lake([ROOT / "captures" / "v5-qos" / "capture.pcapng"], tmp_path / "lake")
    opened = f"import mqttscope\nlake = mqttscope.lake.open({str(tmp_path / 'lake')!r})\n"
    optional = {"pyarrow", "msgspec", "duckdb", "pandas", "polars", "pyspark", "deltalake", "click"}
    assert {one.partition(".")[0] for one in loaded(opened)} & optional == set()
    asked = {one.partition(".")[0] for one in loaded(f"{opened}lake.sql('select 1').to_duckdb().fetchall()")}
    assert asked & optional <= {"duckdb", "pandas"}


def test_the_folder_of_rules_and_the_function_are_one_name() -> None:
    """``mqttscope.lint`` is both, in whatever order they are asked for."""
    for script in (
        "import mqttscope\nfound = mqttscope.lint(NAME)\nimport mqttscope.lint.engine as engine",
        "import mqttscope.lint.engine as engine\nimport mqttscope\nfound = mqttscope.lint(NAME)",
        "from mqttscope import lint\nfound = lint(NAME)\nfrom mqttscope.lint import engine",
    ):
        loaded(f"NAME = 'captures/v5-qos/capture.pcapng'\n{script}\nassert found.packets == 24 and engine.Linter")


if __name__ == "__main__":
    assert SHOWN is not None
    PAGE.write_text(TEXT[: SHOWN.start(1)] + stable() + TEXT[SHOWN.end(1) :], "utf-8")
