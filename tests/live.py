"""What tests of live captures need: a program in dumpcap's place, traffic on loopback, and whether one may capture."""

from __future__ import annotations

import functools
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from mqttscope.capture import live
from mqttscope.mqtt import Connack, Connect, Disconnect, ProtocolVersion, Publish, encode
from tests.cli.running import Word, command, environment
from tests.forked import Forked
from tests.proxy.rig import until
from tests.tools import program

V3_1_1 = ProtocolVersion.V3_1_1
QOS_3 = bytes.fromhex("3607000361 2f6200 01".replace(" ", ""))
"""A PUBLISH with both QoS bits set: PUB101."""


@functools.cache
def may_capture() -> bool:
    """Whether dumpcap may open the loopback interface."""
    dumpcap = program("dumpcap")
    if not os.path.isdir("/sys/class/net/lo"):
        return False
    return subprocess.run([dumpcap, "-L", "-i", "lo"], capture_output=True, timeout=20, check=False).returncode == 0


def need_capture() -> None:
    """Skip the calling test where nothing can be captured."""
    if not may_capture():
        pytest.skip("dumpcap may not capture from lo")


def cat(path: Path) -> str:
    """What a shell script writes a file with."""
    return f"cat {shlex.quote(str(path))}"


def replace_dumpcap(folder: Path, patch: pytest.MonkeyPatch, script: str) -> Path:
    """Put a shell script in dumpcap's place."""
    path = folder / "dumpcap"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    # A script sets up no ring; there is nothing to wait for.
    patch.setattr(live, "can_shorten_time_out", lambda: False)
    return path


@contextmanager
def capturing(port: int, target: Path) -> Iterator[None]:
    """Record what is said on a port of loopback into a file; the test is skipped where nothing can be captured."""
    need_capture()
    log = target.with_suffix(".txt")
    with log.open("wb") as errors:
        dumpcap = subprocess.Popen(
            [program("dumpcap"), "-q", "-i", "lo", "-f", f"tcp port {port}", "-w", str(target)], stderr=errors
        )
    try:
        until(lambda: "File:" in log.read_text() or dumpcap.poll() is not None, "the start of dumpcap")
        assert dumpcap.poll() is None, log.read_text()
        # It names the file before it listens, and the kernel hands frames over several times a second.
        time.sleep(0.3)
        yield
        time.sleep(0.8)
    finally:
        dumpcap.send_signal(signal.SIGINT)
        dumpcap.wait(10)


class Talk:
    """A client and a server on loopback that say what they are told, without a broker."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._listener = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port = int(self._listener.getsockname()[1])

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def connection(self, name: str = "dev1") -> tuple[socket.socket, socket.socket]:
        """Both ends of a connection, introduced to each other."""
        client = self._stack.enter_context(socket.create_connection(("127.0.0.1", self.port)))
        server = self._stack.enter_context(self._listener.accept()[0])
        say(client, server, encode(Connect(client_identifier=name, keep_alive=60), V3_1_1))
        say(server, client, encode(Connack(), V3_1_1))
        return client, server

    def publish(self, *topics: str, name: str = "dev1", also: bytes = b"") -> None:
        """A connection that publishes and ends."""
        client, server = self.connection(name)
        for topic in topics:
            say(client, server, encode(Publish(topic_name=topic, payload=b"21.5"), V3_1_1))
        if also:
            say(client, server, also)
        say(client, server, encode(Disconnect(), V3_1_1))
        client.close()
        server.close()


def say(sender: socket.socket, receiver: socket.socket, data: bytes) -> None:
    """Send bytes and wait until they have come."""
    sender.sendall(data)
    left = len(data)
    while left:
        left -= len(receiver.recv(left))


def sniff(
    *arguments: Word, env: Mapping[str, str] | None = None, first: bytes | None = None
) -> subprocess.Popen[bytes]:
    """Start a live capture of loopback, and wait until it captures; ``first``: in the line that comes before."""
    running = Forked(
        command("sniff", "-i", "lo", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(env),
    )
    assert running.stderr is not None
    if first is not None:
        assert first in running.stderr.readline()
    line = running.stderr.readline()
    assert line.startswith(b"mqttscope: capturing on lo"), line + running.communicate()[1]
    return running


def lines_of(running: subprocess.Popen[bytes], count: int) -> list[bytes]:
    """So many lines of its standard output, as they come."""
    assert running.stdout is not None
    return [running.stdout.readline() for _ in range(count)]
