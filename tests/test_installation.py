"""The command for missing packages fits how this copy was installed: real installs, and their commands run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from mqttscope import __version__
from mqttscope.installation import extra_command, package_command
from tests import building
from tests.conftest import ROOT
from tests.each import some

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
ASK = """
import sys
from mqttscope.installation import extra_command
for extra in sys.argv[1:]:
    print(extra_command(extra))
"""
KINDS = ("wheel", "folder", "editable", "repository", "url", "index", "tree")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel; a blank in its name has to be quoted, and is ``%20`` in a URL."""
    folder = tmp_path_factory.mktemp("built") / "my wheels"
    folder.mkdir()
    assert building.build_wheel(ROOT, folder) is not None
    return folder


@pytest.fixture
def server(wheels: Path) -> Iterator[str]:
    """The URL of the wheel on a web server."""
    (wheel,) = wheels.glob("*.whl")
    handler = partial(SimpleHTTPRequestHandler, directory=str(wheels))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/{wheel.name}"
        running.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the sources."""
    folder = tmp_path_factory.mktemp("sources") / "a checkout"
    folder.mkdir()
    for name in building.PACKAGED:
        building.copy_path(name, folder / name)
    author = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    for words in (["init", "--quiet"], ["add", "."], [*author, "commit", "--quiet", "--message", "Add sources"]):
        subprocess.run(["git", *words], cwd=folder, check=True, timeout=60)
    return folder


@pytest.fixture(scope="module")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dependencies")
    building.link_dependencies(folder)
    return folder


@pytest.fixture
def python(tmp_path: Path, dependencies: Path) -> Path:
    return building.make_environment(tmp_path / "environment", dependencies)


def environment(**variables: str) -> dict[str, str]:
    texts = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    # "0" means no isolation: pip reads this variable as the value of build_isolation.
    return {**texts, "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", **variables}


def ask(python: Path, *extras: str, **variables: str) -> str:
    """What the copy in an environment prints, in a folder where no other copy is."""
    done = subprocess.run(
        [python, "-c", ASK, *(extras or ["lake"])],
        cwd=python.parent, env=environment(**variables), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def install(python: Path, *words: str | Path) -> None:
    done = building.pip(
        "--python", python, "install", *building.OFFLINE, *words, folder=python.parent, environment=environment()
    )
    assert done.returncode == 0, done.stderr


def shell(script: str, folder: Path, **variables: str) -> str:
    """What a script prints that succeeds."""
    done = subprocess.run(
        ["sh", "-c", script], cwd=folder, env=environment(**variables), capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", some(KINDS))
def test_the_command_is_that_of_the_origin_and_works(
    kind: str, wheels: Path, checkout: Path, server: str, python: Path
) -> None:
    (wheel,) = wheels.glob("*.whl")
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()
    repository = f"git+{checkout.as_uri()}"
    shown = repository.replace("file://", "file://localhost")
    origins: dict[str, tuple[list[str | Path], list[str]]] = {
        "wheel": ([wheel], [f"{wheel}[lake]"]),
        "folder": ([checkout], [f"{checkout}[lake]"]),
        "editable": (["-e", checkout], ["-e", f"{checkout}[lake]"]),
        "repository": ([repository], [f"mqttscope[lake] @ {shown}@{commit}"]),
        "url": ([server], [f"mqttscope[lake] @ {server}"]),
        "index": (["--find-links", wheels, "mqttscope"], ["mqttscope[lake]"]),
        "tree": ([], ["-e", f"{checkout}[lake]"]),
    }
    words, expected = origins[kind]
    variables: dict[str, str] = {}
    if words:
        install(python, *words)
    else:
        variables = {"PYTHONPATH": str(checkout)}

    command = ask(python, **variables)

    assert shlex.split(command) == [str(python), "-m", "pip", "install", *expected]
    assert "pyarrow" in shell(command, python.parent)


@pytest.mark.slow
@pytest.mark.long
def test_packages_are_named_if_the_wheel_is_gone(wheels: Path, python: Path, tmp_path: Path) -> None:
    (wheel,) = wheels.glob("*.whl")
    moved = tmp_path / wheel.name
    os.link(wheel, moved)
    install(python, moved)
    moved.unlink()

    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    commands = ask(python, *extras).splitlines()
    for (extra, requirements), command in zip(extras.items(), commands, strict=True):
        own = {name(requirement) for requirement in requirements if not requirement.startswith("mqttscope[")}
        words = shlex.split(command)
        # The builder replaces an extra of this project by its packages, and sorts conditions of versions.
        assert {name(word) for word in words[4:]} >= own, extra
        assert not [word for word in words if "mqttscope[" in word or ";" in word], extra
    assert set(shlex.split(ask(python))[4:]) == set(extras["lake"])


def name(requirement: str) -> str:
    return requirement.partition(">")[0].partition("<")[0]


@pytest.mark.slow
@pytest.mark.long
def test_an_environment_of_uv_has_no_pip(wheels: Path, python: Path) -> None:
    (wheel,) = wheels.glob("*.whl")
    install(python, wheel)
    (building.packages(python) / "dependencies.pth").unlink()
    (record,) = building.packages(python).glob("mqttscope-*.dist-info")
    (record / "INSTALLER").write_text("uv", "utf-8")

    words = ["uv", "pip", "install", "--python", str(python), f"{wheel}[lake]"]
    assert shlex.split(ask(python)) == words


@pytest.mark.slow
def test_a_copy_in_another_project_names_the_extra_alone(python: Path, tmp_path: Path) -> None:
    building.copy_path("mqttscope", tmp_path / "mqttscope")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "vendor"\n', "utf-8")

    assert shlex.split(ask(python, PYTHONPATH=str(tmp_path)))[1:] == ["-m", "pip", "install", "mqttscope[lake]"]


@pytest.mark.long
def test_the_commands_of_the_page_install(checkout: Path, python: Path) -> None:
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    commands = re.findall(r"^pip .*$", "".join(re.findall(r"^```sh\n(.*?)^```$", page, re.M | re.S)), re.M)
    script = "\n".join(["set -ex", *commands, "mqttscope --version"])
    shown = shell(script, checkout, PATH=f"{python.parent}:{os.environ['PATH']}")

    assert len(commands) >= 5
    assert shown.splitlines()[-2].startswith(f"mqttscope {__version__}")


def test_this_copy_is_editable() -> None:
    assert shlex.split(extra_command("spark"))[3:] == ["install", "-e", f"{ROOT}[spark]"]


def test_the_interpreter_has_a_short_name_if_the_path_leads_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        for link in ("python", "python3"):
            (folder / link).symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(here))

    for path, shown in (
        (here / "python3", "python3"),
        (here / "python", "python"),
        (there / "python", there / "python"),
    ):
        monkeypatch.setattr(sys, "executable", str(path))
        assert package_command("pandas") == f"{shown} -m pip install pandas"
    monkeypatch.setattr(sys, "executable", "")
    assert package_command("--upgrade", "pyarrow>=18") == "python -m pip install --upgrade 'pyarrow>=18'"


def test_no_message_has_a_command_of_its_own() -> None:
    """A literal command fits one kind of copy alone. Reports name packages: their readers have other machines."""
    texts = {path: path.read_text("utf-8") for path in (ROOT / "mqttscope").rglob("*.py")}
    commands = {path: set(re.findall(r"pip install ([^)`\s]+)", text)) for path, text in texts.items()}

    assert {word for words in commands.values() for word in words} == {
        "cbor2",
        "lz4",
        "msgpack",
        "protobuf",
        "zstandard",
    }
    named = {path for path, words in commands.items() if words}
    assert {path.parent.name for path in named} == {"mqttscope", "payloads"}
    assert [path.name for path in named if path.parent.name == "mqttscope"] == ["compressed.py"]
