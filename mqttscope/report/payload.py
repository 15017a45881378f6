"""Shows payloads to people: text, JSON, CBOR, MessagePack or hex, decompressed first.

What does not decode is shown as text or hex with a note that gives the reason.  CBOR and MessagePack appear in the
diagnostic notation of CBOR (RFC 8949 section 8).  `PayloadView` chooses the form, `unpack` decompresses.  Both work
within named limits of memory, whatever a payload contains.
"""

from __future__ import annotations

import io
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import orjson

from mqttscope.errors import MqttscopeError
from mqttscope.mqtt.view import PAYLOAD_LIMIT
from mqttscope.mqtt.wire import counted
from mqttscope.redact.secrets import without_tokens
from mqttscope.report.escape import cells, cut, escape

KINDS = ("auto", "text", "hex", "json", "cbor", "msgpack", "none")

MAX_LINES = 200
"""Lines of one payload in a block; further ones are counted as left out."""
MAX_JSON_BYTES = 1 << 20
"""Longer payloads are not parsed as JSON."""
PREVIEW_UNPACKED_BYTES = 4096
"""How much of a compressed payload is unpacked for a preview."""
PREVIEW_HEX_BYTES = 64
"""How many bytes a preview shows as hexadecimal at most, however long the line may be, unless hex was asked for."""
BLOCK_UNPACKED_BYTES = 1 << 20
"""How much of a compressed payload is unpacked at all."""

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+|"')
_BLANK = re.compile(r'("(?:[^"\\]|\\.)*"?)|[ \t\r\n]+')
_MAX_INDENT = 24


@dataclass(slots=True)
class Shown:
    """A payload made readable."""

    label: str
    """What it was recognised as: ``text``, ``hex``, ``gzip, json``."""
    kind: str
    """``text``, ``hex``, ``json``, ``cbor``, ``msgpack``, ``empty`` or ``none``."""
    body: Iterator[str]
    """Its lines, not escaped; of ``hex`` plain digits.  Cut at the limits, never endless."""
    note: str = ""
    """What the reader has to know: why it is not shown as asked for, that it was cut."""


class PayloadView:
    """Shows payloads as the user asked (``--payload``); ``auto`` looks at the content and what is said of it.

    It is given payloads without credentials (`report.public`).  It hides those itself that stand beyond what is
    usually shown of a payload, or that come out only when it is unpacked.
    """

    def __init__(
        self, kind: str = "auto", *, limit: int = PAYLOAD_LIMIT, unicode: bool = True, show_secrets: bool = False
    ) -> None:
        self.show_secrets = show_secrets
        self.kind = kind if kind in KINDS else "auto"
        self.limit = limit
        self.ascii_only = not unicode
        self.ellipsis = "…" if unicode else "..."

    def preview(
        self, payload: bytes, room: int, *, content_type: str | None = None, indicator: int | None = None,
        missing: int = 0,
    ) -> str:  # fmt: skip
        """A payload in at most ``room`` columns, with its length where it does not fit or is not text."""
        count = len(payload)
        if not count:
            return cut(f"({counted(missing, 'byte')}, none captured)" if missing else "(empty)", room, self.ellipsis)
        first = payload[0]
        size = f"{count} of {counted(count + missing, 'byte')} captured" if missing else ""
        if self.kind == "none":
            return cut(f"({size or counted(count, 'byte')})", room, self.ellipsis)
        if self.kind != "auto" or first in _COMPRESSED or _by_content_type(content_type) != "auto":
            label, text, note = self._special(payload, room, content_type, indicator, missing)
            if label == "hex":
                return self._hex(payload, room, size, note)
            if label not in ("text", "json"):
                text = f"{label}: {text}"
            return self._fit(text, count, room, size, note)
        limit = min(count, self.limit, room * 4)
        plain = text_of(payload[:limit], cut_off=limit < count or missing > 0)
        if plain is None:
            lies = indicator == 1 and not missing and not _is_utf8(payload)
            return self._hex(payload, room, size, _NOT_UTF8 if lies else "")
        return self._fit(_squeeze(plain, payload), count, room, size, whole=limit == count)

    def _fit(self, text: str, count: int, room: int, size: str, note: str = "", *, whole: bool = True) -> str:
        """Text, then what has to be said of it; the note is the first that goes when there is no room."""
        shown = escape(text[: room * 4], ascii_only=self.ascii_only)
        if whole and not size and not note and cells(shown) <= room:
            return shown
        size = size or counted(count, "byte")
        if note and cells(note) + len(size) + 20 < room:
            size = f"{size}; {note}"
        left = room - cells(size) - 3
        if left < 4:
            return cut(shown, room, self.ellipsis)
        return f"{cut(shown if whole else shown + self.ellipsis, left, self.ellipsis)} ({size})"

    def _hex(self, payload: bytes, room: int, size: str, note: str = "") -> str:
        size = size or counted(len(payload), "byte")
        if note and len(note) + len(size) + 20 < room:
            size = f"{size}; {note}"
        most = self.limit if self.kind == "hex" else min(self.limit, PREVIEW_HEX_BYTES)
        digits = min(room - len(size) - 5, 2 * most + len(self.ellipsis))
        if digits >= 2 * len(payload) and most >= len(payload):
            return f"0x{payload.hex()} ({size})"
        fit = (digits - len(self.ellipsis)) // 2
        if fit < 1:
            return cut(f"({size})", room, self.ellipsis)
        return f"0x{payload[:fit].hex()}{self.ellipsis} ({size})"

    def _special(
        self, payload: bytes, room: int, content_type: str | None, indicator: int | None, missing: int
    ) -> tuple[str, str, str]:
        """Label, one line of text and note of a payload that needs more than a look at its first byte."""
        shown = self._show(
            payload, content_type, indicator, missing, min(PREVIEW_UNPACKED_BYTES, room * 4), one_line=True
        )
        if shown.kind == "hex" and shown.label != "hex":  # what was unpacked, in rows of 16 bytes
            text = " ".join(islice(shown.body, PREVIEW_HEX_BYTES // 16))
            cut_here = next(shown.body, None) is not None
            notes = [shown.note, f"the first {PREVIEW_HEX_BYTES} unpacked"] if cut_here else [shown.note]
            return shown.label, text + self.ellipsis if cut_here else text, "; ".join(filter(None, notes))
        return shown.label, "\n".join(islice(shown.body, MAX_LINES)), shown.note

    def show(
        self, payload: bytes, *, content_type: str | None = None, indicator: int | None = None, missing: int = 0
    ) -> Shown:
        """A payload in lines: JSON, CBOR and MessagePack indented.

        ``content_type`` and ``indicator`` are the properties of 5.0 (3.3.2.3.9, 3.3.2.3.2); ``missing`` bytes at the
        end were never captured.
        """
        return self._show(payload, content_type, indicator, missing, BLOCK_UNPACKED_BYTES, one_line=False)

    def _show(
        self, payload: bytes, content_type: str | None, indicator: int | None, missing: int, room: int, *,
        one_line: bool,
    ) -> Shown:  # fmt: skip
        if self.kind == "none":
            return Shown("none", "none", iter(()))
        if not payload:
            return Shown("empty", "empty", iter(()))
        if self.kind == "hex":
            return self._as_hex(payload if self.show_secrets else without_tokens(payload), "")
        if not self.show_secrets:
            payload = without_tokens(payload)
        steps: list[str] = []
        notes: list[str] = []
        data, cut_off = payload, missing > 0
        found = unpack(data, room, missing=missing)
        if found is not None:
            steps, data, cut_off = found.steps, found.data, found.cut
            if not self.show_secrets:
                data = without_tokens(data)
            notes += [found.note] if found.note else []
        wanted = self.kind if self.kind != "auto" else _by_content_type(content_type)
        inner = self._decoded(data, wanted, steps, notes, indicator, cut_off=cut_off, one_line=one_line)
        inner.label = ", ".join([*steps, inner.label])
        inner.note = "; ".join([*notes, inner.note] if inner.note else notes)
        return inner

    def _decoded(
        self, data: bytes, wanted: str, steps: list[str], notes: list[str], indicator: int | None, *,
        cut_off: bool, one_line: bool,
    ) -> Shown:  # fmt: skip
        asked = self.kind == wanted
        if not data:
            return Shown("empty", "empty", iter(()))
        if wanted in ("cbor", "msgpack"):
            try:
                if len(data) > MAX_STRUCTURED_BYTES:
                    raise UndecodableError(f"longer than {MAX_STRUCTURED_BYTES} bytes")
                value = from_cbor(data) if wanted == "cbor" else from_msgpack(data)
                return Shown(wanted, wanted, iter([compact(value)]) if one_line else pretty(value))
            except UndecodableError as error:
                notes.append(f"not shown as {_NAMES[wanted]}: {error}")
        text = text_of(data[: self.limit], cut_off=cut_off or len(data) > self.limit)
        looks = text is not None and data.lstrip()[:1] in (b"{", b"[")
        if text is not None and (wanted == "json" or (wanted == "auto" and looks)):
            if len(data) <= MAX_JSON_BYTES and not cut_off and _is_json(data):
                whole = data.decode()
                return Shown("json", "json", iter([_compacted(whole)]) if one_line else indented(whole))
            if not cut_off and (asked or wanted == "json"):
                notes.append("it is not JSON" if asked else "the content type says JSON, it is not")
        elif wanted == "json":
            notes.append("it is not JSON" if asked else "the content type says JSON, it is not")
        if text is None and wanted == "text" and asked:
            text = data[: self.limit].decode("utf-8", "surrogateescape")
        if text is None:
            if indicator == 1 and not steps and not cut_off and not _is_utf8(data):
                notes.append(_NOT_UTF8)
            return self._as_hex(data, "")
        note = "" if len(data) <= self.limit else f"first {self.limit} of {len(data)} bytes"
        return Shown(
            "text", "text", iter([_squeeze(text, data)]) if one_line else iter(text.splitlines() or [""]), note
        )

    def _as_hex(self, data: bytes, note: str) -> Shown:
        rows = (data[at : at + 16].hex(" ") for at in range(0, min(len(data), self.limit), 16))
        if len(data) > self.limit:
            note = note or f"first {self.limit} of {len(data)} bytes"
        return Shown("hex", "hex", rows, note)


_NAMES = {"cbor": "CBOR", "msgpack": "MessagePack"}
_NOT_UTF8 = "payload_format_indicator says UTF-8, it is not"
_COMPRESSED = (0x1F, 0x78, 0x28)
"""First bytes of gzip, zlib and zstd."""


def _by_content_type(content_type: str | None) -> str:
    if content_type is None:
        return "auto"
    kind = content_type[:256].partition(";")[0].strip().lower()
    if kind.endswith(("/json", "+json")) or kind == "json":
        return "json"
    if kind.endswith(("/cbor", "+cbor")) or kind == "cbor":
        return "cbor"
    if kind.endswith(("/msgpack", "/x-msgpack", "/vnd.msgpack", "+msgpack")) or kind == "msgpack":
        return "msgpack"
    return "auto"


def text_of(data: bytes, *, cut_off: bool) -> str | None:
    """Text of bytes that are UTF-8 without control characters; a character that the end cuts in two is dropped."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if not cut_off or error.reason != "unexpected end of data":
            return None
        text = data[: error.start].decode()
    return text if text.isprintable() or _CONTROL.search(text) is None else None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_json(data: bytes) -> bool:
    try:
        orjson.loads(data)
    except (orjson.JSONDecodeError, RecursionError):
        return False
    return True


def _squeeze(text: str, payload: bytes) -> str:
    """JSON without its blanks, so that more of it fits; other text as it is."""
    if text[:1] not in ("{", "[") or not (": " in text or ", " in text or "\n" in text or "[ " in text or "{ " in text):
        return text
    return _compacted(text) if len(payload) <= PAYLOAD_LIMIT and _is_json(payload) else text


def _compacted(text: str) -> str:
    if "\\" not in text and "\0" not in text:
        # Without escapes every second piece between quotes is outside of strings.
        pieces = text.split('"')
        outside = "\0".join(pieces[::2])
        for blank in " \n\t\r":
            outside = outside.replace(blank, "")
        pieces[::2] = outside.split("\0")
        return '"'.join(pieces)
    return _BLANK.sub(lambda found: found[1] or "", text)


def indented(text: str) -> Iterator[str]:
    """Lines of JSON text, indented; numbers, key order and repeated keys stay as they were sent."""
    depth, line = 0, ""
    tokens = _TOKEN.finditer(text)
    before = ""
    for found in tokens:
        token = found[0]
        if token in ("}", "]"):
            depth -= 1
            if before not in ("{", "["):
                yield line
                line = "  " * min(depth, _MAX_INDENT)
            line += token
        else:
            if before in ("{", "["):
                yield line
                line = "  " * min(depth, _MAX_INDENT)
            line += token
            if token in ("{", "["):
                depth += 1
            elif token == ":":
                line += " "
            elif token == ",":
                yield line
                line = "  " * min(depth, _MAX_INDENT)
        before = token
    if line:
        yield line


MAX_NESTED = 3
"""How often what comes out is unpacked again."""
MAX_ZSTD_WINDOW_BYTES = 1 << 23
"""Largest window a zstd frame may ask memory for; the format's own recommendation for decoders."""

_PIECE_BYTES = 4096

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


@dataclass(slots=True)
class Unpacked:
    """What was inside."""

    data: bytes
    steps: list[str] = field(default_factory=list)
    """Formats from the outside in: ``["gzip"]``."""
    cut: bool = False
    """More would have come out."""
    note: str = ""


def unpack(payload: bytes, limit: int, *, missing: int = 0) -> Unpacked | None:
    """Unpack gzip, zlib and zstd, recognised by their first bytes, to at most ``limit`` bytes.

    None when the payload is not compressed.  A zlib header is only two bytes that text may begin with, so text that
    does not unpack in full is no zlib; gzip and zstd that do not unpack carry a note.
    """
    found: Unpacked | None = None
    for _ in range(MAX_NESTED):
        data = payload if found is None else found.data
        name = _recognise(data)
        if name is None or (found is not None and found.cut):
            break
        made, cut, problem = _zstd(data, limit) if name == "zstd" else _deflate(data, limit, name)
        if problem and ((name == "zlib" and data[:64].isascii()) or (not made and (name == "zlib" or found))):
            break
        found = found or Unpacked(payload)
        if not made and problem:
            found.note = f"{name} does not unpack: {problem}"
            break
        found.data, found.cut = made, cut or bool(problem)
        found.steps.append(name)
        if problem:
            found.note = f"{name} is incomplete" if missing else f"{name}: {problem}"
        elif cut:
            found.note = f"first {counted(limit, 'byte')} unpacked"
    return found


def _recognise(data: bytes) -> str | None:
    if data[:2] == GZIP:
        return "gzip"
    if data[:4] == ZSTD:
        return "zstd"
    return "zlib" if data[:2] in ZLIB else None


def _deflate(data: bytes, limit: int, name: str) -> tuple[bytes, bool, str]:
    """What comes out, whether there is more, and what is wrong."""
    machine = zlib.decompressobj(31 if name == "gzip" else 15)
    try:
        made = machine.decompress(data, limit)
        if machine.eof:
            behind = len(machine.unused_data)
            return made, False, f"{counted(behind, 'byte')} after its end" if behind else ""
        if len(made) >= limit:
            return made, True, ""
        return made, False, "it ends too early"
    except zlib.error as error:
        return _until_fault(data, limit, name), False, str(error).rpartition(": ")[2]


class _Machine(Protocol):
    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...


def _until_fault(data: bytes, limit: int, name: str) -> bytes:
    """What came out before the fault: a piece with a fault gives nothing, so the last one is fed byte by byte."""
    machine = zlib.decompressobj(31 if name == "gzip" else 15)
    made = bytearray()
    for at in range(0, len(data), _PIECE_BYTES):
        piece, before = data[at : at + _PIECE_BYTES], machine.copy()
        try:
            made += machine.decompress(piece, limit - len(made))
        except zlib.error:
            made += _byte_by_byte(before, piece, limit - len(made))
            break
        if len(made) >= limit:
            break
    return bytes(made)


def _byte_by_byte(machine: _Machine, piece: bytes, limit: int) -> bytes:
    made = bytearray()
    try:
        for at in range(len(piece)):
            made += machine.decompress(piece[at : at + 1], limit - len(made))
            if len(made) >= limit:
                break
    except zlib.error:
        pass
    return bytes(made)


def _zstd(data: bytes, limit: int) -> tuple[bytes, bool, str]:
    import zstandard

    machine = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW_BYTES)
    made = b""
    try:
        with machine.stream_reader(data) as reader:
            while len(made) <= limit:
                piece = reader.read(limit + 1 - len(made))
                if not piece:
                    break
                made += piece
    except zstandard.ZstdError as error:
        return made[:limit], False, str(error).rpartition(": ")[2]
    try:
        announced = zstandard.frame_content_size(data)
    except zstandard.ZstdError:
        return made, False, "it ends too early"
    if len(made) < min(announced, limit):
        return made, False, "it ends too early"
    return made[:limit], len(made) > limit, ""


MAX_STRUCTURED_BYTES = 16_384
"""Longer values are not decoded: integer keys made to collide would make a dictionary of them quadratic."""
MAX_DEPTH = 40
"""Deeper levels are shown as an ellipsis; shared references may even make a value contain itself."""
MAX_ITEMS = 4_000
"""Items that are shown of one value, since shared references can multiply them."""
MAX_DIGITS = 200
"""Longer integers are shown by their size."""

HINT = "pip install 'mqttscope[payload]'"


class UndecodableError(MqttscopeError):
    """Why bytes are not shown as asked for."""


class Pairs(list[Any]):
    """A map with its keys in order and repeated as they were sent."""


def from_cbor(data: bytes) -> Any:
    """The value of CBOR bytes; `UndecodableError` when they are none, or cbor2 is not installed."""
    try:
        import cbor2
    except ImportError:
        raise UndecodableError(f"cbor2 is not installed ({HINT})") from None
    stream = io.BytesIO(data)
    try:
        value = cbor2.CBORDecoder(stream).decode()
    except Exception as error:  # tags make cbor2 call parsers for dates, addresses, patterns: they raise anything
        raise UndecodableError(_reason(error)) from None
    if stream.tell() < len(data):
        raise UndecodableError(f"the value ends at byte {stream.tell()} of {len(data)}")
    return value


def from_msgpack(data: bytes) -> Any:
    """The value of MessagePack bytes; `UndecodableError` when they are none, or msgpack is not installed."""
    try:
        import msgpack
    except ImportError:
        raise UndecodableError(f"msgpack is not installed ({HINT})") from None
    try:
        return msgpack.unpackb(
            data, strict_map_key=False, object_pairs_hook=Pairs, unicode_errors="surrogateescape", timestamp=3
        )
    except Exception as error:
        raise UndecodableError(_reason(error)) from None


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:120]


def compact(value: Any) -> str:
    """A value in one line."""
    return "".join(part if part not in (": ", ", ") else part[0] for _, part in _walk(value, 0, [MAX_ITEMS]))


def pretty(value: Any) -> Iterator[str]:
    """A value in indented lines."""
    line = ""
    for depth, part in _walk(value, 0, [MAX_ITEMS]):
        if depth >= 0:
            yield line.removesuffix(" ")
            line = "  " * depth
        line += part
    yield line


def _walk(value: Any, depth: int, left: list[int]) -> Iterator[tuple[int, str]]:
    """Pieces of text; one that begins a line carries its depth, others -1.  ``left`` counts the items down."""
    left[0] -= 1
    if left[0] < 0:
        yield -1, "..."
        return
    pairs = _pairs(value)
    if pairs is None and not isinstance(value, list | tuple | set | frozenset):
        yield from _scalar(value, depth, left)
        return
    items: list[Any] = list(value) if pairs is None else pairs
    opening, closing = ("[", "]") if pairs is None else ("{", "}")
    yield -1, opening
    if depth >= MAX_DEPTH and items:
        yield -1, "..." + closing
        return
    for index, item in enumerate(items):
        if left[0] <= 0:
            yield depth + 1, "..."
            break
        if pairs is None:
            yield depth + 1, ""
            yield from _walk(item, depth + 1, left)
        else:
            yield depth + 1, ""
            yield from _walk(item[0], depth + 1, left)
            yield -1, ": "
            yield from _walk(item[1], depth + 1, left)
        if index + 1 < len(items):
            yield -1, ", "
    if items:
        yield depth, ""
    yield -1, closing


def _pairs(value: Any) -> list[Any] | None:
    if isinstance(value, Pairs):
        return value
    return list(value.items()) if isinstance(value, Mapping) else None


def _scalar(value: Any, depth: int, left: list[int]) -> Iterator[tuple[int, str]]:
    if isinstance(value, bool) or value is None:
        yield -1, {True: "true", False: "false", None: "null"}[value]
    elif isinstance(value, str):
        yield -1, '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    elif isinstance(value, bytes | bytearray):
        yield -1, f"h'{value.hex()}'"
    elif isinstance(value, int):
        yield -1, str(value) if value.bit_length() < MAX_DIGITS * 3 else f"({value.bit_length()}-bit integer)"
    elif isinstance(value, float):
        yield (
            -1,
            repr(value) if math.isfinite(value) else {"nan": "NaN", "inf": "Infinity"}.get(str(value), "-Infinity"),
        )
    elif hasattr(value, "tag") and hasattr(value, "value"):
        yield -1, f"{value.tag}("
        if depth >= MAX_DEPTH:
            yield -1, "..."
        else:
            yield from _walk(value.value, depth + 1, left)
        yield -1, ")"
    elif hasattr(value, "code") and hasattr(value, "data"):
        yield -1, f"ext({value.code}, h'{value.data.hex()}')"
    else:
        yield -1, _other(value)


def _other(value: Any) -> str:
    """Dates, decimals, addresses and what else tags stand for."""
    try:
        isoformat = getattr(value, "isoformat", None)
        return str(isoformat() if isoformat is not None else value)[:1000]
    except Exception as error:  # str() of a fraction of huge integers, for one
        return f"({type(value).__name__}: {_reason(error)})"
