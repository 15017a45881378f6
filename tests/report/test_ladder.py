from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from mqttscope.events import Event
from mqttscope.mqtt import ControlPacket, Pingreq, Pingresp, Puback, Pubcomp, Pubrec, Pubrel
from mqttscope.report.ladder import ExchangeTags, Ladder
from tests.each import each
from tests.report.make import MS, V3_1_1, Talk, acknowledged, conversation, publish, shown

GOLDEN = """\
── 2026-01-02 UTC
03:04:05.124456 ── #0 10.0.0.4:51234 → 10.0.0.2:1883 opened
03:04:05.125456 #0 dev1   ├─ ① PUBLISH q2 id=7 a/b  hi ───────────────────────▶│
03:04:05.126456 #0 dev1   ├─ ② PUBLISH q1 id=8 a/c  hi ───────────────────────▶│
03:04:05.127456 #0 dev1   │◀────────────────────── ① PUBREC id=7  a/b  2.0 ms ─┤
03:04:05.128456 #0 dev1   ├─ ① PUBREL id=7  a/b ──────────────────────────────▶│
03:04:05.140756 #0 dev1   │◀──────────────────── ① PUBCOMP id=7  a/b  15.3 ms ─┤
03:04:05.141756 #0 dev1   ├─ PUBLISH q0 a/d  hi ──────────────────────────────▶│
03:04:05.142756 #0 dev1   ├─ ② PUBLISH q1 dup id=8 a/c  hi ───────────────────▶│
03:04:05.143756 #0 dev1   ┊ → GAP 1 byte acknowledged but not captured         ┊
03:04:05.144756 #0 dev1   │◀───────────────────── ② PUBACK id=8  a/c  18.3 ms ─┤
03:04:05.145756 #0 dev1   ├─ ③ PUBLISH q1 id=9 a/e  hi ───────────────────────▶│
"""


def handshakes() -> Iterator[Event]:
    talk = Talk(V3_1_1)
    yield talk.opened()
    yield talk.say(publish("a/b", qos=2, packet_identifier=7))
    yield talk.say(publish("a/c", qos=1, packet_identifier=8))
    yield talk.answer(Pubrec(packet_identifier=7))
    yield talk.say(Pubrel(packet_identifier=7))
    yield talk.answer(Pubcomp(packet_identifier=7), after=12 * MS + 300_000)
    yield talk.say(publish("a/d"))
    yield talk.say(publish("a/c", qos=1, packet_identifier=8, dup=True))
    yield talk.gap(1)
    yield talk.answer(Puback(packet_identifier=8))
    yield talk.say(publish("a/e", qos=1, packet_identifier=9))


def test_handshakes_carry_one_tag_and_end_with_their_duration() -> None:
    lines = shown(Ladder, handshakes(), width=80)
    assert lines == GOLDEN.splitlines()


def test_without_unicode_it_is_drawn_in_ascii() -> None:
    lines = shown(Ladder, handshakes(), width=80, unicode=False)
    assert lines[2] == "03:04:05.125456 #0 dev1   |- (1) PUBLISH q2 id=7 a/b  hi --------------------->|"
    assert lines[4] == "03:04:05.127456 #0 dev1   |<-------------------- (1) PUBREC id=7  a/b  2.0 ms -|"


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_both_bars_stand_in_one_column(width: int) -> None:
    rungs = [line for line in shown(Ladder, conversation(), width=width) if line.endswith(("│", "┤"))]
    assert len(rungs) > 20
    assert {len(line) for line in rungs} == {width}
    assert len({min(line.index(bar) for bar in "├│" if bar in line) for line in rungs}) == 1


def rungs(*packets: ControlPacket, answers: str = "") -> list[str]:
    """The lines of packets; ``answers`` are the places of those that the server sends."""

    def events() -> Iterator[Event]:
        talk = Talk()
        for at, packet in enumerate(packets):
            yield talk.answer(packet, after=3 * MS) if str(at) in answers else talk.say(packet)
        yield talk.closed()

    return shown(Ladder, events(), width=0)


ONE, OTHER = (publish(topic, qos=1, packet_identifier=1) for topic in "ab")


def test_exchanges_without_an_answer_are_named_at_the_end() -> None:
    last = rungs(ONE, *(publish("b", qos=2, packet_identifier=number) for number in range(2, 10)))[-1]
    assert "unanswered: ① PUBLISH id=1, ② PUBLISH id=2, " in last
    assert last.endswith(", 4 more")


@each(
    "packets, answers, tags",
    [
        # A Packet Identifier that is used anew is a new exchange.
        ((ONE, OTHER, Puback(1)), "2", "①②②"),
        # The same identifier of both directions is two exchanges.
        ((ONE, OTHER, Puback(1), Puback(1)), "12", "①②①②"),
        ((Pingreq(), Pingresp()), "1", "①①"),
    ],
)
def test_exchanges_have_tags(packets: tuple[ControlPacket, ...], answers: str, tags: str) -> None:
    lines = rungs(*packets, answers=answers)[:-1]
    assert "".join(re.findall("[①②③]", "".join(lines))) == tags
    assert "PINGRESP" not in lines[-1] or "① PINGRESP 3.0 ms" in lines[-1]


def test_interleaved_connections_keep_their_names() -> None:
    talk, two = Talk(number=0, identifier="one"), Talk(number=1, identifier="two")
    events = [talk.say(publish()), two.say(publish()), talk.answer(publish())]
    lines = shown(Ladder, events, width=80)[1:]
    assert [line[16:22] for line in lines] == ["#0 one", "#1 two", "#0 one"]


def test_tags_go_round_and_never_stand_for_two_exchanges() -> None:
    tags = ExchangeTags()
    first = [tags.begin(0, packet) for packet in range(30)]
    assert sorted(first) == list(range(1, 31))
    assert tags.begin(0, 5) == first[5]
    for packet in range(30):
        tags.end(0, packet)
    again = [tags.begin(1, packet) for packet in range(20)]
    assert sorted(again) == list(range(1, 21))
    tags.forget(1)
    assert tags.begin(2, 0) <= 20
    assert tags.number_of(1, 3) is None


def test_packets_that_were_never_acknowledged_have_a_sign_and_a_legend() -> None:
    *lines, legend = shown(Ladder, acknowledged(), width=80)
    assert [line for line in lines if "✗" in line] == [lines[3]]
    assert "├─ ✗ ③ PINGREQ ─" in lines[3]
    assert legend == "✗ never acknowledged by TCP"
    assert shown(Ladder, acknowledged(), width=80, unicode=False)[-1] == "x never acknowledged by TCP"
    assert "never acknowledged" not in "".join(shown(Ladder, handshakes(), width=80))
