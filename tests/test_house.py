"""Lists of what makes the source harder to hold in mind; they may only become shorter.

``house.txt`` has the lists.  A name that is new in one of them fails, and so does one that is there no longer: then its
line is deleted, and stays deleted.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

LISTS = Path(__file__).with_name("house.txt")
CALLED_BY_LIBRARIES = {
    "asyncio": {
        "connection_made", "connection_lost", "data_received", "eof_received", "pause_writing", "resume_writing",
    },
    "click": {"list_commands"},
    "Spark": {
        "streamReader", "pushFilters", "initialOffset", "latestOffset", "getDefaultReadLimit",
        "prepareForTriggerAvailableNow",
    },
}  # fmt: skip
READ_BY_LIBRARIES = frozenset(
    ("BINDINGS", "COMPONENT_CLASSES", "DEFAULT_CSS", "border_title", "display", "theme", "virtual_size")
)
"""Attributes that Textual reads."""
WORD = re.compile(r"[A-Za-z_]\w*")


def trees(folder: str) -> list[ast.Module]:
    """The syntax trees of a folder."""
    return [ast.parse(path.read_text("utf-8")) for path in sorted((ROOT / folder).rglob("*.py"))]


def names_in_text(node: ast.AST) -> Iterator[str]:
    """Names in a short string, such as an annotation or the path of an attribute."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) < 4:
        yield from WORD.findall(node.value)


def used(modules: Iterable[ast.Module]) -> Counter[str]:
    """How often each name is read, imported or called."""
    names = Counter[str]()
    for module in modules:
        for node in ast.walk(module):
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                names[node.id if isinstance(node, ast.Name) else node.attr] += 1
            elif isinstance(node, ast.alias):
                names[node.name.rpartition(".")[2]] += 1
            names.update(names_in_text(node))
    return names


def read(modules: Iterable[ast.Module]) -> set[str]:
    """Attributes that are read anywhere."""
    names = set[str]()
    for module in modules:
        for node in ast.walk(module):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                names.add(node.attr)
            elif isinstance(node, ast.MatchClass):
                names.update(node.kwd_attrs)
            names.update(names_in_text(node))
    return names


def written(modules: Iterable[ast.Module]) -> set[str]:
    """Attributes of classes: fields of dataclasses, and what methods set."""
    names = set[str]()
    for module in modules:
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                names |= {
                    stmt.target.id
                    for stmt in node.body
                    if isinstance(stmt, ast.AnnAssign) and isinstance(stmt.target, ast.Name)
                }
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
                names.add(node.attr)
    return names


def is_self(node: ast.expr) -> bool:
    """Whether an expression is ``self``."""
    return isinstance(node, ast.Name) and node.id == "self"


def is_rule(node: ast.AST) -> bool:
    """Whether a class is a rule of the linter, which is found by what it inherits from."""
    return isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Rule") for base in node.bases)


def several_meanings(product: list[ast.Module]) -> set[str]:
    """Names of classes that several modules define."""
    names = Counter(node.name for module in product for node in module.body if isinstance(node, ast.ClassDef))
    return {name for name, count in names.items() if count > 1}


def only_tests_call(product: list[ast.Module], tests: list[ast.Module], documents: str) -> set[str]:
    """Functions and classes that tests use, and neither the product nor its documents name."""
    known, tested, documented = used(product), used(tests), set(WORD.findall(documents))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    nodes = [node for module in product for node in ast.walk(module) if isinstance(node, kinds)]
    defined = {node.name for node in nodes if not is_rule(node)}
    return {
        name
        for name in defined.difference(documented, *CALLED_BY_LIBRARIES.values())
        if tested[name] and not known[name]
    }


def never_read(product: list[ast.Module]) -> set[str]:
    """Attributes that the product writes and does not read."""
    names = written(product) - read(product) - READ_BY_LIBRARIES
    return {name for name in names if not name.startswith("__")}


def lists(text: str) -> dict[str, set[str]]:
    """The names below each heading."""
    texts: dict[str, set[str]] = {}
    for line in filter(None, text.splitlines()):
        if line.startswith("#"):
            texts[line.lstrip("# ")] = names = set[str]()
        else:
            names.update(line.split())
    return texts


@pytest.fixture(scope="module")
def product() -> list[ast.Module]:
    return trees("mqttscope")


HEADINGS = "classes of several modules", "code that only tests call", "attributes written and never read"


@pytest.mark.parametrize("heading", HEADINGS)
def test_the_lists_become_only_shorter(heading: str, product: list[ast.Module]) -> None:
    documents = "".join(path.read_text("utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    now = {
        HEADINGS[0]: lambda: several_meanings(product),
        HEADINGS[1]: lambda: only_tests_call(product, trees("tests"), documents),
        HEADINGS[2]: lambda: never_read(product),
    }[heading]()
    allowed = lists(LISTS.read_text("utf-8"))[heading]

    assert not now - allowed, f"new among the {heading}: choose another name, or delete what nobody needs"
    assert not allowed - now, f"no longer among the {heading}: delete their names in {LISTS.name}"


def test_the_lists_have_each_name_once_and_in_order() -> None:
    text = LISTS.read_text("utf-8")

    assert tuple(lists(text)) == HEADINGS
    for part in text.split("#")[1:]:
        names = " ".join(part.splitlines()[1:]).split()
        assert names == sorted(set(names))


SOURCE = """
class Row:
    kept: int = 0
    seen: int = 0
    matched: int = 0

    def __init__(self):
        self.lost, self.other = 1, self.kept

    def asked(self):
        match self:
            case Row(matched=1):
                return getattr(self, "seen")

def helper(): ...
def documented(): ...
def data_received(): ...
class _Lonely: ...
class Found(PacketRule): ...
"""


def test_what_the_lists_hold() -> None:
    module = ast.parse(SOURCE)
    tests = ast.parse("helper(); documented(); data_received(); Row().asked; Found()")

    assert several_meanings([module, ast.parse("class Row: ...\ndef other():\n    class _Lonely: ...")]) == {"Row"}
    assert only_tests_call([module], [tests], "the function documented") == {"helper", "asked"}
    assert only_tests_call([module, ast.parse("x = Row().asked")], [tests], "") == {"helper", "documented"}
    assert never_read([module]) == {"lost", "other"}
