"""No matter what bytes are decoded in whatever version, the answer is a value, and every byte is accounted for.

The spans of a packet partition its bytes; the fast decoder and the examination agree; a well-formed packet encodes to
the bytes it came from, save for a Remaining Length that 3.x lets be longer than needed; what was read can be shown.
The input is the packet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from mqttscope.mqtt import ControlPacket, Malformed, ProtocolVersion, encode, trace
from mqttscope.mqtt.codec import SpanIndex, packet_end
from mqttscope.mqtt.packets import Connect
from mqttscope.mqtt.view import malformed_view, view
from tests.fuzz.material import streams
from tests.mqtt.cases import CASES
from tests.mqtt.checks import assert_sound
from tests.mqtt.conversation import conversation

MAX_LENGTH = 2_000


def check(data: bytes) -> None:
    """The law for one packet in every version."""
    for version in ProtocolVersion:
        packet = assert_sound(data, version)
        if isinstance(packet, Malformed):
            _check_malformed(packet, version)
        else:
            _check_good(packet, data, version)


def _check_good(packet: ControlPacket, data: bytes, version: ProtocolVersion) -> None:
    spoken = packet.version if isinstance(packet, Connect) else version
    again = encode(packet, version)
    if again != data:
        body, _ = packet_end(data, 0, len(data))
        minimal, _ = packet_end(again, 0, len(again))
        assert spoken < ProtocolVersion.V5, "a 5.0 packet encodes to other bytes"
        assert body > minimal, "the Remaining Length is not to blame"
        assert again[minimal:] == data[body:]
        assert again[0] == data[0]
    shown = json.loads(json.dumps(view(packet, spoken)))
    assert shown.keys() == view(packet, spoken, show_secrets=True).keys()
    view(packet, spoken, limit=3)
    for span in trace(data, version):
        place = SpanIndex(packet.raw, spoken).of(packet, span.field)
        assert place is not None
        assert 0 <= place.start <= place.end <= len(data)


def _check_malformed(malformed: Malformed, version: ProtocolVersion) -> None:
    json.dumps(malformed_view(malformed))
    malformed_view(malformed, limit=3)
    if malformed.packet is not None:
        json.dumps(view(malformed.packet, version, only=malformed.fields_read))


def seeds() -> Iterator[bytes]:
    """The table of packets and the packets of the captures."""
    yield from (case.raw for case in CASES)
    for version in ProtocolVersion:
        yield from conversation(version)
    for data in streams():
        at = 0
        while at < len(data):
            body, end = packet_end(data, at, len(data))
            if body <= 0 or end > len(data):
                break
            yield data[at:end]
            at = end
