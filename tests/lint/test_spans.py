"""Where findings point to."""

from __future__ import annotations

import pytest

from mqttscope.lint.examples import Step, client, hexadecimal, opened
from mqttscope.lint.finding import MAX_PLACES
from mqttscope.mqtt.packets import Publish, Subscribe
from mqttscope.mqtt.parts import Subscription
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


def test_a_packet_is_traced_once_for_all_its_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thousand faults of several rules: the packet is walked once for their places."""
    from mqttscope.mqtt import codec

    traced: list[int] = []
    original = codec.trace

    def trace(raw: bytes, *rest: object) -> object:
        traced.append(len(raw))
        return original(raw, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(codec, "trace", trace)
    rows = [Subscription(f"a/#/{number}\x01", 3) for number in range(2_000)]
    found = [one for one in linted(*opened(), client(Subscribe(1, subscriptions=rows))) if one.packet == 2]

    assert len({one.rule for one in found}) > 2
    assert len(traced) == 1
    (wrong,) = [one for one in found if one.rule == "SUB107"]
    assert wrong.count == 2_000
    assert wrong.message.endswith(", and 1,999 more")
    assert [one.field for one in wrong.places] == [f"subscriptions[{n}].topic_filter" for n in range(MAX_PLACES)]
    assert [wrong.raw[one.offset :][: one.length] for one in wrong.places] == [
        len(row.topic_filter).to_bytes(2, "big") + row.topic_filter.encode() for row in rows[:MAX_PLACES]
    ]
    assert (wrong.field, wrong.offset, wrong.length) == (
        wrong.places[0].field,
        wrong.places[0].offset,
        wrong.places[0].length,
    )


def test_a_packet_without_findings_is_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    from mqttscope.mqtt import codec

    monkeypatch.delattr(codec, "trace")

    assert linted(*opened(), client(Publish(topic_name="a", payload=b"x")), codes=("SUB107", "PUB101")) == []
