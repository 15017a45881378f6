from __future__ import annotations

import socket

import pytest

from tests.bench import latency


def test_each_message_is_timed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        took = latency.one_way(listening.getsockname()[1], listening, 1_000, 0.05)

    assert len(took) == 50
    assert min(took) >= 0


@pytest.mark.long
def test_a_run_through_the_proxy_makes_a_table() -> None:
    lines: list[str] = []
    latency.measure(lines.append, 1_000, 0.02)

    assert [row.split(" | ")[0] for row in lines[3:]] == [
        "| direct",
        *(f"| {name}" for name in latency.MODES),
    ]
