"""Small faults that can be planted in a module: one operator, constant, statement or guard each.

`mutants_of` lists them with the places of their text; `Mutant.apply` makes the changed source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "*"),
    ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"),
}  # fmt: skip
_LEAVING = (ast.Return, ast.Continue, ast.Raise, ast.Break)


@dataclass(frozen=True, order=True)
class Mutant:
    """A change of the text between two offsets of a module."""

    path: str
    """Relative to the project."""
    line: int
    start: int
    end: int
    new: str
    kind: str

    def apply(self, source: str) -> str:
        """The changed source."""
        return source[: self.start] + self.new + source[self.end :]

    def shown(self, source: str) -> str:
        """The changed line, with what is in the place of what."""
        text = source.splitlines()[self.line - 1].strip()
        return f"{self.path}:{self.line} [{self.kind}] {text}  |  {self._old(source)} -> {self.new}"

    def _old(self, source: str) -> str:
        return " ".join(source[self.start : self.end].split())


class _Source:
    """Offsets of places in a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def offset(self, line: int, column: int) -> int:
        """Offset of a place that counts its column in bytes of UTF-8."""
        head = self._lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(head)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Where a node begins and ends."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def operator(self, left: ast.expr, right: ast.expr, sign: str) -> tuple[int, int] | None:
        """Where an operator is between its operands; ``None`` if it cannot be found for certain."""
        start, end = self.span(left)[1], self.span(right)[0]
        between = self.text[start:end]
        at = between.find(sign)
        if at < 0 or between.count(sign) != 1 or "#" in between:
            return None
        return start + at, start + at + len(sign)


def mutants_of(path: str, text: str) -> list[Mutant]:
    """All faults that can be planted in a module."""
    source, tree = _Source(text), ast.parse(text)
    mutants: list[Mutant] = []
    for function in _functions(tree):
        for node in _within(function):
            for start, end, new, kind in _changes(node, source):
                line = text.count("\n", 0, start) + 1
                mutants.append(Mutant(path, line, start, end, new, kind))
    return sorted(set(mutants))


def mutants_in(root: Path, paths: list[Path]) -> list[Mutant]:
    """All faults that can be planted in modules of a project."""
    return [
        mutant for path in paths for mutant in mutants_of(path.relative_to(root).as_posix(), path.read_text("utf-8"))
    ]


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__repr"):
            yield node


def _within(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Nodes of the body of a function: no annotations, defaults, decorators, texts, or functions inside."""
    waiting: list[ast.AST] = list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        # Python 3.11 has no exact places for what is inside a formatted text.
        if isinstance(node, ast.JoinedStr | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assert):
            continue
        yield node
        for field, value in ast.iter_fields(node):
            if field == "annotation" or (isinstance(node, ast.Subscript) and field == "slice" and _is_type(node)):
                continue
            children = value if isinstance(value, list) else [value]
            waiting += [child for child in reversed(children) if isinstance(child, ast.AST)]


def _is_type(node: ast.Subscript) -> bool:
    return isinstance(node.value, ast.Name) and (
        node.value.id[:1].isupper() or node.value.id in ("dict", "list", "tuple")
    )


def _changes(node: ast.AST, source: _Source) -> Iterator[tuple[int, int, str, str]]:
    """Offsets, new text and kind of each change at a node."""
    if isinstance(node, ast.Compare):
        lefts = [node.left, *node.comparators]
        for left, operator, right in zip(lefts, node.ops, node.comparators, strict=False):
            old, new = _COMPARISONS[type(operator)]
            place = source.operator(left, right, old)
            if place is not None:
                yield *place, new, "comparison"
    elif isinstance(node, ast.BoolOp):
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        place = source.operator(node.values[0], node.values[1], old)
        if place is not None:
            yield *place, new, "logic"
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_union(node):
        old, new = _ARITHMETIC[type(node.op)]
        place = source.operator(node.left, node.right, old)
        if place is not None:
            yield *place, new, "arithmetic"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        start, end = source.span(node)
        yield start, end, f"bool({source.text[slice(*source.span(node.operand))]})", "negation"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield *source.span(node), str(not node.value), "flag"
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield *source.span(node), str(node.value + 1), "number"
    elif isinstance(node, ast.If) and isinstance(node.body[-1], _LEAVING) and len(node.body) == 1 and not node.orelse:
        yield *source.span(node.test), "False", "guard"
    elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield *source.span(node), "pass", "statement"


def _is_union(node: ast.BinOp) -> bool:
    """Whether it joins types, as in ``isinstance(x, A | B)``."""
    if not isinstance(node.op, ast.BitOr):
        return False
    sides = (node.left, node.right)
    return any(isinstance(side, ast.Name | ast.Attribute) and _name(side)[:1].isupper() and not _name(side).isupper()
               for side in sides) or any(isinstance(side, ast.BinOp) and _is_union(side) for side in sides)  # fmt: skip


def _name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr
