"""Lines of packets and connections."""

from __future__ import annotations

from itertools import pairwise

import pytest

from mqttscope.browse.lines import TIMES, ConnectionLines, RowLines
from mqttscope.browse.rows import PACKETS, RowKind
from mqttscope.report.base import View
from mqttscope.report.escape import cells
from tests.browse.made import built, capture


def test_no_line_is_longer_than_the_screen() -> None:
    index = built(capture("planted-violations"), lint=True)
    for width in (24, 60, 80, 139, 200):
        lines = RowLines(index, View(width=width))
        packets = [at for at in range(len(index.rows)) if index.rows[at].kind in PACKETS]
        texts = [lines.line(at, at - 1 if at else None) for at in packets]
        connections = ConnectionLines(index, View(width=width))
        texts += [connections.line(at) for at in range(len(index.connections))]
        assert max(map(cells, texts)) <= width


@pytest.mark.parametrize("time", TIMES)
def test_times(time: str) -> None:
    index = built(capture("v5-qos"))
    lines = RowLines(index, View(width=100, time=time))
    shown = [lines.line(at, at - 1 if at else None)[2:].split()[0] for at in range(len(index.rows))]
    rows = [index.rows[at].timestamp_ns for at in range(len(index.rows))]

    if time == "relative":
        assert shown == [f"{(row - rows[0]) // 1000 / 1e6:.6f}" for row in rows]
    elif time == "delta":
        assert [float(text) for text in shown[1:]] == pytest.approx(
            [(number - before) / 1e9 for before, number in pairwise(rows)], abs=1e-6
        )
    elif time == "epoch":
        assert shown[0].startswith("1795")
    else:
        assert shown[0].count(":") == 2
    # In whatever order they come into view.
    again = RowLines(index, View(width=100, time=time))
    last = len(index.rows) - 1
    assert again.line(last, last - 1) == lines.line(last, last - 1)


def test_signs_and_marks_and_what_inspect_wraps_is_one_line() -> None:
    index = built(capture("planted-violations"), lint=True)
    lines = RowLines(index, View(width=60))
    worst = {index.rows[at].severity: at for at in range(len(index.rows))}
    wrong = [lines.line(at) for at in range(len(index.rows)) if index.rows[at].kind == RowKind.MALFORMED]

    assert lines.line(worst[3]).startswith("E ")
    assert lines.line(worst[3], marked=True).startswith("E*")
    assert lines.line(worst[0]).startswith("  ")
    assert any("utf8_null_character: topic_name at byte 9: contains U+0000" in line for line in wrong)
    assert all("\n" not in line for line in wrong)


def test_states_of_connections() -> None:
    def states(name: str) -> set[str]:
        index = built(capture(name))
        lines = ConnectionLines(index, View(width=120))
        return {lines.line(number)[7:20].strip() for number in range(len(index.connections))}

    assert states("v5-qos") == {"closed"}
    assert "refused" in states("refused-connects")
    assert "reset" in states("reset-by-middlebox")
