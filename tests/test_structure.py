"""What holds for the whole source tree: sizes, names, imports, docstrings, a test for every module."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import struct
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

SOURCE = ROOT / "mqttscope"
FILES = sorted(SOURCE.rglob("*.py"))
LONGEST = 800

SMALLEST = 150
"""Lines from which on a module may serve a single neighbour."""
SMALL: dict[str, str] = {}
"""Modules with fewer lines than `SMALLEST` that only a neighbour imports, and why they stand alone."""

TESTED_ELSEWHERE = {
    "__main__.py": "cli/test_main.py: every test that starts the program goes through it",
    "cli/lint_options.py": "cli/test_lint.py, cli/test_proxy.py: options of commands that lint",
    "cli/linting.py": "cli/test_lint.py: one run of the linter",
    "cli/linting_settings.py": "cli/test_lint.py: what a run goes by",
    "cli/proxying.py": "cli/test_proxy.py: one run of the proxy",
    "cli/sniffing.py": "cli/test_sniff.py: one live capture",
    "cli/replaying.py": "cli/test_replay.py, cli/test_replay_failures.py, corpus/test_replay_mosquitto.py: one replay",
    "cli/recorded.py": "cli/test_replay.py, corpus/test_replay_mosquitto.py: what is played",
    "cli/inspect.py": "cli/test_inspect.py, cli/test_sources.py, cli/test_jsonl.py",
    "dev/generate.py": "test_generated.py",
    "spark/cross_connection_stage.py": "spark/test_ingest_flows.py, spark/test_ingest.py: the second stage of a fold",
    "spark/ingest_tasks.py": "spark/test_ingest_flows.py: what the tasks do",
    "lint/shared_checks.py": "lint/test_rules.py: the examples of the rules that have them",
    "events.py": "dissect/test_dissector.py: events are plain values",
    "lake/tracker.py": "lake/test_tables.py, lake/test_kernel.py: what is remembered of a connection",
    "lake/options.py": "lake/test_tables.py: what the tables hold",
    "lint/examples.py": "lint/test_example_segments.py, lint/test_rules.py: conversations, by what is made of them",
    "lint/context.py": "lint/test_engine.py: what rules look at",
    "lint/rule.py": "lint/test_engine.py, lint/test_catalogue.py: the base of rules, and the laws of rules",
    "mqtt/parts.py": "mqtt/test_codec.py: parts of packets",
    "cli/mutating.py": "cli/test_mutate.py: one run of mutate",
    "cli/mutating_flows.py": "cli/test_mutate.py: what is mutated",
    "cli/mutating_found.py": "cli/test_mutate.py: the files of failing cases",
    "mutate/broken.py": "mutate/test_closed_loop.py, mutate/test_catalogue.py: tables of statements",
    "mutate/steps.py": "mutate/test_openings.py, mutate/test_exchanges.py: what mutations of flows share",
    "mutate/surgery.py": "mutate/test_strings.py, mutate/test_lengths.py: changes of the bytes of a field",
    "net/events.py": "net/test_flows.py: events are plain values",
    "net/frame.py": "capture/test_files.py: frames are plain values",
    "net/flow.py": "net/test_flows.py: what the table keeps is plain data",
    "net/segment.py": "net/test_headers.py: segments are plain values",
    "redact/values.py": "lake/test_public.py: packets as they are kept",
    "report/base.py": "report/test_base.py",
    "report/hexdump.py": "report/test_tree.py: the hexdump of a packet",
    "report/notices.py": "report/test_text.py: events that are no packets",
    "report/registry.py": "cli/test_inspect.py, report/test_public.py: every format by its name",
    "report/summary.py": "report/test_text.py: a packet in one line",
    "cli/serving.py": "cli/test_serve.py: one run",
    "session/matching.py": "session/test_subscriptions.py: what topics belong to",
    "spark/answers/gathering.py": "spark/answers/test_fleet.py: every answer goes through it",
    "spark/answers/rules.py": "spark/answers/test_fleet.py: a part of the report",
    "spark/answers/talk.py": "spark/answers/test_fleet.py: a part of the report",
    "report/fleet/model.py": "report/fleet/test_text.py: plain values",
}
"""Modules without a test file of their own name, and where their tests are."""


def name(path: Path) -> str:
    """Dotted name of a source file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def broken(holds: Callable[[Path], object], paths: Iterable[Path] = FILES) -> list[str]:
    """Source files of which something does not hold."""
    return [str(path.relative_to(ROOT)) for path in paths if not holds(path)]


@cache
def text(path: Path) -> str:
    """The text of a source file."""
    return path.read_text("utf-8")


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a source file."""
    return ast.parse(text(path))


def mirror(path: Path) -> Path:
    """The test file that belongs to a source file."""
    inner = path.relative_to(SOURCE)
    return ROOT / "tests" / inner.parent / f"test_{inner.name}"


def test_no_file_grows_too_long() -> None:
    assert broken(lambda path: len(text(path).splitlines()) <= LONGEST) == []


def test_every_module_says_what_it_is_for() -> None:
    assert broken(lambda path: (ast.get_docstring(tree(path)) or "").split()) == []


def test_everything_public_has_a_docstring() -> None:
    def silent(node: ast.AST, inside: str) -> Iterator[str]:
        for one in ast.iter_child_nodes(node):
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not one.name.startswith("_"):
                decorators = " ".join(map(ast.unparse, one.decorator_list))
                told = ast.get_docstring(one) is not None or re.search(r"\boverload\b|\.setter\b", decorators)
                if not told:
                    yield f"{inside}{one.name}"
                if isinstance(one, ast.ClassDef):
                    yield from silent(one, f"{inside}{one.name}.")

    assert [one for path in FILES for one in silent(tree(path), f"{name(path)}: ")] == []


def test_every_module_has_its_test_file() -> None:
    """All but the rules: their examples are their tests (lint/test_rules.py)."""

    def has_tests(path: Path) -> bool:
        told = TESTED_ELSEWHERE.get(str(path.relative_to(SOURCE)))
        if told is None:
            return mirror(path).is_file()
        return all((ROOT / "tests" / target).is_file() for target in re.findall(r"[\w/]+\.py", told))

    modules = [path for path in FILES if path.name != "__init__.py" and SOURCE / "lint" / "rules" not in path.parents]
    assert broken(has_tests, modules) == []


def test_the_exceptions_are_of_files_that_exist() -> None:
    assert [inner for inner in TESTED_ELSEWHERE if not (SOURCE / inner).is_file()] == []


def test_no_small_module_serves_a_single_neighbour() -> None:
    """What only one module needs stands in there, unless there is a reason; each rule has a file of its own."""
    users: dict[str, set[str]] = {name(path): set() for path in FILES}
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom):
                for target in {node.module or "", *(f"{node.module}.{one.name}" for one in node.names)} & users.keys():
                    users[target].add(name(path))
    found = set()
    for path in (one for one in FILES if SOURCE / "lint" / "rules" not in one.parents):
        (user, *more) = users[name(path)] or {""}
        beside = not more and user.rpartition(".")[0] == name(path).rpartition(".")[0]
        if path.name != "__init__.py" and beside and len(text(path).splitlines()) < SMALLEST:
            found.add(path.relative_to(SOURCE).as_posix())
    assert found == set(SMALL)


def test_packet_is_no_word_of_the_network_layers() -> None:
    """There, frames and segments are moved; a packet is an MQTT Control Packet and nothing else."""
    word = re.compile(r"(?:^|_)packets?(?:_|$)|Packet")
    found: list[str] = []
    for path in sorted((SOURCE / "net").glob("*.py")):
        with path.open("rb") as file:
            tokens = list(tokenize.tokenize(file.readline))
        names = (token for token in tokens if token.type == tokenize.NAME and word.search(token.string))
        found += (f"{path.name}:{token.start[0]}: {token.string}" for token in names)
    assert found == []


def modules(package: str) -> list[str]:
    """A package and everything in it."""
    found = importlib.import_module(package)
    return [package, *(one.name for one in pkgutil.walk_packages(found.__path__, f"{package}."))]


@pytest.mark.parametrize("package", ["mqttscope.mqtt", "mqttscope.net"])
def test_mqtt_and_net_need_nothing_but_the_standard_library(package: str) -> None:
    """In an interpreter that knows no other packages, and with nothing imported that does I/O or has a clock."""
    script = """if True:
        import sys
        before = set(sys.modules)
        root, *names = sys.argv[1:]
        sys.path.insert(0, root)
        for name in names:
            __import__(name)
        new = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(*sorted(new - set(sys.stdlib_module_names) - {"mqttscope"}))
        print(*sorted(new & {"socket", "ssl", "asyncio", "subprocess", "random", "threading", "select"}))
        print(*sorted(name for name in sys.modules if name.startswith("mqttscope.")))
    """
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", script, str(ROOT), *modules(package)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.stderr == ""
    foreign, impure, own = done.stdout.split("\n")[:3]
    assert foreign == ""
    assert impure == ""
    # Nothing of the layers above either.
    assert {".".join(one.split(".")[:2]) for one in own.split()} == {package, "mqttscope.errors"}


IMPURE = {"socket", "ssl", "asyncio", "subprocess", "time", "random", "os", "sys", "threading", "click", "rich"}
CORE = ("mqtt", "net", "session", "mutate", "dissect", "events", "filter", "lint")
CORE_PARTS = ("live.py", "script.py", "order.py", "client/", "server/", "rewrite/", "verify/")
CORE_MODULES = tuple(f"replay/{one}" for one in CORE_PARTS)
"""Modules and folders that are as pure as the core, in packages that are not."""


def imports(path: Path) -> set[str]:
    """The top-level modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found.add((node.module or "").partition(".")[0])
    return found


def test_the_core_has_no_clock_and_does_no_io() -> None:
    def is_core(path: Path) -> bool:
        inner = path.relative_to(SOURCE)
        return inner.parts[0].removesuffix(".py") in CORE or inner.as_posix().startswith(CORE_MODULES)

    core = [path for path in FILES if is_core(path)]
    assert len(core) > 300
    assert broken(lambda path: not imports(path) & IMPURE, core) == []


def test_no_module_keeps_a_struct_in_its_globals() -> None:
    """Precompiled ones cannot be written down; their bound methods are made where they are used."""

    def has_none(path: Path) -> bool:
        return not any(isinstance(value, struct.Struct) for value in vars(importlib.import_module(name(path))).values())

    assert broken(has_none, (path for path in FILES if SOURCE / "net" in path.parents)) == []


def test_no_text_is_compared_by_identity() -> None:
    """Two texts of the same letters need not be one object: members of an enumeration are."""

    def by_identity(path: Path) -> bool:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Compare) and any(isinstance(one, ast.Is | ast.IsNot) for one in node.ops):
                for side in (node.left, *node.comparators):
                    known = vars(importlib.import_module(name(path))) if isinstance(side, ast.Name) else {}
                    value = known.get(side.id) if isinstance(side, ast.Name) else getattr(side, "value", None)
                    if type(value) in (str, bytes):
                        return True
        return False

    assert broken(lambda path: not by_identity(path)) == []


NAMED = ("mqtt", "filter", "lake", "mutate", "replay", "lint")
"""Packages that call packet types, versions and properties by their names."""
NUMBERED = {"kind", "packet_type", "version", "protocol_level"}


def numbered(node: ast.AST) -> bool:
    """Whether an expression writes a packet type, a version or a property as a number."""
    if isinstance(node, ast.Call):
        is_property = isinstance(node.func, ast.Attribute) and node.func.attr in ("first", "all")
        return is_property and any(map(is_number, node.args))
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    names = {getattr(one, "attr", getattr(one, "id", "")) for one in sides}
    values = [value for one in sides for value in (one.elts if isinstance(one, ast.Tuple | ast.Set) else [one])]
    return bool(names & NUMBERED) and any(map(is_number, values))


def is_number(node: ast.AST) -> bool:
    """Whether an expression is a number as it is."""
    return isinstance(node, ast.Constant) and type(node.value) is int


def test_packet_types_versions_and_properties_are_called_by_their_names() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for path in FILES
        if path.relative_to(SOURCE).parts[0] in NAMED
        for node in ast.walk(tree(path))
        if numbered(node)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("kind == 3", True),
        ("3 <= packet.packet_type <= 7", True),
        ("connection.version in (3, 4)", True),
        ("block.first(0x23)", True),
        ("kind == PacketType.PUBLISH", False),
        ("packet.qos == 2", False),
        ("block.topic_alias == 0", False),
    ],
)
def test_what_counts_as_a_number_in_place_of_a_name(expression: str, wrong: bool) -> None:
    assert any(map(numbered, ast.walk(ast.parse(expression)))) is wrong


def test_nothing_is_left_to_do_in_comments() -> None:
    assert broken(lambda path: not re.search(r"#.*\b(TODO|FIXME|XXX|HACK)\b", text(path))) == []
