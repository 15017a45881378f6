"""A real browser without a window, for pages: what it draws, and what becomes of their elements."""

from __future__ import annotations

import re
import struct
import subprocess
import zlib
from dataclasses import dataclass
from html import unescape
from pathlib import Path

from tests import tools

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    # Pages need no network, and get none.
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip


@dataclass(slots=True)
class Picture:
    """What a page looks like: rows of pixels, each of three bytes."""

    width: int
    height: int
    rows: list[bytes]

    def colours(self) -> set[bytes]:
        """All colours of it."""
        return {row[at : at + 3] for row in self.rows for at in range(0, len(row), 3)}


def program() -> str:
    """The browser; the calling test is skipped where there is none."""
    return tools.program(*NAMES)


WAITS_MS = 3_000
"""Time of the page, not of the clock, after which it is read."""


def elements(page: bytes, folder: Path, *, act: str = "", width: int = 1_100) -> str:
    """The page as markup, after its script ran.

    ``act``: a script that runs after that of the page, which would not let it: its policy is taken out for that.
    """
    if act:
        page = re.sub(rb'<meta http-equiv="Content-Security-Policy"[^>]*>', b"", page)
        page = page.replace(b"</body></html>", f"<script>{act}</script></body></html>".encode())
    source = folder / "page.html"
    source.write_bytes(page)
    done = subprocess.run(
        [program(), *QUIET, f"--user-data-dir={folder / 'profile'}", f"--virtual-time-budget={WAITS_MS}",
         f"--window-size={width},900", "--dump-dom",
         source.as_uri()],
        capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    return done.stdout.decode()


def picture(page: bytes, folder: Path, *, dark: bool = False, width: int = 800, height: int = 4_000) -> Picture:
    """Draw a page; the calling test is skipped where there is no browser."""
    source, target = folder / "page.html", folder / "page.png"
    source.write_bytes(page)
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    subprocess.run(
        [program(), *QUIET, scheme, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},{height}",
         f"--screenshot={target}", source.as_uri()],
        capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    return read_png(target.read_bytes())


@dataclass(slots=True)
class Printed:
    """A page on paper."""

    pages: int
    words: list[tuple[str, float, float]]
    """Each word with its left and right edge, as parts of the width of its sheet."""

    @property
    def text(self) -> str:
        """All words."""
        return " ".join(word for word, _, _ in self.words)


_SHEET = re.compile(
    r'<page width="([0-9.]+)"|<word xMin="([0-9.-]+)" yMin="[^"]+" xMax="([0-9.-]+)" yMax="[^"]+">(.*?)</word>'
)


def printed(page: bytes, folder: Path, *, dark: bool = True) -> Printed:
    """Print a page; the calling test is skipped where there is no browser, or nothing that reads what it prints."""
    reader = tools.program("pdftotext")
    source, target = folder / "page.html", folder / "page.pdf"
    source.write_bytes(page)
    subprocess.run(
        [program(), *QUIET, f"--blink-settings=preferredColorScheme={0 if dark else 1}",
         f"--user-data-dir={folder / 'profile'}", f"--virtual-time-budget={WAITS_MS}", "--no-pdf-header-footer",
         f"--print-to-pdf={target}", source.as_uri()],
        capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    done = subprocess.run([reader, "-bbox", str(target), "-"], capture_output=True, check=True, timeout=60)
    pages, width, words = 0, 1.0, list[tuple[str, float, float]]()
    for hit in _SHEET.finditer(done.stdout.decode()):
        if hit[1]:
            pages, width = pages + 1, float(hit[1])
        else:
            words.append((unescape(hit[4]), float(hit[2]) / width, float(hit[3]) / width))
    return Printed(pages, words)


def read_png(data: bytes) -> Picture:
    """A picture of 8 bits a channel, RGB or RGBA, as browsers write it (ISO 15948)."""
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert (data[:8], depth) == (b"\x89PNG\r\n\x1a\n", 8)
    size, packed, at = {2: 3, 6: 4}[kind], b"", 8
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + length]
        at += 12 + length
    plain, line = zlib.decompress(packed), width * size
    above, rows = bytes(line), []
    for row in range(height):
        start = row * (line + 1)
        above = _unfiltered(plain[start], bytearray(plain[start + 1 : start + 1 + line]), above, size)
        rows.append(above if size == 3 else b"".join(above[at : at + 3] for at in range(0, line, 4)))
    return Picture(width, height, rows)


def _unfiltered(kind: int, row: bytearray, above: bytes, size: int) -> bytes:
    if kind == 2 and not any(row):
        return above
    for at in range(len(row) if kind else 0):
        left = row[at - size] if at >= size else 0
        corner = above[at - size] if at >= size else 0
        if kind == 4:
            by_left, by_above, by_corner = (
                abs(above[at] - corner),
                abs(left - corner),
                abs(left + above[at] - 2 * corner),
            )
            near = (
                left if by_left <= by_above and by_left <= by_corner else above[at] if by_above <= by_corner else corner
            )
        else:
            near = (0, left, above[at], (left + above[at]) // 2)[kind]
        row[at] = (row[at] + near) & 255
    return bytes(row)
