"""Searches a capture for secrets, in all readable encodings.

The search covers the raw bytes of the file, the reassembled TCP streams, so that secrets across segments are found, and
the unmasked and decompressed content of WebSockets.
"""

from __future__ import annotations

import html
import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from mqttscope.dissect import Dissector, Options
from mqttscope.dissect.flow_state import FlowState
from mqttscope.net.flow import FlowEvent, StreamData, StreamGap
from mqttscope.net.flows import FlowTable
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment as segment_of
from mqttscope.net.segment import Fragment, Segment, plain_key, reverse_key
from mqttscope.net.websocket import MessageData

SHORTEST: Final = 4
"""Minimum size of a searched form: shorter ones occur everywhere by chance."""
MAX_STREAMS: Final = 100_000
"""Maximum number of directions with remembered last bytes; the one that was silent longest is forgotten."""
GATHERED_BYTES: Final = 1 << 16
"""Maximum number of bytes of a stream that are gathered before they are searched."""
MAX_GATHERED_BYTES: Final = 1 << 24
"""Maximum number of gathered bytes of all streams."""
_GROUP: Final = 3
_TCP: Final = b"tcp"
_WEB: Final = b"web"


@dataclass(slots=True, frozen=True)
class SecretHit:
    """A secret found in the capture."""

    number: int
    """Index of the secret."""
    form: str
    """The encoding: ``plain``, ``base64``, ``hexadecimal``...."""
    place: str
    """``offset 1,234 of the file``, ``a TCP stream, up to frame 12``."""


def forms(secret: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of the encodings of a secret; case is ignored except in base64."""
    yield "plain", secret
    yield "percent encoding", quote(secret, safe="").encode()
    yield "percent encoding", b"".join(b"%%%02x" % byte for byte in secret)
    yield "hexadecimal", secret.hex().encode()
    yield "hexadecimal", secret.hex(" ").encode()
    yield "hexadecimal", secret.hex(":").encode()
    for shift in range(_GROUP):
        # Characters that include bits of the neighbouring bytes are cut off.
        coded = b64encode(bytes(shift) + secret)
        start, end = -(-shift * 8 // 6), (shift + len(secret)) * 8 // 6
        for part in {coded[start:end], coded[start:end].replace(b"+", b"-").replace(b"/", b"_")}:
            yield "base64", part
    try:
        text = secret.decode()
    except UnicodeDecodeError:
        return
    yield "UTF-16", text.encode("utf-16-le")
    yield "UTF-16", text.encode("utf-16-be")
    yield "HTML", html.escape(text).encode()
    yield "HTML", "".join(f"&#{ord(character)};" for character in text).encode()
    yield "HTML", "".join(f"&#x{ord(character):x};" for character in text).encode()
    yield "JSON", json.dumps(text)[1:-1].encode()
    yield "JSON", json.dumps(text)[1:-1].replace("/", "\\/").encode()
    yield "JSON", "".join(f"\\u{ord(character):04x}" for character in text if ord(character) < 0x10000).encode()


class SecretSearch:
    """A search for secrets."""

    def __init__(self, secrets: Sequence[bytes], options: Options | None = None) -> None:
        """``options`` are the user's options for reading the capture."""
        self.hits: dict[tuple[int, str], SecretHit] = {}
        """The first hit of each secret in each encoding."""
        self._exact: dict[bytes, tuple[int, str]] = {}
        self._folded: dict[bytes, tuple[int, str]] = {}
        self._tail = b""
        self._gathered: dict[bytes, bytearray] = {}
        self._size = 0
        self.forgotten = 0
        """Number of directions with forgotten last bytes: a secret that continues after them is not found."""
        self._flows = FlowTable()
        self._fragments = FragmentTable()
        self._frame = 0
        for number, secret in enumerate(secrets):
            for form, raw in forms(secret):
                if form == "base64" and len(raw) >= SHORTEST:
                    self._exact.setdefault(raw, (number, form))
                elif len(raw) >= SHORTEST:
                    self._folded.setdefault(raw.lower(), (number, form))
        self._overlap = max(map(len, (*self._exact, *self._folded)), default=1) - 1
        self._dissector = Dissector(options)
        self._dissector.watch(_pass, self._watch_frames)

    def take_bytes(self, data: bytes, offset: int) -> None:
        """Search the next bytes of the file, which begin at ``offset``."""
        before = self._tail
        whole = before + data
        self._search(whole, lambda at: f"offset {offset - len(before) + at:,} of the file")
        self._tail = whole[-self._overlap :] if self._overlap else b""

    def take_compressed(self, frame: Frame) -> None:
        """Search the bytes of a frame, if the file is compressed."""
        self._search(frame.data, lambda at: f"frame {frame.number:,}")

    def take_frame(self, frame: Frame) -> None:
        """Search the bytes that the next frame adds to the streams."""
        item = segment_of(frame)
        whole = self._fragments.feed(item) if isinstance(item, Fragment) else item
        if not isinstance(whole, Segment):
            return
        self._frame = frame.number
        self._streams(self._flows.feed(whole))
        for _ in self._dissector.feed(whole):
            pass

    def close(self) -> list[SecretHit]:
        """End the search; returns all hits."""
        self._streams(self._flows.close())
        for _ in self._dissector.close():
            pass
        for key in self._gathered:
            self._search_gathered(key)
        return sorted(self.hits.values(), key=lambda hit: (hit.number, hit.form))

    def _streams(self, events: Sequence[FlowEvent]) -> None:
        for event in events:
            if isinstance(event, StreamData):
                key = plain_key(event.flow.key if event.from_initiator else reverse_key(event.flow.key))
                self._stream(_TCP + key, event.data)

    def _watch_frames(self, dialogue: FlowState, item: object) -> None:
        if isinstance(item, MessageData):
            key = plain_key(dialogue.flow.key if item.from_client else reverse_key(dialogue.flow.key))
            self._stream(_WEB + key, item.data)

    def _stream(self, key: bytes, data: bytes) -> None:
        gathered = self._gathered.pop(key, None)
        if gathered is None:
            if len(self._gathered) >= MAX_STREAMS:
                self._forget(next(iter(self._gathered)))
            gathered = bytearray()
        # The stream that was silent longest is the first.
        self._gathered[key] = gathered
        gathered += data
        self._size += len(data)
        if len(gathered) > GATHERED_BYTES:
            self._search_gathered(key)
        if self._size > MAX_GATHERED_BYTES:
            for stream in list(self._gathered):
                self._search_gathered(stream)
            while self._size > MAX_GATHERED_BYTES // 2 and len(self._gathered) > 1:
                self._forget(next(iter(self._gathered)))

    def _forget(self, key: bytes) -> None:
        self._search_gathered(key)
        self._size -= len(self._gathered.pop(key))
        self.forgotten += 1

    def _search_gathered(self, key: bytes) -> None:
        """Search the gathered bytes of a stream, and keep its end, which may be the beginning of a secret."""
        gathered = self._gathered[key]
        where = "a WebSocket" if key.startswith(_WEB) else "a TCP stream"
        self._search(bytes(gathered), lambda at: f"{where}, up to frame {self._frame:,}")
        left = min(self._overlap, len(gathered))
        self._size -= len(gathered) - left
        del gathered[: len(gathered) - left]

    def _search(self, data: bytes, describe: Callable[[int], str]) -> None:
        for wanted, text in ((self._exact, data), (self._folded, data.lower())):
            for raw, (number, form) in wanted.items():
                if (number, form) not in self.hits and (at := text.find(raw)) >= 0:
                    self.hits[number, form] = SecretHit(number, form, describe(at))


def _pass(dialogue: FlowState, event: StreamData | StreamGap) -> None:
    """Ignored: the streams of all flows are searched separately."""
