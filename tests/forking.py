"""The process that `tests.forked` starts programs from: the command line is imported, and each run is a fork of it."""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import socket
import struct
import sys
import threading
from contextlib import suppress
from typing import Any, TextIO

import mqttscope

LENGTH = struct.Struct("!I")
"""What stands before a message."""
MOST_DESCRIPTORS = 3
NEVER = ("__main__", "dev", "pytest_plugin", "spark", "lake", "broker_test")
"""What takes long to import, and few commands use."""
MORE = ("rich.console", "rich.live", "rich.table", "rich.text", "asyncio.runners", "concurrent.futures.process")
"""What commands import late."""


def serve(descriptor: int) -> None:
    """Fork for each request until the other side ends."""
    line = socket.socket(fileno=descriptor)
    _load()
    line.sendall(b"1")
    while (asked := _request(line)) is not None:
        about, descriptors = asked
        reader, writer = os.pipe()
        between = os.fork()
        if between == 0:
            # A process whose parent is gone becomes a child of the process that tests: it can wait for it.
            child = os.fork()
            if child == 0:
                _run(about, descriptors)
            os.write(writer, LENGTH.pack(child))
            os._exit(0)
        os.close(writer)
        raw = os.read(reader, LENGTH.size)
        os.waitpid(between, 0)
        for number in (reader, *descriptors):
            os.close(number)
        line.sendall(raw)


def _load() -> None:
    """Import what commands import."""
    for iter_module in pkgutil.iter_modules(mqttscope.__path__):
        if iter_module.name not in NEVER:
            _import(f"mqttscope.{iter_module.name}")
    for name in MORE:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _import(name: str) -> None:
    """Import a module and all below it."""
    try:
        module = importlib.import_module(name)
    except ImportError:
        # Of a part whose packages are not installed.
        return
    for iter_module in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if iter_module.name not in NEVER and iter_module.name != "pipeline":
            _import(f"{name}.{iter_module.name}")


def _request(line: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """What to run, and its standard streams."""
    head, descriptors, _, _ = socket.recv_fds(line, LENGTH.size, MOST_DESCRIPTORS)
    if len(head) < LENGTH.size:
        return None
    left = LENGTH.unpack(head)[0]
    parts = []
    while left:
        part = line.recv(left)
        if not part:
            return None
        parts.append(part)
        left -= len(part)
    about: dict[str, Any] = json.loads(b"".join(parts))
    return about, list(descriptors)


def _run(about: dict[str, Any], descriptors: list[int]) -> None:
    """Be the program; this does not return."""
    try:
        _become(about, descriptors)
        runpy._run_module_as_main(about["words"][2])  # type: ignore[attr-defined]
        code: int | None = 0
    except SystemExit as left:
        if isinstance(left.code, str):
            raise
        code = left.code
    # What Python does at its end, but for taking all modules apart.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        # Python itself says what it could not write, and has an exit code for that.
        sys.exit(code)
    os._exit(code or 0)


def _become(about: dict[str, Any], descriptors: list[int]) -> None:
    """Take on everything that a new process has from its start."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.closerange(MOST_DESCRIPTORS, os.sysconf("SC_OPEN_MAX"))
    if about["session"]:
        os.setsid()
    else:
        os.setpgid(0, about["group"])
    os.chdir(about["folder"])
    os.environ.clear()
    os.environ.update(about["environment"])
    sys.argv[:] = ["-m", *about["words"][3:]]
    sys.orig_argv[:] = about["words"]
    sys.path[0] = about["folder"]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        text_io = _stream(number, getattr(sys, name))
        setattr(sys, name, text_io)
        setattr(sys, f"__{name}__", text_io)


def _stream(number: int, like: TextIO) -> TextIO:
    """A standard stream of a file descriptor, as Python makes it at its start."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED")) and number > 0
    raw: Any = io.FileIO(number, "wb" if number else "rb", closefd=False)
    raw.name = f"<{('stdin', 'stdout', 'stderr')[number]}>"
    binary = raw if unbuffered else (io.BufferedWriter if number else io.BufferedReader)(raw)
    wrapper = io.TextIOWrapper(
        binary,
        encoding=like.encoding,
        errors=like.errors,
        newline="\n" if number else None,
        line_buffering=not unbuffered and (number == 2 or raw.isatty()),
        write_through=unbuffered,
    )
    wrapper.mode = "w" if number else "r"  # type: ignore[misc]
    return wrapper
