"""Runs commands of mqttscope in Pyodide: their output as text, their progress as calls."""

from __future__ import annotations

import io
import json
import os
import sys
import types
from collections.abc import Callable
from typing import Any

FOLDER = "/capture"
REPORT = "/report.html"
ENVIRONMENT = {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONUTF8": "1"}


def _orjson() -> types.ModuleType:
    """The functions of orjson that mqttscope uses, with the standard library: Pyodide's package is not part of npm."""
    module = types.ModuleType("orjson")
    names = ("OPT_INDENT_2", "OPT_APPEND_NEWLINE", "OPT_NON_STR_KEYS", "OPT_SORT_KEYS", "OPT_STRICT_INTEGER")
    flags = {name: 1 << number for number, name in enumerate(names)}

    def dumps(value: object, default: Callable[[Any], Any] | None = None, option: int | None = None) -> bytes:
        chosen = option or 0
        indented = {"indent": 2} if chosen & flags["OPT_INDENT_2"] else {"separators": (",", ":")}
        is_sorted = bool(chosen & flags["OPT_SORT_KEYS"])
        text = json.dumps(value, default=default, ensure_ascii=False, sort_keys=is_sorted, **indented)
        return (text + "\n" * bool(chosen & flags["OPT_APPEND_NEWLINE"])).encode()

    module.__dict__.update(
        flags, dumps=dumps, loads=json.loads, JSONDecodeError=json.JSONDecodeError, JSONEncodeError=TypeError
    )
    return module


class _Messages(io.TextIOBase):
    """Standard error: lines of progress are passed on, other lines are kept."""

    def __init__(self, progress: Callable[[str], object]) -> None:
        self._progress = progress
        self.kept: list[str] = []

    def isatty(self) -> bool:
        """Progress is shown on terminals only."""
        return True

    def write(self, text: str) -> int:
        if text.startswith("\r"):
            if line := text.strip("\r").replace("\x1b[K", ""):
                self._progress(line)
        else:
            self.kept.append(text)
        return len(text)


def run(words: list[str], progress: Callable[[str], object]) -> tuple[str, str, str]:
    """Run a command beside the capture: its output, its messages, and the page that it wrote to `REPORT`."""
    from mqttscope.cli.main import main

    out, messages = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), _Messages(progress)
    if os.path.exists(REPORT):
        os.remove(REPORT)
    os.chdir(FOLDER)
    before = sys.argv, sys.stdout, sys.stderr
    sys.argv, sys.stdout, sys.stderr = ["mqttscope", *words], out, messages
    try:
        main()
    except SystemExit:
        pass
    finally:
        sys.argv, sys.stdout, sys.stderr = before
        os.chdir("/")  # so that another capture can be mounted
    page = ""
    if os.path.exists(REPORT):
        with open(REPORT, encoding="utf-8") as file:
            page = file.read()
    return out.buffer.getvalue().decode(), "".join(messages.kept), page


os.environ.update(ENVIRONMENT)
sys.modules.setdefault("orjson", _orjson())
