"""``--via tshark`` and what is said of frames that were not read, on the command line."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from mqttscope.capture import PcapngWriter
from mqttscope.net.frame import Frame
from tests import corpora, tools
from tests.capture.doubled import recorded
from tests.cli.running import CAPTURES, FORMATS, capture, invoke, run, started
from tests.cli.test_reading import with_secrets
from tests.dissect.secure import Secure, write
from tests.dissect.talk import Talk
from tests.each import some
from tests.live import cat, replace_dumpcap
from tests.net.octets import SNAP, ethernet, frame, gtp, ip4, subframe, udp, wlan

QOS = capture("v5-qos")
SN = ip4(udp(1884, b"\x0b\x04\x04\x01\0\x3cdev01"), 17)
QUIC = ip4(udp(14567, b"\xc3\0\0\0\x01\x0812345678" + bytes(40)), 17)
GTP_2 = ip4(gtp(ip4(b"", 6), 0x50), 17)
ORDINARY = [
    ethernet(0x806, bytes(46)),
    ethernet(0x88CC, bytes(46)),
    *(ethernet(0x800, ip4(udp(port, b"\0\1\2\3" + bytes(44)), 17)) for port in (53, 67, 123, 443, 5353)),
    ethernet(0x800, ip4(bytes(8), 1)),
]


def captured(*datas: tuple[int, bytes], beside: Iterable[Frame] = ()) -> bytes:
    """A capture of frames of some link types, after others."""
    stream = io.BytesIO()
    with PcapngWriter(stream) as writer:
        for other_frame in beside:
            writer.write(other_frame)
        for link_type, data in datas:
            writer.write(frame(data, link_type))
    return stream.getvalue()


def aggregated(like: Frame, *subframes: bytes) -> Frame:
    """A frame of 802.11 at the time of another one."""
    data = wlan(b"".join(subframes), kind=0x88, quality=b"\x80\0")
    return replace(like, link_type=105, data=data, original_length=len(data))


class TestNotRead:
    LINE = (
        "mqttscope: not read: 1 frame of GTP-U version 2 (--via tshark reads it),"
        " 2 frames of MQTT-SN over UDP (not MQTT; nothing here reads it),"
        " 1 frame of QUIC (MQTT over QUIC is encrypted; nothing here reads it)\n"
    )
    ELSEWHERE = LINE.replace("--via", "mqttscope inspect --via")
    MIXED = captured((228, SN), (228, QUIC), (228, GTP_2), (228, SN), beside=recorded(QOS))

    @pytest.mark.parametrize(
        "words",
        [("stats",), ("lint",), *(("inspect", "--format", form) for form in FORMATS)],
        ids=" ".join,
    )
    def test_one_line_beside_what_was_read(self, words: tuple[str, ...]) -> None:
        done = invoke(*words, "-", stdin=self.MIXED)

        assert done.code == 0
        assert done.err == self.LINE
        assert done.out

    def test_where_nothing_was_read(self) -> None:
        done = invoke("inspect", "-", stdin=captured((228, SN)))

        assert done.err.splitlines() == [
            "mqttscope: no TCP connection found",
            "mqttscope: not read: 1 frame of MQTT-SN over UDP (not MQTT; nothing here reads it)",
        ]

    @pytest.mark.parametrize("command", ["inspect", "stats", "lint"])
    def test_ordinary_traffic_beside_needs_no_word(self, command: str) -> None:
        raw = captured(*((1, raw) for raw in ORDINARY), beside=recorded(QOS))

        assert invoke(command, "-", stdin=raw).err == ""

    @pytest.fixture
    def mixed(self, tmp_path: Path) -> Path:
        path = tmp_path / "mixed.pcapng"
        path.write_bytes(self.MIXED)
        return path

    def test_a_live_capture_says_it_at_its_end(
        self, mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        script = f"{cat(mixed)}; echo File: - >&2; trap 'exit 0' INT; while :; do sleep 0.05; done"
        replace_dumpcap(tmp_path, monkeypatch, script)

        done = invoke("sniff", "eth9", "--duration", "0.2")

        assert done.code == 0
        assert done.err.endswith(self.ELSEWHERE)

    def test_an_ingest_says_it(self, mixed: Path, tmp_path: Path) -> None:
        tools.package("pyarrow")
        words = ("pipeline", "ingest", mixed, "--lake", tmp_path / "lake", "--no-config")
        done = invoke(*words)

        assert (done.code, done.err) == (0, self.ELSEWHERE)
        assert invoke(*words).err == ""

    def test_commands_that_play_captures_say_it(self, mixed: Path, tmp_path: Path) -> None:
        done = invoke("replay", mixed, "--broker", "mqtt://127.0.0.1:1", "--dry-run")
        assert (done.code, done.err) == (0, self.LINE)
        assert self.LINE in invoke("mutate", mixed, "--write", tmp_path / "made.pcapng", "--cases", "1").err

    def test_counts_by_reason_in_json(self) -> None:
        (done,) = invoke("stats", "-", "--format", "json", stdin=self.MIXED).lines

        assert done["totals"]["not_read"] == {"gtp_u_version_2": 1, "mqtt_sn": 2, "quic": 1}
        assert done["totals"]["frames_skipped"] == {"not_tcp": 4}
        (done,) = invoke("stats", QOS, "--format", "json").lines
        assert done["totals"]["not_read"] == {}

    @pytest.mark.parametrize(
        ("name", "packets", "line"),
        [
            ("gtp_and_plain", 6, ""),
            ("enc", 7, ""),
            ("mqttsn", 0, "not read: 5 frames of MQTT-SN over UDP"),
            ("quic", 0, "not read: 5 frames of QUIC"),
        ],
    )
    def test_trial_captures(self, name: str, packets: int, line: str) -> None:
        done = invoke("inspect", corpora.path("captures", "trials", f"{name}.pcap"), "--format", "jsonl")

        assert len(done.packets) == packets
        assert line in done.err
        assert bool(done.err) is bool(line)


@pytest.mark.tshark
class TestViaTshark:
    @pytest.mark.long
    def test_all_committed_captures_give_the_same_lines(self) -> None:
        """The JSON Lines of every event of every capture of the project, byte by byte."""
        expected = invoke("inspect", "--format", "jsonl", *CAPTURES)
        done = invoke("inspect", "--format", "jsonl", "--via", "tshark", *CAPTURES)

        assert len(CAPTURES) >= 70
        assert len(expected.packets) > 800
        assert done == expected

    @pytest.mark.parametrize(
        "words",
        [
            *some([("lint", "--format", "jsonl"), ("stats", "--format", "json"), ("stats",), ("lint",)]),
            ("replay", "--broker", "mqtt://127.0.0.1:1", "--dry-run"),
        ],
        ids=" ".join,
    )
    def test_other_commands(self, words: tuple[str, ...]) -> None:
        names = [capture(name) for name in ("planted-violations", "v5-qos", "websocket-v5", "lost-segment")]

        assert invoke(*words, "--via", "tshark", *names) == invoke(*words, *names)

    def test_what_only_tshark_reads(self) -> None:
        """A conversation in aggregated 802.11, two datagrams in a frame."""
        frames = recorded(QOS)
        new_frames = []
        for pair in (frames[at : at + 2] for at in range(0, len(frames), 2)):
            parts = [SNAP + frame.data[12:14] + frame.data[14:] for frame in pair]
            new_frames.append(aggregated(pair[0], *(subframe(part, last=part is parts[-1]) for part in parts)))
        whole = captured(beside=new_frames)
        plain = invoke("inspect", "-", "--format", "jsonl", stdin=whole)
        assert plain.packets == [] or len(plain.packets) < 3
        assert "frames of aggregated 802.11 (--via tshark reads them)" in plain.err

        done = invoke("inspect", "-", "--format", "jsonl", "--via", "tshark", stdin=whole)

        assert done.err == ""
        expected = invoke("inspect", "--format", "jsonl", QOS).packets
        assert [(packet["type"], packet["frame"]) for packet in done.packets] == [
            (document["type"], (document["frame"] + 1) // 2) for document in expected
        ]

    def test_what_tshark_does_not_read_either(self) -> None:
        done = invoke("inspect", "-", "--via", "tshark", stdin=TestNotRead.MIXED)

        assert done.err == TestNotRead.LINE.replace(" (--via tshark reads it)", "")
        assert len(done.text.splitlines()) > 20

    @pytest.mark.long
    def test_tls_with_keys_in_what_only_tshark_reads(self, tmp_path: Path) -> None:
        from tests.capture.test_tls import converse

        secure, talk = Secure(), Talk(port=8883).handshake()
        converse(secure.connection(talk))
        talk.close()
        plain = write(talk.tape, tmp_path / "plain.pcapng")
        hidden = []
        for single_frame in recorded(plain):
            datagram = b"\x08\0" + single_frame.data if single_frame.link_type == 101 else single_frame.data[12:]
            hidden.append(
                aggregated(
                    single_frame, subframe(SNAP + datagram, last=False), subframe(SNAP + b"\x08\x06" + bytes(28))
                )
            )
        path = tmp_path / "hidden.pcapng"
        path.write_bytes(captured(beside=hidden))
        words = ("inspect", "--format", "jsonl", "--keylog", secure.keylog)
        assert invoke(*words, path).packets == []
        expected = invoke(*words, plain)
        assert len(expected.packets) == 14

        done = invoke(*words, "--via", "tshark", path)

        assert (done.code, done.err) == (0, "")
        assert [(packet["type"], packet["frame"]) for packet in done.packets] == [
            (packet["type"], packet["frame"]) for packet in expected.packets
        ]
        assert done.of("connection_closed")[0]["tls"]["decrypted"] is True
        inside = with_secrets(path, secure.keylog.read_bytes(), tmp_path / "both.pcapng")
        assert len(invoke("inspect", "--format", "jsonl", "--via", "tshark", inside).packets) == 14

    def test_without_tshark_it_is_said_how_to_get_it(self, tmp_path: Path) -> None:
        for name in ("inspect", "lint", "stats"):
            done = run(name, QOS, "--via", "tshark", env={"PATH": str(tmp_path)})

            assert (done.code, done.out) == (3, b"")
            assert "tshark is needed to read captures with --via tshark and was not found" in done.err
            assert "apt-get install tshark" in done.err
            assert "Traceback" not in done.err

    def test_a_pipe_that_goes_on_is_shown_as_it_comes(self) -> None:
        data = QOS.read_bytes()
        with started("inspect", "-", "--via", "tshark", stdin=data[:-2000]) as running:
            # Without waiting for more, which does not come.
            assert b"opened" in running.out.readline()
            assert b"CONNECT" in running.out.readline()
            out, err = running.process.communicate(data[-2000:], timeout=60)

        assert (running.process.returncode, err) == (0, b"")
        assert out.count(b"PUBLISH") > 5

    def test_a_damaged_capture_is_read_as_far_as_it_goes(self) -> None:
        data = QOS.read_bytes()[:-700]
        expected = invoke("inspect", "-", "--format", "jsonl", stdin=data)
        done = invoke("inspect", "-", "--format", "jsonl", "--via", "tshark", stdin=data)

        assert done == expected
        assert done.code == 3


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("stats", "--via", "nobody"), "'nobody'"),
        (("lint", "--via", "tshark", "--engine", "spark"), "--engine spark takes no --via"),
    ],
)
def test_options_that_do_not_fit(words: tuple[str, ...], expected: str) -> None:
    done = invoke(*words, QOS)

    assert done.code == 2
    assert expected in done.err
