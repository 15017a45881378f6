from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.mqtt import ControlPacket, ProtocolVersion
from mqttscope.mqtt.codec import packet_end
from mqttscope.mqtt.declare import PACKETS, plan
from mqttscope.mqtt.wire import Fault
from mqttscope.mqtt.written import decoder
from tests.conftest import EXHAUSTIVE
from tests.mqtt.cases import CASES
from tests.mqtt.strategies import almost

VERSIONS = list(ProtocolVersion)
WRITTEN = (3, 4, 5, 6, 7)


def outcome(decode: Callable[[bytes, int], ControlPacket], raw: bytes, body: int) -> object:
    """The packet with all its attributes, or where and why it was refused."""
    try:
        made = decode(raw, body)
    except Fault as fault:
        return fault.reason, fault.offset, fault.detail, fault.field
    names = [*(row.name for row in made.declaration), "raw", "header_flags", "missing"]
    return type(made), [(name, type(getattr(made, name)), getattr(made, name)) for name in names]


def check(raw: bytes, version: ProtocolVersion) -> None:
    body, _ = packet_end(raw, 0, len(raw))
    if body > 0 and raw[0] >> 4 in WRITTEN:
        kind = raw[0] >> 4
        assert outcome(decoder(kind, version), raw, body) == outcome(plan(PACKETS[kind], version), raw, body)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", WRITTEN)
def test_written_out_decoders_give_what_the_declaration_gives(kind: int, version: ProtocolVersion) -> None:
    tried = 0
    for case in CASES:
        for flags in range(16):
            tried += 1
            check(bytes((kind << 4 | flags,)) + case.raw[1:], version)
    assert tried > 1_000


@pytest.mark.slow
@given(st.sampled_from(VERSIONS).flatmap(lambda version: st.tuples(st.just(version), almost(version))))
@settings(max_examples=2_000 if EXHAUSTIVE else 500, deadline=None, derandomize=True)
def test_also_for_damaged_packets(given_bytes: tuple[ProtocolVersion, bytes]) -> None:
    version, raw = given_bytes
    if raw:
        for kind in WRITTEN:
            check(bytes((kind << 4 | raw[0] & 15,)) + raw[1:], version)
