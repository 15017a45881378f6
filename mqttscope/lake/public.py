"""The memory of a flow between two ingests without its secrets, which asterisks of equal length replace.

An open flow holds bytes that are not a packet yet, and packets that rules use later.  A later ingest needs only the
length of a secret, so asterisks replace it at every known place: in the CONNECT that is kept, in the received part
of a packet, in the head of an HTTP request.  Bytes of unknown meaning, after a hole in the opening of a connection or
in an incomplete compressed message, are not kept as they are.  The last delivered bytes, which detect
retransmissions with other content, are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from mqttscope.dissect.flow_state import FlowState
from mqttscope.lake.state import ObjectReplacement
from mqttscope.mqtt.codec import decode, packet_end
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.resync import find_packets
from mqttscope.mqtt.stream import PacketStream, Unparsed
from mqttscope.net.flow import Flow, StreamData
from mqttscope.net.http_upgrade import SUBPROTOCOL_NAME
from mqttscope.net.reassembly import HalfStream
from mqttscope.net.websocket import Inflater, WebSocket
from mqttscope.secrets import packets
from mqttscope.secrets.addresses import public_details, without_http_secrets
from mqttscope.secrets.forms import joined, suspicions, token_ranges
from mqttscope.secrets.values import public, public_damaged
from mqttscope.session.connection import Connection

_V5 = ProtocolVersion.V5
_NAME = re.compile(rb"\x00\x04MQTT|\x00\x06MQIsdp", re.IGNORECASE)
_KEY = re.compile(rb"-----BEGIN[A-Z +]{1,40}-----")
_MORE = b"Ab1"
"""Bytes that may follow a part of a credential."""
_METHOD = re.compile(rb"\x15\x00[\x01-\x40][ -~]{1,64}\x16")


def public_object(value: object) -> object:
    """A packet, or other bytes, without secrets for storage; any other object unchanged."""
    if isinstance(value, ControlPacket):
        if not value.raw:
            return value
        if packets.holds_secrets(value.raw):
            decoded = decode(value.raw, _V5)
            if isinstance(decoded, Malformed):
                # A packet with a fault in a value is remembered like any other.
                hidden = packets.hidden_in_damaged(value.raw, _V5)
                return public_damaged(replace(decoded, packet=value), hidden, _V5).packet if hidden else value
        hidden = packets.hidden_in_packet(value, _V5)
        return public(value, hidden) if hidden else value
    if isinstance(value, Malformed):
        places: packets.Ranges = []
        for version in (_V5, ProtocolVersion.V3_1_1):
            places += packets.hidden_in_damaged(value.raw, version, packets.SUSPECT)
        return public_damaged(value, joined(places), _V5) if places else value
    if isinstance(value, Unparsed):
        places = packets.hidden_in_unparsed(value, _V5, packets.SUSPECT)
        return replace(value, raw=packets.covered(value.raw, places)) if places else value
    return value


PUBLIC = ObjectReplacement((ControlPacket, Malformed, Unparsed), public_object)
"""Objects stored in place of values with secrets."""


def forget_secrets(flow: Flow) -> None:
    """Remove the secrets from the buffers of a flow; it continues as before."""
    for waiting in (flow.undecided, flow.damaged):
        payloads = [packets.covered(segment.payload, _in_stream(segment.payload)) for segment in waiting]
        waiting[:] = [replace(segment, payload=payload) for segment, payload in zip(waiting, payloads, strict=True)]
    flow.past.clear()
    dialogue = flow.context
    if not isinstance(dialogue, FlowState):
        # It has ended; its last bytes would only distinguish copies from other data.
        _forget_bytes(flow.initiator)
        _forget_bytes(flow.responder)
        return
    connection = dialogue.connection
    for half, from_client in ((flow.initiator, True), (flow.responder, False)):
        _half(half, connection, from_client is dialogue.client_is_initiator)
    _dialogue(dialogue)
    if dialogue.inner is not None:
        _dialogue(dialogue.inner)


def _forget_bytes(half: HalfStream) -> None:
    half.history.clear()
    half.beginning = b""


def _half(half: HalfStream, connection: Connection | None, from_client: bool) -> None:
    _forget_bytes(half)
    waiting = half.buffer
    opening = connection is not None and _is_opening(connection, from_client)
    parts: list[bytes] = []
    run: list[bytes] = []
    after = -1
    for start, part in zip(waiting.starts, waiting.parts, strict=True):
        # A secret may be cut into pieces of any size.
        if run and start != after:
            parts += _covered_together(run, opening=opening)
            run = []
        run.append(part)
        after = start + len(part)
    waiting.parts = [*parts, *_covered_together(run, opening=opening)]


def _is_opening(connection: Connection, from_client: bool) -> bool:
    """Whether bytes after a hole may be of a CONNECT, or of a server's packets before it accepts the client."""
    if from_client:
        return connection.handshake_seen and connection.connect_packet is None
    simple = connection.version_known and connection.version < _V5
    return connection.connack_packet is None and not simple


def _covered_together(parts: list[bytes], *, opening: bool) -> list[bytes]:
    """Consecutive parts without their secrets."""
    whole = b"".join(parts)
    shown = packets.covered(
        whole, _before_packets(whole, (_V5, ProtocolVersion.V3_1_1)) if opening else _in_stream(whole)
    )
    covered, at = [], 0
    for part in parts:
        covered.append(shown[at : at + len(part)])
        at += len(part)
    return covered


def _dialogue(dialogue: FlowState) -> None:
    connection = dialogue.connection
    for from_client in (True, False):
        side = None if connection is None else connection.client_side if from_client else connection.server_side
        _stream(dialogue.stream(from_client), packets.SUSPECT if side is None else side.doubt)
    for from_initiator in (True, False):
        _waiting(dialogue, from_initiator)
    if connection is not None:
        connection.details = public_details(connection.details)
    if dialogue.web is not None:
        _web(dialogue.web, connection)


def _stream(stream: PacketStream, doubt: int) -> None:
    stream.passed_chunks = [b"*" * len(chunk) for chunk in stream.passed_chunks]
    if stream.before:
        stream.before = packets.covered(stream.before, _in_beginning(stream.before, doubt))
    if not stream.held:
        return
    whole = b"".join(stream.chunks)
    if stream.searching:
        hidden = _before_packets(whole, stream.versions()) if doubt >= packets.BROKEN else _in_stream(whole)
    else:
        hidden = _in_beginning(whole, doubt)
    if hidden:
        stream.chunks = [_covered_to_the_end(whole, hidden)]


def _in_beginning(whole: bytes, doubt: int) -> packets.Ranges:
    """Hidden ranges of bytes that begin with a packet."""
    return joined([*packets.hidden_in_beginning(whole, doubt), *packets.credentials_in_beginning(whole)])


def _covered_to_the_end(whole: bytes, hidden: packets.Ranges) -> bytes:
    """Bytes that may end within a credential: its replacement announces the rest, which is to come."""
    shown = packets.covered(whole, hidden)
    start, end = hidden[-1]
    if end < len(whole) or not token_ranges(whole[start:]) or _is_open(shown):
        return shown
    key = _KEY.match(whole, start)
    opening = b"Bearer " if key is None else key[0]
    return shown[:start] + (opening + shown[start + len(opening) :])[: end - start]


def _is_open(shown: bytes) -> bool:
    """Whether following bytes are hidden as well."""
    ranges = token_ranges(shown + _MORE)
    return bool(ranges) and ranges[-1][1] == len(shown) + len(_MORE)


def _before_packets(whole: bytes, versions: Sequence[ProtocolVersion]) -> packets.Ranges:
    """Hidden ranges after bytes that may have begun a secret: everything up to the first packet.

    The packets are not the rest of a secret, and the next ingest has to make their rows.
    """
    first, needed = find_packets(whole, 0, versions, final=True)
    if needed:
        return [(0, len(whole))]
    return joined([(0, first), *_payload_at(whole, first, versions), *_in_stream(whole)])


def _payload_at(whole: bytes, start: int, versions: Sequence[ProtocolVersion]) -> packets.Ranges:
    """The payload of the first packet: a password may contain a complete packet."""
    _, end = packet_end(whole, start, len(whole))
    raw = whole[start:end]
    for version in versions:
        decoded = decode(raw, version)
        if isinstance(decoded, Publish) and decoded.payload:
            return [(end - len(decoded.payload), end)]
    return []


def _waiting(dialogue: FlowState, from_initiator: bool) -> None:
    """Hide secrets in data that arrived before the flow's protocol was known."""
    waiting = (event for event in dialogue.waiting if isinstance(event, StreamData))
    events = [event for event in waiting if event.from_initiator == from_initiator]
    whole = b"".join(event.data for event in events)
    if not whole:
        return
    if whole[:1].isalpha():
        shown = without_http_secrets(whole)
    else:
        shown = packets.covered(
            whole, joined([*packets.hidden_in_beginning(whole, packets.SUSPECT), *_in_stream(whole)])
        )
    at = 0
    replaced = {}
    for event in events:
        replaced[id(event)] = replace(event, data=shown[at : at + len(event.data)])
        at += len(event.data)
    dialogue.waiting = [replaced.get(id(event), event) for event in dialogue.waiting]


def _web(web: WebSocket, connection: Connection | None) -> None:
    if web.handshake is not None:
        for opening in (web.handshake.client, web.handshake.server):
            if opening.buffer:
                opening.buffer[:] = without_http_secrets(bytes(opening.buffer))
        request = web.handshake.request
        if request is not None:
            request.path = str(public_details({"path": request.path})["path"])
            request.subprotocols = [name if SUBPROTOCOL_NAME.fullmatch(name) else "*" for name in request.subprotocols]
    for side, from_client in ((web.client, True), (web.server, False)):
        doubt = packets.SUSPECT
        if connection is not None:
            doubt = (connection.client_side if from_client else connection.server_side).doubt
        if side.held:
            held = bytes(side.held)
            side.held[:] = b"*" * len(held) if doubt > packets.CLEAR else packets.covered(held, _in_stream(held))
        if side.inflater is not None:
            _inflater(side.inflater, opening=from_client and (connection is None or connection.connect_packet is None))


def _inflater(inflater: Inflater, *, opening: bool) -> None:
    for window in (inflater.window, inflater.tail):
        hidden = _in_stream(bytes(window))
        if hidden:
            window[:] = packets.covered(bytes(window), hidden)
    if opening:
        inflater.pending.clear()


def _in_stream(data: bytes) -> packets.Ranges:
    """Secrets in bytes with packets somewhere: a CONNECT is found by its name, Authentication Data by its method."""
    ranges: packets.Ranges = []
    for match in _NAME.finditer(data):
        start = next((at for at in range(2, 6) if match.start() >= at and data[match.start() - at] >> 4 == 1), 0)
        if start:
            ranges += [
                (match.start() - start + first, match.start() - start + behind)
                for first, behind in packets.hidden_in_beginning(data[match.start() - start :])
            ]
    for match in _METHOD.finditer(data):
        length = int.from_bytes(data[match.end() : match.end() + 2], "big")
        ranges.append((match.end() + 2, min(len(data), match.end() + 2 + length)))
    return joined([*ranges, *_credentials(data)])


def _credentials(data: bytes) -> packets.Ranges:
    """Secrets in packets as far as these are found, each separately: hiding a value must not hide a header."""
    if not suspicions(data):
        return []
    at, needed = find_packets(data, 0, (_V5, ProtocolVersion.V3_1_1), final=True)
    if needed:
        at = len(data)
    ranges = [*token_ranges(data[:at]), *packets.secret_pairs(data[:at], 0)]
    while at < len(data):
        body, end = packet_end(data, at, len(data))
        if body <= 0:
            break
        ranges += [(at + first, at + last) for first, last in packets.credentials_in_beginning(data[at:end])]
        at = end
    return ranges
