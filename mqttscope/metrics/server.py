"""The web server of live metrics: ``/`` for people, ``/facts.json`` for its page, ``/metrics`` for Prometheus.

It runs in one thread of its own with an event loop, so that no reader delays the capture.  Every connection gets one
answer and a few seconds; the oldest one makes room for a new one, and answers are paced, so that a flood of requests
leaves the processor to the capture.

Pages of other sites must not read the answers.  A browser sends them the name that it looked up, so only the names of
this machine are answered (DNS rebinding); answers lack CORS headers, and only GET and HEAD are answered.
"""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address

from mqttscope.errors import MqttscopeError
from mqttscope.metrics.exposition import Exposition
from mqttscope.metrics.monitor import LiveMonitor
from mqttscope.metrics.page import facts_document, live_page
from mqttscope.net.http_upgrade import REQUEST_LINE
from mqttscope.transport.server import Acceptor

MAX_READERS = 64
"""Maximum number of connections; a further one ends the oldest."""
MAX_HEAD_BYTES = 8_192
"""Maximum size of the head of a request."""
REQUEST_TIMEOUT_S = 5.0
"""Timeout for the head of a request."""
ANSWER_TIMEOUT_S = 10.0
"""Timeout for the reader of an answer."""
ANSWERS_INTERVAL_S = 0.02
"""Minimum time between two answers."""
_READ = 4_096
_HOST = re.compile(r"(?:\[(?P<bracketed>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+?)\.?)(?::[0-9]{1,5})?")
_HEADERS = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_STATUS = {
    200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
}  # fmt: skip


class RequestRefusedError(MqttscopeError):
    """A request is refused, with a status of HTTP."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class AllowedHosts:
    """Names in the Host header that are answered: this machine's, and the address that the user gave."""

    def __init__(self, host: str) -> None:
        """``host``: the address to listen on; empty for all addresses."""
        self._names = {"localhost", host.lower()}
        # Literal addresses need no look-up, so no other site can point them here.
        self._has_all = host in ("", "0.0.0.0", "::")

    def __contains__(self, header: str) -> bool:
        parts = _HOST.fullmatch(header)
        if parts is None:
            return False
        name = (parts["bracketed"] or parts["name"]).lower()
        try:
            address = ip_address(name)
        except ValueError:
            return name in self._names
        return address.is_loopback or self._has_all or name in self._names


class MetricsServer(Acceptor):
    """The server of one run."""

    def __init__(self, monitor: LiveMonitor, host: str, report: Callable[[str], None]) -> None:
        """``host``: the address to listen on; empty for all addresses.  ``report``: gets sentences for people."""
        super().__init__(MAX_READERS, report)
        self.monitor = monitor
        self.host = host
        self._hosts = AllowedHosts(host)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._readers: dict[asyncio.Task[None], None] = {}
        """Connections, the oldest first."""
        self._turn = asyncio.Lock()

    def start(self, port: int) -> None:
        """Listen on a port, 0 for any free one, and answer in a thread; raises `OSError`."""
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="metrics", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self.listen(self.host, port), loop).result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the thread; its answers are short, so it is never waited for long."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        asyncio.run_coroutine_threadsafe(self.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()

    async def stop(self) -> None:
        """Stop listening, and end all connections."""
        await self._stop_listening()
        await self._end_tasks()

    def _accept(self, sock: socket.socket) -> None:
        if len(self._readers) >= self._max_connections:
            oldest = next(iter(self._readers))
            del self._readers[oldest]
            oldest.cancel()
        task = self._spawn(self._serve(sock))
        self._readers[task] = None

        def end(done: asyncio.Task[None]) -> None:
            # Not in the task: one that is cancelled before its first step runs nothing.
            sock.close()
            self._readers.pop(done, None)

        task.add_done_callback(end)

    async def _serve(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        with suppress(TimeoutError, OSError):
            answer = await self._answer(sock)
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await loop.sock_sendall(sock, answer)

    async def _answer(self, sock: socket.socket) -> bytes:
        """Read a request; returns the answer, or nothing if the request does not end."""
        head, method = b"", ""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                while b"\r\n\r\n" not in head and b"\n\n" not in head:
                    data = await loop.sock_recv(sock, _READ)
                    head += data
                    if len(head) > MAX_HEAD_BYTES:
                        raise RequestRefusedError(
                            f"the head of the request has more than {MAX_HEAD_BYTES:,} bytes", 431
                        )
                    if not data:
                        return b""
            async with self._turn:
                await asyncio.sleep(ANSWERS_INTERVAL_S)
            method, path, accept = self._request(head)
            status, body, content_type = 200, *self._document(path, accept)
        except RequestRefusedError as error:
            status, body, content_type = error.status, f"{error}\n".encode(), "text/plain; charset=utf-8"
        headers = _HEADERS | {"Content-Type": content_type, "Content-Length": f"{len(body)}"}
        headers["Content-Security-Policy"] = live_page()[1]
        if status == 405:
            headers["Allow"] = "GET, HEAD"
        lines = [f"HTTP/1.1 {status} {_STATUS[status]}", *(f"{name}: {text}" for name, text in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else body)

    def _request(self, head: bytes) -> tuple[str, str, str]:
        """Method, path and Accept header of a request that may be answered."""
        line = REQUEST_LINE.match(head)
        if line is None:
            raise RequestRefusedError("this is not a request of HTTP/1.0 or HTTP/1.1")
        method, target = line[1].decode(), line[2].decode("ascii", "replace")
        fields: dict[str, list[str]] = {}
        for row in head.decode("latin-1").splitlines()[1:]:
            name, _, text = row.partition(":")
            fields.setdefault(name.lower(), []).append(text.strip())
        hosts = fields.get("host", [])
        if target.lower().startswith("http://"):
            # The absolute form (RFC 9112, 3.2.2): its authority counts, and Host is checked as well.
            authority, _, path = target[len("http://") :].partition("/")
            hosts, target = [*hosts, authority], f"/{path}"
            is_complete = len(hosts) == 2
        else:
            is_complete = len(hosts) == 1 and target.startswith("/")
        if not is_complete:
            raise RequestRefusedError("the request needs a path and one Host header")
        if any(host not in self._hosts for host in hosts):
            raise RequestRefusedError(
                "the Host header is not a name of this server; --serve ADDRESS:PORT adds a name", 403
            )
        if method not in ("GET", "HEAD"):
            raise RequestRefusedError("the server answers GET and HEAD only", 405)
        return method, target.partition("?")[0], ",".join(fields.get("accept", []))

    def _document(self, path: str, accept: str) -> tuple[bytes, str]:
        """Content and its type."""
        if path == "/metrics":
            exposition = Exposition(accept)
            return exposition.text(self.monitor.read(exposition.families)), exposition.content_type
        if path == "/facts.json":
            return facts_document(self.monitor), "application/json"
        if path == "/":
            return live_page()[0], "text/html; charset=utf-8"
        raise RequestRefusedError("there are /, /facts.json and /metrics", 404)
