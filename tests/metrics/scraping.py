"""Programs that serve live metrics, and what a scrape of them gives."""

from __future__ import annotations

import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import IO

from tests.metrics.test_exposition import samples
from tests.proxy.rig import PATIENCE_S

ADDRESS = re.compile(r"metrics at (http://\S+/)")


def address_of(process: subprocess.Popen[bytes], *others: str) -> str:
    """Where a program serves, from its standard error, which is read on; waits for further sentences too."""
    assert process.stderr is not None
    seen = ""
    while not ADDRESS.search(seen) or not all(text in seen for text in others):
        line = process.stderr.readline().decode()
        assert line, seen
        seen += line
    threading.Thread(target=_drained, args=(process.stderr,), daemon=True).start()
    match = ADDRESS.search(seen)
    assert match is not None
    return match[1]


def _drained(stream: IO[bytes]) -> None:
    while stream.read1(1 << 16):  # type: ignore[attr-defined]
        pass


def scraped(address: str) -> dict[str, float]:
    """Numbers other than 0 by name and labels."""
    with urllib.request.urlopen(f"{address}metrics", timeout=20) as answer:
        return samples(answer.read().decode())


def scraped_until(address: str, happened: Callable[[dict[str, float]], object]) -> dict[str, float]:
    """The first scrape of which something is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened(numbers := scraped(address)):
        assert time.monotonic() < deadline, numbers
        time.sleep(0.05)
    return numbers
