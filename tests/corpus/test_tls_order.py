"""Recordings of TLS over a network that loses, delays, reorders and duplicates: the packets that applications sent."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from mqttscope.capture import open_capture
from mqttscope.capture.keylog import Keys
from mqttscope.capture.tls import Decryption
from mqttscope.dissect import Dissector, Options, dissect_segments, segments
from mqttscope.events import PacketEvent
from tests import corpora

pytestmark = pytest.mark.tshark


def read(capture: Path, keys: Path) -> dict[tuple[str, str, str], Counter[str]]:
    """How many packets of each type there are, by client, server and direction, of what was decrypted."""
    items = Decryption(Keys(keys.read_bytes())).join(segments(open_capture([str(capture)])))
    counts: dict[tuple[str, str, str], Counter[str]] = {}
    for event in dissect_segments(items, dissector=Dissector(Options(decrypting=True))):
        if isinstance(event, PacketEvent) and event.connection.decrypted:
            place = event.connection.client, event.connection.server, str(event.direction)
            counts.setdefault(place, Counter())[event.type] += 1
    return counts


@corpora.needs("tcp/truth.json", "tcp/*.keys")
def test_each_packet_that_was_sent_is_read_once() -> None:
    truth = json.loads(corpora.path("tcp", "truth.json").read_text("utf-8"))
    secured = {name: entry for name, entry in truth.items() if entry.get("keylog")}
    checked = 0
    for name, entry in secured.items():
        counts = read(corpora.path("tcp", name), corpora.path("tcp", entry["keylog"]))
        expected: dict[tuple[str, str, str], Counter[str]] = {}
        for connection in entry["connections"]:
            for way, direction in (("c2s", "client_to_server"), ("s2c", "server_to_client")):
                place = connection["client"], connection["server"], direction
                expected[place] = expected.get(place, Counter()) + Counter(connection[way])
        for place, count in counts.items():
            assert count == expected[place], (name, place)
            checked += 1
    assert checked >= 2 * len(secured) > 10
