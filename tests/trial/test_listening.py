"""Ports on which a process listens."""

from __future__ import annotations

import os
import socket
import subprocess

from mqttscope.trial.listening import listening_ports


def test_ports_of_a_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("::1", 0), family=socket.AF_INET6) as two:
        ports = {one.getsockname()[1], two.getsockname()[1]}
        with socket.create_connection(one.getsockname()) as client:
            found = listening_ports(os.getpid())
            assert found is not None
            assert ports <= found
            assert client.getsockname()[1] not in found


def test_a_process_that_listens_nowhere() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        assert listening_ports(process.pid) == frozenset()
    finally:
        process.kill()
        process.wait()


def test_a_process_that_is_not_there_tells_nothing() -> None:
    assert listening_ports(2**22 + 1) is None
