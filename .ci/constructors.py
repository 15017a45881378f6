"""Writes out the ``__init__`` of dataclasses in the copies that are compiled, so that compiled code makes objects.

The decorator writes an ``__init__`` when a module is loaded, which stays interpreted: it takes ten times as long as
compiled code, and of connections, flows and messages there are many.  ``written_out`` gives a source in which each
plain dataclass with slots has one that does the same.  Such a class allows interpreted subclasses: only then can an
object of it still be made without arguments, as whoever reads state or fills the fields itself does.

Objects of nothing but numbers, texts and bytes, and of others like them, can be in no cycle of references: of these the
class is said to be acyclic, and the collector of cycles has nothing to do with them.

Left as they are: classes that derive from others or that others derive from, frozen ones, and those with an
``__init__``, a ``__post_init__`` or fields that are no ordinary parameters.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from dataclasses import dataclass

DECORATOR = "@dataclass(slots=True)"
_EMPTY = {"list": "[]", "dict": "{}"}
_PLAIN = {"bool", "bytearray", "bytes", "float", "int", "str"}
_ENUMERATIONS = {"Enum", "Flag", "IntEnum", "IntFlag", "StrEnum"}
_UNUSUAL = {"init", "kw_only"}
"""What a field may say that makes it no ordinary parameter."""


@dataclass(slots=True)
class Known:
    """What has to be known of all modules of a package."""

    bases: set[str]
    """Classes that others derive from."""
    acyclic: dict[str, set[str]]
    """Names that stand for acyclic values in each module."""


def known_of(trees: Mapping[str, ast.Module]) -> Known:
    """Look at all modules of a package, by name.  A name that several have counts only where it is so for all."""
    classes = {name: [one for one in tree.body if isinstance(one, ast.ClassDef)] for name, tree in trees.items()}
    bases = {_name(base) for found in classes.values() for one in found for base in one.bases}
    own = {
        name: {one.name for one in found if {_name(base) for base in one.bases} & _ENUMERATIONS}
        for name, found in classes.items()
    }
    while True:
        others = {one.name for name, found in classes.items() for one in found if one.name not in own[name]}
        shared = (set[str]().union(*own.values()) - others) | _PLAIN
        acyclic = {name: own[name] | (shared - {one.name for one in found}) for name, found in classes.items()}
        more = {
            name: {one.name for one in found if one.name not in own[name] | bases and _holds(one, acyclic[name])}
            for name, found in classes.items()
        }
        if not any(more.values()):
            return Known(bases, acyclic)
        own = {name: own[name] | more[name] for name in own}


def _holds(cls: ast.ClassDef, acyclic: set[str]) -> bool:
    """Whether it is a plain dataclass that holds nothing but acyclic values."""
    fields = [line.annotation for line in cls.body if isinstance(line, ast.AnnAssign)]
    return not cls.bases and _is_plain_dataclass(cls) and all(_is_acyclic(one, acyclic) for one in fields)


def _name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2].partition("[")[0]


def _is_plain_dataclass(cls: ast.ClassDef) -> bool:
    return [f"@{ast.unparse(one)}" for one in cls.decorator_list] == [DECORATOR]


def _is_acyclic(annotation: ast.expr, acyclic: set[str]) -> bool:
    """Whether a value of a type refers to nothing, or to what is acyclic."""
    match annotation:
        case ast.BinOp(left=left, right=right):
            return _is_acyclic(left, acyclic) and _is_acyclic(right, acyclic)
        case ast.Subscript(value=ast.Name(id="tuple" | "list" | "dict" | "set"), slice=inside):
            parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            return all(_is_acyclic(part, acyclic) for part in parts)
        case ast.Constant(value=None | builtins.Ellipsis):
            return True
        case ast.Name(id=name):
            return name in acyclic
    return False


def written_out(name: str, source: str, known: Known) -> str:
    """The module of this name with the constructors of its dataclasses."""
    tree = ast.parse(source)
    lines = source.splitlines()
    found = [
        (one, made)
        for one in tree.body
        if isinstance(one, ast.ClassDef) and one.name not in known.bases and (made := _constructor(one)) is not None
    ]
    # From the last to the first, so that the numbers of lines before stay.
    for one, made in reversed(found):
        assert one.end_lineno is not None
        lines[one.end_lineno : one.end_lineno] = ["", *(f"    {line}" for line in made)]
        place = one.decorator_list[0].lineno - 1
        lines[place] = "@dataclass(slots=True, init=False)"
        more = ", acyclic=True" if one.name in known.acyclic[name] else ""
        lines.insert(place, f"@mypyc_attr(allow_interpreted_subclasses=True{more})")
    if found and "import mypyc_attr" not in source:
        after = max(one.end_lineno or 0 for one in tree.body if isinstance(one, (ast.Import, ast.ImportFrom)))
        first = min(one.decorator_list[0].lineno for one, _ in found)
        assert after < first, "imports stand before classes"
        lines[after:after] = ["import typing", "if typing.TYPE_CHECKING:", "    from mypy_extensions import mypyc_attr"]
    return "\n".join(lines) + "\n"


def _constructor(cls: ast.ClassDef) -> list[str] | None:
    """The lines of an ``__init__``; ``None`` where the decorator has to write it."""
    if cls.bases or not _is_plain_dataclass(cls):
        return None
    if any(isinstance(one, ast.FunctionDef) and one.name in ("__init__", "__post_init__") for one in cls.body):
        return None
    parameters, body = [], []
    for one in cls.body:
        if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name):
            continue
        name, annotation = one.target.id, ast.unparse(one.annotation)
        if "ClassVar" in annotation or "InitVar" in annotation:
            return None
        value = one.value
        if not (isinstance(value, ast.Call) and _name(value.func) == "field"):
            parameters.append(f"{name}: {annotation}" + ("" if value is None else f" = {ast.unparse(value)}"))
            body.append(f"self.{name} = {name}")
            if isinstance(value, ast.Call):
                return None  # which may say what a field is as well
            continue
        said = {word.arg: word.value for word in value.keywords}
        if _UNUSUAL & said.keys():
            return None
        factory = said.get("default_factory")
        if factory is None:
            default = said.get("default")
            parameters.append(f"{name}: {annotation}" + ("" if default is None else f" = {ast.unparse(default)}"))
            body.append(f"self.{name} = {name}")
            continue
        made = ast.unparse(factory.body) if isinstance(factory, ast.Lambda) else f"{ast.unparse(factory)}()"
        made = _EMPTY.get(ast.unparse(factory), made)
        parameters.append(f"{name}: {annotation} | None = None")
        body.append(f"self.{name} = {made} if {name} is None else {name}")
    if not body:
        return None
    return [f"def __init__(self, {', '.join(parameters)}) -> None:", *(f"    {line}" for line in body)]
