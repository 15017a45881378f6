"""Exports cases as frames of a capture and as one-line shell commands.

Neither needs a broker; the shell command needs printf, sleep, nc and xxd.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from math import ceil

from mqttscope.broker_test.conversation import Conversation, frames
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mutate import Action, FlowStep, MutatedFlow, MutationCase
from mqttscope.mutate.flow import CLIENT
from mqttscope.mutate.samples import sample
from mqttscope.transport.target import BrokerUrl
from mqttscope.transport.wire import Endpoint, FramedSegment

BETWEEN_NS = 10_000_000
"""Time between two steps without a pause."""
SERVER = Endpoint(IPv4Address("192.0.2.1"), 1883)
"""Server address reserved for documentation (RFC 5737)."""
_FIRST_PORT, _PORTS = 49_152, 16_384
"""Client ports: one per connection; when they are used up, the next client address follows."""
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
"""Time that the shell command waits for an awaited answer."""
LAST_S = 1.0
"""Time that the shell command waits after its last bytes."""
IDLE_S = 2
"""Minimum idle timeout of nc."""
_BEYOND_NC = (Action.RESET, Action.STOP_READING)
MAX_PRINTF = 4_000
"""Maximum number of bytes written as printf escapes; more bytes become hexadecimal text for xxd, half as long."""


def client_of(index: int) -> Endpoint:
    host, port = divmod(index, _PORTS)
    return Endpoint(IPv4Address(f"198.51.100.{1 + host % 254}"), _FIRST_PORT + port)


def conversation_of(flow: MutatedFlow, start_ns: int) -> Conversation:
    """The steps of a flow with the recorded answers; added steps get the answers of a conforming peer."""
    conversation = Conversation(flow.version, start_ns)
    from_client = flow.sender == CLIENT
    now = start_ns
    for step in flow.steps:
        now += step.nanoseconds if step.action is Action.PAUSE else BETWEEN_NS
        if step.action is Action.SEND and step.data:
            conversation.add(from_client, step.data, now, mutated=step.mutated)
        elif step.action is Action.AWAIT:
            data = step.data or answer(step, flow.version)
            if data:
                conversation.add(not from_client, data, now)
        elif step.action in (Action.CLOSE, Action.HALF_CLOSE):
            conversation.add(from_client, b"", now, mutated=True, ends="fin")
        elif step.action is Action.RESET:
            conversation.add(from_client, b"", now, mutated=True, ends="reset")
    return conversation


def answer(step: FlowStep, version: ProtocolVersion) -> bytes:
    """The awaited answer of a conforming peer to an added step, or empty bytes."""
    if step.awaits is None or step.awaits not in _ANSWERS:
        return b""
    return encode(sample(step.awaits, version, step.packet_identifier or 0), version)


def case_frames(case: MutationCase, index: int, start_ns: int, number: Callable[[], int]) -> Iterator[FramedSegment]:
    """A case as a whole TCP connection, opened at ``start_ns``; ``index`` is its position in the file."""
    conversation = conversation_of(case.flow, start_ns)
    yield from frames(conversation, client=client_of(index), server=SERVER, next_number=number)


def shell_line(flow: MutatedFlow, target: BrokerUrl, *, with_ping: bool = False) -> str:
    """A shell command that plays a flow and shows the answers in hexadecimal.

    Empty if nc cannot play the flow: TLS, WebSocket, a reset, unread answers, or bytes after FIN.
    ``with_ping`` appends PINGREQ: the answer ``d0 00`` shows that the connection is still open.
    """
    steps = flow.steps
    fin = next((place for place, step in enumerate(steps) if step.action is Action.HALF_CLOSE), len(steps))
    behind = steps[fin:]
    if target.tls or target.websocket or any(step.action in _BEYOND_NC for step in steps):
        return ""
    if any(step.action is Action.SEND for step in behind):
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
        # After FIN, nc keeps reading for as long as the remaining steps take.
        silences.append(sum(map(_seconds, behind)))
    else:
        wait(LAST_S)
    if with_ping:
        send(_PING)
        wait(LAST_S)
    # nc ends when nothing is sent or received for this time.
    idle = max(IDLE_S, ceil(max(silences)) + 1)
    options = f"-N -w {idle}" if behind else f"-w {idle}"
    return f"{{ {'; '.join(words)}; }} | nc {options} {shlex.quote(target.host)} {target.port} | xxd"


def _seconds(step: FlowStep) -> float:
    if step.action is Action.PAUSE:
        return step.nanoseconds / 1e9
    return WAIT_S if step.action is Action.AWAIT else 0.0


def _sending(data: bytes) -> str:
    if len(data) <= MAX_PRINTF:
        # Octal escapes are the only ones that printf of every sh supports.
        return f"printf '{''.join(f'{chr(92)}{byte:03o}' for byte in data)}'"
    return f"echo {data.hex()} | xxd -r -p"
