"""Counters of packet sockets, read from outside."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from mqttscope.capture.drops import DropCounter

OPENS = """if True:
    import socket, sys
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    made.bind(("lo", 3))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    print("open", flush=True)
    sys.stdin.read()
"""


def test_what_cannot_be_looked_into_counts_nothing() -> None:
    counter = DropCounter(2**22 + 1)

    assert len(counter) == 0
    assert counter.read() == (0, 0)
    counter.close()


@pytest.mark.skipif(not sys.platform.startswith("linux") or os.geteuid() != 0, reason="needs root on Linux")
def test_frames_and_drops_of_another_process_are_counted_once() -> None:
    running = subprocess.Popen([sys.executable, "-c", OPENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert running.stdout is not None
    if running.stdout.readline() != b"open\n":
        running.communicate()
        pytest.skip("no packet sockets here")
    counter = DropCounter(running.pid)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to,
    ):
        to.bind(("127.0.0.1", 0))
        for _ in range(200):
            sender.sendto(bytes(1_000), to.getsockname())

    if not len(counter):
        running.communicate()
        pytest.skip("sockets of other processes cannot be had here")
    received, dropped = counter.read()
    counter.close()
    running.communicate()

    assert received >= 200
    assert 0 < dropped <= received
