"""Looks for secrets in a capture, in the encodings in which somebody could read them there.

Looked through are the bytes of the file as they are, the streams of TCP in the order of their bytes, so that a secret
that two segments share is found, and what WebSockets carry, without masks and compression.
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
"""Bytes of the shortest form that is looked for: shorter ones stand everywhere by chance."""
MAX_TAILS: Final = 100_000
"""Directions of which the last bytes are remembered."""
_GROUP: Final = 3


@dataclass(slots=True, frozen=True)
class Hit:
    """A secret that was found."""

    number: int
    """Which of the secrets, counted from 0."""
    form: str
    """The encoding: ``plain``, ``base64``, ``hexadecimal``...."""
    place: str
    """``offset 1,234 of the file``, ``frame 12, in the stream of TCP``."""


def forms(secret: bytes) -> Iterator[tuple[str, bytes]]:
    """The encodings of a secret with their names; letters of both cases are one, but for base64."""
    yield "plain", secret
    yield "percent encoding", quote(secret, safe="").encode()
    yield "percent encoding", b"".join(b"%%%02x" % one for one in secret)
    yield "hexadecimal", secret.hex().encode()
    yield "hexadecimal", secret.hex(" ").encode()
    yield "hexadecimal", secret.hex(":").encode()
    for shift in range(_GROUP):
        # Letters that have bits of what is around it say nothing.
        coded = b64encode(bytes(shift) + secret)
        start, end = -(-shift * 8 // 6), (shift + len(secret)) * 8 // 6
        for one in {coded[start:end], coded[start:end].replace(b"+", b"-").replace(b"/", b"_")}:
            yield "base64", one
    try:
        text = secret.decode()
    except UnicodeDecodeError:
        return
    yield "UTF-16", text.encode("utf-16-le")
    yield "UTF-16", text.encode("utf-16-be")
    yield "HTML", html.escape(text).encode()
    yield "HTML", "".join(f"&#{ord(one)};" for one in text).encode()
    yield "HTML", "".join(f"&#x{ord(one):x};" for one in text).encode()
    yield "JSON", json.dumps(text)[1:-1].encode()
    yield "JSON", json.dumps(text)[1:-1].replace("/", "\\/").encode()
    yield "JSON", "".join(f"\\u{ord(one):04x}" for one in text if ord(one) < 0x10000).encode()


class Check:
    """A search for some secrets."""

    def __init__(self, secrets: Sequence[bytes], options: Options | None = None) -> None:
        """``options``: what the user says of the capture."""
        self.hits: dict[tuple[int, str], Hit] = {}
        """The first hit of each secret in each encoding."""
        self._exact: dict[bytes, tuple[int, str]] = {}
        self._folded: dict[bytes, tuple[int, str]] = {}
        self._tails: dict[bytes, bytes] = {}
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
        """Look through the next bytes of the file, which begin at an offset."""
        before = self._tails.get(b"file", b"")
        whole = before + data
        self._search(whole, lambda at: f"offset {offset - len(before) + at:,} of the file")
        self._tails[b"file"] = whole[-self._overlap :] if self._overlap else b""

    def take_frame(self, frame: Frame) -> None:
        """Look through what the next frame adds to the streams."""
        found = segment_of(frame)
        whole = self._fragments.feed(found) if isinstance(found, Fragment) else found
        if not isinstance(whole, Segment):
            return
        self._frame = frame.number
        self._streams(self._flows.feed(whole))
        for _ in self._dissector.feed(whole):
            pass

    def close(self) -> list[Hit]:
        """What was found; nothing more comes."""
        self._streams(self._flows.close())
        for _ in self._dissector.close():
            pass
        return sorted(self.hits.values(), key=lambda hit: (hit.number, hit.form))

    def _streams(self, events: Sequence[FlowEvent]) -> None:
        for event in events:
            if isinstance(event, StreamData):
                key = plain_key(event.flow.key if event.from_initiator else reverse_key(event.flow.key))
                self._stream(b"tcp" + key, event.data, "the stream of TCP")

    def _watch_frames(self, dialogue: FlowState, one: object) -> None:
        if isinstance(one, MessageData):
            key = plain_key(dialogue.flow.key if one.from_client else reverse_key(dialogue.flow.key))
            self._stream(b"web" + key, one.data, "what a WebSocket carries")

    def _stream(self, key: bytes, data: bytes, where: str) -> None:
        whole = self._tails.get(key, b"") + data
        self._search(whole, lambda at: f"frame {self._frame:,}, in {where}")
        if key not in self._tails and len(self._tails) >= MAX_TAILS:
            del self._tails[next(iter(self._tails))]
        self._tails[key] = whole[-self._overlap :] if self._overlap else b""

    def _search(self, data: bytes, told: Callable[[int], str]) -> None:
        for wanted, text in ((self._exact, data), (self._folded, data.lower())):
            for raw, (number, form) in wanted.items():
                if (number, form) not in self.hits and (at := text.find(raw)) >= 0:
                    self.hits[number, form] = Hit(number, form, told(at))


def _pass(dialogue: FlowState, event: StreamData | StreamGap) -> None:
    """Streams are seen by themselves: those of all flows count."""
