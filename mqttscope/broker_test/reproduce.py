"""A case as one line for a shell: nothing is needed but printf, sleep, and nc."""

from __future__ import annotations

import shlex
from math import ceil

from mqttscope.mutate import Action, MutatedFlow, Step
from mqttscope.transport.target import Target

_PING = b"\xc0\x00"
WAIT_S = 0.3
"""How long the line waits where the case waits for an answer."""
LAST_S = 1.0
"""How long it waits for the broker's last word."""
IDLE_S = 2
"""How long the line waits at least for more from the broker."""
_BEYOND_NC = (Action.RESET, Action.STOP_READING)
MAX_PRINTF = 4_000
"""Bytes that stand in the line as escapes; more are given as hexadecimal text to xxd, which needs half the room."""


def shell_line(flow: MutatedFlow, target: Target, *, fenced: bool = False) -> str:
    """A line that plays a flow and shows the answers in hexadecimal.

    Empty for what nc cannot do: TLS, WebSocket, to reset a connection, to leave answers unread, and to send after FIN.
    ``fenced``: PINGREQ comes last, whose answer ``d0 00`` shows that the connection continues.
    """
    steps = flow.steps
    fin = next((place for place, one in enumerate(steps) if one.action is Action.HALF_CLOSE), len(steps))
    behind = steps[fin:]
    if target.tls or target.websocket or any(one.action in _BEYOND_NC for one in steps):
        return ""
    if any(one.action is Action.SEND for one in behind):
        return ""
    words: list[str] = []
    pending, silences = b"", [0.0]

    def wait(seconds: float) -> None:
        words.append(f"sleep {seconds:g}")
        silences[-1] += seconds

    def send(data: bytes) -> None:
        if data:
            words.append(_sending(data))
            silences.append(0.0)

    for step in steps[:fin]:
        if step.action is Action.SEND:
            pending += step.data
            continue
        send(pending)
        pending = b""
        if step.action in (Action.AWAIT, Action.PAUSE):
            wait(_seconds(step))
    send(pending)
    if behind:
        # The line ends with the sending direction, and is patient for the rest.
        silences.append(sum(map(_seconds, behind)))
    else:
        wait(LAST_S)
    if fenced:
        send(_PING)
        wait(LAST_S)
    # nc gives up when nothing is sent and nothing comes for so long.
    idle = max(IDLE_S, ceil(max(silences)) + 1)
    options = f"-N -w {idle}" if behind else f"-w {idle}"
    return f"{{ {'; '.join(words)}; }} | nc {options} {shlex.quote(target.host)} {target.port} | xxd"


def _seconds(step: Step) -> float:
    if step.action is Action.PAUSE:
        return step.nanoseconds / 1e9
    return WAIT_S if step.action is Action.AWAIT else 0.0


def _sending(data: bytes) -> str:
    if len(data) <= MAX_PRINTF:
        # Octal: sh's own printf knows no other escapes of bytes.
        return f"printf '{''.join(f'{chr(92)}{byte:03o}' for byte in data)}'"
    return f"echo {data.hex()} | xxd -r -p"
