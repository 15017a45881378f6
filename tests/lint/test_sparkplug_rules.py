"""Rules of Sparkplug B where a capture proves no fault: bridges, repetitions, lost bytes; and values by data type."""

from __future__ import annotations

import pytest

from mqttscope.lint.finding import Confidence
from mqttscope.lint.rules.sparkplug import expanded
from mqttscope.lint.rules.sparkplug.payload_checks import contradiction
from mqttscope.payloads.sparkplug_wire import DATATYPES, Message
from tests.lint.lint_help import linted, steps_of

BORN = expanded("BORN")
ORDER = ("SPB265", "SPB267", "SPB268", "SPB269", "SPB274")
WILL = "will=spBv1.0/g/NDEATH/e will_payload=spb(bdSeq:Int64=0) will_qos=1"
JUMP = "> publish spBv1.0/g/NDATA/e spb(seq=5 T=1)"


def certainties(*lines: str, codes: tuple[str, ...] = ORDER) -> list[tuple[str, Confidence]]:
    return [(finding.rule, finding.confidence) for finding in linted(*steps_of(*lines), codes=codes)]


def test_only_the_will_of_the_edge_node_proves_who_broke_the_order() -> None:
    certain, likely = Confidence.CERTAIN, Confidence.LIKELY
    assert certainties(BORN, JUMP) == [("SPB265", certain)]
    assert certainties(f"opened 3.1.1 {WILL}", JUMP) == [("SPB267", certain)]
    assert certainties("opened 3.1.1", JUMP) == [("SPB267", likely)]
    assert certainties(f"opened 3.1.1 {WILL.replace('/e ', '/other ')}", JUMP) == [("SPB267", likely)]


def test_messages_that_a_bridge_forwards_are_not_its_own() -> None:
    bridge = "opened 3.1.1 will=$SYS/broker/connection/b/state will_payload=0 will_qos=1"
    assert certainties(bridge, JUMP, "> publish spBv1.0/g/NDATA/e spb(seq=9 X=1)", "> disconnect") == []


def test_a_message_that_is_sent_again_is_not_judged_again() -> None:
    data = "> publish spBv1.0/g/NDATA/e spb(seq=1 T=1) qos=1 id=7"
    assert certainties(BORN, data, f"{data} dup", "< puback 7", "> publish spBv1.0/g/NDATA/e spb(seq=2 T=1)") == []


def test_after_lost_bytes_only_later_births_are_judged() -> None:
    lost = "lost > publish spBv1.0/g/DBIRTH/e/d spb(seq=1 S:Double=1.5)"
    data = "> publish spBv1.0/g/DDATA/e/d spb(seq=2 S=1)"
    assert certainties(BORN, lost, data, "> publish spBv1.0/g/NDATA/e spb(seq=3 X=1)") == []
    birth = BORN.rpartition("; ")[2]
    assert certainties(BORN, lost, data, birth, JUMP) == [("SPB265", Confidence.LIKELY)]


@pytest.mark.parametrize(
    ("datatype", "holder", "has_fault"),
    [
        ("Int8", {"int_value": 0xFF}, False),
        ("Int8", {"int_value": (1 << 32) - 128}, False),
        ("Int8", {"int_value": (1 << 32) - 129}, True),
        ("Int16", {"long_value": (1 << 64) - 5}, False),
        ("Int16", {"long_value": 1 << 16}, True),
        ("UInt8", {"int_value": 256}, True),
        ("UInt32", {"long_value": 5}, False),
        ("DateTime", {"int_value": 5}, False),
        ("Double", {"float_value": 1.0}, True),
        ("Boolean", {"int_value": 1}, True),
        ("FloatArray", {"bytes_value": b"x"}, False),
        ("Unknown", {"string_value": "x"}, False),
        ("String", {}, False),
    ],
)
def test_values_that_contradict_their_data_type(datatype: str, holder: Message, has_fault: bool) -> None:
    assert bool(contradiction(holder, DATATYPES.index(datatype))) is has_fault
    assert contradiction(holder, 99) == ""
