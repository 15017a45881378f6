"""The frame of HTML pages: one self-contained file that runs no script but ours.

`document` makes a page of its parts.  `PageWriter` adds a list: each row is one line of markup with its JSON document
in it.  Rows wait until the parts are written, so a page begins with the answer, and the worst rows come first.

Rows are in ``noscript`` elements.  A browser without scripts shows all of them; with our script they are plain text
until they are shown, so that 50,000 rows stay usable.

The page forbids loading and running anything else (Content Security Policy Level 3): style and script are allowed by
their hashes.  Rows contain only text that passed `pieces.safe`, and JSON without ``<``.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib.resources import files

from mqttscope.report.base import Sink
from mqttscope.report.deferred import DeferredOutput
from mqttscope.report.html.pieces import safe, short
from mqttscope.report.jsonl import harmless

ROWS_TOGETHER = 500
"""Maximum number of rows in one block."""
BYTES_TOGETHER = 1 << 20
"""Maximum size of a block before it ends early."""
_ESCAPES = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"))


@cache
def _read(name: str) -> str:
    return files("mqttscope.report.html").joinpath(name).read_text("utf-8")


def style() -> str:
    return _read("style.css")


def script() -> str:
    return _read("page.js")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def policy(own_script: str = "", more_style: str = "", *, connects: bool = False) -> str:
    """The content security policy: our style and our script, nothing else.

    ``own_script``: replaces our script.  ``more_style``: follows our style.  ``connects``: the script may request
    documents from the server of the page.
    """
    allowed = f"script-src {_hash(own_script or script())}; style-src {_hash(style() + more_style)}"
    source = "; connect-src 'self'" if connects else ""
    return f"default-src 'none'; {allowed}{source}; base-uri 'none'; form-action 'none'"


def _opening(title: str, policy: str, more_style: str = "") -> str:
    """The page up to the beginning of its body."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{short(title)}</title><style>{style()}{more_style}</style></head><body>\n"
    )


def _ending(own_script: str = "") -> str:
    return f"<script>{own_script or script()}</script></body></html>\n"


FILTER = '<section id="list"></section>'
"""Place of the filter of a page without a list: it hides rows of tables."""


def document(title: str, parts: Iterable[str]) -> bytes:
    """A page without a list; with `FILTER` among its parts, its tables can be filtered."""
    return "".join([_opening(title, policy()), *parts, _ending()]).encode("utf-8", "replace")


def live_document(title: str, parts: Iterable[str], own_script: str, more_style: str) -> tuple[bytes, str]:
    """A page with a script of its own, which requests documents from the server; returns the page and its policy."""
    allowed = policy(own_script, more_style, connects=True)
    page = "".join([_opening(title, allowed, more_style), *parts, _ending(own_script)])
    return page.encode("utf-8", "replace"), allowed


def inert(data: bytes) -> bytes:
    """Equivalent JSON that cannot begin or end markup."""
    data = harmless(data + b"\n")[:-1]
    for mark, escape in _ESCAPES:
        data = data.replace(mark, escape)
    return data


def card(kind: str, head: str, body: str = "", *, folded: bool = False, documented: bool = True) -> tuple[str, str]:
    """The markup of a row before and after its document, if it has one.

    A folded row shows only its head until it is opened.
    """
    tag, begin, end = ("details", "<summary>", "</summary>") if folded else ("article", "", "")
    before = f'<{tag} class="card {kind}">{begin}{head}{end}<div class="more">{body}</div>'
    if not documented:
        return before, f"</{tag}>"
    return f'{before}<details class="document"><summary>all fields</summary>', f"</details></{tag}>"


class PageWriter:
    """Collects rows, and writes them after the parts that sum them up."""

    def __init__(self, sink: Sink, noun: str, each: int, *, options: str = "") -> None:
        """``each``: number of rows shown together.  ``options``: attributes of the list."""
        self.sink = sink
        self.rows = 0
        self.size = 0
        """Bytes of all rows."""
        self._attributes = f'data-noun="{noun}" data-each="{each}" {options}'.rstrip()
        self._ranks: dict[int, tuple[list[bytes], DeferredOutput]] = {}
        self._waiting_bytes: Counter[int] = Counter()

    def row(self, markup: tuple[str, str], content: bytes, *, connection: int | None = None, rank: int = 0) -> None:
        """Add a row: the markup before and after its document, and the document.

        Rows of a lower ``rank`` come first.
        """
        self.rows += 1
        before, after = (text.replace("\n", "&#10;").encode("utf-8", "replace") for text in markup)
        if connection is not None:
            before = before.replace(b" ", b' data-c="%d" ' % connection, 1)
        document = b"<code>%s</code>" % inert(content) if content else b""
        waiting, _ = self._ranks.setdefault(rank, ([], DeferredOutput(self.sink)))
        waiting.append(before + document + after)
        self.size += len(waiting[-1])
        self._waiting_bytes[rank] += len(waiting[-1])
        if len(waiting) >= ROWS_TOGETHER or self._waiting_bytes[rank] >= BYTES_TOGETHER:
            self._flush(rank)

    def _flush(self, rank: int) -> None:
        waiting, spool = self._ranks[rank]
        if waiting:
            spool.write(b'<noscript class="rows">\n%s\n</noscript>\n' % b"\n".join(waiting))
            waiting.clear()
            self._waiting_bytes[rank] = 0

    def close(self, title: str, parts: Iterable[str], heading: str, head: str = "") -> None:
        """Write the page: its parts, then the list below its ``heading``; ``head`` is its first line."""
        write = self.sink.write
        write("".join([_opening(f"mqttscope: {title}", policy()), *parts]).encode("utf-8", "replace"))
        if self.rows:
            write(f'<section id="list" {self._attributes}><h2>{safe(heading)}</h2>{head}'.encode())
            for rank in sorted(self._ranks):
                self._flush(rank)
                self._ranks[rank][1].release(b"")
            write(b"</section>\n")
        write(_ending().encode())
