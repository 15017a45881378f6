"""Where findings point to."""

from __future__ import annotations

import pytest

from mqttscope.lint.examples import Step, client, hexadecimal, opened
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.properties import Properties
from tests.lint.lint_help import linted


def place(code: str, *steps: Step) -> tuple[int | None, int | None, bytes]:
    (finding,) = linted(*opened(connack=Properties(maximum_qos=0)), *steps, codes=(code,))
    return finding.offset, finding.length, finding.raw


def test_a_bit_of_the_fixed_header_is_its_byte() -> None:
    offset, length, _ = place("PUB209", client(Publish(qos=1, topic_name="a", packet_identifier=1)))

    assert (offset, length) == (0, 1)


def test_a_fault_is_its_field() -> None:
    raw = hexadecimal("30 08 00 03 61 2f ff 00 68 69")

    assert place("ENC101", client(raw)) == (2, 5, raw)


def test_the_packet_as_a_whole_is_all_its_bytes() -> None:
    offset, length, raw = place("CON212", opened()[0])

    assert (offset, length) == (0, len(raw))


@pytest.mark.parametrize("cut", [b"\x30", b"\x30\x05\x00"])
def test_a_truncated_packet_has_a_place_within_its_bytes(cut: bytes) -> None:
    from mqttscope.lint.examples import closes

    for finding in linted(*opened(), client(cut), closes("client")):
        if finding.packet == 2:
            assert finding.offset is not None
            assert finding.length is not None
            assert finding.offset + finding.length <= len(cut)
