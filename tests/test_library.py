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


def signature(result: Any) -> str:
    """A signature as it is written in the source."""
    parts: list[str] = []
    for parameter in inspect.signature(result).parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        stars = (
            "*"
            if parameter.kind is parameter.VAR_POSITIONAL
            else "**"
            if parameter.kind is parameter.VAR_KEYWORD
            else ""
        )
        value = str(parameter.default) if isinstance(parameter.default, StrEnum) else parameter.default
        default = "" if parameter.default is parameter.empty else f" = {value!r}"
        parts.append(f"{stars}{parameter.name}: {parameter.annotation}{default}")
    return_annotation = inspect.signature(result).return_annotation
    back = "" if return_annotation in (inspect.Signature.empty, None, "None") else f" -> {return_annotation}"
    return f"({', '.join(parts)}){back}"


def members(kind: type) -> Iterator[str]:
    """The public attributes and methods of a class, with those that it has of our other classes."""
    for owner in reversed(kind.__mro__):
        if not owner.__module__.startswith("mqttscope."):
            continue
        hidden = {field.name for field in dataclasses.fields(owner) if not field.compare} if is_plain(owner) else set()
        for name, annotation in inspect.get_annotations(owner).items():
            if not name.startswith("_") and name not in hidden:
                yield f"    {name}: {annotation}"
        yield from made_at_first(owner)
        for name, var in vars(owner).items():
            if name.startswith("_") and name not in SHOWN_METHODS:
                continue
            if isinstance(var, property):
                yield f"    {name}: {inspect.signature(var.fget).return_annotation}"  # type: ignore[arg-type]
            elif inspect.isfunction(var):
                waits = "async " if inspect.iscoroutinefunction(var) else ""
                yield f"    {waits}{name}{signature(var)}"


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
    for name, result in offered():
        if not inspect.isclass(result):
            lines.append(f"{name}: str" if isinstance(result, str) else f"{name}{signature(result)}")
        elif issubclass(result, Exception):
            lines.append(f"{name}({', '.join(base.__name__ for base in result.__bases__)})")
        else:
            written = "" if dataclasses.is_dataclass(result) or name in MADE_HERE else signature(result.__init__)
            lines += [f"class {name}{written}", *members(result)]

    def wrapped(line: str) -> str:
        more = " " * (len(line) - len(line.lstrip()) + 8)
        text = re.sub("(?<=[^, ]) ", "\0", line)  # lines end after commas
        new_text = textwrap.fill(text, WIDTH, subsequent_indent=more, break_long_words=False, break_on_hyphens=False)
        return new_text.replace("\0", " ")

    return "\n".join(map(wrapped, lines)) + "\n"


def test_names_and_signatures_are_those_of_the_page() -> None:
    """A name or a signature that changes here is a change for everybody: the page and the changelog say so."""
    assert SHOWN is not None
    assert SHOWN[1] == stable(), "python -m tests.test_library writes them again"


def offered() -> Iterator[tuple[str, Any]]:
    """All that is offered, by the name under which it is; a folder stands for what it offers."""
    for name in mqttscope.__all__:
        result = getattr(mqttscope, name)
        if inspect.ismodule(result) and not callable(result):
            yield from ((f"{name}.{inner}", getattr(result, inner)) for inner in result.__all__)
        else:
            yield name, result


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
    assert [text for text, _ in offered() if text not in explained and text not in left] == []


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
    assert not any(isinstance(stmt, ast.FunctionDef) and stmt.name == "__getattr__" for stmt in body)
    seen = [stmt for stmt in body if isinstance(stmt, ast.If) and ast.unparse(stmt.test) == "TYPE_CHECKING"]
    always = [stmt for stmt in body if isinstance(stmt, ast.Assign | ast.ImportFrom)]
    imported = [node for part in (*always, *(line for each in seen for line in each.body)) for node in ast.walk(part)]
    names = {node.asname or node.name for node in imported if isinstance(node, ast.alias)}
    names |= {node.id for node in imported if isinstance(node, ast.Name)}
    assert set(package.__all__) <= names
    assert any(isinstance(stmt, ast.If) and ast.unparse(stmt.test) == "not TYPE_CHECKING" for stmt in body)


def test_importing_loads_nothing() -> None:
    before, after = loaded(""), loaded("import mqttscope\ndir(mqttscope)")

    assert {text for text in after if text.startswith("mqttscope")} == {"mqttscope", "mqttscope.errors"}
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
    texts = {name.partition(".")[0] for name in loaded(script)}

    assert not texts & {"pyarrow", "msgspec", "duckdb", "pandas", "polars", "pyspark", "cbor2", "msgpack"}
    # Nor what is of the command line.
    assert not texts & {"click", "rich", "pyshark", "asyncio", "pytest"}


def test_opening_a_lake_loads_what_is_asked_of_it(tmp_path: Path) -> None:
    tools.package("pyarrow")
    from mqttscope.lake.writer import write_lake

    write_lake([ROOT / "captures" / "v5-qos" / "capture.pcapng"], tmp_path / "lake")
    opened = f"import mqttscope\nlake = mqttscope.lake.open({str(tmp_path / 'lake')!r})\n"
    optional = {"pyarrow", "msgspec", "duckdb", "pandas", "polars", "pyspark", "deltalake", "click"}
    assert {text.partition(".")[0] for text in loaded(opened)} & optional == set()
    asked = {text.partition(".")[0] for text in loaded(f"{opened}lake.sql('select 1').to_duckdb().fetchall()")}
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
