"""Finding Wireshark's programs, and running tshark.

tshark decrypts TLS if it has the keys.  A running tshark reads frames from its standard input and writes its answers to
its standard output.  Neither side blocks: data that does not fit in the pipe waits here, and reads return at once.
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
"""Begin of the warning that tshark always prints for root."""
MAX_COMPLAINTS = 4_096
"""Maximum number of last bytes kept from tshark's standard error."""
_PIECE = 1 << 16
_ANSWER = 1 << 20

_PREFERENCES = (
    # Each record separately: our decoder reassembles the packets.
    "tls.desegment_ssl_application_data:FALSE",
    "tcp.reassemble_out_of_order:TRUE",
)
_CONTENT = ("http", "http2", "mqtt", "websocket")
"""Protocols that tshark might detect inside TLS by ALPN or port."""


class MissingToolError(MqttscopeError):
    """A required program is not installed; the message explains how to install it."""


def find_tool(name: str, purpose: str) -> str:
    """Path of one of Wireshark's programs, from ``PATH`` or the folders of its installer.

    `MissingToolError` if it is not found.  ``purpose``: as in "to decrypt TLS".
    """
    # Includes programs that this user may not run, such as Debian's dumpcap for a group: starting them reports why.
    for folder in (None, *system.wireshark_folders()):
        path = shutil.which(name, os.F_OK, folder)
        if path is not None:
            return path
    raise MissingToolError(
        f"{name} is needed {purpose} and was not found; install it (Debian: apt-get install tshark, "
        "macOS: brew install wireshark) or add its folder to PATH"
    )


def find_tshark() -> str:
    """Path of tshark; `MissingToolError` if it is not installed."""
    return find_tool("tshark", "to decrypt TLS")


def decrypting(tshark: str, source: str, log: str, ports: Iterable[int]) -> list[str]:
    """The command that decrypts ``source`` with the key log ``log``, TLS on ``ports``, without output options.

    Content inside TLS is output as data, without further dissection.
    """
    arguments = [tshark, "-n", "-r", source, "-o", f"tls.keylog_file:{log}"]
    for preference in _PREFERENCES:
        arguments += ["-o", preference]
    for port in sorted(ports):
        arguments += ["-d", f"tcp.port=={port},tls", "-d", f"tls.port=={port},data"]
    for name in sorted({*_CONTENT, *_guessed(tshark)}):
        # A dissector that claims part of the content would withhold it from the output.
        arguments += ["--disable-protocol", name]
    return arguments


def _guessed(tshark: str) -> set[str]:
    """Protocols that this tshark detects heuristically inside TLS."""
    try:
        done = subprocess.run([tshark, "-G", "heuristic-decodes"], capture_output=True, check=False)
    except OSError:
        return set()
    rows = (line.split(b"\t") for line in done.stdout.splitlines())
    return {row[1].decode("ascii", "replace") for row in rows if len(row) > 1 and row[0] == b"tls"}


class TsharkProcess:
    """A tshark that reads pcapng from its standard input.

    ``command``: its command line.  ``kept_open``: descriptors that it inherits.  `OSError` if it cannot be started.
    """

    def __init__(self, command: Sequence[str], kept_open: Sequence[int] = ()) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Ctrl-C must reach this process only.
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
        self._complaints = b""
        self._writer = PcapngWriter(cast(BinaryIO, self))

    def feed(self, frame: Frame) -> None:
        """Queue a frame for the next `push`; `ValueError` for a link type without a number in pcapng."""
        self._writer.write(frame)

    @property
    def behind(self) -> bool:
        """Whether frames are queued."""
        return bool(self._unwritten)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def push(self) -> None:
        """Write queued bytes to the pipe, without blocking."""
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
            # tshark has ended; the end of its output reports that, after its last answers.
            self._unwritten.clear()
            self.takes_input = False

    def read(self) -> bytes | None:
        """Read available output; ``None`` if the pipe is empty, no bytes at the end."""
        try:
            return os.read(self.output, _ANSWER)
        except BlockingIOError:
            return None

    def listen(self) -> None:
        """Read its standard error, so that tshark never blocks on it."""
        with suppress(BlockingIOError):
            while self.complains:
                data = os.read(self.errors, _PIECE)
                self.complains = bool(data)
                self._complaints = (self._complaints + data)[-MAX_COMPLAINTS:]

    def end_input(self) -> None:
        """Close its standard input after the last frame."""
        if self.takes_input:
            self.takes_input = False
            self._pipes[0].close()

    def give_up(self, patience: float) -> tuple[str, str]:
        """End it after ``patience`` seconds; returns how it ended (empty if it was killed) and its last error line.

        Both begin with punctuation, to be appended to a sentence: "; exit code 2", ": not a capture".
        """
        self._unwritten.clear()
        try:
            # A tshark that closed its output is about to end by itself.
            code: int | None = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            code = None
            self._process.kill()
            self._process.wait()
        self.listen()
        how = "" if code is None else f"; exit code {code}" if code >= 0 else f"; signal {-code}"
        text = self._complaints.decode("utf-8", "replace")
        lines = [line for line in text.splitlines() if line and not _is_noise(line)]
        return how, f": {lines[-1].removeprefix('tshark: ')}" if lines else ""

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
