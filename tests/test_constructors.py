"""What is compiled has constructors that do what those of the decorator do (.ci/constructors.py)."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".ci"))
from constructors import Known, known_of, written_out  # noqa: E402

HOT = {"History", "PeerHistory", "Message", "Sent", "Ended", "Exchange", "Connection", "Side", "Flow", "FlowState"}
"""Classes of which there is an object for each connection or message."""
LEAVES = {"Message", "Sent", "Ended", "Exchange"}
"""Those for each message, which can be in no cycle."""


def compiled() -> dict[str, str]:
    """The sources of what is compiled, by module; who else derives from their classes makes no difference here."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["hooks"]["custom"]
    paths = sorted({path for pattern in patterns["compiled"] for path in ROOT.glob(pattern)})
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text("utf-8") for path in paths}


def constructors(source: str) -> Iterator[tuple[ast.ClassDef, ast.FunctionDef]]:
    for one in ast.parse(source).body:
        if isinstance(one, ast.ClassDef) and "init=False" in "".join(map(ast.unparse, one.decorator_list)):
            yield one, next(line for line in one.body if isinstance(line, ast.FunctionDef) and line.name == "__init__")


def in_place(module: ModuleType, found: ast.FunctionDef) -> Any:
    """The function as it would be in its module."""
    names = dict(vars(module))
    code = compile(ast.Module([found], []), "written", "exec", flags=annotations.compiler_flag)
    exec(code, names)
    return names["__init__"]


@pytest.mark.interpreted  # compiled classes have these constructors themselves
def test_what_is_written_out_makes_what_the_decorator_makes() -> None:
    every = compiled()
    known = known_of({name: ast.parse(source) for name, source in every.items()})
    seen: dict[str, str] = {}
    for name, source in every.items():
        module = import_module(name.removesuffix(".__init__"))
        for one, function in constructors(written_out(name, source, known)):
            seen[one.name] = "".join(map(ast.unparse, one.decorator_list))
            cls = getattr(module, one.name)
            rows = dataclasses.fields(cls)
            init = in_place(module, function)
            assert list(inspect.signature(init).parameters) == ["self", *(row.name for row in rows)], cls
            needed = [object() for row in rows if row.default is row.default_factory is dataclasses.MISSING]
            made, expected = cls.__new__(cls), cls(*needed)
            init(made, *needed)
            for row in rows:
                got, wanted = getattr(made, row.name), getattr(expected, row.name)
                assert type(got) is type(wanted), (cls, row.name)
                assert got is wanted or got == wanted or dataclasses.is_dataclass(wanted) or slotted(wanted), row.name
            values = [object() for _ in rows]
            init(made, *values)
            assert [getattr(made, row.name) for row in rows] == values, cls
    assert seen.keys() >= HOT
    assert {name for name in LEAVES if "acyclic=True" not in seen[name]} == set()
    assert "acyclic" not in seen["History"] + seen["Connection"] + seen["FlowState"]
    assert len(seen) > 60


def slotted(value: object) -> bool:
    """Whether objects of its class are equal only to themselves."""
    return type(value).__eq__ is object.__eq__


def written(source: str) -> str:
    return written_out("m", source, known_of({"m": ast.parse(source)}))


def test_what_cannot_be_written_out_is_left_as_it_is() -> None:
    for source in (
        "@dataclass(slots=True, frozen=True)\nclass A:\n    a: int\n",
        "class B: pass\n@dataclass(slots=True)\nclass A(B):\n    a: int\n",
        "@dataclass(slots=True)\nclass A:\n    a: int\nclass B(A): pass\n",
        "@dataclass(slots=True)\nclass A:\n    a: int\n    def __post_init__(self): pass\n",
        "@dataclass(slots=True)\nclass A:\n    a: int = field(kw_only=True)\n",
        "@dataclass(slots=True)\nclass A:\n    a: int = field(init=False)\n",
        "@dataclass(slots=True)\nclass A:\n    a: ClassVar[int] = 1\n",
        "class A:\n    a: int\n",
    ):
        assert written(source) == source


def test_lines_stand_where_they_belong() -> None:
    source = (
        "from dataclasses import dataclass, field\n\n\n@dataclass(slots=True)\nclass A:\n    a: int\n"
        "    b: list[int] = field(default_factory=list)\n    c: int = field(default=2, repr=False)\n"
        "    d: list[int] = field(default_factory=lambda: [0] * 4)\n\n"
        "    def e(self) -> int:\n        return self.a\n\n\nX = 1\n"
    )
    found = written(source)
    names: dict[str, Any] = {"mypyc_attr": lambda **_: lambda cls: cls}
    exec(found, names)
    made = names["A"](7)
    assert (made.a, made.b, made.c, made.d, made.e(), names["X"]) == (7, [], 2, [0, 0, 0, 0], 7, 1)
    assert names["A"](1, [5], 3, [6]) == names["A"](a=1, b=[5], c=3, d=[6])
    assert "allow_interpreted_subclasses=True, acyclic=True" in found


def test_names_of_several_modules_count_where_all_are_acyclic() -> None:
    leaf = "@dataclass(slots=True)\nclass A:\n    a: int | None\n    b: tuple[str, ...]\n"
    knot = "@dataclass(slots=True)\nclass A:\n    a: object\n"
    user = "@dataclass(slots=True)\nclass U:\n    a: A\n"
    both = {name: ast.parse(source) for name, source in (("x", leaf), ("y", knot), ("z", user))}
    known = known_of(both)
    assert isinstance(known, Known)
    assert "A" in known.acyclic["x"]
    assert "A" not in known.acyclic["y"]
    assert not {"A", "U"} & known.acyclic["z"]
    del both["y"]
    assert {"A", "U"} <= known_of(both).acyclic["z"]
