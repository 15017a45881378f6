"""Packets, events, connections and tables of captures, as programs get them."""

from __future__ import annotations

import io
import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import mqttscope
from mqttscope.installation import extra_command, package_command
from tests import tools
from tests.cli.running import capture, invoke
from tests.conftest import ROOT
from tests.each import each

QOS = capture("v5-qos")
SOME = ("v5-qos", "websocket-v5", "planted-violations", "lost-in-payload", "v5-topic-alias-client", "tls-13")


def test_packets_are_values_of_the_moment_at_which_they_passed() -> None:
    packets = list(mqttscope.open(QOS))

    first, second = packets[0], packets[1]
    assert (first.kind, first.number, first.type, first.topic, first.payload) == ("packet", 0, "connect", None, None)
    assert (first.frame, first.connection, first.direction) == (4, 0, "client_to_server")
    assert first.time == datetime(2026, 11, 20, 20, 47, 53, 810806, UTC)
    assert first.timestamp_ns is not None
    assert first.timestamp_ns // 1000 % 10**6 == 810806
    assert second.type == "connack"
    assert {packet.client_identifier for packet in packets} == {"logger", "sensor-1"}
    assert next(packet.payload for packet in packets if packet.type == "publish") == b"21.0"


@each("name", SOME)
def test_the_json_form_is_the_line_of_inspect(name: str) -> None:
    path = capture(name)
    lines = [json.loads(line) for line in invoke("inspect", path, "--format", "jsonl").out.splitlines()]

    assert [event.to_dict() for event in mqttscope.open(path).events()] == lines
    assert [event.kind for event in mqttscope.open(path).events()] == [line["event"] for line in lines]
    packets = [line for line in lines if line["event"] in ("packet", "malformed")]
    assert [packet.to_dict() for packet in mqttscope.open(path)] == packets
    closed = sorted((line for line in lines if line["event"] == "connection_closed"), key=lambda row: row["connection"])
    assert [connection.to_dict() for connection in mqttscope.open(path).connections()] == closed


def test_a_file_can_be_read_again_and_side_by_side() -> None:
    with mqttscope.open(QOS) as captures:
        first, second = iter(captures), iter(captures)
        assert next(first) == next(second)
        assert len(list(captures)) == 24
        next(first)
        assert next(second).type == "connack"
        done = iter(captures)
        assert len(list(done)) == 24
        events = captures.events()
        next(events)
    # What has ended has ended; what was cut off, or begins now, says so.
    assert list(done) == []
    captures.close()
    for use in (
        lambda: next(first),
        lambda: next(second),
        lambda: next(events),
        lambda: iter(captures),
        captures.events,
        captures.connections,
        captures.to_arrow,
    ):
        with pytest.raises(mqttscope.ReadingError, match=r"capture\.pcapng: closed; open it again"):
            use()


@each(
    "expression, count",
    [("type == publish", 6), ('topic matches "plant/+/temperature" and qos == 2', 2), ("packet > 20", 3)],
)
def test_a_filter_chooses_packets_in_every_reading(expression: str, count: int) -> None:
    captures = mqttscope.open(QOS, filter=expression)

    assert len(list(captures)) == count
    assert len(list(captures)) == count


def test_a_filter_chooses_connections_by_what_passed_on_them() -> None:
    captures = mqttscope.open(QOS, filter="type == subscribe")

    assert [connection.client_identifier for connection in captures.connections()] == ["logger"]
    with pytest.raises(mqttscope.FilterError, match="topik"):
        mqttscope.open(QOS, filter="topik == 1")


def test_errors_of_captures_are_values(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(QOS.read_bytes()[:2000])
    captures = mqttscope.open(cut)
    assert captures.errors == []
    packets = list(captures)

    assert 0 < len(packets) < 24
    (error,) = captures.errors
    assert error.capture == str(cut)
    assert error.frames > 0
    assert [event.kind for event in captures.events()].count("capture_error") == 1
    assert len(captures.errors) == 1, "of the last reading"
    seen: list[mqttscope.Packet] = []
    with pytest.raises(mqttscope.CaptureReadError, match=f"^{cut}: .*after {error.frames} frames"):
        seen.extend(mqttscope.open(cut, raise_errors=True))
    assert seen == packets


@each(
    "name, expected",
    [("nix.pcap", "nix.pcap does not exist"), ("*.pcapn", "matches no file"), (".", "without captures")],
)
def test_a_name_that_stands_for_nothing_is_an_error_at_once(name: str, expected: str) -> None:
    with pytest.raises(FileNotFoundError, match=expected) as caught:
        mqttscope.open(ROOT / "docs" / name)
    assert isinstance(caught.value, mqttscope.CaptureNotFoundError)
    with pytest.raises(mqttscope.CaptureNotFoundError, match=r"^'' does not exist$"):
        mqttscope.open("")


def test_calls_that_make_no_sense_are_refused() -> None:
    with pytest.raises(TypeError, match="name at least one capture"):
        mqttscope.open()

    with pytest.raises(mqttscope.ReadingError, match="nix"):
        list(mqttscope.open(QOS, keys="nix"))


def test_standard_input_can_be_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(QOS.read_bytes())))
    captures = mqttscope.open("-")

    assert len(list(captures)) == 24
    with pytest.raises(mqttscope.ReadingError, match="standard input can be read only once"):
        list(captures)


def test_secrets_are_hidden_unless_they_are_asked_for() -> None:
    path = capture("refused-connect")
    shown = list(mqttscope.open(path, show_secrets=True))
    connect = next(packet.packet for packet in shown if getattr(packet.packet, "password", None))
    secret = connect.password  # type: ignore[union-attr]
    hidden = list(mqttscope.open(path))

    assert any(secret in packet.raw for packet in shown)
    for other_packet in hidden:
        assert secret not in other_packet.raw
        assert secret.decode() not in f"{other_packet!r} {other_packet.to_dict()}"
        assert other_packet.packet is None or secret not in other_packet.packet.raw


@each("name", SOME)
def test_tables_have_the_rows_of_a_lake(name: str) -> None:
    tools.package("pyarrow")
    from mqttscope.lake.options import LakeOptions
    from mqttscope.lake.schemas import TABLES
    from tests.lake.reading import in_process

    path = capture(name)
    table = mqttscope.open(str(path)).to_arrow(payload_limit=100)

    assert table.schema.equals(TABLES["packets"].arrow(), check_metadata=True)
    assert table.to_pylist() == in_process([str(path)], LakeOptions(payload_limit=100)).get("packets", [])  # type: ignore[list-item]


def test_tables_hold_what_a_filter_keeps_and_no_payload_unless_asked_for() -> None:
    tools.package("pyarrow")
    captures = mqttscope.open(QOS, filter="type == publish")

    table = captures.to_arrow()
    assert table.column("topic").to_pylist() == ["plant/line1/temperature"] * 6
    assert set(table.column("payload").to_pylist()) == {None}
    assert captures.to_arrow(payload_limit=9).column("payload").to_pylist()[0] == b"21.0"
    tools.package("pandas")
    assert list(captures.to_pandas()["qos"]) == table.column("qos").to_pylist()
    tools.package("polars")
    assert captures.to_polars()["qos"].to_list() == table.column("qos").to_pylist()


def test_a_package_that_is_missing_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, command in (("pyarrow", extra_command("lake")), ("pandas", package_command("pandas"))):
        monkeypatch.setitem(sys.modules, name, None)
        captures = mqttscope.open(QOS)
        with pytest.raises(mqttscope.MissingPackageError, match=re.escape(f"{name} is not installed: {command}")):
            getattr(captures, "to_arrow" if name == "pyarrow" else "to_pandas")()


def test_ports_say_where_mqtt_is_spoken() -> None:
    path = capture("port-18830")
    for ports in ([18830], ["18830"], {18830: "mqtt"}):
        assert list(mqttscope.open(path, ports=ports)) == list(mqttscope.open(path))


def test_damaged_segments_are_not_read_unless_checksums_are_not_verified() -> None:
    path = ROOT / "tests/data/captures/live/damaged.pcap"
    truth = json.loads(path.with_name("damaged.truth.json").read_text(encoding="utf-8"))
    wanted = sum(sum(side.values()) for sides in truth.values() for side in sides.values())

    assert len(list(mqttscope.open(path))) == wanted
    assert len(list(mqttscope.open(path, verify_checksums=False))) != wanted
