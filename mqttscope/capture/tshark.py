"""Wireshark's programs: where they are, and tshark as it runs.

tshark decrypts TLS when it is told how.  A running one is fed frames at its standard input, and its answers come from
its standard output.  Neither side waits for the other: what the pipe does not take is kept here, and reading returns at
once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import BinaryIO, cast

from mqttscope import system
from mqttscope.capture.write import PcapngWriter
from mqttscope.errors import MqttscopeError
from mqttscope.net.frame import Frame

NOISE = "Running as user "
"""How the line begins that tshark says to root, whatever happens."""
MAX_COMPLAINTS = 4_096
"""Bytes of tshark's standard error that are kept, the last ones."""
_PIECE = 1 << 16
_ANSWER = 1 << 20

_PREFERENCES = (
    # Each record as it is: what belongs together is for our decoder to find out.
    "tls.desegment_ssl_application_data:FALSE",
    "tcp.reassemble_out_of_order:TRUE",
)
_CONTENT = ("http", "http2", "mqtt", "websocket")
"""Protocols that tshark might find inside by ALPN or port."""


class MissingToolError(MqttscopeError):
    """A program that is needed is not installed; the text says how to install it."""


def find_tool(name: str, purpose: str) -> str:
    """Path of one of Wireshark's programs: in the folders of ``PATH``, or where its installer puts it.

    `MissingToolError` when there is none.  ``purpose``: what it is needed for, as in "to decrypt TLS".
    """
    # One that this user may not run is found, too: starting it says why, and Debian's dumpcap is for a group alone.
    for folder in (None, *system.wireshark_folders()):
        path = shutil.which(name, os.F_OK, folder)
        if path is not None:
            return path
    raise MissingToolError(
        f"{name} is needed {purpose} and was not found; install it (Debian: apt-get install tshark, "
        "macOS: brew install wireshark) or add its folder to PATH"
    )


def find_tshark() -> str:
    """Path of tshark; `MissingToolError` when there is none."""
    return find_tool("tshark", "to decrypt TLS")


def decrypting(tshark: str, source: str, log: str, ports: Iterable[int]) -> list[str]:
    """The command that reads ``source`` with the key log ``log``, TLS on ``ports``, as far as its output.

    What is inside is data to it, whatever it looks like.
    """
    arguments = [tshark, "-n", "-r", source, "-o", f"tls.keylog_file:{log}"]
    for preference in _PREFERENCES:
        arguments += ["-o", preference]
    for port in sorted(ports):
        arguments += ["-d", f"tcp.port=={port},tls", "-d", f"tls.port=={port},data"]
    for name in sorted({*_CONTENT, *_guessed(tshark)}):
        # A dissector that takes part of what is inside keeps it from being handed over.
        arguments += ["--disable-protocol", name]
    return arguments


def _guessed(tshark: str) -> set[str]:
    """Protocols that this tshark looks for inside TLS by the look of the bytes."""
    try:
        done = subprocess.run([tshark, "-G", "heuristic-decodes"], capture_output=True, check=False)
    except OSError:
        return set()
    rows = (line.split(b"\t") for line in done.stdout.splitlines())
    return {row[1].decode("ascii", "replace") for row in rows if len(row) > 1 and row[0] == b"tls"}


class TsharkProcess:
    """A tshark that reads pcapng from its standard input.

    ``command``: what it is called with.  ``kept_open``: descriptors that it inherits.  `OSError` where it cannot be
    started.
    """

    def __init__(self, command: Sequence[str], kept_open: Sequence[int] = ()) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Ctrl-C is for this process to act on.
            **system.apart(),
            **system.inherited(tuple(kept_open)),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        self.input, self.output, self.errors = (pipe.fileno() for pipe in self._pipes)
        for descriptor in (self.input, self.output, self.errors):
            system.unblock(descriptor)
            system.widen(descriptor, _ANSWER)
        self.takes_input = True
        """Whether its standard input is open."""
        self.complains = True
        """Whether its standard error is open."""
        self._unwritten: deque[bytes] = deque()
        self._said = b""
        self._writer = PcapngWriter(cast(BinaryIO, self))

    def feed(self, frame: Frame) -> None:
        """Give it a frame, with the next `push`; `ValueError` for a link type that pcapng has no number for."""
        self._writer.write(frame)

    @property
    def behind(self) -> bool:
        """Whether there is something that it has not taken yet."""
        return bool(self._unwritten)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def push(self) -> None:
        """Write what its pipe takes now."""
        try:
            while self._unwritten:
                if len(self._unwritten[0]) < _PIECE:
                    parts, size = [], 0
                    while self._unwritten and size < _PIECE:
                        parts.append(self._unwritten.popleft())
                        size += len(parts[-1])
                    self._unwritten.appendleft(b"".join(parts))
                data = self._unwritten.popleft()
                written = 0
                try:
                    written = os.write(self.input, data)
                finally:
                    if written < len(data):
                        self._unwritten.appendleft(data[written:])
        except BlockingIOError:
            pass
        except OSError:
            # It has ended; its output says so as well, after what it said before.
            self._unwritten.clear()
            self.takes_input = False

    def read(self) -> bytes | None:
        """The next piece of its output: none yet is None, and nothing more is empty."""
        try:
            return os.read(self.output, _ANSWER)
        except BlockingIOError:
            return None

    def listen(self) -> None:
        """Read what it says on standard error, so that it never waits for it to be read."""
        with suppress(BlockingIOError):
            while self.complains:
                data = os.read(self.errors, _PIECE)
                self.complains = bool(data)
                self._said = (self._said + data)[-MAX_COMPLAINTS:]

    def end_input(self) -> None:
        """Tell it that no frame follows."""
        if self.takes_input:
            self.takes_input = False
            self._pipes[0].close()

    def give_up(self, patience: float) -> tuple[str, str]:
        """End it after ``patience`` seconds: how it ended (empty where it did not by itself), and its last words.

        Each begins with what sets it apart from a sentence before: "; exit code 2", ": not a capture".
        """
        self._unwritten.clear()
        try:
            # One that closed its output is about to end by itself.
            code: int | None = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            code = None
            self._process.kill()
            self._process.wait()
        self.listen()
        how = "" if code is None else f"; exit code {code}" if code >= 0 else f"; signal {-code}"
        said = [line for line in self._said.decode("utf-8", "replace").splitlines() if line and not _is_noise(line)]
        return how, f": {said[-1].removeprefix('tshark: ')}" if said else ""

    def close(self) -> None:
        """End it now."""
        self._process.kill()
        self._process.wait()
        for pipe in self._pipes:
            with suppress(OSError):
                pipe.close()

    def write(self, data: bytes) -> int:
        """For the writer of frames."""
        self._unwritten.append(data)
        return len(data)

    def flush(self) -> None:
        """For the writer of frames."""


def _is_noise(line: str) -> bool:
    return line.startswith((NOISE, "Capturing on ")) or line.endswith("packets captured")
