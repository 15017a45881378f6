"""Shows payloads to people: text, JSON, CBOR, MessagePack or hex, decompressed first, or the output of a decoder.

A payload that cannot be decoded is shown as text or hex with a note about the reason.  Values use the diagnostic
notation of CBOR (RFC 8949 section 8).  `PayloadView` chooses the form; `mqttscope.payloads` decompresses and decodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from mqttscope.compressed import FIRST_BYTES, unpack
from mqttscope.mqtt.view import PAYLOAD_LIMIT
from mqttscope.mqtt.wire import counted
from mqttscope.payloads import values
from mqttscope.payloads.decoders import DECODED_KINDS, DecodedPayload, by_content_type
from mqttscope.payloads.sparkplug import one_line as metrics_line
from mqttscope.report.base import View
from mqttscope.report.escape import cells, cut, escape
from mqttscope.secrets.forms import without_tokens

KINDS = ("auto", "text", "hex", "json", "cbor", "msgpack", *DECODED_KINDS, "none")

MAX_LINES = 200
"""Maximum number of lines of one payload; further ones are counted."""
PREVIEW_UNPACKED_BYTES = 4096
"""Maximum number of bytes decompressed for a preview."""
PREVIEW_HEX_BYTES = 64
"""Maximum number of bytes in a hexadecimal preview, unless the user selected hex."""
BLOCK_UNPACKED_BYTES = 1 << 20
"""Maximum number of bytes decompressed in a full view."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+|"')
_BLANK = re.compile(r'("(?:[^"\\]|\\.)*"?)|[ \t\r\n]+')
_MAX_INDENT = 24


@dataclass(slots=True)
class ReadablePayload:
    """A payload in readable form."""

    label: str
    """Recognised format: ``text``, ``hex``, ``gzip, json``."""
    kind: str
    """``text``, ``hex``, ``json``, ``cbor``, ``msgpack``, ``empty`` or ``none``."""
    body: Iterator[str]
    """Unescaped lines, plain digits for ``hex``.  Cut at the limits, never endless."""
    note: str = ""
    """Note for the reader, such as why the requested form is not shown, or that the payload was cut."""


class PayloadView:
    """Shows payloads in the form that the user selected (``--payload``); ``auto`` uses content and properties.

    Payloads come without credentials (`report.public`).  The view itself hides credentials beyond the usual length, and
    credentials that appear only after decompression.
    """

    def __init__(
        self, kind: str = "auto", *, limit: int = PAYLOAD_LIMIT, unicode: bool = True, show_secrets: bool = False,
        held: str = "captured",
    ) -> None:  # fmt: skip
        """``held``: description of the available bytes of an incomplete payload."""
        self.show_secrets = show_secrets
        # Other kinds need a decoder; without one, the content decides.
        self.kind = kind if kind in KINDS and kind not in DECODED_KINDS else "auto"
        self.limit = limit
        self.held = held
        self.ascii_only = not unicode
        self.ellipsis = "…" if unicode else "..."

    @classmethod
    def from_view(cls, view: View) -> PayloadView:
        """A view with the settings of the user."""
        return cls(
            view.payload, limit=view.payload_limit, unicode=view.unicode, show_secrets=view.show_secrets, held=view.held
        )

    def preview(
        self, payload: bytes, room: int, *, content_type: str | None = None, indicator: int | None = None,
        missing: int = 0, decoded: DecodedPayload | None = None,
    ) -> str:  # fmt: skip
        """A payload in at most ``room`` columns, with its length if it does not fit or is not text."""
        count = len(payload)
        if not count:
            return cut(f"({counted(missing, 'byte')}, none {self.held})" if missing else "(empty)", room, self.ellipsis)
        first = payload[0]
        size = f"{count} of {counted(count + missing, 'byte')} {self.held}" if missing else ""
        if self.kind == "none":
            return cut(f"({size or counted(count, 'byte')})", room, self.ellipsis)
        special = self.kind != "auto" or first in FIRST_BYTES or decoded is not None
        if special or by_content_type(content_type) != "auto":
            label, text, note = self._special(payload, room, content_type, indicator, missing, decoded)
            if label == "hex":
                return self._hex(payload, room, size, note)
            if label not in ("text", "json"):
                text = f"{label}: {text}"
            return self._fit(text, count, room, size, note)
        limit = min(count, self.limit, room * 4)
        plain = values.text_of(payload[:limit], cut_off=limit < count or missing > 0)
        if plain is None:
            is_invalid = indicator == 1 and not missing and not _is_utf8(payload)
            return self._hex(payload, room, size, _NOT_UTF8 if is_invalid else "")
        return self._fit(_squeeze(plain, payload), count, room, size, whole=limit == count)

    def _fit(self, text: str, count: int, room: int, size: str, note: str = "", *, whole: bool = True) -> str:
        """Text, then its size and note; without enough room the note is dropped first."""
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
        self, payload: bytes, room: int, content_type: str | None, indicator: int | None, missing: int,
        decoded: DecodedPayload | None,
    ) -> tuple[str, str, str]:  # fmt: skip
        """Label, one line of text and note of a payload that needs decoding."""
        shown = self._show(
            payload, content_type, indicator, missing, min(PREVIEW_UNPACKED_BYTES, room * 4), decoded, one_line=True
        )
        if shown.kind == "hex" and shown.label != "hex":  # decompressed bytes, in rows of 16
            text = " ".join(islice(shown.body, PREVIEW_HEX_BYTES // 16))
            cut_here = next(shown.body, None) is not None
            notes = [shown.note, f"the first {PREVIEW_HEX_BYTES} unpacked"] if cut_here else [shown.note]
            return shown.label, text + self.ellipsis if cut_here else text, "; ".join(filter(None, notes))
        return shown.label, "\n".join(islice(shown.body, MAX_LINES)), shown.note

    def show(
        self, payload: bytes, *, content_type: str | None = None, indicator: int | None = None, missing: int = 0,
        decoded: DecodedPayload | None = None,
    ) -> ReadablePayload:  # fmt: skip
        """A payload in lines; JSON, CBOR, MessagePack and decoded values are indented.

        ``content_type`` and ``indicator`` are the properties of 5.0 (3.3.2.3.9, 3.3.2.3.2); ``missing`` bytes at the
        end were never captured.
        """
        return self._show(payload, content_type, indicator, missing, BLOCK_UNPACKED_BYTES, decoded, one_line=False)

    def _show(
        self, payload: bytes, content_type: str | None, indicator: int | None, missing: int, room: int,
        decoded: DecodedPayload | None, *, one_line: bool,
    ) -> ReadablePayload:  # fmt: skip
        if self.kind == "none":
            return ReadablePayload("none", "none", iter(()))
        if not payload:
            return ReadablePayload("empty", "empty", iter(()))
        if self.kind == "hex":
            return self._as_hex(payload if self.show_secrets else without_tokens(payload), "")
        if not self.show_secrets:
            payload = without_tokens(payload)
        steps: list[str] = []
        notes: list[str] = []
        if decoded is not None and self.kind == "auto":
            if not decoded.problem:
                return self._decoded_payload(decoded, one_line=one_line)
            notes.append(f"not shown as {decoded.label}: {decoded.problem}")
        data, cut_off = payload, missing > 0
        unpacked = unpack(data, room, missing=missing)
        if unpacked is not None:
            steps, data, cut_off = unpacked.steps, unpacked.data, unpacked.cut
            if not self.show_secrets:
                data = without_tokens(data)
            if unpacked.note and not any(note.endswith(unpacked.note) for note in notes):
                notes.append(unpacked.note)
        wanted = self.kind if self.kind != "auto" else by_content_type(content_type)
        inner = self._decoded(data, wanted, steps, notes, indicator, cut_off=cut_off, one_line=one_line)
        inner.label = ", ".join([*steps, inner.label])
        inner.note = "; ".join([*notes, inner.note] if inner.note else notes)
        return inner

    def _decoded_payload(self, decoded: DecodedPayload, *, one_line: bool) -> ReadablePayload:
        if decoded.kind == "json":
            content = decoded.text(show_secrets=self.show_secrets)
            body = iter([_compacted(content)]) if one_line else indented(content)
            return ReadablePayload(decoded.label, "json", body, decoded.note)
        if decoded.kind == "text":
            content = decoded.text(show_secrets=self.show_secrets)
            lines = [content[: self.limit]] if one_line else content[: self.limit].splitlines() or [""]
            note = f"first {self.limit} of {counted(len(content), 'character')}" if len(content) > self.limit else ""
            return ReadablePayload(decoded.label, "text", iter(lines), "; ".join(filter(None, (decoded.note, note))))
        value = decoded.shown(show_secrets=self.show_secrets).value
        compact = metrics_line if decoded.kind == "sparkplug-b" else values.compact
        body = iter([compact(value)]) if one_line else values.pretty(value)
        return ReadablePayload(decoded.label, decoded.kind, body, decoded.note)

    def _decoded(
        self, data: bytes, wanted: str, steps: list[str], notes: list[str], indicator: int | None, *,
        cut_off: bool, one_line: bool,
    ) -> ReadablePayload:  # fmt: skip
        asked = self.kind == wanted
        if not data:
            return ReadablePayload("empty", "empty", iter(()))
        if wanted in ("cbor", "msgpack"):
            try:
                value = values.from_cbor(data) if wanted == "cbor" else values.from_msgpack(data)
                value = values.simplified(value, show_secrets=self.show_secrets).value
                body = iter([values.compact(value)]) if one_line else values.pretty(value)
                return ReadablePayload(wanted, wanted, body)
            except values.UndecodableError as error:
                notes.append(f"not shown as {_NAMES[wanted]}: {error}")
        text = values.text_of(data[: self.limit], cut_off=cut_off or len(data) > self.limit)
        looks = text is not None and data.lstrip()[:1] in (b"{", b"[")
        if text is not None and (wanted == "json" or (wanted == "auto" and looks)):
            if len(data) <= values.MAX_JSON_BYTES and not cut_off and values.is_json(data):
                whole = data.decode()
                return ReadablePayload("json", "json", iter([_compacted(whole)]) if one_line else indented(whole))
            if not cut_off and (asked or wanted == "json") and not notes:
                notes.append(_without_value(data, asked=asked))
        elif wanted == "json" and not notes:
            notes.append(_without_value(data, asked=asked))
        if text is None and wanted == "text" and asked:
            text = data[: self.limit].decode("utf-8", "surrogateescape")
        if text is None:
            if indicator == 1 and not steps and not cut_off and not _is_utf8(data):
                notes.append(_NOT_UTF8)
            return self._as_hex(data, "")
        note = "" if len(data) <= self.limit else f"first {self.limit} of {len(data)} bytes"
        return ReadablePayload(
            "text", "text", iter([_squeeze(text, data)]) if one_line else iter(text.splitlines() or [""]), note
        )

    def _as_hex(self, data: bytes, note: str) -> ReadablePayload:
        rows = (data[at : at + 16].hex(" ") for at in range(0, min(len(data), self.limit), 16))
        if len(data) > self.limit:
            note = note or f"first {self.limit} of {len(data)} bytes"
        return ReadablePayload("hex", "hex", rows, note)


_NAMES = {"cbor": "CBOR", "msgpack": "MessagePack"}
_NOT_UTF8 = "not UTF-8 despite payload_format_indicator"


def _without_value(data: bytes, *, asked: bool) -> str:
    """Reason why data is not shown as JSON although the user or the content type requests it."""
    problem = values.json_problem(data) if len(data) <= values.MAX_JSON_BYTES else values.NOT_JSON
    return problem if asked or problem != values.NOT_JSON else "not JSON despite the content type"


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _squeeze(text: str, payload: bytes) -> str:
    """JSON without whitespace, so that more of it fits; other text unchanged."""
    if text[:1] not in ("{", "[") or not (": " in text or ", " in text or "\n" in text or "[ " in text or "{ " in text):
        return text
    return _compacted(text) if len(payload) <= PAYLOAD_LIMIT and values.is_json(payload) else text


def _compacted(text: str) -> str:
    if "\\" not in text and "\0" not in text:
        # Without escapes, every second piece between quotes is outside strings.
        pieces = text.split('"')
        outside = "\0".join(pieces[::2])
        for blank in " \n\t\r":
            outside = outside.replace(blank, "")
        pieces[::2] = outside.split("\0")
        return '"'.join(pieces)
    return _BLANK.sub(lambda match: match[1] or "", text)


def indented(text: str) -> Iterator[str]:
    """Lines of indented JSON text; numbers, key order and repeated keys are kept as sent."""
    depth, line = 0, ""
    tokens = _TOKEN.finditer(text)
    before = ""
    for match in tokens:
        token = match[0]
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
