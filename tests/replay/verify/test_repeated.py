"""Which answers came once more for the same packet, and which of them were asked for."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import ProtocolVersion
from mqttscope.replay.verify.answers import repeated
from tests.replay.talk import V5, asked, record

V3_1 = ProtocolVersion.V3_1
SUBSCRIBED = "dev > subscribe 1 a:2", "dev < suback 1 2"
GOT = "dev < publish a x qos=2 id=7", "dev > pubrec 7", "dev < pubrel 7"
SENT = "dev > publish a x qos=1 id=1", "dev < puback 1"


def found(*lines: str, version: ProtocolVersion = V5) -> list[tuple[str, str, bool]]:
    (script,) = record(asked(*lines), version)
    return [(one.entry.type, one.request.type, one.asked) for one in repeated(script)]


@pytest.mark.parametrize(
    ("lines", "again"),
    [
        (SENT, []),
        ((*SENT, *SENT), []),
        ((*SENT, "dev < puback 1"), [("puback", "publish", False)]),
        ((*SENT, "dev > publish a x dup qos=1 id=1", "dev < puback 1"), [("puback", "publish", True)]),
        (("dev < connack",), [("connack", "connect", False)]),
        (("dev > pingreq", "dev > pingreq", "dev < pingresp", "dev < pingresp"), []),
        (("dev > pingreq", "dev < pingresp", "dev < pingresp"), [("pingresp", "pingreq", False)]),
        ((*SUBSCRIBED, *GOT, "dev > pubcomp 7", *GOT, "dev > pubcomp 7"), []),
        ((*SUBSCRIBED, *GOT, "dev < pubrel 7"), [("pubrel", "pubrec", False)]),
        (("dev < pubrel 7", "dev > pubcomp 7"), []),
        (("dev < pubrel 7", "dev > pubcomp 7", "dev < pubrel 7"), [("pubrel", "pubrel", False)]),
        (("dev < puback 1", "dev < puback 1"), []),
    ],
)
def test_answers_are_counted_by_what_asks_for_them(lines: tuple[str, ...], again: list[tuple[str, str, bool]]) -> None:
    assert found(*lines) == again


def test_in_3_1_a_pubrel_says_that_it_is_sent_again() -> None:
    lines = (*SUBSCRIBED, *GOT)

    assert found(*lines, "dev < raw 6a020007", version=V3_1) == [("pubrel", "pubrec", True)]
    assert found(*lines, "dev < raw 62020007", version=V3_1) == [("pubrel", "pubrec", False)]
