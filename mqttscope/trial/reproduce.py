"""A case as one line for a shell: nothing is needed but printf, sleep, and nc."""

from __future__ import annotations

import shlex

from mqttscope.mutate import Action, MutatedFlow
from mqttscope.transport.target import Target

_PING = b"\xc0\x00"
WAIT_S = 0.3
"""How long the line waits where the case waits for an answer."""
LAST_S = 1.0
"""How long it waits for the broker's last word."""
MAX_PRINTF = 4_000
"""Bytes that stand in the line as escapes; more are given as hexadecimal text to xxd, which needs half the room."""


def shell_line(flow: MutatedFlow, target: Target, *, fenced: bool = False) -> str:
    """A line that plays a flow and shows the answers in hexadecimal; empty for what nc cannot do (TLS, WebSocket).

    ``fenced``: PINGREQ comes last, whose answer ``d0 00`` shows that the connection goes on.
    """
    if target.tls or target.websocket:
        return ""
    words: list[str] = []
    pending = b""
    for step in flow.steps:
        if step.action is Action.SEND:
            pending += step.data
            continue
        words += _sending(pending)
        pending = b""
        if step.action is Action.AWAIT:
            words.append(f"sleep {WAIT_S:g}")
        elif step.action is Action.PAUSE:
            words.append(f"sleep {step.nanoseconds / 1e9:g}")
    words += _sending(pending)
    words.append(f"sleep {LAST_S:g}")
    if fenced:
        words += [*_sending(_PING), f"sleep {LAST_S:g}"]
    return f"{{ {'; '.join(words)}; }} | nc -w 2 {shlex.quote(target.host)} {target.port} | xxd"


def _sending(data: bytes) -> list[str]:
    if not data:
        return []
    if len(data) <= MAX_PRINTF:
        # Octal: sh's own printf knows no other escapes of bytes.
        return [f"printf '{''.join(f'{chr(92)}{byte:03o}' for byte in data)}'"]
    return [f"echo {data.hex()} | xxd -r -p"]
