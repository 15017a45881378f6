"""The meaning of a wrong checksum: each row of "Damaged segments" in docs/connections.md has a case here."""

from __future__ import annotations

import re
from typing import Final

import pytest

from mqttscope.net import damage
from mqttscope.net.flows import FlowTable
from mqttscope.net.reassembly import START_WINDOW
from tests.conftest import ROOT
from tests.net.script import UNFINISHED, VERIFIED, feed, parse, play, render, script
from tests.tables import cases_of, steps

CONNECT: Final = "\x10\x0e~\x04MQTT\x04~~<~\x02ab"
OTHER: Final = "\x10\x0e~\x04MQTT\x04~~<~\x02aj"
BYTES: Final = CONNECT.replace("~", "\0")


def rows_of(text: str) -> dict[str, tuple[list[str], list[str]]]:
    """Segments and events by the names of cases."""
    return {str(row.id): row.values for row in cases_of(text, script, steps)}


DAMAGED: Final = rows_of(f"""
copy-follows
    verified; >! A 101:abX 501; >+ A 101:abc 501; <+ A 501 104; >+ A 104:d 501 |
    opened; > 0:abc; > discarded 3 damaged; > 3:d; closed capture_end
copy-came-before
    verified; >+ A 101:abc 501; <+ A 501 104; >! A 101:abX 501; >+ A 104:d 501 |
    opened; > 0:abc; > discarded 3 damaged; > 3:d; closed capture_end
copy-out-of-order
    verified; >! A 104:dXf 501; >+ A 104:def 501; >+ A 101:abc 501; <+ A 501 107 |
    opened; > discarded 3 damaged; > 0:abcdef; closed capture_end
never-acknowledged
    verified; >+ A 101:abc 501; >! A 104:dXf 501; <+ A 501 104; <+ A 501:xyz 104 |
    opened; > 0:abc; < 0:xyz; > discarded 3 damaged; closed capture_end
syn-sent-again
    >! S 7700; >+ S 100; <+ SA 500 101; >+ A 101:abc 501 | opened; > 0:abc; closed capture_end
syn-ack-sent-again
    >+ S 100; <! SA 900 101; >+ S 100 t=1; <! SA 500 165; >+ S 100 t=2; <! SA 501 101; >+ S 100 t=3; <+ SA 500 101;
      >+ A 101 501; <+ A 501:abc 101; >+ A 101 504 |
    opened; < 0:abc; closed capture_end
reset-between
    verified; >! R 101 0; <! RA 501 101; >+ A 101:abc 501; <+ A 501:xyz 104 |
    opened; > 0:abc; < 0:xyz; closed capture_end
fin-between
    verified; >! FA 101 501; <+ A 501:xyz 101; >+ A 101:abc 504; >+ FA 104 504; <+ FA 504 105 |
    opened; < 0:xyz; > 0:abc; > closed fin; < closed fin; closed fin
empty-acknowledgment
    verified; <! A 501 4197; >+ A 101:abc 501; <+ A 501 104 | opened; > 0:abc; closed capture_end
other-beginning
    verified; >+ A 101:{CONNECT} 501; >! A 101:{OTHER} 501; >+ A 117:abc 501 |
    opened; > 0:{BYTES}; > discarded 16 damaged; > 16:abc; closed capture_end
stranger
    >! A 101:abc 501 | opened; > discarded 3 damaged; closed capture_end
stranger-of-taps
    >! A 101:abc 501; >! A 101:abc 501; >! A 101:abc 501 |
    opened; > discarded 3 damaged; > discarded 3 damaged; > discarded 3 damaged; closed capture_end
strangers
    >! A 101:abc 501; >! A 105:def 501 | opened; > discarded 3 damaged; > discarded 3 damaged; closed capture_end
""")
USED: Final = rows_of("""
accepted
    verified; >+ A 101:abc 501; >! A 104:dXf 501; <+ A 501:xyz 107; >+ A 107:g 504 |
    opened; > 0:abc; > overlap 3+3; > 3:dXf; < 0:xyz; > 6:g; closed capture_end
accepted-fin
    verified; >! FA 101 501; <+ A 501 102; <+ FA 501 102 | opened; > overlap 0+0; > closed fin; < closed fin; closed fin
edited-payload
    verified; >! A 101:abc 501; <+ A 501 104; >! A 104:def 501; <! A 501:xyz 107; >+ A 107 504 |
    opened; > overlap 0+3; > 0:abc; > overlap 3+3; > 3:def; < overlap 0+3; < 0:xyz; closed capture_end
edited-to-the-end
    verified; >! A 101:abc 501; <+ A 501 104; >! A 104:def 501 |
    opened; > overlap 0+3; > 0:abc; > overlap 3+3; > 3:def; closed capture_end
edited-direction
    >! S 100; <+ SA 500 101; >! A 101 501; >! A 101:abc 501; <+ A 501:xyz 104; >! R 104 0 |
    opened; > 0:abc; < 0:xyz; > closed reset; < closed reset; closed reset
edited-capture
    >! S 100; <! SA 500 101; >! A 101 501; >! A 101:abc 501; <! A 501:xyz 104 |
    opened; > 0:abc; < 0:xyz; closed capture_end
edited-and-short
    >! A 101:abc 501; <! A 501:xyz 104 | opened; > 0:abc; < 0:xyz; closed capture_end
one-direction
    >+ S 100; >+ A 101:abc 501; >! A 104:def 501; >+ A 107:ghi 501 t=1; >+ A 110:j 501 t=9 |
    opened; > 0:abc; > overlap 3+3; > 3:defghi; > 9:j; closed capture_end
""")


def table() -> list[tuple[str, str]]:
    """Names and verdicts of the table."""
    text = (ROOT / "docs" / "connections.md").read_text(encoding="utf-8")
    section = text.partition("\n## Damaged segments\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([a-z0-9-]+)` \| .+ \| (\w+) \|$", section, re.MULTILINE)


def test_the_table_names_each_case() -> None:
    assert sorted(table()) == sorted(
        [(name, "damaged") for name in (*DAMAGED, "clock-ahead")] + [(name, "used") for name in (*USED, "not-verified")]
    )


@pytest.mark.parametrize("name", [*DAMAGED, *USED])
def test_what_a_wrong_checksum_means(name: str) -> None:
    lines, expected = (DAMAGED | USED)[name]
    assert play(lines) == expected


def test_a_damaged_time_stamp_does_not_change_the_clock() -> None:
    """Case `clock-ahead`: the clock of the flow stays behind, so that the valid copy is of the same connection."""
    table = FlowTable()
    segments = parse([*VERIFIED, ">! A 101:abX 501", ">+ A 101:abc 501", "<+ A 501 104", ">+ A 104:d 501"])
    for at, segment in enumerate(segments):
        ticks = 0xF0000000 if at == 3 else 1000 + at
        segment.options = b"\x01\x01\x08\x0a" + ticks.to_bytes(4, "big") + bytes(4)
    (flow,) = {id(event.flow): event.flow for event in feed(table, segments)}.values()
    assert flow.initiator.options[4:8] == (1006).to_bytes(4, "big")
    assert flow.initiator.damaged_segments == 1
    assert flow.initiator.delivered_bytes == 4


def test_without_verification_segments_are_used_as_captured() -> None:
    """Case `not-verified`."""
    lines, _ = DAMAGED["copy-follows"]
    expected = ["opened", "> 0:abX", "> overlap 2+1", "> 3:d", UNFINISHED]
    assert play(lines, FlowTable(verify_checksums=False)) == expected


@pytest.mark.parametrize("count", [damage.UNPROVEN - 1, damage.UNPROVEN])
def test_so_many_segments_show_that_a_tool_has_made_the_capture(count: int) -> None:
    lines = [">! S 100", ">! A 101:abc 501", ">! A 104:def 501"][:count]
    events = feed(FlowTable(), parse(lines))
    shown = [render(event) for event in events]
    assert shown == ["opened", *([] if count < damage.UNPROVEN else ["> 0:abc", "> 3:def"])]


@pytest.mark.parametrize(
    ("acknowledges", "waits"),
    [(103, True), (104, False), (104 + START_WINDOW, False), (105 + START_WINDOW, True)],
)
def test_an_acknowledgment_of_all_of_its_bytes_accepts_a_segment(acknowledges: int, waits: bool) -> None:
    table = FlowTable()
    feed(table, parse([*VERIFIED, ">! A 101:abX 501", f"<+ A 501 {acknowledges}"]))
    (flow,) = table.flows.values()
    assert bool(flow.damaged) is waits


def test_a_flow_takes_the_fast_path_again_when_nothing_waits() -> None:
    table = FlowTable()
    feed(table, parse([*VERIFIED, ">! A 101:abX 501"]))
    *_, copy, more = parse([*VERIFIED, ">+ A 101:abc 501 t=1", ">+ A 104:d 501 t=1.1"])
    assert table.take_in_order(copy) is None
    table.feed(copy)
    assert table.take_in_order(more) is not None


def test_a_connection_begins_with_its_first_valid_segment() -> None:
    events = feed(FlowTable(), parse([">! S 7700 t=1", ">+ S 100 t=5", "<+ SA 500 101 t=5.1"]))
    flow = events[0].flow
    assert (flow.first_frame, flow.opened_ns, flow.initiator.initial_sequence) == (2, 5_000_000_000, 100)


def test_a_damaged_reset_of_no_known_connection_opens_none() -> None:
    assert play([">! R 100 0"]) == []
