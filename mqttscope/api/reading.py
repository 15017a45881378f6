"""Captures as the library and the commands read them: segments, and what is inside TLS where the keys are known."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO

from mqttscope import arguments
from mqttscope.capture import open_capture
from mqttscope.capture.files import STDIN, find_captures
from mqttscope.capture.pcap import FrameSink
from mqttscope.dissect import CaptureOrder, Dissector, FastPath, Options, segments
from mqttscope.dissect.acknowledgments import Acknowledgments
from mqttscope.dissect.options import MQTT, TLS, WEBSOCKET
from mqttscope.errors import ArgumentError, MqttscopeError
from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, MalformedEvent, PacketEvent
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.frame import (
    CaptureError,
    CaptureNotice,
    CaptureSecrets,
    Decrypted,
    Frame,
    Plaintext,
    SegmentItem,
    Undecrypted,
)
from mqttscope.net.segment import NoteSkipped, Segment

if TYPE_CHECKING:
    from mqttscope.capture.taps import Taps

Tap = Callable[[Iterator[Frame | CaptureNotice]], Iterator[Frame | CaptureNotice]]
MAX_NAMED = 5
"""Captures that are named in one sentence; further ones are counted."""


class ReadingError(MqttscopeError):
    """Captures cannot be read as asked: keys cannot be used, or a program is missing that would be needed."""


class CaptureNotFoundError(MqttscopeError, FileNotFoundError):
    """A name stands for no capture: no file, no file that a pattern matches, or a directory without captures."""


class CaptureReadError(MqttscopeError):
    """A capture could not be read, or not to its end; ``error`` says where and why."""

    def __init__(self, error: CaptureError) -> None:
        place = "" if error.offset is None else f" (at byte {error.offset:,}, after {counted(error.frames, 'frame')})"
        super().__init__(f"{error.capture}: {error.message}{place}")
        self.error = error


class Reading:
    """The captures of one run, decrypted where a key log or secrets in the captures allow it.

    `ReadingError` for keys that cannot be used and programs that are missing: from the constructor, and from
    `segments` before anything comes out of it.
    """

    joining: str = ""
    """What is said of how captures are joined that several taps have made of the same traffic."""
    error: type[ReadingError] = ReadingError
    """Raised if the keys cannot be used, or tshark is to dissect the frames and cannot be had."""

    def __init__(
        self,
        captures: Sequence[str],
        *,
        keylog: str | None = None,
        via: str | None = None,
        stdin: BinaryIO | None = None,
        fragments: FragmentTable | None = None,
        deduplicate: bool = False,
    ) -> None:
        """``keylog``: a file with keys of TLS sessions (format of NSS).

        ``via``: ``tshark`` if it is to dissect the frames.  ``fragments``: the table that reassembles
        IP fragments, where the caller wants to see it.  ``deduplicate``: several taps have captured the same traffic,
        whose frames are read once, in the order of time.
        """
        self.captures = captures
        self.via = via
        self.fragments = fragments
        self.keys: bytes | None = None
        self.records = 0
        """Records of TLS that were decrypted."""
        self.seen: Callable[[int], object] | None = None
        """Told how many bytes of the captures were read, whenever some were."""
        self.deduplicate = deduplicate
        self._verify_checksums = True
        self.taps: Taps | None = None
        """What each tap has captured, where frames are read once and reading has begun."""
        self.order = CaptureOrder()
        """Which captures begin before the end of one that was read before."""
        self._fast_path: FastPath | None = None
        self._stdin = stdin
        self._keylog = keylog
        self._failed = False
        self.notes: list[str] = []
        """What the library has to say of keys in the captures, as sentences."""
        if self.via is not None:
            self._need_tshark()
        if keylog is not None:
            self.keys = self._read_keys(keylog)

    def note(self, sentence: str) -> None:
        """Say something about the captures; a command says it to people."""
        self.notes.append(sentence)

    @property
    def decrypting(self) -> bool:
        """Whether keys were given."""
        return self.keys is not None

    def dissector(self, options: Options) -> Dissector:
        """A dissector for these captures; TLS is decrypted from the segments that it would take."""
        options.decrypting = self.decrypting
        self._verify_checksums = options.verify_checksums
        return Dissector(options)

    @property
    def takes_fast_path(self) -> bool:
        """Whether a fast path may take frames: nobody else has to see them."""
        return self.keys is None and self.via is None and not self.deduplicate

    def segments(
        self,
        skipped: Counter[str],
        tap: Tap | None = None,
        fast_path: FastPath | None = None,
        note_skipped: NoteSkipped | None = None,
    ) -> Iterator[SegmentItem | Decrypted]:
        """Segments and plaintexts; the frames go through ``tap`` on their way, those that hold no TCP as well.

        What ``fast_path`` takes of the frames does not come out here.  ``note_skipped`` is called with the capture, the
        reason and the number of the frames that ``skipped`` counts.
        """
        if self.takes_fast_path:
            self._fast_path = fast_path
        frames, self.taps = self._frames(self._fast_path, self.seen)
        tapped = frames if tap is None else tap(frames)
        items = self._segments(tapped, self.taps, skipped, self.fragments, note_skipped)
        found = self._until_secrets(items) if self.keys is None else self._joined(self.keys, items)
        several = len(self.captures) > 1 or not (list(self.captures) == [STDIN] or os.path.isfile(self.captures[0]))
        yield from self._compared(found) if (several or fast_path) and not self.deduplicate else found

    def acknowledgments(self) -> Acknowledgments | None:
        """Reads the captures again for the acknowledgments of TCP; ``None`` if one of them can be read only once."""
        names = [name for name in find_captures(self.captures) if isinstance(name, str)]
        if STDIN in self.captures or not all(map(os.path.isfile, names)):
            return None
        return Acknowledgments(self._segments(*self._frames()), verify_checksums=self._verify_checksums)

    def _compared(self, items: Iterator[SegmentItem | Decrypted]) -> Iterator[SegmentItem | Decrypted]:
        """Pass everything on, and note captures that overlap in time with one that was read before."""
        order = self.order
        for item in items:
            if type(item) is Segment:
                order.see(item.capture, item.timestamp_ns)
            yield item

    def _segments(
        self,
        frames: Iterator[Frame | CaptureNotice],
        taps: Taps | None,
        skipped: Counter[str] | None = None,
        fragments: FragmentTable | None = None,
        note_skipped: NoteSkipped | None = None,
    ) -> Iterator[SegmentItem]:
        """The segments of frames, by the front end that was asked for."""
        if self.via is None:
            found = segments(frames, skipped, fragments, note_skipped)
        else:
            from mqttscope.capture.via_tshark import Dissection

            waiting = STDIN in self.captures
            try:
                found = Dissection(frames, skipped, waiting=waiting, note_skipped=note_skipped).segments()
            except OSError as error:
                raise self.error(f"tshark cannot be started: {error.strerror or error}") from None
        return found if taps is None else taps.deduplication.under_one_key(found)

    def advice(self) -> Iterator[str]:
        """The messages at the end: taps, captures that overlap, keys that decrypted nothing."""
        yield from self.of_taps()
        overlapping = self.order.overlapping
        names = [utf8(one) for one in overlapping[:MAX_NAMED]]
        left = len(overlapping) - len(names)
        more = f" and {left:,} more" if left else ""
        if len(overlapping) == 1:
            yield (
                f"{names[0]} overlaps in time with an earlier capture and is read after it, so times go back;"
                f" mergecap makes one of them{self.joining}"
            )
        elif names:
            yield (
                f"{', '.join(names)}{more} overlap in time with earlier captures and are read after them, so"
                f" times go back; mergecap makes one of them{self.joining}"
            )
        keys = self.unopened()
        if keys is not None:
            yield keys

    def of_taps(self) -> Iterator[str]:
        """The messages about what each tap has captured, and what it lost."""
        if self.taps is not None:
            yield from self.taps.told()

    def unopened(self) -> str | None:
        """The message where the keys decrypted nothing."""
        if self._keylog is None or self.records or self._failed:
            return None
        if self.keys is None:
            return f"key log {self._keylog} has no keys in it: no TLS record was decrypted"
        return f"no TLS record could be decrypted with the keys in {self._keylog}"

    def _frames(
        self, direct: FrameSink | None = None, seen: Callable[[int], object] | None = None
    ) -> tuple[Iterator[Frame | CaptureNotice], Taps | None]:
        """The frames from the beginning, and what is found out of taps meanwhile."""
        if not self.deduplicate:
            return open_capture(self.captures, stdin=self._stdin, direct=direct, seen=seen), None
        from mqttscope.capture.taps import Taps, open_taps

        taps = Taps()
        return open_taps(self.captures, taps, stdin=self._stdin, seen=seen), taps

    def _until_secrets(self, items: Iterator[SegmentItem]) -> Iterator[SegmentItem | Decrypted]:
        for item in items:
            yield item
            if type(item) is not CaptureSecrets:
                continue
            from mqttscope.capture.tls import TLS_KEY_LOG
            from mqttscope.capture.tshark import MissingToolError, find_tshark

            if item.secrets_type == TLS_KEY_LOG:
                try:
                    find_tshark()
                except MissingToolError as error:
                    self.note(f"{item.capture}: holds keys of TLS; {error}")
                    continue
                if self._fast_path is not None:
                    self._fast_path.closed = True
                yield from self._from_secrets(item, items)
                return

    def _from_secrets(self, secrets: CaptureSecrets, items: Iterator[SegmentItem]) -> Iterator[SegmentItem | Decrypted]:
        """Decrypt from here on, with what came before the secrets read again: sessions may have begun there."""
        before = 0

        def again() -> Iterator[SegmentItem]:
            nonlocal before
            for item in () if STDIN in self.captures else self._segments(*self._frames()):
                before += 1
                yield item
                if item == secrets:
                    return
            before += 1
            yield secrets

        for item in self._joined(b"", chain(again(), items)):
            if before and not isinstance(item, Plaintext | Undecrypted):
                before -= 1
            else:
                yield item

    def _joined(self, keys: bytes, items: Iterator[SegmentItem]) -> Iterator[SegmentItem | Decrypted]:
        from mqttscope.capture.keylog import Keys
        from mqttscope.capture.tls import Decryption
        from mqttscope.capture.tshark import MissingToolError

        try:
            later = None if STDIN in self.captures else self._secrets
            decryption = Decryption(Keys(keys), later, verify_checksums=self._verify_checksums)
        except MissingToolError as error:
            raise self.error(str(error)) from None
        for item in decryption.join(items):
            self.records, self._failed = decryption.records, bool(decryption.failures)
            yield item

    def _secrets(self) -> bytes:
        """All key log lines in the captures, which are read to their end for that."""
        from mqttscope.capture.tls import TLS_KEY_LOG

        items = open_capture(self.captures, direct=_Passed())
        secrets = (item for item in items if isinstance(item, CaptureSecrets))
        return b"\n".join(item.data.rstrip(b"\0") for item in secrets if item.secrets_type == TLS_KEY_LOG)

    def _need_tshark(self) -> None:
        """Report that tshark is missing before anything is written."""
        from mqttscope.capture.tshark import MissingToolError
        from mqttscope.capture.via_tshark import find_tshark

        try:
            find_tshark()
        except MissingToolError as error:
            raise self.error(str(error)) from None

    def _read_keys(self, path: str) -> bytes | None:
        from mqttscope.capture.keylog import BadKeysError, read_keys

        try:
            return read_keys(path) or None
        except BadKeysError as error:
            raise self.error(str(error)) from None


class _Passed:
    """A `FrameSink` that takes all frames, for who wants the notices alone."""

    base = 0

    def take(self, *frame: object) -> bool:
        """Take a frame."""
        return True


def select(
    events: Iterable[Event], wanted: object | None, connections: tuple[int, ...], limit: int | None
) -> Iterator[Event]:
    """Events that the user asked for; capture errors always, and no more packets than the limit.

    What identifies a connection is known when its CONNECT has come: a line "opened" that the filter does not let
    through waits for that, and is asked for again.
    """
    if wanted is None and not connections and limit is None:
        yield from events
        return
    matches = getattr(wanted, "matches", None)
    left = limit
    waiting: dict[int, ConnectionOpened] = {}
    for event in events:
        if not isinstance(event, CaptureError):
            owner = getattr(event, "connection", None)
            if connections and (owner is None or owner.number not in connections):
                continue
            if matches is not None:
                opened = None if owner is None or not waiting else waiting.get(owner.number)
                if owner is not None and opened is not None:
                    if owner.client_identifier is not None and matches(opened):
                        del waiting[owner.number]
                        yield opened
                    elif owner.connack_packet is not None or isinstance(event, ConnectionClosed):
                        # Nothing that comes later says more of who it is.
                        del waiting[owner.number]
                if not matches(event):
                    if isinstance(event, ConnectionOpened):
                        waiting[event.connection.number] = event
                    continue
        yield event
        if left is not None and isinstance(event, PacketEvent | MalformedEvent):
            left -= 1
            if not left:
                return


_SPOKEN = {"": MQTT, MQTT: MQTT, WEBSOCKET: WEBSOCKET, "websocket": WEBSOCKET, TLS: TLS, "mqtts": TLS}
"""What is said of a port, and what is spoken there then."""


def read_port(text: str) -> tuple[int, str]:
    """``1884``, ``8080:ws`` or ``8883:tls``: a port and what is spoken there; `ArgumentError` for others."""
    number, _, protocol = text.partition(":")
    if not number.isascii() or not number.isdigit() or not 0 < int(number) < 65_536:
        raise ArgumentError(f"{number!r} is not a port (1 to 65535)")
    if protocol not in _SPOKEN:
        raise ArgumentError(f"{protocol!r} is not one of mqtt, ws, tls")
    return int(number), _SPOKEN[protocol]


def read_ports(given: Mapping[int, str] | Iterable[int | str]) -> dict[int, str]:
    """Ports with what is spoken there: of a mapping, or of entries as `read_port` takes them."""
    if isinstance(given, str | int):
        raise ArgumentError(f"ports are a list, as [{given!r}]")
    if not isinstance(given, Iterable) or isinstance(given, bytes | bytearray):
        raise ArgumentError(f'ports takes a list, as [1884, "8080:ws"], or a mapping, as {{8080: "ws"}}, not {given!r}')
    entries = (f"{port}:{spoken}" for port, spoken in given.items()) if isinstance(given, Mapping) else map(str, given)
    return dict(map(read_port, entries))


def read_servers(given: Iterable[str]) -> frozenset[str]:
    """Servers (``10.0.0.2:1883``) as captures name them; `ArgumentError` for what is no list of them."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ArgumentError(f'complete takes a list of servers, as ["10.0.0.2:1883"], not {given!r}')
    found = set()
    for one in given:
        try:
            found.add(arguments.read_endpoint(one if isinstance(one, str) else repr(one)))
        except ValueError as error:
            raise ArgumentError(f"complete names {one!r}: {error}") from None
    return frozenset(found)


def read_limit(given: int, name: str = "payload_limit") -> int:
    """A number of bytes of each payload; `ArgumentError`, which names the argument, for others."""
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise ArgumentError(f"{name} is a number of bytes, and {given!r} is none")
    return given


def read_path(given: str | os.PathLike[str] | None, name: str) -> str | None:
    """The path of a file, or ``None``; `ArgumentError`, which names the argument, for anything else."""
    return None if given is None else arguments.path(name, given)


def read_version(text: str | None) -> ProtocolVersion | None:
    """``3.1``, ``3.1.1`` or ``5.0``; ``None`` and ``auto`` leave it open.  `ArgumentError` for anything else."""
    if text is None or text == "auto":
        return None
    try:
        return ProtocolVersion.from_text(arguments.text("version", text, "3.1, 3.1.1 or 5.0"))
    except ValueError as error:
        raise ArgumentError(str(error)) from None
