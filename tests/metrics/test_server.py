"""The web server of live metrics: whom it answers, what it answers, and what others cannot do to it."""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from mqttscope.metrics.monitor import LiveMonitor
from mqttscope.metrics.page import live_page
from tests.each import each
from tests.metrics.readers import answered, connected, read_all, request, served
from tests.report.make import Talk

from mqttscope.metrics.server import MAX_READERS, AllowedHosts, MetricsServer  # isort: skip


def test_what_there_is() -> None:
    with served() as server:
        kinds = {
            path: answered(server, request(path)) for path in ("/", "/metrics", "/facts.json", "/metrics?a=b", "/x")
        }
        head = answered(server, request(method="HEAD"))

    assert [status for status, _, _ in kinds.values()] == [200, 200, 200, 200, 404]
    assert kinds["/metrics"][1]["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert kinds["/metrics"][2].endswith(b"# EOF\n")
    assert json.loads(kinds["/facts.json"][2])["capture"] == "lo"
    assert (head[0], head[1]["Content-Length"], head[2]) == (200, f"{len(kinds['/'][2])}", b"")


def test_nothing_is_stored_shared_framed_or_loaded_from_elsewhere() -> None:
    with served() as server:
        for path in ("/", "/facts.json", "/metrics"):
            _, headers, _ = answered(server, request(path, more="Origin: http://evil.example\r\n"))
            assert not [name for name in headers if name.startswith("Access-Control")]
            assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cache-Control"] == "no-store"
            assert headers["X-Frame-Options"] == "DENY"
            assert headers["Content-Security-Policy"] == live_page()[1]
            assert not re.search("unsafe|http|[*]", headers["Content-Security-Policy"])


@each("host", ["", "localhost", "LOCALHOST:1", "localhost.:80", "127.0.0.1", "127.8.9.1:65535", "[::1]", "[::1]:1"])
def test_names_of_this_machine_are_answered(host: str) -> None:
    assert (host in AllowedHosts("127.0.0.1")) is bool(host)


@each(
    "host",
    [
        "evil.example", "evil.example:9464", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.4", "0.0.0.0",
        "[::]", "[2001:db8::1]:1", "localhost:evil", "localhost:", "user@localhost", "::1", "[::1", "127.1",
        "2130706433", "localhost, evil.example", "127.0.0.1\t.evil",
    ],
)  # fmt: skip
def test_other_names_are_refused(host: str) -> None:
    assert (host in AllowedHosts("127.0.0.1")) is False


@pytest.mark.parametrize(
    ("address", "host", "expected"),
    [
        ("broker.example", "Broker.example:1", True),
        ("broker.example", "other.example", False),
        ("192.0.2.1", "192.0.2.1:1", True),
        ("192.0.2.1", "192.0.2.2:1", False),
        ("192.0.2.1", "broker.example", False),
        ("", "192.0.2.1", True),
        ("0.0.0.0", "192.0.2.1", True),
        ("::", "[2001:db8::1]:1", True),
        ("", "evil.example", False),
    ],
)
def test_the_given_address_is_answered_and_every_address_if_all_are_listened_on(
    address: str, host: str, expected: bool
) -> None:
    assert (host in AllowedHosts(address)) is expected


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request(host="evil.example"), 403),
        (request("/metrics", host="evil.example:9464"), 403),
        (request(method="POST", more="Content-Length: 0\r\n"), 405),
        (request(method="OPTIONS", more="Origin: http://evil.example\r\n"), 405),
        (request(method="DELETE"), 405),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400),
        (b"GET http://localhost/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"GET HTTP://localhost HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 403),
        (b"GET http://localhost/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
        (b"GET http://localhost/ HTTP/1.1\r\n\r\n", 400),
        (b"GET ftp://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/2\r\nHost: localhost\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\n\n", 400),
        (b"GET /\xff\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET / HTTP/1.0\nHost: localhost\n\n", 200),
    ],
)
def test_requests_that_are_refused(data: bytes, status: int) -> None:
    with served() as server:
        assert answered(server, data)[0] == status


def test_half_requests_do_not_keep_others_out_and_the_oldest_makes_room() -> None:
    with served() as server, ExitStack() as stack:
        halves = [stack.enter_context(connected(server)) for _ in range(2 * MAX_READERS)]
        for half in halves:
            half.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        began = time.monotonic()
        assert answered(server, request())[0] == 200
        assert time.monotonic() - began < 2
        with suppress(ConnectionResetError):
            assert read_all(halves[0]) == b""
        halves[-1].sendall(b"alhost\r\n\r\n")
        assert read_all(halves[-1]).startswith(b"HTTP/1.1 200")


def test_readers_that_do_not_read_delay_neither_others_nor_the_capture() -> None:
    monitor, talk = LiveMonitor("lo"), Talk()
    with served(monitor) as server, ExitStack() as stack:
        for _ in range(MAX_READERS - 1):
            stack.enter_context(connected(server)).sendall(request("/facts.json"))
        began = time.monotonic()
        for _ in range(100):
            monitor.feed(talk.say(b"\xc0\0"))
        assert time.monotonic() - began < 1
        assert answered(server, request("/metrics"))[0] == 200


def test_the_end_waits_for_nobody() -> None:
    with ExitStack() as stack:
        with served() as server:
            for _ in range(3):
                stack.enter_context(connected(server))
            assert answered(server, request())[0] == 200  # the others were accepted before
        began = time.monotonic()
    assert time.monotonic() - began < 1
    assert not [thread for thread in threading.enumerate() if thread.name == "metrics"]


def test_a_port_in_use_is_an_error_and_leaves_no_thread() -> None:
    with served() as server:
        second = MetricsServer(server.monitor, "127.0.0.1", print)
        with pytest.raises(OSError, match="in use"):
            second.start(server.addresses[0][1])
        assert len([thread for thread in threading.enumerate() if thread.name == "metrics"]) == 1
