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

from mqttscope.cli.main import COMMANDS
from mqttscope.cli.pipeline import COMMANDS as PIPELINE_COMMANDS
from tests import tools
from tests.conftest import ROOT

SOURCE = ROOT / "mqttscope"
FILES = sorted(SOURCE.rglob("*.py"))
LONGEST = 800

SMALLEST = 150
"""Lines from which on a module may serve a single neighbour."""
SMALL = {
    "analysis/sparkplug.py": "queries of one subject, as the modules beside it are",
    "browse/connection_list.py": "orders and words without a screen, beside a module that is full",
    "cli/inspecting.py": "only reproducers need it, and reading scripts takes a while to import",
    "dev/performance.py": "the benchmark imports it too, and measures itself without the commands",
    "explain/assigned_identifiers.py": "a heuristic with state and limits of its own",
    "explain/echoes.py": "a heuristic with state and limits of its own, beside a module that is full",
    "explain/lost_messages.py": "a count of findings, beside a module of connections",
    "explain/renamed_forwards.py": "a heuristic with state and limits of its own, beside a module that is full",
    "explain/unfinished.py": "messages without an end, beside a module that is full",
    "explain/retained_excuses.py": "reasons that need the wills and limits of a capture, beside a long module",
    "explain/system_topics.py": "a heuristic with state and limits of its own",
    "metrics/exposition.py": "all that needs the package prometheus-client",
    "metrics/page.py": "the content of the page, beside a server that knows HTTP alone",
    "lake/metrics.py": "rows of one table, which need the decoder of Sparkplug",
    "lake/adoption.py": "changes by other programs, which commits never need otherwise",
    "lint/sparkplug_text.py": "a notation of its own, for one word of a conversation",
    "report/explanations/as_json.py": "a format, which is loaded by its name",
    "stats/sparkplug.py": "it reads payloads, as other counts do not",
    "spark/staged.py": "it reads SQL, as engine.py does not",
}
"""Modules with fewer lines than `SMALLEST` that only a neighbour imports, and why they stand alone."""

TESTED_ELSEWHERE = {
    "__main__.py": "cli/test_main.py: every test that starts the program goes through it",
    "browse/dialogs.py": "browse/test_app.py: the screens in use",
    "browse/panes.py": "browse/test_app.py: the screens in use",
    "dissect/kernel_path.py": "kernel/test_equality.py: captures through the kernel, and through Python alone",
    "report/kernel_lines.py": "kernel/test_equality.py: captures through the kernel, and through Python alone",
    "stats/kernel_counts.py": "kernel/test_equality.py: statistics by the kernel, and by Python alone",
    "cli/recorded.py": "cli/test_replay.py, corpus/test_replay_mosquitto.py: what is played",
}
"""Modules without a test file of their own name, and where their tests are.

`test_every_module_has_its_test_file` says which modules need no entry.
"""

BRANCHES = (
    ast.If, ast.IfExp, ast.BoolOp, ast.Match, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.comprehension, ast.Lambda,
)  # fmt: skip
"""What makes code do one thing or another, or something several times."""


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
    """A module with a single rule says it by the docstring of the rule."""

    def says(path: Path) -> bool:
        rules = [node for node in tree(path).body if isinstance(node, ast.ClassDef) and "code = " in ast.unparse(node)]
        nodes: list[ast.Module | ast.ClassDef] = [tree(path), *(rules if len(rules) == 1 else [])]
        return any((ast.get_docstring(node) or "").split() for node in nodes)

    assert broken(says) == []


SHORT = 3
"""Maximum number of lines of a function that may say by its name alone what it does."""


def needs_docstring(node: ast.AST, path: Path) -> bool:
    """Whether a name says too little: a public class, and a public function that is long or what users import."""
    if isinstance(node, ast.ClassDef):
        return not node.name.startswith("_")
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
        return False
    if re.search(r"\boverload\b|\.setter\b", " ".join(map(ast.unparse, node.decorator_list))):
        return False
    length = (node.body[-1].end_lineno or 0) - node.body[0].lineno + 1
    return length > SHORT or path.parent.name == "api"


def test_what_is_public_and_not_short_has_a_docstring() -> None:
    def silent(node: ast.AST, path: Path, inside: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if needs_docstring(child, path) and ast.get_docstring(child) is None:  # type: ignore[arg-type]
                yield f"{inside}{child.name}"  # type: ignore[attr-defined]
            if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
                yield from silent(child, path, f"{inside}{child.name}.")

    assert [function for path in FILES for function in silent(tree(path), path, f"{name(path)}: ")] == []


@pytest.mark.parametrize(
    ("source", "place", "needed"),
    [
        ("class A: ...", "net/a.py", True),
        ("class _A: ...", "net/a.py", False),
        ("def f():\n    a = 1\n    b = 2\n    return a", "net/a.py", False),
        ("def f():\n    a = 1\n    b = 2\n    c = 3\n    return a", "net/a.py", True),
        ("def _f():\n    a = 1\n    b = 2\n    c = 3\n    return a", "net/a.py", False),
        ("def f():\n    return 1", "api/a.py", True),
        ("@overload\ndef f(): ...", "api/a.py", False),
        ("@a.setter\ndef f():\n    a = 1\n    b = 2\n    c = 3\n    d = 4", "net/a.py", False),
    ],
)
def test_what_needs_a_docstring(source: str, place: str, needed: bool) -> None:
    assert needs_docstring(ast.parse(source).body[0], SOURCE / place) is needed


def has_plain_values(path: Path) -> bool:
    """Whether a module holds nothing but constants and classes, and nothing in it decides or repeats anything."""

    def is_plain(node: ast.stmt) -> bool:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return all(isinstance(stmt, ast.Import | ast.ImportFrom) for stmt in node.body) and not node.orelse
        if not isinstance(node, ast.Import | ast.ImportFrom | ast.Expr | ast.Assign | ast.AnnAssign | ast.ClassDef):
            return False
        return not any(isinstance(other_node, BRANCHES) for other_node in ast.walk(node))

    return all(map(is_plain, tree(path).body))


def mirror_of_command(path: Path) -> Path | None:
    """The test file of a command that a module holds, or the run of it, or a part of that; ``None`` for other modules.

    The run of a command stands beside it and is called what the command does: ``linting`` and ``linting_settings``
    beside ``lint``, ``serving`` beside ``serve``.
    """
    doing = path.stem.partition("_")[0]
    for command, (place, _) in (COMMANDS | PIPELINE_COMMANDS).items():
        module, _, _ = place.partition(":")
        beside = ROOT.joinpath(*module.split(".")).with_suffix(".py")
        if path == beside or (path.parent == beside.parent and doing == command.removesuffix("e") + "ing"):
            return mirror(beside.with_stem(command))
    return None


def test_every_module_has_its_test_file() -> None:
    """Each module has a test file of its own name, except for

    * rules: their examples are their tests (lint/test_rules.py);
    * plain values: there is nothing in them that could be wrong (`has_plain_values`);
    * commands and their runs, which are tested together, by the name of the command (`mirror_of_command`);
    * the modules of `TESTED_ELSEWHERE`.
    """

    def has_tests(path: Path) -> bool:
        reported_text = TESTED_ELSEWHERE.get(path.relative_to(SOURCE).as_posix())
        if reported_text is not None:
            named = re.findall(r"[\w/]+\.py", reported_text)
            return bool(named) and all((ROOT / "tests" / target).is_file() for target in named)
        return needs_no_exception(path)

    modules = [path for path in FILES if path.name != "__init__.py" and SOURCE / "lint" / "rules" not in path.parents]
    assert broken(has_tests, modules) == []


def needs_no_exception(path: Path) -> bool:
    """Whether a module is tested, as far as it has to be, without an entry in `TESTED_ELSEWHERE`."""
    of_command = mirror_of_command(path)
    return mirror(path).is_file() or has_plain_values(path) or (of_command is not None and of_command.is_file())


def test_exceptions_are_of_files_that_exist_and_have_no_test_file_of_their_own_name() -> None:
    assert [inner for inner in TESTED_ELSEWHERE if not (SOURCE / inner).is_file()] == []
    assert [inner for inner in TESTED_ELSEWHERE if needs_no_exception(SOURCE / inner)] == []


@pytest.mark.parametrize(
    ("source", "is_plain"),
    [
        ("from enum import Enum\nONE = 1\nclass A(Enum):\n    B = ONE", True),
        ("if TYPE_CHECKING:\n    from a import b", True),
        ("class A:\n    @property\n    def b(self): return self.c + 1", True),
        ("def a(): pass", False),
        ("if a:\n    import b", False),
        ("if TYPE_CHECKING:\n    def a(): pass", False),
        ("for a in b: pass", False),
        ("class A:\n    def b(self): return 1 if self.c else 2", False),
        ("class A:\n    def b(self): return self.c or 2", False),
        ("class A:\n    def b(self): return [c for c in self]", False),
        ("class A:\n    def b(self):\n        while self.c: self.d()", False),
        ("class A:\n    b = field(default_factory=lambda: 1)", False),
    ],
)
def test_what_plain_values_are(source: str, is_plain: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(source)

    assert has_plain_values(path) is is_plain


@pytest.mark.parametrize(
    ("module", "test"),
    [
        ("cli/linting.py", "cli/test_lint.py"),
        ("cli/linting_settings.py", "cli/test_lint.py"),
        ("cli/serving.py", "cli/test_serve.py"),
        ("cli/pipeline/watching.py", "cli/pipeline/test_watch.py"),
        ("cli/watching.py", None),
        ("cli/lint.py", "cli/test_lint.py"),
        ("cli/live.py", "cli/test_replay.py"),
        ("cli/live_options.py", None),
        ("cli/reading.py", None),
        ("spark/linting.py", None),
    ],
)
def test_commands_and_their_runs_belong_together(module: str, test: str | None) -> None:
    assert mirror_of_command(SOURCE / module) == (None if test is None else ROOT / "tests" / test)


def test_no_small_module_serves_a_single_neighbour() -> None:
    """What only one module needs stands in there, unless there is a reason; rules are listed by their area."""
    users: dict[str, set[str]] = {name(path): set() for path in FILES}
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom):
                for target in {
                    node.module or "",
                    *(f"{node.module}.{alias.name}" for alias in node.names),
                } & users.keys():
                    users[target].add(name(path))
    texts = set()
    for path in (file for file in FILES if SOURCE / "lint" / "rules" not in file.parents):
        (user, *more) = users[name(path)] or {""}
        beside = not more and user.rpartition(".")[0] == name(path).rpartition(".")[0]
        if path.name != "__init__.py" and beside and len(text(path).splitlines()) < SMALLEST:
            texts.add(path.relative_to(SOURCE).as_posix())
    assert texts == set(SMALL)


def test_packet_is_no_word_of_the_network_layers() -> None:
    """There, frames and segments are moved; a packet is an MQTT Control Packet and nothing else."""
    word = re.compile(r"(?:^|_)packets?(?:_|$)|Packet")
    texts: list[str] = []
    for path in sorted((SOURCE / "net").glob("*.py")):
        with path.open("rb") as file:
            tokens = list(tokenize.tokenize(file.readline))
        names = (token for token in tokens if token.type == tokenize.NAME and word.search(token.string))
        texts += (f"{path.name}:{token.start[0]}: {token.string}" for token in names)
    assert texts == []


def modules(package: str) -> list[str]:
    """A package and everything in it."""
    module = importlib.import_module(package)
    return [package, *(walk_package.name for walk_package in pkgutil.walk_packages(module.__path__, f"{package}."))]


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
    assert {".".join(word.split(".")[:2]) for word in own.split()} <= {package, "mqttscope.errors", "mqttscope.budget"}


IMPURE = {"socket", "ssl", "asyncio", "subprocess", "time", "random", "os", "sys", "threading", "click", "rich"}
CORE = (
    "mqtt", "net", "session", "mutate", "dissect", "events", "filter", "lint", "replay", "broker_test", "redact",
)  # fmt: skip
DRIVERS = ("replay/drivers/", "broker_test/drivers/")
"""Folders in packages of the core that are not as pure as the rest."""


def imports(path: Path) -> set[str]:
    """The top-level modules that a file imports, wherever in it."""
    texts = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            texts |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            texts.add((node.module or "").partition(".")[0])
    return texts


def test_the_core_has_no_clock_and_does_no_io() -> None:
    def is_core(path: Path) -> bool:
        inner = path.relative_to(SOURCE)
        return inner.parts[0].removesuffix(".py") in CORE and not inner.as_posix().startswith(DRIVERS)

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
    tools.package("pyspark")
    tools.package("msgspec")
    tools.package("textual")

    def by_identity(path: Path) -> bool:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Compare) and any(isinstance(cmpop, ast.Is | ast.IsNot) for cmpop in node.ops):
                for side in (node.left, *node.comparators):
                    known = vars(importlib.import_module(name(path))) if isinstance(side, ast.Name) else {}
                    value = known.get(side.id) if isinstance(side, ast.Name) else getattr(side, "value", None)
                    if type(value) in (str, bytes):
                        return True
        return False

    assert broken(lambda path: not by_identity(path)) == []


NAMED = (
    "mqtt", "session", "dissect", "filter", "lake", "mutate", "replay", "lint", "report", "stats", "secrets", "cli",
)  # fmt: skip
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
    names = {getattr(side, "attr", getattr(side, "id", "")) for side in sides}
    values = [value for side in sides for value in (side.elts if isinstance(side, ast.Tuple | ast.Set) else [side])]
    return bool(names & NUMBERED) and any(map(is_number, values))


def is_number(node: ast.AST) -> bool:
    """Whether an expression is a number as it is."""
    return isinstance(node, ast.Constant) and type(node.value) is int


def test_packet_types_versions_and_properties_are_called_by_their_names() -> None:
    texts = [
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for path in FILES
        if path.relative_to(SOURCE).parts[0] in NAMED
        for node in ast.walk(tree(path))
        if numbered(node)
    ]
    assert texts == []


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


RESERVED = {
    "Flow": "net/flow.py",
    "Message": "session/history.py",
    "Report": "lint/finding.py",
    "Session": None,
    "Sessions": None,
    "Kind": None,
    "Run": None,
}
"""Words with one meaning each, and where the class of that name stands; ``None``: it is too little of a name."""


def test_reserved_words_have_one_meaning() -> None:
    """A flow is a pair of endpoints of TCP, a message an Application Message, a report what a rule says."""
    texts: dict[str, list[str]] = {word: [] for word in RESERVED}
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and node.name in texts:
                texts[node.name].append(path.relative_to(SOURCE).as_posix())

    assert texts == {word: [] if home is None else [home] for word, home in RESERVED.items()}


SYSTEM = SOURCE / "system.py"
"""The place of what Linux or POSIX alone has."""
POSIX_MODULES = {"fcntl", "termios", "tty", "pty", "resource", "pwd", "grp", "posix"}
POSIX_NAMES = {
    "os": {
        "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "WNOHANG", "chown", "eventfd", "fchmod", "fchown",
        "fork", "forkpty", "getegid", "geteuid", "getgid", "getpgid", "getpgrp", "getpriority", "getsid", "getuid",
        "killpg", "memfd_create", "mkfifo", "name", "nice", "openpty", "pidfd_open", "pipe2", "posix_fadvise",
        "prlimit", "sched_getaffinity", "sendfile", "set_blocking", "setpgid", "setsid", "statvfs", "sysconf",
        "tcgetpgrp", "tcsetpgrp", "uname", "wait3", "wait4", "waitid",
    },
    "sys": {"platform"},
    "signal": {"alarm", "pause", "pthread_kill", "pthread_sigmask", "setitimer", "siginterrupt", "sigwait"},
}  # fmt: skip
"""What modules of the standard library have on POSIX systems or on Linux alone, and how they tell which one it is."""
EVERYWHERE = {"SIGINT", "SIGTERM", "SIGABRT", "SIGFPE", "SIGILL", "SIGSEGV", "SIG_DFL", "SIG_IGN"}
"""Signals that every system has."""
POSIX_ARGUMENTS = {"start_new_session", "preexec_fn", "pass_fds", "process_group"}
LINUX_FOLDERS = ("/proc", "/sys/", "/dev/fd", "/dev/shm")
OF_ONE_SYSTEM = {
    "capture/live.py": {
        "os.O_CLOEXEC", "os.WNOHANG", "os.geteuid", "os.pidfd_open", "os.waitid", "signal.SIGCONT", "signal.SIGSTOP",
        "/proc", "/sys/", "sys.platform",
    },
    "cli/privileges.py": {"grp", "sys.platform"},
}  # fmt: skip
"""Uses elsewhere: dumpcap's rings and packet sockets, behind `system.linux`; folders that are looked for first; what
users of each system are told to type."""


def uses_of_one_system(module: ast.Module) -> Iterator[str]:
    """What a module uses that Linux or POSIX alone has."""
    docstrings = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in POSIX_MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            known = POSIX_NAMES.get(node.module, set())
            yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name in known)
            if node.module in POSIX_MODULES:
                yield node.module
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner, attribute = node.value.id, node.attr
            signals = owner == "signal" and attribute.startswith("SIG") and attribute not in EVERYWHERE
            if signals or attribute in POSIX_NAMES.get(owner, ()):
                yield f"{owner}.{attribute}"
        elif isinstance(node, ast.keyword) and node.arg in POSIX_ARGUMENTS:
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from (folder for folder in LINUX_FOLDERS if node.value.startswith(folder))


def test_what_one_system_alone_has_is_in_one_place() -> None:
    texts = {
        str(path.relative_to(SOURCE)): used
        for path in FILES
        if path != SYSTEM and (used := set(uses_of_one_system(tree(path))))
    }

    assert texts == OF_ONE_SYSTEM


@pytest.mark.parametrize(
    ("code", "used"),
    [
        ("import fcntl", ["fcntl"]),
        ("from os import fork", ["os.fork"]),
        ("os.fork()", ["os.fork"]),
        ("signal.SIGKILL", ["signal.SIGKILL"]),
        ("signal.SIGINT", []),
        ("Popen(words, start_new_session=True)", ["start_new_session"]),
        ("open('/proc/self/stat')", ["/proc"]),
        ("sys.platform == 'linux'", ["sys.platform"]),
        ("'/proc is told of here'", []),
    ],
)
def test_what_counts_as_use_of_one_system(code: str, used: list[str]) -> None:
    assert list(uses_of_one_system(ast.parse(code))) == used
