"""Explanations as comments on frames."""

from __future__ import annotations

from tests.report.comments import Comments
from tests.report.explanations.samples import nodes, report, traces


def test_an_end_and_its_evidence_are_comments() -> None:
    comments = Comments()
    report("pcapng", "link-lost-keep-alive", sink=comments)

    texts = [text for _, _, text in comments.rows]
    (end,) = (text for text in texts if text.startswith("END "))
    assert end.startswith("END keep_alive (")
    assert " Also possible: " in end
    assert " To change: " in end
    assert any(text.startswith("FOR keep_alive, connection 0: ") for text in texts)
    assert comments.about.startswith("mqttscope explain: 1 connection of 2 ended in trouble: ")


def test_messages_and_their_deliveries_are_comments() -> None:
    comments = Comments()
    traces("pcapng", "v5-qos", "#", sink=comments)

    kinds = {text.split(" ")[0] for _, _, text in comments.rows}
    assert {"MESSAGE", "DELIVERED"} <= kinds
    assert all(frame > 0 and capture.endswith("capture.pcapng") for capture, frame, _ in comments.rows)


def test_the_evidence_of_answers_about_edge_nodes_is_comments() -> None:
    comments = Comments()
    nodes("pcapng", sink=comments)

    assert [text.partition(": A host")[0] for _, _, text in comments.rows if "rebirth request" in text] == [
        "NODE g/e: rebirth requested (likely)"
    ] * 2
