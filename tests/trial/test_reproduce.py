"""Lines for a shell: they send the bytes, whatever shell it is."""

from __future__ import annotations

import subprocess
from dataclasses import replace

from mqttscope.mutate import Action, MutatedFlow, Step
from mqttscope.transport.target import parse_broker
from mqttscope.trial.reproduce import MAX_PRINTF, shell_line
from tests.trial.flows import V5, target


def flow(*steps: Step) -> MutatedFlow:
    return MutatedFlow("x", "client", V5, list(steps))


def sent_by(line: str) -> bytes:
    """What the line sends, with nc left out."""
    quick = line.rpartition(" | nc ")[0].replace("sleep 1", "true").replace("sleep 0.3", "true")
    return subprocess.run(["sh", "-c", quick], capture_output=True, check=True).stdout


def test_every_byte_arrives() -> None:
    data = bytes(range(256))
    line = shell_line(flow(Step(Action.SEND, data), Step(Action.AWAIT), Step(Action.SEND, b"%s\\'")), target(1883))

    assert sent_by(line) == data + b"%s\\'"
    assert line.endswith("| nc -w 2 127.0.0.1 1883 | xxd")
    assert "\n" not in line


def test_a_ping_comes_last_where_it_is_to_show_that_the_connection_goes_on() -> None:
    assert sent_by(shell_line(flow(Step(Action.SEND, b"\x10")), target(1883), fenced=True)) == b"\x10\xc0\x00"


def test_long_packets_go_through_xxd() -> None:
    line = shell_line(flow(Step(Action.SEND, b"a" * (MAX_PRINTF + 1))), target(1883))

    assert "xxd -r -p" in line


def test_nc_speaks_no_tls_and_no_websocket() -> None:
    for url in ("mqtts://127.0.0.1", "ws://127.0.0.1"):
        assert shell_line(flow(Step(Action.SEND, b"\x10")), parse_broker(url)) == ""


def test_pauses_are_kept() -> None:
    step = replace(Step(Action.PAUSE), nanoseconds=1_500_000_000)

    assert "sleep 1.5" in shell_line(flow(step), target(1883))
