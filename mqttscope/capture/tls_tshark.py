"""A tshark that decrypts TLS: frames of ordered streams in, the content of their records out.

It reads pcapng from its standard input and prints some fields of each frame as PDML: its number, its protocols and the
data that was inside TLS, in hexadecimal.  Unlike exported PDUs these come at once, and they say of every frame that
tshark is done with it.  PDML costs a third of what the same fields cost as text (36 MB of records: 0.33 s, not 1.16 s).
Neither side waits for the other: what the pipe does not take is kept here.

The frames are plain IPv4, whatever the streams came in.  Each session gets a client address of its own and all servers
the same address and port.  So tshark need not be told ports, and ports that are used again, VLANs, tunnels and IP
fragments do not concern it.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from binascii import unhexlify
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from struct import Struct
from typing import Generic, TypeVar

from mqttscope import system
from mqttscope.capture.tshark import TsharkProcess
from mqttscope.capture.write import LINK_TYPE_RAW
from mqttscope.net.flow import StreamData
from mqttscope.net.frame import Frame
from mqttscope.net.segment import ACK, MASK, PSH

T = TypeVar("T")

SERVER_PORT = 443
MAX_PAYLOAD = 32 * 1024
"""Payload of one frame: what a stream delivers at once may be longer than an IPv4 datagram can be."""
MAX_SESSIONS = 1 << 24
"""Number of sessions that have addresses of their own."""
PAGE_BYTES = 4_096
"""No line of the key log crosses a multiple of this."""
FRAME_COST = 1_000
"""Bytes by which tshark grows with each frame, beside its payload (measured: 700 to 800)."""
STALL_SECONDS = 30.0
"""Maximum silence of a tshark that has frames to read."""
FIELDS = ("frame.protocols", "data.data", "tls.handshake.type", "tls.alert_message.desc")
"""What tshark prints of a frame, beside its number."""
ARGUMENTS = (
    # The frames have no checksums.
    *("-o", "ip.check_checksum:FALSE", "-o", "tcp.check_checksum:FALSE", "-l", "-T", "pdml"),
    *(word for field in FIELDS for word in ("-e", field)),
)

_AWAY_SECONDS = 1.0
"""A process that did not look for so long was stopped or had to wait itself."""
_CLIENT_PORT = 49_152
_SERVER = bytes((192, 0, 2, 1))
_BEGIN = b"<?xml"
_NUMBER = re.compile(rb'<field name="num" pos="0" show="(\d+)"')
_FIELD = re.compile(rb'<field name="([a-z._]+)" value="([^"]*)"/>')
_FINISHED = b"20"
"""Type of a handshake message that is always encrypted."""
_HEADERS = Struct(">BxHHHBBH4s4sHHIIBBHHH").pack
_HEADERS_BYTES = 40


def frames(piece: StreamData, start: int, session: int, acknowledged: int, *, from_client: bool) -> Iterator[Frame]:
    """Frames of the next bytes of a stream, ``start`` being the offset of the first.

    ``session``: a number that no other session has which the same tshark decrypts.  ``acknowledged``: the end of the
    other stream so far; tshark searches all frames that were not acknowledged.
    """
    client = (0x0A000000 | session % MAX_SESSIONS).to_bytes(4, "big")
    addresses = (client, _SERVER) if from_client else (_SERVER, client)
    ports = (_CLIENT_PORT, SERVER_PORT) if from_client else (SERVER_PORT, _CLIENT_PORT)
    for at in range(0, len(piece.data), MAX_PAYLOAD):
        payload = piece.data[at : at + MAX_PAYLOAD]
        size = _HEADERS_BYTES + len(payload)
        sequence = (start + at) & MASK
        data = _HEADERS(
            0x45,
            size,
            0,
            0x4000,
            64,
            6,
            0,
            *addresses,
            *ports,
            sequence,
            acknowledged & MASK,
            0x50,
            PSH | ACK,
            0xFFFF,
            0,
            0,
        )
        yield Frame(piece.frame, piece.timestamp_ns, LINK_TYPE_RAW, data + payload, size, piece.capture)


class Tshark(Generic[T]):
    """A running tshark.  ``command``: what it is called with, `{keys}` being the key log.

    What is fed with a frame comes back with its answer.  `OSError` where it cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.cost = 0
        """About how many bytes it has grown by."""
        self.users = 0
        """Connections that it decrypts; for the owner to count."""
        self.fault: str | None = None
        """What it failed at."""
        self.waiting: deque[T] = deque()
        """What was fed and not answered, one for each frame."""
        self.unanswered = 0
        """Bytes of these frames."""
        self._sizes: deque[int] = deque()
        self._answered = 0
        self._given: set[bytes] = set()
        self._key_bytes = 0
        self._rest = b""
        self._looked_at = self._moved_at = time.monotonic()
        self._keys, path = _private()
        keep = () if os.path.basename(path).startswith(_KEYS) else (self._keys,)
        self._path = "" if keep else path
        words = [word.replace("{keys}", path) for word in (*command, *ARGUMENTS)]
        try:
            self._process = TsharkProcess(words, keep)
        except BaseException:
            self._forget_keys()
            raise

    def keys(self, lines: bytes) -> None:
        """Add lines to the key log; before the frames that need them are fed."""
        for line in lines.splitlines(keepends=True):
            if line.startswith(b"RSA"):
                # They come with every connection.
                if line in self._given:
                    continue
                self._given.add(line)
            self.cost += len(line)
            # tshark may read at this moment.  What crosses a page is there in two parts, and it ignores half a line.
            left = -self._key_bytes % PAGE_BYTES
            padded = b"\n" * left + line if len(line) > left else line
            with suppress(OSError):
                self._key_bytes += os.write(self._keys, padded)

    def feed(self, frame: Frame, owner: T) -> None:
        """Give it a frame; ``owner`` comes back with the answer."""
        size = len(frame.data)
        self.cost += FRAME_COST + size
        self.unanswered += size
        self._sizes.append(size)
        self.waiting.append(owner)
        if self.fault is None:
            self._process.feed(frame)

    def answers(self) -> Iterator[tuple[T, list[bytes], bool]]:
        """Pass on what it can take, and yield what it is done with: the owner, and what each record held.

        The third is whether tshark could read something that only keys make readable, or there is nothing to read.
        """
        if self.fault is None:
            self._process.push()
            moved = False
            for answer in self._whole_answers():
                moved = True
                number = _NUMBER.search(answer)
                if not self.waiting or number is None or int(number[1]) != self._answered + 1:
                    self._fail(f"said {answer.lstrip()[:40]!r}")
                    return
                self._answered += 1
                self.unanswered -= self._sizes.popleft()
                records, readable = [], False
                for name, value in _FIELD.findall(answer):
                    if name == b"data.data":
                        records.append(unhexlify(value))
                    elif name == b"frame.protocols":
                        # Data right inside TCP is none that was decrypted.
                        if b"tcp:data" in value:
                            break
                    else:
                        readable = readable or name == b"tls.alert_message.desc" or value == _FINISHED
                yield self.waiting.popleft(), records, readable or bool(records)
            self._watch(moved=moved)

    def watched(self) -> list[int]:
        """Descriptors on which something comes when there is something to do."""
        if self.fault is not None:
            return []
        process = self._process
        return [process.output, process.errors] if process.complains else [process.output]

    def writable(self) -> list[int]:
        """The descriptor that is to take more, if there is more."""
        process = self._process
        return [process.input] if self.fault is None and process.behind and process.takes_input else []

    def close(self) -> None:
        self._process.close()
        self._forget_keys()

    def _whole_answers(self) -> Iterator[bytes]:
        while True:
            self._process.listen()
            data = self._process.read()
            if data is None:
                return
            if not data:
                self._fail("ended early")
                return
            if not (self._answered or (self._rest + data).startswith(_BEGIN[: len(self._rest + data)])):
                self._fail(f"said {data.strip()[:40]!r}")
                return
            *answers, self._rest = (self._rest + data).split(b"</packet>")
            yield from answers
            if self.fault is not None:
                return
            self._process.push()

    def _watch(self, *, moved: bool) -> None:
        now = time.monotonic()
        if moved or not self.waiting or now - self._looked_at > _AWAY_SECONDS:
            self._moved_at = now
        elif now - self._moved_at > STALL_SECONDS and self.fault is None:
            self._fail(f"silent for {STALL_SECONDS:.0f} s")
        self._looked_at = now

    def _fail(self, what: str) -> None:
        if self.fault is None:
            how, last = self._process.give_up(0.2)
            self.fault = f"failed while it decrypted TLS ({what}{how}){last}; what it had not decrypted is missing"

    def _forget_keys(self) -> None:
        with suppress(OSError):
            os.close(self._keys)
        if self._path:
            with suppress(OSError):
                os.unlink(self._path)
            self._path = ""


_KEYS = "mqttscope-keys"


def _private() -> tuple[int, str]:
    """A file for keys that nobody else can read, and how tshark opens it.

    In memory where the system has that: then it cannot stay behind, however this program ends.
    """
    return system.memory_file(_KEYS) or tempfile.mkstemp(prefix=f"{_KEYS}-")
