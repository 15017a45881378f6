"""Topics of Sparkplug, read and recognised."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.payloads.sparkplug_topics import host_of_state, is_related, read_topic
from tests.each import each


@pytest.mark.parametrize(
    ("topic", "device"),
    [
        ("spBv1.0/g/NDATA/n", None),
        ("spBv1.0/g/DCMD/n/d", "d"),
        ("spBv1.0/STATE/host", ...),
        ("spBv1.0/g/NDATA", ...),
        ("spBv1.0/g/NDATA/n/d/x", ...),
        ("a/g/NDATA/n", ...),
        (None, ...),
    ],
)
def test_topics(topic: str | None, device: Any) -> None:
    sparkplug_topic = read_topic(topic)
    assert (
        (sparkplug_topic is None)
        if device is ...
        else (sparkplug_topic is not None and sparkplug_topic.device == device)
    )


@each(
    "topic, host",
    [
        ("spBv1.0/STATE/h", "h"),
        ("spBv1.0/STATE/", None),
        ("spBv1.0/STATE/h/x", None),
        ("STATE/h", None),
        ("spBv1.0/g/NDATA/n", None),
        (None, None),
    ],
)
def test_a_state_topic_has_a_host(topic: str | None, host: str | None) -> None:
    assert host_of_state(topic) == host


@each(
    "topic, related",
    [
        ("spBv1.0/anything", True),
        ("spBv1.0", True),
        ("STATE/h", True),
        ("spbv1.0/g/NDATA/n", True),
        ("other/g/DCMD/n/d", True),
        ("spBv1.00/x", False),
        ("STATE/h/x", False),
        ("other/g/NDATAX/n", False),
        ("a/b/c", False),
    ],
)
def test_topics_that_belong_to_sparkplug_or_look_so(topic: str, related: bool) -> None:
    assert is_related(topic) is related
