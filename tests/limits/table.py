"""The table of all limits: files of rows, one for each package (top.txt for the modules of none).

    headers.MAX_TUNNELS = 8 tunnels
        read(gre(8)) -> "TCP" | read(gre(9)) -> "too many headers"

A row has the name of the limit, after its package; its figure; its unit; the smallest input at the limit with what it
must give; and the smallest input one beyond it, with what that must give.  Inputs and results are expressions in the
words of the module beside the rows, and in ``given``, the figure, and ``folder``, a new folder; a coroutine is run.
Where the figure would take too long, the row names a lower one that is set for the test: ``= 100_000 clients, tried
with 3``.  A figure that is used as the module is read, where setting it changes nothing, is ``fixed``.

What is called like a limit and is none stands below ``excused:`` and the reason.

    excused: pace, how often a loop looks; no result depends on it
        app.TICK_SECONDS app.SLICE_SECONDS
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from tests.tables import titled

HERE = Path(__file__).parent
PRODUCT = HERE.parents[1] / "mqttscope"

EXCUSED = "excused: "
TITLE = re.compile(
    r"(?P<name>[\w.]+) = (?P<figure>[\d_.*<() +-]+) (?P<unit>[a-z][^,]*)"
    r"(?:, (?:tried with (?P<tried>[\d_.]+)|(?P<fixed>fixed)))?"
)
NAMES = re.compile(
    r".*(?:MAX|MOST|LONGEST|LARGEST|HIGHEST|DEEPEST|TIMEOUT|LIMIT|DEPTH|KEPT|WINDOW).*|.*_(?:NS|S|SECONDS|BYTES)"
)
"""What limits and time-outs are called; what has such a name and is none of the two is excused."""


@dataclass(frozen=True)
class Limit:
    """A row as the table has it: nothing of it is read from the product."""

    inputs: str
    """The module of its words."""
    path: str
    """Below mqttscope."""
    figure: str
    unit: str
    tried: str | None
    fixed: bool
    at: str
    gives_at: str
    beyond: str
    gives_beyond: str


def limits() -> list[Limit]:
    """All rows."""
    return [
        _row(file, package, title, lines) for file, package, title, lines in _parts() if not title.startswith(EXCUSED)
    ]


def excused() -> dict[str, str]:
    """Names that need no row, each with the reason."""
    parts = [(package, title, lines) for _, package, title, lines in _parts() if title.startswith(EXCUSED)]
    return {
        f"{package}{name}": title.removeprefix(EXCUSED)
        for package, title, lines in parts
        for name in " ".join(lines).split()
    }


def _parts() -> Iterator[tuple[str, str, str, list[str]]]:
    for path in sorted(HERE.glob("*.txt")):
        package = "" if path.stem == "top" else f"{path.stem.replace('-', '.')}."
        for title, lines in titled(path.read_text(encoding="utf-8")):
            yield path.stem.replace("-", "_"), package, title, lines


def _row(file: str, package: str, title: str, lines: list[str]) -> Limit:
    head = TITLE.fullmatch(title)
    assert head is not None, f"not the head of a row: {title!r}"
    cells = [cell.strip().split(" -> ") for cell in " ".join(lines).split(" | ")]
    assert [len(cell) for cell in cells] == [2, 2], f"not two inputs, each with its result: {title}"
    (at, gives_at), (beyond, gives_beyond) = cells
    return Limit(
        file, package + head["name"], head["figure"], head["unit"], head["tried"], bool(head["fixed"]),
        at, gives_at, beyond, gives_beyond,
    )  # fmt: skip


def found() -> dict[str, object]:
    """All that is called like a limit, by its path in the product, with its figure."""
    names: dict[str, object] = {}
    for path in sorted(PRODUCT.rglob("*.py")):
        module = ".".join(("mqttscope", *path.relative_to(PRODUCT).with_suffix("").parts)).removesuffix(".__init__")
        bodies: list[tuple[str, list[ast.stmt]]] = [("", ast.parse(path.read_bytes()).body)]
        bodies += [(f"{part.name}.", part.body) for part in bodies[0][1] if isinstance(part, ast.ClassDef)]
        for owner, body in bodies:
            for name in (name for part in body for name in _assigned(part) if NAMES.fullmatch(name)):
                figure = _attribute(module, owner + name)
                if isinstance(figure, int | float | dict) and not isinstance(figure, bool):
                    names[f"{module}.{owner}{name}".removeprefix("mqttscope.")] = figure
    return names


def _assigned(part: ast.stmt) -> list[str]:
    targets = part.targets if isinstance(part, ast.Assign) else [part.target] if isinstance(part, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name) and target.id.isupper()]


def _attribute(module: str, name: str) -> object:
    result: Any = importlib.import_module(module)
    for part in name.split("."):
        result = getattr(result, part, None)
    return result


def evaluated(limit: Limit, expression: str, argument: object, folder: Path) -> object:
    """What an expression of a row gives."""
    words = importlib.import_module(f"tests.limits.{limit.inputs}")
    result = eval(expression, {**vars(words), "given": argument, "folder": folder})
    return asyncio.run(result) if inspect.iscoroutine(result) else result


@contextmanager
def set_to(limit: Limit, figure: object) -> Iterator[None]:
    """With the limit set to a figure, where it is declared and wherever it was imported by name."""
    owner, _, name = f"mqttscope.{limit.path}".rpartition(".")
    module, _, of = owner.rpartition(".") if owner.rpartition(".")[2][0].isupper() else (owner, "", "")
    home = importlib.import_module(module)
    # What makes the inputs is imported with the limit as it is.
    importlib.import_module(f"tests.limits.{limit.inputs}")
    with ExitStack() as stack:
        for holder in [getattr(home, of)] if of else [home, *_importing(home, name)]:
            stack.enter_context(patch.object(holder, name, figure))
        yield


def _importing(home: ModuleType, name: str) -> list[ModuleType]:
    modules = [module for title, module in sys.modules.items() if title.startswith("mqttscope.") and module is not home]
    return [module for module in modules if name in vars(module) and (home.__name__, name) in _imports(module.__file__)]


@cache
def _imports(path: str | None) -> set[tuple[str | None, str]]:
    """What a file imports by name, each with its module."""
    tree = ast.parse(Path(str(path)).read_bytes())
    froms = [part for part in ast.walk(tree) if isinstance(part, ast.ImportFrom)]
    return {(part.module, each.name) for part in froms for each in part.names}
