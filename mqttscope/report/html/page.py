"""The frame of pages: one file that needs nothing else, and in which nothing runs but our own script.

`document` makes a page of its parts.  `PageWriter` writes one while its rows come: they are blocks of JSON in the page,
some hundred each, and the script of the page makes elements of those alone that are shown.  What a reader sees without
the script follows the rows.

The page forbids by its own policy (Content Security Policy Level 3) whatever could be loaded or run: style and script
are known by their hashes.  Blocks of JSON hold no ``<``, so that none of them ends before its end.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib.resources import files

from mqttscope.report.base import Sink
from mqttscope.report.html.pieces import short
from mqttscope.report.jsonl import dumps, harmless

ROWS_TOGETHER = 500
"""Rows of one block."""
BYTES_TOGETHER = 1 << 20
"""Bytes from which on a block ends earlier."""
_ESCAPES = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"))
_NO_SCRIPT = "The list needs JavaScript, which this browser does not run; the summary above does not."
FILTER = '<section id="list" data-kind="tables"></section>'
"""The place of the filter of tables."""


@cache
def _read(name: str) -> str:
    return files("mqttscope.report.html").joinpath(name).read_text("utf-8")


def style() -> str:
    return _read("style.css")


def script() -> str:
    return _read("page.js")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def policy(*, runs: bool) -> str:
    """What the page allows; with ``runs`` its own script."""
    allowed = ["default-src 'none'", f"style-src {_hash(style())}", "base-uri 'none'", "form-action 'none'"]
    if runs:
        allowed.insert(1, f"script-src {_hash(script())}")
    return "; ".join(allowed)


def opening(title: str, *, runs: bool = False) -> str:
    """The page up to the beginning of its body."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(runs=runs)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{short(title)}</title><style>{style()}</style></head><body>\n"
    )


def document(title: str, parts: Iterable[str], *, filtered: bool = False) -> bytes:
    """A page without rows; with ``filtered`` and a `FILTER` among its parts, its tables can be filtered."""
    end = f"<script>{script()}</script>" if filtered else ""
    return "".join([opening(title, runs=filtered), *parts, end, "</body></html>\n"]).encode("utf-8", "replace")


def inert(data: bytes) -> bytes:
    """JSON that means the same, and in which no markup begins or ends."""
    data = harmless(data + b"\n")[:-1]
    for mark, escape in _ESCAPES:
        data = data.replace(mark, escape)
    return data


def block(kind: str, rows: Iterable[bytes]) -> bytes:
    """Rows as one block of JSON, which is a list with one of them on each line."""
    joined = b",\n".join(map(inert, rows))
    return b'<script type="application/json" class="%s">[\n%s\n]</script>\n' % (kind.encode(), joined)


class PageWriter:
    """Writes a page whose rows come one by one; no more than a block of them is held."""

    def __init__(self, sink: Sink, *kinds: str) -> None:
        """``kinds``: what each row consists of, by the classes of the blocks; the first names what the page lists."""
        self.sink = sink
        self.rows = 0
        self._kinds = kinds
        self._waiting: list[tuple[bytes, ...]] = []
        self._size = 0
        self._begun = False

    def begin(self, title: str) -> None:
        if not self._begun:
            self._begun = True
            self.sink.write(opening(f"mqttscope: {title}", runs=True).encode("utf-8", "replace"))

    def row(self, *parts: bytes) -> None:
        """Take a row: the JSON of each of its kinds, without line ends; the page has begun."""
        self.rows += 1
        self._waiting.append(parts)
        self._size += sum(map(len, parts))
        if len(self._waiting) >= ROWS_TOGETHER or self._size >= BYTES_TOGETHER:
            self._flush()

    def _flush(self) -> None:
        for at, kind in enumerate(self._kinds):
            if self._waiting:
                self.sink.write(block(kind, (parts[at] for parts in self._waiting)))
        self._waiting, self._size = [], 0

    def close(self, parts: Iterable[str], *, title: str, words: object = None) -> None:
        """Write what is read without the script, the place of the list with its ``title``, and the script.

        ``words``: what the script needs in addition to the rows.
        """
        self._flush()
        write = self.sink.write
        for part in parts:
            write(part.encode("utf-8", "replace"))
        if self.rows:
            write(block("words", [dumps(words)]))
            write(
                f'<section id="list" data-kind="{self._kinds[0]}"><h2>{short(title)}</h2>'
                f'<noscript><p class="doubt">{_NO_SCRIPT}</p></noscript></section>\n'
                f"<script>{script()}</script>".encode()
            )
        write(b"</body></html>\n")
