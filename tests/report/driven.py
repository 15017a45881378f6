"""A browser that a test drives: through pipes, in the Chrome DevTools Protocol."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.report.browser import QUIET, program

LOCAL = tuple(word for word in QUIET if not word.startswith("--host-resolver-rules"))
"""Options of the browser for pages of a server on this machine; no name is looked up for others."""


class Tab:
    """A page of the browser."""

    def __init__(self, output: int, replies: int) -> None:
        self._output, self._replies = output, replies
        self._number = 0
        self._received = b""
        self._session = ""
        self.requests: list[str] = []
        """Addresses that the page, and its workers, have asked for."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Network.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._output, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._next()
            if reply.get("method") == "Network.requestWillBeSent":
                self.requests.append(reply["params"]["request"]["url"])
            if reply.get("id") == self._number:
                assert "error" not in reply, reply
                result: dict[str, Any] = reply["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            data = os.read(self._replies, 1 << 16)
            assert data, "the browser has ended"
            self._received += data
        line, _, self._received = self._received.partition(b"\0")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, condition: str, seconds: float = 240) -> None:
        """Wait for a condition in JavaScript."""
        until = time.monotonic() + seconds
        while not self.value(f"Boolean({condition})"):
            assert time.monotonic() < until, self.value("document.body.innerText")
            time.sleep(0.1)

    def choose(self, selector: str, path: Path) -> None:
        """Choose a file, as a user does in a file input."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", files=[str(path.resolve())], nodeId=node)


@contextmanager
def tab(folder: Path) -> Iterator[Tab]:
    """A page of a new browser with a profile in ``folder``."""
    to_browser, output = os.pipe()
    replies, from_browser = os.pipe()
    words = [
        program(),
        *LOCAL,
        f"--user-data-dir={folder}",
        "--remote-debugging-pipe",
        "--disable-features=IsolateSandboxedIframes",
    ]
    # The browser reads from 3 and writes to 4; either number may be one of these.
    script = "import os, sys; a, b = map(os.dup, map(int, sys.argv[1:3])); os.dup2(a, 13); os.dup2(b, 14)"
    script += "; os.dup2(13, 3); os.dup2(14, 4); os.execvp(sys.argv[3], sys.argv[3:])"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(to_browser), str(from_browser), *words],
        pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Tab(output, replies)
    finally:
        process.kill()
        process.wait()
        os.close(output)
        os.close(replies)
