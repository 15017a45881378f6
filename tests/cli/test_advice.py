"""What the commands say on standard error when nothing is shown, and why."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from mqttscope.capture import PcapngWriter
from mqttscope.cli import advice
from mqttscope.dissect import Dissector
from mqttscope.net import segment
from tests import corpora
from tests.capture.doubled import recorded
from tests.cli.running import Done, capture, invoke
from tests.conftest import ROOT
from tests.each import each

QOS = capture("v5-qos")
REMEDY = "capture complete frames with `tcpdump -s 0` or `tshark -s 0`"
CUT = "the snap length cut"


def cut(name: str, length: int, *arguments: str) -> Done:
    """A capture of the project, cut by a snap length, inspected from standard input."""
    stream = io.BytesIO()
    with PcapngWriter(stream) as writer:
        for frame in recorded(capture(name)):
            writer.write(replace(frame, data=frame.data[:length]))
    return invoke("inspect", "-", *arguments, stdin=stream.getvalue())


class TestSnapLength:
    @pytest.mark.parametrize(
        ("length", "arguments", "expected"),
        [
            (40, (), f"no TCP connection found\nmqttscope: {CUT} 53 frames inside the headers: {REMEDY}"),
            (54, (), f"{CUT} off all bytes of TCP payload: {REMEDY}"),
            (66, (), f"{CUT} off all bytes of TCP payload: {REMEDY}"),
            (70, (), f"{CUT} off 275 of 369 bytes of TCP payload: {REMEDY}"),
            (80, (), ""),
            (90, ("--limit", "3"), ""),
            (1500, (), ""),
        ],
    )
    def test_much_that_was_cut_off_names_the_remedy(
        self, length: int, arguments: tuple[str, ...], expected: str
    ) -> None:
        assert cut("v5-qos", length, *arguments).err == (f"mqttscope: {expected}\n" if expected else "")


class TestSelection:
    @pytest.mark.parametrize("command", ["inspect", "stats"])
    @pytest.mark.parametrize(
        ("chosen", "expected"),
        [
            (("--connection", "99"), "connection 99 does not exist: numbers go from 0 to 1"),
            (("--filter", 'topic == "no/such"'), "nothing matches the filter in 24 packets"),
            (("--connection", "1"), ""),
            (("--filter", "publish"), ""),
            (("--filter", "qos > 1"), ""),
        ],
    )
    def test_a_selection_that_finds_nothing_is_said(self, command: str, chosen: tuple[str, str], expected: str) -> None:
        done = invoke(command, QOS, *chosen)

        assert (done.code, done.err) == (0, f"mqttscope: {expected}\n" if expected else "")
        assert expected or done.out

    @pytest.mark.parametrize(("command", "form"), [("inspect", "jsonl"), ("inspect", "csv"), ("stats", "json")])
    def test_machine_formats_name_a_connection_that_is_not_there_alone(self, command: str, form: str) -> None:
        assert invoke(command, QOS, "--format", form, "--filter", 'topic == "no/such"').err == ""
        assert "connection 99 does not exist" in invoke(command, QOS, "--format", form, "--connection", "99").err

    def test_one_of_two_connections_is_missing(self) -> None:
        assert "connection 7 does not exist" in invoke("inspect", QOS, "--connection", "1", "--connection", "7").err
        # A limit that ends the run proves nothing of connections.
        assert invoke("inspect", QOS, "--connection", "0", "--connection", "1", "--limit", "1").err == ""


@pytest.mark.parametrize("command", ["inspect", "stats"])
@pytest.mark.parametrize(("named", "name"), [("ws", "WebSocket"), ("tls", "TLS")])
def test_a_port_on_which_something_else_is_spoken(command: str, named: str, name: str) -> None:
    done = invoke(command, QOS, "--port", f"1883:{named}")

    assert done.err == (
        f"mqttscope: --port 1883:{named}: 2 connections there speak plain MQTT, not {name}, and were read as that\n"
    )
    assert invoke(command, QOS).out == done.out
    assert invoke(command, capture("websocket-v5"), "--port", "8080:ws").err == ""


@pytest.mark.parametrize("command", ["inspect", "stats"])
def test_segments_that_no_connection_takes_are_said(command: str) -> None:
    done = invoke(command, corpora.path("captures", "trials", "tcp_data_after_rst.pcap"))

    assert done.err == (
        "mqttscope: 1 segment (12 bytes) was ignored: data after the end of a connection, data for an"
        " abandoned gap, or late copies\n"
    )


DAMAGED = ROOT / "tests/data/captures/live/damaged.pcap"


@pytest.mark.parametrize("command", ["inspect", "stats", "explain"])
def test_damaged_segments_are_counted_unless_checksums_are_not_verified(command: str) -> None:
    done = invoke(command, DAMAGED)
    unverified = invoke(command, DAMAGED, "--dont-verify-checksums")

    # One more belongs to an address that shows nothing else, and has no data.
    assert "9 segments with a wrong checksum were ignored: no receiver accepts them" in done.err
    assert "--dont-verify-checksums" in done.err
    assert "accepted with a wrong checksum" not in done.err
    assert "9 segments" not in unverified.err
    assert "were repeated with different content" in unverified.err


def test_inspect_shows_damaged_segments() -> None:
    assert invoke("inspect", DAMAGED).text.count("of a damaged segment: wrong checksum") == 9


def test_connections_that_were_not_decrypted_are_named() -> None:
    dissector = Dissector()
    dissector.undecrypted.update({"no keys": 7, "a gap": 1})
    dissector.undecrypted_names = {"no keys": ["connection 0", "connection 1"], "a gap": ["connection 9"]}

    assert list(advice.undecrypted(dissector)) == [
        "TLS not decrypted: connection 0, connection 1 and 5 more: no keys",
        "TLS not decrypted: connection 9: a gap",
    ]


SKIPPED = {"not_ip": 7, "mqtt_sn": 3, "not_tcp": 40, "gtp_u_version_2": 1_200, "wlan_encrypted": 1, "truncated": 2}


def test_frames_are_named_in_one_line_with_what_reads_them() -> None:
    offered = (
        "not read: 1,200 frames of GTP-U version 2 (--via tshark reads them),"
        " 1 frame of encrypted 802.11 (--via tshark reads it with keys in the profile of Wireshark),"
        " 3 frames of MQTT-SN over UDP (not MQTT; nothing here reads it),"
        " 2 frames cut inside their headers by the snap length"
    )
    assert advice.unread_sentence(SKIPPED) == offered
    # What tshark has looked at is not offered to it.
    looked_at = offered.replace(" (--via tshark reads them)", "").replace("--via tshark", "tshark")
    assert advice.unread_sentence(SKIPPED, by_tshark=True) == looked_at


def test_commands_without_the_option_name_another() -> None:
    assert advice.unread_sentence({"gtp_u": 2}, offer=advice.OFFER_ELSEWHERE) == (
        "not read: 2 frames of GTP-U with unknown content (mqttscope inspect --via tshark reads them)"
    )


def test_ordinary_frames_need_no_sentence() -> None:
    assert advice.unread_sentence({"not_ip": 1, "not_tcp": 2}) is None
    assert advice.unread_sentence({}) is None


@each("name", segment.UNREAD)
def test_every_reason_has_a_sentence(name: str) -> None:
    assert segment.UNREAD[name].words in (advice.unread_sentence({name: 1}) or "")
