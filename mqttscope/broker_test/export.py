"""Cases to take away: as the frames that a capture of them would hold, and as one line for a shell.

Neither needs a broker; the line needs nothing but printf, sleep and nc.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from math import ceil

from mqttscope.broker_test.conversation import Conversation, frames
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mutate import Action, Case, MutatedFlow, Step
from mqttscope.mutate.flow import CLIENT
from mqttscope.mutate.samples import sample
from mqttscope.transport.target import Target
from mqttscope.transport.wire import Endpoint, Made

BETWEEN_NS = 10_000_000
"""Time from one step to the next, unless the case has a pause."""
SERVER = Endpoint(IPv4Address("192.0.2.1"), 1883)
"""An address that belongs to nobody (RFC 5737)."""
_FIRST_PORT, _PORTS = 49_152, 16_384
"""Ports of clients; each connection has its own, and where there are no more another address."""
_PING = b"\xc0\x00"
_ANSWERS = (
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBCOMP,
    PacketType.SUBACK,
    PacketType.UNSUBACK,
    PacketType.PINGRESP,
)
WAIT_S = 0.3
"""How long the line waits where the case waits for an answer."""
LAST_S = 1.0
"""How long it waits for the broker's last word."""
IDLE_S = 2
"""How long the line waits at least for more from the broker."""
_BEYOND_NC = (Action.RESET, Action.STOP_READING)
MAX_PRINTF = 4_000
"""Bytes that stand in the line as escapes; more are given as hexadecimal text to xxd, which needs half the room."""


def client_of(index: int) -> Endpoint:
    host, port = divmod(index, _PORTS)
    return Endpoint(IPv4Address(f"198.51.100.{1 + host % 254}"), _FIRST_PORT + port)


def conversation_of(flow: MutatedFlow, start_ns: int) -> Conversation:
    """The steps of a flow with the answers of the recording, or where they are new of a conforming peer."""
    made = Conversation(flow.version, start_ns)
    from_client = flow.sender == CLIENT
    now = start_ns
    for step in flow.steps:
        now += step.nanoseconds if step.action is Action.PAUSE else BETWEEN_NS
        if step.action is Action.SEND and step.data:
            made.add(from_client, step.data, now, mutated=step.mutated)
        elif step.action is Action.AWAIT:
            data = step.data or answer(step, flow.version)
            if data:
                made.add(not from_client, data, now)
        elif step.action in (Action.CLOSE, Action.HALF_CLOSE):
            made.add(from_client, b"", now, mutated=True, ends="fin")
        elif step.action is Action.RESET:
            made.add(from_client, b"", now, mutated=True, ends="reset")
    return made


def answer(step: Step, version: ProtocolVersion) -> bytes:
    """What a conforming peer says to something new that waits for this; empty where that is nothing."""
    if step.awaits is None or step.awaits not in _ANSWERS:
        return b""
    return encode(sample(step.awaits, version, step.packet_identifier or 0), version)


def case_frames(case: Case, index: int, start_ns: int, next_number: Callable[[], int]) -> Iterator[Made]:
    """A case as a whole TCP connection, the ``index``-th of its file; ``start_ns`` is when it is opened."""
    conversation = conversation_of(case.flow, start_ns)
    yield from frames(conversation, client=client_of(index), server=SERVER, next_number=next_number)


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
