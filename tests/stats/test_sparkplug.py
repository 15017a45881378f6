"""Counts of edge nodes of Sparkplug."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.lint.examples import conversation, segments
from mqttscope.net.frame import Frame
from mqttscope.stats.collect import Statistics
from mqttscope.stats.sparkplug import NodeCounts, NodeRow
from tests.cli.running import invoke
from tests.dissect.secure import as_frame
from tests.each import each
from tests.explain.running import capture
from tests.kernel.comparison import count_natively, count_purely
from tests.kernel.mutation import Record, written
from tests.lint.lint_help import steps_of

DATA = "> publish spBv1.0/g/NDATA/e spb(seq={})"
BIRTH = "> publish spBv1.0/g/NBIRTH/e spb(seq=0)"


def counted(*lines: str) -> NodeCounts:
    """The edge nodes of a conversation; both ways of feeding count the same."""
    statistics, nodes = Statistics(), NodeCounts()
    for event in dissect_segments(segments(conversation("", *steps_of("opened client=e", *lines)))):
        statistics.feed(event)
        nodes.feed(event)
    assert statistics.nodes.rows == nodes.rows
    return nodes


def row(*lines: str) -> NodeRow:
    return counted(*lines).rows["10.0.0.2:1883", "g/e"]


def test_messages_are_counted_by_direction() -> None:
    node = row(
        BIRTH, "> publish spBv1.0/g/DBIRTH/e/d spb(seq=1)", DATA.format(2), "< publish spBv1.0/g/NDATA/e spb(seq=2)",
        "> publish spBv1.0/g/DDEATH/e/d spb(seq=3)", "< publish spBv1.0/g/NDEATH/e spb(bdSeq:Int64=0)",
        "< publish spBv1.0/g/NCMD/e spb(T=1)",
    )  # fmt: skip

    assert (node.births, node.deaths, node.data, node.gaps) == ([2, 0], [1, 1], [1, 1], [0, 0])
    assert node.first_ns < node.last_ns


@each(
    "lines, gaps",
    [
        ([BIRTH, DATA.format(1), DATA.format(3), DATA.format(4)], 1), ([DATA.format(255), DATA.format(0)], 0),
        ([DATA.format(7), BIRTH], 0), ([BIRTH, DATA.format(0)], 1),
        ([BIRTH, "lost " + DATA.format(1), DATA.format(2)], 0),
        ([BIRTH, "> publish spBv1.0/g/NDATA/e 0xff", DATA.format(2)], 0),
        ([BIRTH, DATA.format(1) + " qos=1 id=1", DATA.format(1) + " qos=1 id=1 dup", DATA.format(2)], 0),
    ],
)  # fmt: skip
def test_gaps_of_the_sequence(lines: list[str], gaps: int) -> None:
    assert row(*lines).gaps == [gaps, 0]


def test_statistics_have_edge_nodes_with_the_kernel_and_without(tmp_path: Path) -> None:
    path = capture("sparkplug-deviations")
    (node,) = invoke("stats", path, "--format", "json").document["edge_nodes"]

    assert node["node"] == "plant/valve"
    assert node["births"] == {"client_to_server": 2, "server_to_client": 2}
    assert node["seq_gaps"] == {"client_to_server": 1, "server_to_client": 2}
    filtered = invoke("stats", path, "--format", "json", "--filter", "type == publish").document["edge_nodes"]
    assert filtered == [node]
    text = invoke("stats", path).text
    assert "Edge nodes of Sparkplug" in text
    assert "plant/valve   2 / 2   0 / 1  5 / 5  1 / 2" in text
    page = tmp_path / "page.html"
    assert invoke("stats", path, "--output", page).code == 0
    assert "Edge nodes of Sparkplug" in page.read_text("utf-8")
    assert "edge_nodes" not in invoke("stats", capture("keep-alive"), "--format", "json").document


def test_edge_nodes_of_one_name_at_two_servers_are_kept_apart(tmp_path: Path) -> None:
    path, frames = tmp_path / "two.pcap", list[Frame]()
    for server, lines in (("10.0.0.2:1883", [BIRTH, DATA.format(1)]), ("10.0.0.3:1883", [BIRTH, DATA.format(5)])):
        recorded = conversation("", *steps_of("opened client=e", *lines, "> disconnect; > fin; < fin"), server=server)
        frames += map(as_frame, segments(recorded))
    records = [Record(frame.timestamp_ns, frame.data, frame.original_length) for frame in frames]
    path.write_bytes(written(frames[0].link_type, records))

    natively, purely = (
        json.loads(reading.lines)["edge_nodes"]
        for reading in (count_natively(path.read_bytes()) or pytest.skip("no kernel"), count_purely(path.read_bytes()))
    )
    assert natively == purely
    assert [(row["server"], row["node"], row["seq_gaps"]["client_to_server"]) for row in purely] == [
        ("10.0.0.2:1883", "g/e", 0), ("10.0.0.3:1883", "g/e", 1),
    ]  # fmt: skip
    assert "g/e   10.0.0.3:1883   1 / 0" in invoke("stats", path).text
