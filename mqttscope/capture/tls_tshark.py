"""A tshark that decrypts TLS: frames of ordered streams in, the content of their records out.

tshark reads pcapng from its standard input and prints some fields of each frame as PDML: number, protocols and the
data inside TLS, in hexadecimal.  Unlike exported PDUs, PDML is printed at once, for every frame, and so confirms that
tshark has processed the frame.  PDML takes a third of the time of text output (36 MB of records: 0.33 s, not 1.16 s).
Neither side blocks: data that does not fit in the pipe waits in this process.

The frames are plain IPv4, independent of the captured link layer.  Each session gets its own client address; all
servers share one address and port.  So tshark needs no list of ports, and reused ports, VLANs, tunnels and IP fragments
do not affect it.
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
"""Maximum payload of one frame; a stream may deliver more at once than fits in an IPv4 datagram."""
MAX_SESSIONS = 1 << 24
"""Maximum number of sessions with distinct client addresses."""
PAGE_BYTES = 4_096
"""Page size; no line of the key log crosses a page boundary."""
FRAME_COST = 1_000
"""Bytes that tshark's memory grows per frame, in addition to the payload (measured: 700 to 800)."""
STALL_SECONDS = 30.0
"""Timeout for an answer of a tshark that has frames to read."""
FIELDS = ("frame.protocols", "data.data", "tls.handshake.type", "tls.alert_message.desc")
"""Fields that tshark prints for a frame, in addition to its number."""
ARGUMENTS = (
    # The frames have no checksums.
    *("-o", "ip.check_checksum:FALSE", "-o", "tcp.check_checksum:FALSE", "-l", "-T", "pdml"),
    *(word for field in FIELDS for word in ("-e", field)),
)

AWAY_SECONDS = 1.0
"""Threshold for the time between two checks: after more, this process itself was stopped or blocked."""
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
    """Frames with the next bytes of a stream; ``start``: offset of the first byte.

    ``session``: a number that is unique among the sessions of one tshark.  ``acknowledged``: current end of the other
    stream; tshark searches all unacknowledged frames.
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
    """A running tshark.  ``command``: its command line, with `{keys}` in place of the key log.

    The owner that is passed with a frame is returned with the answer.  `OSError` if tshark cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.cost = 0
        """Estimated growth of tshark's memory in bytes."""
        self.users = 0
        """Number of sessions that it decrypts, maintained by the owner."""
        self.fault: str | None = None
        """Reason of its failure, or ``None``."""
        self.waiting: deque[T] = deque()
        """Owners of the unanswered frames, in order."""
        self.unanswered = 0
        """Bytes of the unanswered frames."""
        self._sizes: deque[int] = deque()
        self._answered = 0
        self._rsa_lines: set[bytes] = set()
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
        """Add lines to the key log, before feeding the frames that need these keys."""
        for line in lines.splitlines(keepends=True):
            if line.startswith(b"RSA"):
                # RSA lines are passed with every session.
                if line in self._rsa_lines:
                    continue
                self._rsa_lines.add(line)
            self.cost += len(line)
            # tshark may read during the write, which is in two steps across pages; it would ignore half a line.
            left = -self._key_bytes % PAGE_BYTES
            padded = b"\n" * left + line if len(line) > left else line
            with suppress(OSError):
                self._key_bytes += os.write(self._keys, padded)

    def feed(self, frame: Frame, owner: T) -> None:
        """Pass a frame to tshark; ``owner`` is returned with the answer."""
        size = len(frame.data)
        self.cost += FRAME_COST + size
        self.unanswered += size
        self._sizes.append(size)
        self.waiting.append(owner)
        if self.fault is None:
            self._process.feed(frame)

    def answers(self) -> Iterator[tuple[T, list[bytes], bool]]:
        """Write pending frames, and yield for each answered frame its owner, the content of its records, and a flag.

        The flag is whether tshark could read something that needs keys, or the frame has nothing to decrypt.
        """
        if self.fault is None:
            self._process.push()
            moved = False
            for answer in self._whole_answers():
                moved = True
                number = _NUMBER.search(answer)
                if not self.waiting or number is None or int(number[1]) != self._answered + 1:
                    self._fail(f"printed {answer.lstrip()[:40]!r}")
                    return
                self._answered += 1
                self.unanswered -= self._sizes.popleft()
                records, readable = [], False
                for name, value in _FIELD.findall(answer):
                    if name == b"data.data":
                        records.append(unhexlify(value))
                    elif name == b"frame.protocols":
                        # Data directly inside TCP was not decrypted.
                        if b"tcp:data" in value:
                            break
                    else:
                        readable = readable or name == b"tls.alert_message.desc" or value == _FINISHED
                yield self.waiting.popleft(), records, readable or bool(records)
            self._watch(moved=moved)

    def watched(self) -> list[int]:
        """Descriptors that become readable when tshark has output."""
        if self.fault is not None:
            return []
        process = self._process
        return [process.output, process.errors] if process.complains else [process.output]

    def writable(self) -> list[int]:
        """The descriptor to write to, if frames are pending."""
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
                self._fail(f"printed {data.strip()[:40]!r}")
                return
            *answers, self._rest = (self._rest + data).split(b"</packet>")
            yield from answers
            if self.fault is not None:
                return
            self._process.push()

    def _watch(self, *, moved: bool) -> None:
        now = time.monotonic()
        if moved or not self.waiting or now - self._looked_at > AWAY_SECONDS:
            self._moved_at = now
        elif now - self._moved_at > STALL_SECONDS and self.fault is None:
            self._fail(f"silent for {STALL_SECONDS:.0f} s")
        self._looked_at = now

    def _fail(self, what: str) -> None:
        if self.fault is None:
            how, last = self._process.give_up(0.2)
            self.fault = f"failed while decrypting TLS ({what}{how}){last}; data not yet decrypted is missing"

    def _forget_keys(self) -> None:
        with suppress(OSError):
            os.close(self._keys)
        if self._path:
            with suppress(OSError):
                os.unlink(self._path)
            self._path = ""


_KEYS = "mqttscope-keys"


def _private() -> tuple[int, str]:
    """A file for keys that is readable only for this user, and its path for tshark.

    It is in memory if the system supports that, so that it cannot remain when this program is killed.
    """
    return system.memory_file(_KEYS) or tempfile.mkstemp(prefix=f"{_KEYS}-")
