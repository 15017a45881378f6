"""Statistics as a JSON document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from mqttscope.stats import rows as at
from mqttscope.stats.as_json import document
from mqttscope.stats.collect import Statistics
from mqttscope.stats.rows import unread_groups
from tests.conftest import ROOT
from tests.stats.talk import SECOND, Talk, statistics_of


@pytest.fixture(scope="module")
def reported() -> dict[str, Any]:
    return document(statistics_of("v5-topic-alias-client"), other_flows=3, skipped={"not_tcp": 2})


def test_json_totals(reported: dict[str, Any]) -> None:
    totals = reported["totals"]

    assert reported["schema"] == 1
    assert (totals["captures"], totals["clients"], totals["topics"], totals["frames"]) == (1, 2, 4, 70)
    assert (totals["other_flows"], totals["frames_skipped"]) == (3, {"not_tcp": 2})
    assert totals["packets"] == {"client_to_server": 15, "server_to_client": 12}
    assert totals["types"]["publish"]["packets"] == {"client_to_server": 8, "server_to_client": 8}
    assert totals["publish"]["qos"]["0"] == {"client_to_server": 8, "server_to_client": 8}
    assert totals["topic_alias"]["client_to_server"] == {
        "sets": 4,
        "hits": 4,
        "hit_rate": 0.5,
        "saved_bytes": 83,
        "property_bytes": 24,
    }
    assert totals["topic_alias"]["server_to_client"]["hit_rate"] is None
    assert totals["connections"]["opened"] == totals["connections"]["accepted"] == 3
    assert totals["connections"]["disconnects"] == [
        {"by": "client", "reason_code": 0, "reason": "Normal disconnection", "count": 3}
    ]
    assert totals["rates"]["packets_per_second"]["mean"] == pytest.approx(27e9 / totals["duration_ns"], abs=0.001)
    assert totals["other"]["topics"] is None


def test_json_counts_of_both_directions() -> None:
    statistics = statistics_of("planted-violations")
    counts, totals = statistics.totals.traffic.counts, document(statistics)["totals"]

    assert sum(counts[at.MALFORMED : at.UNPARSED]) > 0
    for name in ("malformed", "malformed_bytes", "unparsed", "unparsed_bytes", "gaps", "gap_bytes"):
        place = getattr(at, name.upper())
        assert list(totals[name].values()) == counts[place : place + 2]
    first = at.TCP + len(at.TCP_COUNTERS)
    assert list(totals["tcp"]["server_to_client"].values()) == counts[first : first + len(at.TCP_COUNTERS)]


def test_json_times_are_nanoseconds_and_text(reported: dict[str, Any]) -> None:
    (capture,) = reported["captures"]

    assert capture["last_ns"] - capture["first_ns"] == capture["duration_ns"]
    assert re.fullmatch(r"2026-11-20T\d\d:\d\d:\d\d\.\d{9}Z", capture["first"])
    assert capture["first"].endswith(f"{capture['first_ns'] % SECOND:09d}Z")


def test_json_latencies() -> None:
    result = document(statistics_of("v5-qos"))["totals"]["latencies"]

    assert result["publish_pubcomp"]["server_to_client"] == {
        "count": 1,
        "unanswered": 0,
        **{f"{name}_ns": 469_897 for name in ("minimum", "p50", "p90", "p99", "maximum", "mean")},
    }
    assert set(result["connect_connack"]) == {"client_to_server"}


def test_json_rows_are_sorted_and_cut() -> None:
    statistics = statistics_of("v5-flow-control", "v311-qos")
    reported_document = document(statistics, tables=("client", "topic"), sort="bytes", top=2)

    sums = [sum(row["bytes"].values()) for row in reported_document["clients"]]
    assert len(sums) == 2
    assert sums == sorted(sums, reverse=True)
    assert set(reported_document) == {"schema", "clients", "topics", "totals"}


def test_names_that_are_not_utf_8_have_their_bytes_in_json() -> None:
    statistics = Statistics()
    talk = Talk(statistics, identifier="dev\udcff")
    talk.publish("a\udc80")
    statistics.finish()
    reported_document = json.loads(json.dumps(document(statistics)))

    assert reported_document["topics"][0]["topic"] == {"length": 2, "hex": "6180"}
    assert reported_document["clients"][0]["client_identifier"] == {"length": 4, "hex": "646576ff"}


def keys(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if not key.isdigit() and not path.endswith(("types", "versions", "transports", "frames_skipped")):
                yield key
            yield from keys(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner, path)


def test_every_key_is_documented() -> None:
    page = (ROOT / "docs" / "stats.md").read_text("utf-8")
    documented = set(re.findall(r"`([a-z0-9_]+)`", page)) | set(re.findall(r'"([a-z_]+)":', page))
    texts: set[str] = set()
    for name in ("v5-qos", "refused-connect", "lost-segment", "session-taken-over", "tls-13", "keep-alive"):
        statistics = statistics_of(name, limits={"connections": 1, "topics": 0})
        texts |= set(keys(document(statistics, skipped={"not_tcp": 1})))

    assert texts > {"p90_ns", "retransmitted_segments", "receive_maximum"}
    assert texts - documented == set()


def test_skipped_frames_are_counted_by_coarse_reasons() -> None:
    skipped = {"not_ip": 7, "mqtt_sn": 3, "not_tcp": 40, "gtp_u_version_2": 1_200, "wlan_encrypted": 1, "truncated": 2}

    assert unread_groups(skipped) == {"not_ip": 8, "not_tcp": 1_243, "truncated": 2}
