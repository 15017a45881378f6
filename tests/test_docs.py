"""README and docs say what is: commands run, outputs are real, every key and command is there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from mqttscope import __version__
from mqttscope import filter as filters
from mqttscope.cli.main import COMMANDS, group
from tests import tools
from tests.cli.running import CAPTURES, inspected, invoke
from tests.conftest import ROOT
from tests.corpus.tshark import tshark_version
from tests.documentation import PAGES, Shown, matches, run, shown
from tests.each import some
from tests.mqtt.cases import CASES

COMMAND_LINES = list(shown())
RUN = [command_line for command_line in COMMAND_LINES if command_line.not_run is None]


def own_parts(line: str) -> Iterator[list[str]]:
    """The words of each mqttscope command in a pipeline, without the program's name."""
    words = shlex.shlex(line, posix=True, punctuation_chars="|><&;")
    words.whitespace_split = True
    words.commenters = "#"
    part: list[str] = []
    for word in [*words, "|"]:
        if word and not set(word) - set("|><&;"):
            if part and part[0] == "mqttscope":
                yield part[1:]
            part = []
        elif part or not re.match(r"[A-Z_]+=", word):  # variables before the program
            part.append(word)


@pytest.mark.parametrize("expected", COMMAND_LINES, ids=[command_line.name for command_line in COMMAND_LINES])
def test_the_command_line_accepts_what_is_shown(expected: Shown) -> None:
    parts = list(own_parts(expected.command))
    assert parts or expected.command.startswith("tshark ")
    for words in parts:
        command: click.Command | None = group
        while isinstance(command, click.Group):
            _, command, words = command.resolve_command(click.Context(command), words)
        assert command is not None
        expression = command.make_context(command.name, words).params.get("expression")
        if expression is not None:
            filters.compile(expression)


@pytest.mark.parametrize("expected", some(RUN, 4), ids=[shown.name for shown in RUN])
def test_commands_run_and_their_outputs_are_real(expected: Shown) -> None:
    if re.search(r"\| jq ", expected.command):
        tools.program("jq")
    if expected.command.startswith("tshark ") and not tshark_version().startswith("4.0."):
        pytest.skip(f"what is shown is of tshark 4.0, and here is {tshark_version()}")
    done = run(expected.command)

    assert "Traceback" not in done.stdout
    if expected.output is not None:
        assert matches(expected.output, done.stdout), "python -m tests.documentation writes it again\n" + done.stdout
    else:
        assert done.returncode in (0, 1), done.stdout
        assert not re.search(r"no MQTT found|does not exist|matches no file", done.stdout)


def test_jq_is_installed_before_the_examples_that_need_it_are_tested() -> None:
    assert [shown.name for shown in RUN if "| jq " in shown.command] != []
    assert re.search(r"^tools: TOOLS = .*\bjq\b", (ROOT / "Makefile").read_text("utf-8"), re.M)


def test_there_are_commands_of_both_kinds() -> None:
    assert sum(shown.output is not None for shown in RUN) >= 8
    assert sum(shown.output is None for shown in RUN) >= 6
    assert {shown.page.name for shown in RUN} >= {"README.md", "inspect.md", "decode.md", "jsonl.md"}


def test_outputs_may_leave_lines_out() -> None:
    assert matches("a\n...\nc\n", "a\nb1\nb2\nc\n")
    assert matches("...\nc\n", "c\n")
    assert not matches("a\n...\nc\n", "a\nb\n")
    assert not matches("a\n", "a\nb\n")


def test_every_command_is_in_the_readme_and_every_page_is_reached_from_there() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for name in COMMANDS:
        assert f"mqttscope {name} " in readme
        assert ROOT / "docs" / f"{name}.md" in PAGES

    assert [page.name for page in PAGES[1:] if page.relative_to(ROOT).as_posix() not in readme] == []


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "captures" / "README.md"], ids=lambda page: page.name
)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


def test_the_targets_of_make_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        code = re.findall(r"`make ([a-z-]+)|^make ([a-z-]+)", page.read_text("utf-8"), re.M)
        assert {first or second for first, second in code} <= targets


def test_the_library_example_of_the_readme_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tools.package("duckdb")
    monkeypatch.chdir(ROOT)
    (example,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
    exec(compile(example, "README.md", "exec"), {})

    printed = capsys.readouterr().out
    assert "plant/line1/temperature b'21.0'" in printed
    assert "PUB101 error 8 ('5.0 MQTT-3.3.1-4',)" in printed


LIBRARY_PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("library", "sans-io", "lint", "adding-a-rule")),
]
"""Pages whose Python is complete programs, or modules of rules."""


@pytest.mark.slow
def test_the_python_of_the_library_pages_has_sound_types(tmp_path: Path) -> None:
    """As a user checks it: every block as a file of its own, with ``mypy --strict`` and no configuration."""
    count = 0
    for page in LIBRARY_PAGES:
        blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
        assert blocks, f"{page.name} has no Python"
        count += len(blocks)
        for number, block in enumerate(blocks):
            (tmp_path / f"{page.stem.replace('-', '_').lower()}_{number}.py").write_text(block, "utf-8")
    (tmp_path / "wrong.py").write_text("import mqttscope\nmqttscope.decode(b'')[0].malformed.reason\n")

    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache"), "."],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert [line for line in done.stdout.splitlines() if line.startswith('wrong.py:2: error: Item "None"')]
    assert f"Found 1 error in 1 file (checked {count + 1} source files)" in done.stdout, done.stdout + done.stderr


JSONL = (ROOT / "docs" / "jsonl.md").read_text("utf-8")


def documented() -> set[str]:
    """The keys in the tables of docs/jsonl.md."""
    texts: set[str] = set()
    for table in re.findall(r"^(\| (?:key|type) \|.*\n\|[-|]+\|\n(?:\|.*\n)+)", JSONL, re.M):
        for row in table.splitlines()[2:]:
            cells = row.split(" | ")
            names = re.findall(r"`([^`]+)`", cells[0])
            if table.startswith("| type |"):
                names += re.findall(r"`([^`]+)`", cells[1])
            texts |= {part for name in names for part in name.split(".")}
    return texts


def keys(value: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """All keys of a JSON value.  Content types of TLS and unknown properties are data."""
    if isinstance(value, list):
        for each in value:
            yield from keys(each, path)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if (path[:1] == ("tls",) and path[-1] in ("records", "bytes")) or name.startswith("unknown_0x"):
                continue
            yield name
            yield from keys(inner, (*path, name))


@pytest.fixture(scope="module")
def real() -> set[str]:
    """All keys that commands write for the captures of the project, and for every case of the decoder."""
    lines = [line for path in CAPTURES for line in inspected(path, "--payload-limit", "1000").lines]
    lines += invoke("inspect", "no.pcap", "--format", "jsonl").lines
    lines += invoke("inspect", CAPTURES[0], "--format", "jsonl", "--filter", "tcp_acknowledged").lines
    for version in ("3.1", "3.1.1", "5.0"):
        raw = "\n".join(case.raw.hex() for case in CASES if case.version.text == version)
        lines += invoke("decode", "-", "--mqtt-version", version, "--format", "jsonl", stdin=raw.encode()).lines
    return {key for line in lines for key in keys(line)}


OTHER_CAPTURES = {"decrypted", "undecrypted", "proxy", "problems", "from", "level", "description", "from_client",
                  "maximum_fragment_bytes", "overlong_record"}  # fmt: skip
"""Keys of faults of TLS and WebSocket, which tests/net shows; the captures here have only a few of them."""


def test_every_key_of_the_output_is_documented(real: set[str]) -> None:
    assert sorted(real - documented() - {"client_to_server", "server_to_client"}) == []
    assert "`client_to_server` and `server_to_client`" in JSONL


def test_every_documented_key_is_in_the_output(real: set[str]) -> None:
    assert len(documented()) > 120
    assert sorted(documented() - real - OTHER_CAPTURES) == []


PICTURES = ROOT / "docs" / "pictures"
MOST_PICTURE_BYTES = 150_000


def test_pictures_are_there_are_small_and_are_shown() -> None:
    shown_in: dict[Path, list[str]] = {}
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for result, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text("utf-8")):
            assert result, f"{page.name}: a picture says what it shows"
            shown_in.setdefault((page.parent / target).resolve(), []).append(page.name)
    there = set(PICTURES.iterdir())

    assert set(shown_in) == there
    assert "README.md" in [name for pages in shown_in.values() for name in pages]
    for picture in there:
        assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert picture.stat().st_size < MOST_PICTURE_BYTES, picture.name


def test_no_page_names_a_wheel_by_its_version() -> None:
    pages = [*PAGES, *(ROOT / "templates").rglob("*.yml"), ROOT / "action.yml", ROOT / "CHANGELOG.md"]

    assert [page.name for page in pages if re.search(r"mqttscope-\d[\w.]*-py3", page.read_text("utf-8"))] == []


def test_the_changelog_begins_with_the_version() -> None:
    version, _, development = __version__.partition(".dev")
    first = next(re.finditer(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M))[1]

    assert re.fullmatch(rf"{version} \(unreleased\)" if development else rf"{version} - \d{{4}}-\d\d-\d\d", first)
