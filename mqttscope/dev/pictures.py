"""Makes the pictures of the documentation: pages of committed captures as Chromium draws them.

``python -m mqttscope.dev.pictures`` writes ``docs/pictures``.  Nothing checks that they are up to date: another browser
with other fonts draws other pixels.  Run it again after a change of pages that a reader would see.
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
    """One picture: the command whose page it shows, its size, and what is shown of it."""

    name: str
    words: Sequence[str]
    height: int
    dark: bool = False
    shows: str = ""
    """Selector of the element that is shown alone; the page from its beginning if empty."""


def _capture(name: str) -> str:
    return f"captures/{name}/capture.pcapng"


PICTURES = (
    Picture("inspect", ["inspect", _capture("misdelivered")], 1_000),
    Picture("ladder", ["inspect", _capture("misdelivered")], 640, shows="#ladder"),
    Picture("lint", ["lint", "--no-config", _capture("failing-device")], 760, shows="#list"),
    Picture("explain", ["explain", _capture("hasty-clients")], 850, dark=True),
)
WIDTH = 1_000


def written(picture: Picture, folder: Path) -> Path:
    """The page of a picture; where a part of it is shown, with a script that removes the rest."""
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
        only = f"<script>document.body.replaceChildren(document.querySelector({picture.shows!r}))</script></body>"
        path.write_text(page.replace("</body>", only), "utf-8")
    return path


def draw(browser: str, picture: Picture, folder: Path) -> None:
    """Write one picture."""
    page = written(picture, folder)
    scheme = f"--blink-settings=preferredColorScheme={0 if picture.dark else 1}"
    target = FOLDER / f"{picture.name}.png"
    subprocess.run(
        [browser, *_QUIET, scheme, f"--user-data-dir={folder / 'profile'}", f"--window-size={WIDTH},{picture.height}",
         f"--screenshot={target}", page.as_uri()],
        capture_output=True, check=True, timeout=SECONDS,
    )  # fmt: skip


def run() -> None:
    """Write all pictures."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise SystemExit("there is no browser: apt-get install chromium")
    FOLDER.mkdir(exist_ok=True)
    for picture in PICTURES:
        with tempfile.TemporaryDirectory() as folder:
            draw(browser, picture, Path(folder))
        sys.stdout.write(f"wrote docs/pictures/{picture.name}.png\n")


if __name__ == "__main__":
    run()
