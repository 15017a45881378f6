"""`explain --message` has no other fate for a message that the linter reports as lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect_segments, segments
from mqttscope.errors import MqttscopeError
from mqttscope.explain import message_report, messages
from mqttscope.explain.fates import Fate
from mqttscope.explain.message_report import MessageReport
from mqttscope.explain.messages import MessageWatch
from mqttscope.lint.catalogue import select
from mqttscope.lint.engine import Linter
from tests import corpora
from tests.conftest import ROOT

RULE = "DLV410"
MOST_BYTES = 2_000_000
"""Size of the largest capture that is read."""


def fates_of_lost_messages(path: Path) -> list[tuple[str, list[Fate]]]:
    """What `explain --message` says of each message and client that the linter names."""
    watch, linter = MessageWatch("#"), Linter([select()[RULE]()])
    findings = []
    try:
        for event in dissect_segments(segments(open_capture([str(path)]), Counter())):
            watch.feed(event)
            findings += linter.feed(event)
    except (MqttscopeError, OSError):
        pass
    fates: dict[tuple[int, str], list[Fate]] = {}
    for message in MessageReport(watch).trace(missed=True).messages:
        assert message.published is not None
        for delivery in message.deliveries:
            fates.setdefault((message.published.frame, delivery.client), []).append(delivery.fate)
    return [
        (finding.message, fates.get((place.frame, finding.client_identifier or finding.client), []))
        for finding in findings
        for place in finding.related
        if place.message == "the message as published"
    ]


@pytest.mark.parametrize("root", [pytest.param(ROOT, id="project"), *corpora.collections("captures/**/*.pcap")])
def test_a_lost_message_of_the_linter_was_not_sent(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_report, "MAX_SHOWN", messages.MAX_MESSAGES)
    files = [path for path in sorted(root.glob("captures/**/*")) if path.suffix in (".pcap", ".pcapng", ".cap")]
    read = [row for path in files if path.stat().st_size < MOST_BYTES for row in fates_of_lost_messages(path)]

    assert [message for message, fates in read if Fate.NOT_SENT not in fates] == []
    assert read or root != ROOT
