"""Rows with decoded payloads, and the BIRTH that names the metrics of a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tools

tools.package("cbor2")

import cbor2

from mqttscope.browse.decoding import as_decoded, births_before
from mqttscope.browse.details import detail, payload_lines
from mqttscope.browse.index import Index
from mqttscope.browse.lines import RowLines
from mqttscope.payloads.decoders import Decoders, PayloadTable
from mqttscope.payloads.sparkplug_topics import read_topic
from mqttscope.report.base import View
from mqttscope.report.public import decoded_of
from tests.browse.made import built
from tests.cli.made import Publish, client, opened, write_capture
from tests.payloads.samples import BIRTH, DATA, NBIRTH_TOPIC, NDATA_TOPIC, metric, part

DBIRTH = metric(part(1, b"Speed"), part(2, 20), part(4, 3), part(10, 1))
OLD_BIRTH = metric(part(1, b"Old"), part(2, 7))
SECRET = cbor2.dumps({"password": "hunter2"})


@pytest.fixture
def index(tmp_path: Path) -> Index:
    messages = (
        (NBIRTH_TOPIC, OLD_BIRTH), (NBIRTH_TOPIC, BIRTH), ("spBv1.0/plant/NBIRTH/other", OLD_BIRTH),
        ("spBv1.0/plant/DBIRTH/edge-1/pump", DBIRTH), ("c", SECRET), (NDATA_TOPIC, DATA),
    )  # fmt: skip
    steps = (client(Publish(topic_name=topic, payload=payload)) for topic, payload in messages)
    return built(write_capture(tmp_path / "a.pcapng", *opened(), *steps))


def row_of(index: Index, topic: str) -> int:
    """The last row of a topic."""
    return max(at for at in range(len(index.rows)) if getattr(index.event(at), "topic", None) == topic)


def test_the_last_birth_of_the_edge_node_counts(index: Index) -> None:
    births = births_before(index, row_of(index, NDATA_TOPIC), NDATA_TOPIC)
    assert births.metrics_of(read_topic(NDATA_TOPIC)).aliases == {
        7: ("Temperature", 10),
        8: ("Level", 3),
        20: ("Speed", 3),
    }
    assert not births_before(index, row_of(index, "c"), "c").metrics_of(read_topic(NDATA_TOPIC))
    assert not births_before(index, 2, NDATA_TOPIC).metrics_of(read_topic(NDATA_TOPIC))


def test_views_of_formats_need_no_configuration(index: Index) -> None:
    row = row_of(index, NDATA_TOPIC)
    for payload in ("auto", "sparkplug-b"):
        view = View(width=100, payload=payload)
        texts = [line.text.strip() for line in payload_lines(detail(index, row, view).event, view)]
        assert texts[0] == "28 bytes as sparkplug-b"
        assert '"name": "Temperature",' in texts
    view = View(width=100, payload="protobuf")
    texts = [line.text.strip() for line in payload_lines(detail(index, row, view).event, view)]
    assert texts[0] == "28 bytes as protobuf"
    assert "1: 1700000001000," in texts


def test_tables_decode_rows_and_hide_secrets(index: Index) -> None:
    view = View(width=100, payloads=Decoders((PayloadTable("c", "cbor"),)))
    row = row_of(index, "c")
    packet_details = detail(index, row, view)
    assert packet_details.raw.endswith(b"*" * len(SECRET))
    assert '  "password": "*******"' in [line.text for line in payload_lines(packet_details.event, view)]
    assert 'cbor: {"password":"*******"}' in RowLines(index, view).line(row)
    view.show_secrets = True
    assert '  "password": "hunter2"' in [line.text for line in payload_lines(detail(index, row, view).event, view)]
    assert decoded_of(as_decoded(index, 0, view)) is None
