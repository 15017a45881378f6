"""Makes the pictures of the documentation: pages of committed captures as rendered by Chromium.

``python -m mqttscope.dev.pictures`` writes ``docs/pictures``.  Nothing checks that they are up to date: another browser
with other fonts renders other pixels.  Run it again after a visible change of pages.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mqttscope.cli.main import EXIT_FINDINGS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "pictures"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 120
_QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--virtual-time-budget=3000",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip


@dataclass(slots=True)
class Picture:
    """A picture: the command that writes the page, the size, and the part of the page that is shown."""

    name: str
    words: Sequence[str]
    height: int
    dark: bool = False
    shows: str = ""
    """Selector of the only element shown; if empty, the page from its beginning."""
    connection: str = ""
    """Number of the connection for a ladder; if empty, the list."""


def _capture(name: str) -> str:
    return f"captures/{name}/capture.pcapng"


PICTURES = (
    Picture("inspect", ["inspect", _capture("misdelivered")], 1_000),
    Picture("ladder", ["inspect", _capture("misdelivered")], 640, shows="#list", connection="1"),
    Picture("lint", ["lint", "--no-config", _capture("failing-device")], 760, shows="#list"),
    Picture("explain", ["explain", _capture("hasty-clients")], 850, dark=True),
)
WIDTH = 1_000


def write_page(picture: Picture, folder: Path) -> Path:
    """The page of a picture; a script in it removes the parts that are not shown."""
    path = folder / f"{picture.name}.html"
    done = subprocess.run(
        [sys.executable, "-m", "mqttscope", *picture.words, "--output", str(path)],
        cwd=ROOT,
        check=False,
        timeout=SECONDS,
    )
    if done.returncode not in (0, EXIT_FINDINGS):
        raise SystemExit(f"{' '.join(picture.words)} ended with exit code {done.returncode}")
    if picture.shows:
        page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", path.read_text("utf-8"))
        only = f"document.body.replaceChildren(document.querySelector({picture.shows!r}))"
        if picture.connection:
            choose = f"select.value={picture.connection!r};select.dispatchEvent(new Event('change'))"
            only = f"const select=document.querySelector('#list select');{choose};{only}"
        only = f"<script>{only}</script></body>"
        path.write_text(page.replace("</body>", only), "utf-8")
    return path


def draw(browser: str, picture: Picture, folder: Path) -> None:
    """Write a picture."""
    page = write_page(picture, folder)
    scheme = f"--blink-settings=preferredColorScheme={0 if picture.dark else 1}"
    target = FOLDER / f"{picture.name}.png"
    subprocess.run(
        [browser, *_QUIET, scheme, f"--user-data-dir={folder / 'profile'}", f"--window-size={WIDTH},{picture.height}",
         f"--screenshot={target}", page.as_uri()],
        capture_output=True, check=True, timeout=SECONDS,
    )  # fmt: skip


def run() -> None:
    """Write all pictures."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        raise SystemExit("no browser found: apt-get install chromium")
    FOLDER.mkdir(exist_ok=True)
    for picture in PICTURES:
        with tempfile.TemporaryDirectory() as folder:
            draw(browser, picture, Path(folder))
        sys.stdout.write(f"wrote docs/pictures/{picture.name}.png\n")


if __name__ == "__main__":
    run()
