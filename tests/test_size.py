"""What `.ci/size.py` says of a history of commits, in a repository of its own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

SCRIPT = ROOT / ".ci" / "size.py"
SENTENCE = "Size: a user gets a report of each thing, and nothing was deleted."
REFERENCE = "# Commands\n\n## inspect\n\n```text\n  -f, --filter EXPR   Only what matches.\n{options}```\n"

spec = importlib.util.spec_from_file_location("size_script", SCRIPT)
assert spec is not None
assert spec.loader is not None
size = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = size
spec.loader.exec_module(size)


class Repository:
    """A repository that begins with a product of one line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "--quiet", "--initial-branch=main")
        product = {"mqttscope/a.py": "a = 1\n", "docs/cli.md": REFERENCE.format(options="")}
        self.commit("Begin", {**product, ".ci/size.py": SCRIPT.read_text()})

    def git(self, *words: str) -> str:
        """What git says."""
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *who, *words], cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, message: str, files: dict[str, str]) -> None:
        """Write files, and commit them."""
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)

    def run(self, *words: str) -> tuple[int, str]:
        """Exit code and output of the script."""
        done = subprocess.run(
            [sys.executable, str(SCRIPT), *words], cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.stderr == ""
        return done.returncode, done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def lines(count: int) -> str:
    """So many lines of a product."""
    return "".join(f"b{number} = {number}\n" for number in range(count))


@pytest.mark.parametrize(
    ("files", "message", "code"),
    [
        pytest.param({"mqttscope/net/b.py": lines(300)}, "Add", 0, id="300 lines"),
        pytest.param({"mqttscope/net/b.py": lines(301)}, "Add", 1, id="301 lines"),
        pytest.param({"mqttscope/net/b.py": lines(301)}, f"Add\n\n{SENTENCE}", 0, id="301 lines with a sentence"),
        pytest.param({"mqttscope/net/b.py": lines(301)}, "Add\n\nSize: it had to be.", 1, id="too short a sentence"),
        pytest.param({"mqttscope/net/b.py": lines(301)}, "Add\n\nSize: a user gets\na report.", 1, id="five words"),
        pytest.param({"mqttscope/net/b.py": lines(301)}, "Add\n\nSize: a user gets\na report more.", 0, id="six words"),
        pytest.param({"mqttscope/b.js": lines(301)}, "Add", 1, id="JavaScript"),
        pytest.param({"mqttscope/b.c": lines(301)}, "Add", 1, id="C"),
        pytest.param({"mqttscope/b.txt": lines(301), "tests/b.py": lines(301)}, "Add", 0, id="no product"),
        pytest.param({"docs/cli.md": REFERENCE.format(options="  --new\n")}, "Add", 1, id="an option"),
        pytest.param({"docs/cli.md": REFERENCE.format(options="  --new\n")}, SENTENCE, 0, id="an option, a sentence"),
    ],
)
def test_what_needs_a_sentence(repository: Repository, files: dict[str, str], message: str, code: int) -> None:
    repository.commit(message, files)

    assert repository.run()[0] == code


def test_what_a_change_adds(repository: Repository) -> None:
    options = "  --format [text|json|\n    csv]  The format.\n"
    files = {
        "mqttscope/a.py": "",
        "mqttscope/net/b.py": lines(7) + "class LostError(ValueError):\n    pass\n",
        "docs/cli.md": REFERENCE.format(options=options),
    }
    repository.commit(SENTENCE, files)
    code, text = repository.run("HEAD^")

    assert code == 0
    assert "lines of the product: +8\n  net               +9\n  top level         -1\n" in text
    assert "  options           +1  of 2\n      +inspect --format\n" in text
    assert "  formats           +3  of 3\n      +inspect csv\n      +inspect json\n      +inspect text\n" in text
    assert "  exceptions        +1  of 1\n      +LostError\n" in text
    repository.commit("Take back", {"docs/cli.md": REFERENCE.format(options="")})
    assert "  options           -1  of 1\n      -inspect --format\n" in repository.run()[1]


def test_a_branch_is_compared_with_main(repository: Repository) -> None:
    repository.git("switch", "--quiet", "--create", "branch")
    repository.commit("Add", {"mqttscope/b.py": lines(301)})
    repository.commit("Fit", {"mqttscope/b.py": lines(302)})
    code, text = repository.run()

    assert code == 1
    assert "lines of the product: +302\n" in text
    assert text.count("No sentence: ") == 1
    assert " Add: +301 lines\n" in text


def test_commits_of_branches_that_began_before_it_are_not_asked(repository: Repository) -> None:
    (repository.folder / ".ci/size.py").unlink()
    repository.commit("Remove it", {"mqttscope/a.py": "a = 2\n"})
    repository.commit("Add", {"mqttscope/b.py": lines(301)})

    assert repository.run("HEAD^")[0] == 0


def test_without_a_history_nothing_is_compared(tmp_path: Path, repository: Repository) -> None:
    assert repository.run() == (0, "size: not a checkout with a history; nothing to compare with\n")
    (tmp_path / "other").mkdir()
    assert repository.run("no-such-commit")[0] == 0


def test_the_reference_of_the_project_is_read() -> None:
    text = (ROOT / "docs" / "cli.md").read_text("utf-8")
    options, formats = size.surface_of(text)

    assert {"inspect --filter", "lint --require-quality", "pipeline ingest --help"} <= options
    assert {"inspect ladder", "lint sarif"} <= formats
