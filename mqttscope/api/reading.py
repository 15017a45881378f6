"""Reading of captures for the library and the commands: segments, and decrypted TLS if keys are known."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

from mqttscope import arguments
from mqttscope.capture import open_capture
from mqttscope.capture.files import STDIN, find_captures
from mqttscope.capture.mapped import map_capture
from mqttscope.capture.pcap import FrameSink
from mqttscope.dissect import CaptureOrder, Dissector, FastPath, Options, segments
from mqttscope.dissect.acknowledgments import Acknowledgments
from mqttscope.dissect.options import MQTT, TLS, WEBSOCKET
from mqttscope.errors import ArgumentError, MqttscopeError
from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, MalformedEvent, PacketEvent
from mqttscope.kernel import native
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
    UndecryptedSession,
)
from mqttscope.net.segment import NoteSkipped, Segment

if TYPE_CHECKING:
    from mqttscope.capture.taps import Taps

Tap = Callable[[Iterator[Frame | CaptureNotice]], Iterator[Frame | CaptureNotice]]
MAX_NAMED = 5
"""Maximum number of captures named in one sentence; the rest is counted."""


class ReadingError(MqttscopeError):
    """Captures cannot be read as requested: keys are unusable, or a required program is missing."""


class CaptureNotFoundError(MqttscopeError, FileNotFoundError):
    """A name without a capture: no such file, a pattern without a match, or a directory without captures."""


class CaptureReadError(MqttscopeError):
    """A capture could not be read, or not to its end; ``error`` has the offset and the reason."""

    def __init__(self, error: CaptureError) -> None:
        place = "" if error.offset is None else f" (at byte {error.offset:,}, after {counted(error.frames, 'frame')})"
        super().__init__(f"{error.capture}: {error.message}{place}")
        self.error = error


class CaptureReading:
    """Captures of one run, decrypted if a key log or secrets in the captures allow it.

    `ReadingError` for unusable keys and missing programs, from the constructor or before the first item of
    `segments`.
    """

    joining: str = ""
    """Hint, in messages about overlapping captures, on how to merge several taps."""
    error: type[ReadingError] = ReadingError
    """Exception for unusable keys or a missing tshark."""

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
        """``keylog``: a file with keys of TLS sessions (NSS format).

        ``via``: ``tshark`` to dissect the frames with it.  ``fragments``: the caller's table for reassembling IP
        fragments.  ``deduplicate``: the captures come from several taps: read each frame once, in order of time.
        """
        self.captures = captures
        self.via = via
        self.fragments = fragments
        self.keys: bytes | None = None
        self.records = 0
        """Number of decrypted TLS records."""
        self.seen: Callable[[int], object] | None = None
        """Callback for the number of bytes read."""
        self.deduplicate = deduplicate
        self._verify_checksums = True
        self.taps: Taps | None = None
        """Frames captured by each tap, once reading with ``deduplicate`` has started."""
        self.order = CaptureOrder()
        """Captures that start before the end of an earlier one."""
        self._fast_path: FastPath | None = None
        self.kernel: Any = None
        """Native reader in place of `open_capture`: a `KernelEvents`, or `KernelLines` of the caller."""
        self._stdin = stdin
        self._keylog = keylog
        self._failed = False
        self.notes: list[str] = []
        """Remarks on keys in the captures, as sentences."""
        if self.via is not None:
            self._need_tshark()
        if keylog is not None:
            self.keys = self._read_keys(keylog)

    def note(self, sentence: str) -> None:
        """Add a remark on the captures; a command prints it instead."""
        self.notes.append(sentence)

    @property
    def decrypting(self) -> bool:
        """Whether a key log is used."""
        return self.keys is not None

    def dissector(self, options: Options) -> Dissector:
        """Make a dissector for these captures; decryption then uses the same segments as the dissector."""
        options.decrypting = self.decrypting
        self._verify_checksums = options.verify_checksums
        return Dissector(options)

    @property
    def takes_fast_path(self) -> bool:
        """Whether a fast path may handle frames, because nothing else has to see them."""
        return self.keys is None and self.via is None and not self.deduplicate

    def segments(
        self,
        skipped: Counter[str],
        tap: Tap | None = None,
        fast_path: FastPath | None = None,
        note_skipped: NoteSkipped | None = None,
    ) -> Iterator[SegmentItem | Decrypted]:
        """Segments and plaintexts; all frames pass through ``tap``, including frames without TCP.

        Frames that ``fast_path`` handles are omitted.  ``note_skipped`` is called with capture, reason and number of
        the frames counted in ``skipped``.
        """
        if self.takes_fast_path:
            self._fast_path = fast_path
            self._try_kernel()
        frames, self.taps = self._frames(self._fast_path, self.seen)
        tapped = frames if tap is None else tap(frames)
        items = self._segments(tapped, self.taps, skipped, self.fragments, note_skipped)
        joined = self._until_secrets(items) if self.keys is None else self._joined(self.keys, items)
        several = len(self.captures) > 1 or not (list(self.captures) == [STDIN] or os.path.isfile(self.captures[0]))
        yield from self._compared(joined) if (several or fast_path) and not self.deduplicate else joined

    def _try_kernel(self) -> None:
        """Let the native kernel read the captures for the fast path, if it can."""
        if self._fast_path is None or self.kernel is not None or native() is None:
            return
        data = map_capture(self.captures)
        if data is not None:
            from mqttscope.dissect.kernel_path import KernelEvents

            self.kernel = KernelEvents.attempt(self._fast_path, self.captures[0], data)

    def acknowledgments(self) -> Acknowledgments | None:
        """Read the captures again for TCP acknowledgments; ``None`` if one of them can be read only once."""
        names = [name for name in find_captures(self.captures) if isinstance(name, str)]
        if STDIN in self.captures or not all(map(os.path.isfile, names)):
            return None
        return Acknowledgments(self._segments(*self._frames()), verify_checksums=self._verify_checksums)

    def _compared(self, items: Iterator[SegmentItem | Decrypted]) -> Iterator[SegmentItem | Decrypted]:
        """Pass items on, and note captures that overlap in time with an earlier one."""
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
        """Segments of frames, from the selected front end."""
        if self.via is None:
            items = segments(frames, skipped, fragments, note_skipped)
        else:
            from mqttscope.capture.via_tshark import Dissection

            waiting = STDIN in self.captures
            try:
                items = Dissection(frames, skipped, waiting=waiting, note_skipped=note_skipped).segments()
            except OSError as error:
                raise self.error(f"tshark cannot be started: {error.strerror or error}") from None
        return items if taps is None else taps.deduplication.unify_keys(items)

    def advice(self) -> Iterator[str]:
        """Final messages: taps, overlapping captures, keys that decrypted nothing."""
        yield from self.of_taps()
        overlapping = self.order.overlapping
        names = [utf8(name) for name in overlapping[:MAX_NAMED]]
        left = len(overlapping) - len(names)
        more = f" and {left:,} more" if left else ""
        if len(overlapping) == 1:
            yield (
                f"{names[0]} overlaps in time with an earlier capture and is read after it, so times go back;"
                f" mergecap merges them{self.joining}"
            )
        elif names:
            yield (
                f"{', '.join(names)}{more} overlap in time with earlier captures and are read after them, so"
                f" times go back; mergecap merges them{self.joining}"
            )
        keys = self.unopened()
        if keys is not None:
            yield keys

    def of_taps(self) -> Iterator[str]:
        """Messages about the frames that each tap captured, and its losses."""
        if self.taps is not None:
            yield from self.taps.sentences()

    def unopened(self) -> str | None:
        """Message if the keys decrypted nothing."""
        if self._keylog is None or self.records or self._failed:
            return None
        if self.keys is None:
            return f"key log {self._keylog} contains no keys: no TLS record was decrypted"
        return f"no TLS record could be decrypted with the keys in {self._keylog}"

    def _frames(
        self, direct: FrameSink | None = None, seen: Callable[[int], object] | None = None
    ) -> tuple[Iterator[Frame | CaptureNotice], Taps | None]:
        """Frames from the start, and the state of taps, which is updated during reading."""
        if self.kernel is not None and direct is not None:
            kernel, self.kernel = self.kernel, None  # it reads once
            return kernel.frames(direct, seen), None
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
                    self.note(f"{item.capture}: contains TLS keys; {error}")
                    continue
                if self._fast_path is not None:
                    self._fast_path.closed = True
                yield from self._from_secrets(item, items)
                return

    def _from_secrets(self, secrets: CaptureSecrets, items: Iterator[SegmentItem]) -> Iterator[SegmentItem | Decrypted]:
        """Decrypt from here on; read the items before the secrets again, because sessions may have started there."""
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
            if before and not isinstance(item, Plaintext | UndecryptedSession):
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
        """All key log lines in the captures, which requires reading them to their end."""
        from mqttscope.capture.tls import TLS_KEY_LOG

        items = open_capture(self.captures, direct=_DiscardedFrames())
        secrets = (item for item in items if isinstance(item, CaptureSecrets))
        return b"\n".join(item.data.rstrip(b"\0") for item in secrets if item.secrets_type == TLS_KEY_LOG)

    def _need_tshark(self) -> None:
        """Raise an error if tshark is missing, before anything is written."""
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


class _DiscardedFrames:
    """A `FrameSink` that swallows all frames, to read only the notices."""

    base = 0

    def take(self, *frame: object) -> bool:
        """Swallow a frame."""
        return True


def select(
    events: Iterable[Event], wanted: object | None, connections: tuple[int, ...], limit: int | None
) -> Iterator[Event]:
    """Select events, with all capture errors, and at most ``limit`` packets.

    A connection is identified only by its CONNECT: if the filter rejects its event "opened", the event is held back
    and checked again after the CONNECT.
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
                        # No later event identifies the connection better.
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
"""Protocol of a port by its word in arguments."""


def read_port(text: str) -> tuple[int, str]:
    """Parse a port and its protocol: ``1884``, ``8080:ws`` or ``8883:tls``; `ArgumentError` for other texts."""
    number, _, protocol = text.partition(":")
    if not number.isascii() or not number.isdigit() or not 0 < int(number) < 65_536:
        raise ArgumentError(f"{number!r} is not a port (1 to 65535)")
    if protocol not in _SPOKEN:
        raise ArgumentError(f"{protocol!r} is not one of mqtt, ws, tls")
    return int(number), _SPOKEN[protocol]


def read_ports(ports: Mapping[int, str] | Iterable[int | str]) -> dict[int, str]:
    """Parse ports and their protocols, from a mapping or from items for `read_port`."""
    if isinstance(ports, str | int):
        raise ArgumentError(f"ports are a list, as [{ports!r}]")
    if not isinstance(ports, Iterable) or isinstance(ports, bytes | bytearray):
        raise ArgumentError(f'ports takes a list, as [1884, "8080:ws"], or a mapping, as {{8080: "ws"}}, not {ports!r}')
    entries = (f"{port}:{spoken}" for port, spoken in ports.items()) if isinstance(ports, Mapping) else map(str, ports)
    return dict(map(read_port, entries))


def read_servers(servers: Iterable[str]) -> frozenset[str]:
    """Parse servers (``10.0.0.2:1883``); `ArgumentError` for other values."""
    if isinstance(servers, str) or not isinstance(servers, Iterable):
        raise ArgumentError(f'complete takes a list of servers, as ["10.0.0.2:1883"], not {servers!r}')
    endpoints = set()
    for server in servers:
        try:
            endpoints.add(arguments.read_endpoint(server if isinstance(server, str) else repr(server)))
        except ValueError as error:
            raise ArgumentError(f"complete contains {server!r}: {error}") from None
    return frozenset(endpoints)


def read_limit(limit: int, name: str = "payload_limit") -> int:
    """Check a maximum number of payload bytes; `ArgumentError` with the name of the argument for other values."""
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise ArgumentError(f"{name} must be a number of bytes, not {limit!r}")
    return limit


def read_path(path: str | os.PathLike[str] | None, name: str) -> str | None:
    """Check a path, or ``None``; `ArgumentError` with the name of the argument for other values."""
    return None if path is None else arguments.path(name, path)


def read_version(text: str | None) -> ProtocolVersion | None:
    """Parse ``3.1``, ``3.1.1`` or ``5.0``; ``None`` and ``auto`` mean unknown.  `ArgumentError` for other values."""
    if text is None or text == "auto":
        return None
    try:
        return ProtocolVersion.from_text(arguments.text("version", text, "3.1, 3.1.1 or 5.0"))
    except ValueError as error:
        raise ArgumentError(str(error)) from None
