"""Starting the program in a few milliseconds: as a fork of a process that has imported it.

This is for tests of what the program does with its input.  Those of its start (imports, flags of the interpreter, the
environment that Python reads), of its memory and of terminals start it with `subprocess.Popen`.
"""

from __future__ import annotations

import atexit
import ctypes
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.forking import LENGTH

ROOT = Path(__file__).resolve().parent.parent
UNSET = (
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "FORCE_COLOR",
    "MQTTSCOPE_TRACEBACK",
    "PYTHONIOENCODING",
    "LC_ALL",
    "PYTHONUTF8",
    "SSLKEYLOGFILE",
)
"""What would change the output of a command and may be set where the tests run."""
START = "import sys; from tests.forking import serve; serve(int(sys.argv[1]))"
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "MALLOC_")
"""How variables begin that are read when a process starts."""
PROGRAMS = ("mqttscope", "pytest")
"""Modules that are run: the command line, and the tests of others, which our plugin serves."""
SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of Linux."""
FIELDS = tuple(inspect.signature(subprocess.Popen._execute_child).parameters)[1:]  # type: ignore[attr-defined]
PLAIN: dict[str, tuple[object, ...]] = {
    "preexec_fn": (None,),
    "pass_fds": ((),),
    "close_fds": (True,),
    "shell": (False,),
    "process_group": (-1,),
    **dict.fromkeys(("gid", "gids", "uid", "umask", "executable"), (None, -1)),
}
"""What a fork can be given of what `subprocess.Popen` takes."""


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment in which nothing but ``changes`` asks for another output."""
    plain = {name: value for name, value in os.environ.items() if name not in UNSET}
    return {**plain, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", **(changes or {})}


STANDARD = environment()
"""The environment of the process to fork from."""


def at_start(texts: Mapping[str, str]) -> dict[str, str]:
    """What forks have of that process, and cannot have of an environment of their own."""
    return {name: value for name, value in texts.items() if name.startswith(AT_START)}


class Starter:
    """The process to fork from."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl
        self._line, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", START, str(theirs.fileno())],
                # Ctrl-C at the terminal of the tests is for their own processes.
                pass_fds=(theirs.fileno(),), env=STANDARD, cwd=ROOT, process_group=0,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        self._take(1)
        atexit.register(self.close)

    def start(
        self, words: Sequence[str], folder: str, surroundings: Mapping[str, str], *streams: int, session: bool
    ) -> int:
        """Start the program, as a child of this process; returns its number."""
        about = {
            "words": words, "folder": folder, "environment": dict(surroundings), "session": bool(session),
            "group": os.getpgid(0),
        }  # fmt: skip
        sent = json.dumps(about).encode()
        with self._lock:
            self._adopt(True)
            try:
                socket.send_fds(self._line, [LENGTH.pack(len(sent))], streams)
                self._line.sendall(sent)
                return int(LENGTH.unpack(self._take(LENGTH.size))[0])
            finally:
                self._adopt(False)

    def _adopt(self, wanted: bool) -> None:
        """Whether processes of this one that lose their parent become children of this one."""
        if self._prctl(SUBREAPER, int(wanted), 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")

    def _take(self, size: int) -> bytes:
        raw = b""
        while len(raw) < size:
            part = self._line.recv(size - len(raw))
            if not part:
                raise RuntimeError(f"the process to fork from has ended with {self._process.wait()}")
            raw += part
        return raw

    def close(self) -> None:
        """End it."""
        if self.owner == os.getpid():
            self._line.close()
            self._process.wait(20)


_starters: list[Starter] = []
_making = threading.Lock()


def starter() -> Starter:
    """The process to fork from, of this process: one that it has of the process it was forked from is not its own."""
    with _making:
        if not _starters or _starters[-1].owner != os.getpid():
            _starters.append(Starter())
        return _starters[-1]


def run(words: Sequence[str | bytes], input_bytes: bytes | None = None, timeout: float = 120, **more: Any) -> Any:
    """`subprocess.run` of the program, which takes both of its outputs where nothing else is said of them."""
    if input_bytes is not None:
        more["stdin"] = subprocess.PIPE
    with _Forked(words, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}) as process:
        try:
            out, err = process.communicate(input_bytes, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


class _Forked(subprocess.Popen[Any]):
    """A program, forked where it is one of `PROGRAMS` with nothing special about it; started otherwise."""

    forked = False

    def __init__(self, words: Any, *arguments: Any, text: bool | None = None, **more: Any) -> None:
        # It is told to write UTF-8, whatever the locale of the tests is.
        super().__init__(words, *arguments, **({"encoding": "utf-8", **more} if text else more))

    def _execute_child(self, *arguments: object) -> None:
        asked: dict[str, Any] = dict(zip(FIELDS, arguments, strict=True))
        words = asked["args"]
        surroundings = os.environ if asked["env"] is None else asked["env"]
        folder = os.path.abspath(os.fsdecode(asked["cwd"] or os.getcwd()))
        if (
            sys.platform != "linux"
            or not isinstance(words, list)
            or words[:2] != [sys.executable, "-m"]
            or words[2] not in PROGRAMS
            or any(asked.get(name, allowed[0]) not in allowed for name, allowed in PLAIN.items())
            or not os.path.isdir(folder)
            or at_start(surroundings) != at_start(STANDARD)
        ):
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        ends = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        streams = [number if end == -1 else end for number, end in enumerate(ends)]
        self.pid = starter().start(
            [os.fsdecode(word) for word in words], folder, surroundings, *streams, session=asked["start_new_session"]
        )
        self._child_created = self.forked = True
        nowhere = getattr(self, "_devnull", None)
        for ours, theirs in (("p2cwrite", "p2cread"), ("c2pread", "c2pwrite"), ("errread", "errwrite")):
            both = (asked[ours], asked[theirs])
            if -1 not in both and asked[theirs] != nowhere:
                os.close(asked[theirs])
        if nowhere is not None:
            os.close(nowhere)
        self._closed_child_pipe_fds = True


if TYPE_CHECKING:
    # Which overload of its constructor gives text and which bytes is known of this class alone.
    Forked = subprocess.Popen
else:
    Forked = _Forked
