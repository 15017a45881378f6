"""tshark as a second front end: the segments of our own walk where both read a frame, and more where it knows more.

Our own walk is the oracle for what is handed over, tshark for what our own walk finds in tunnels.
"""

from __future__ import annotations

import subprocess
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mqttscope.capture import open_capture
from mqttscope.capture.tshark import MissingToolError, find_tool
from mqttscope.capture.via_tshark import MAX_AHEAD, MAX_FRAME_BYTES, Dissection, command, dissected
from mqttscope.capture.write import PcapngWriter
from mqttscope.dissect import segments
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureNotice, Frame
from mqttscope.net.headers import segment
from mqttscope.net.segment import DnsMessage, Segment, endpoints
from tests import corpora
from tests.conftest import ROOT
from tests.each import some
from tests.net import octets
from tests.net.test_links import LINKED

pytestmark = pytest.mark.tshark

COMMITTED = sorted((ROOT / "captures").glob("*/capture.pcapng"))
OTHERWISE = {
    "802.1Q in front of a length and LLC/SNAP": "the length of 802.3 is not that of the frame",
    "802.3 with SNAP of RFC 1042 bridges": "tshark takes these for Cisco's protocols",
    "MPLS pseudowire with control word": "what a pseudowire carries has to be said to tshark",
    "MPLS pseudowire without control word": "likewise",
    "NULL, IPv6 as family 10": "a family that tshark does not expect in such captures",
    "NULL, IPv6 as family 23": "likewise",
    "NULL, big endian, IPv6 as family 10": "likewise",
    "PPP of pppd": "tshark wants the whole header",
    "PPP of pppd without control octet": "likewise",
    "Cisco HDLC with direction": "tshark takes it for something else",
    "Solaris IPNET": "the header has more than zeros",
    "NFLOG, big endian": "tshark goes by the order of the file",
    "PKTAP around Ethernet": "the header is longer in life",
    "IPv6 payload length 0 of segmentation offload": "tshark knows that of IPv4 alone",
    "IPv6 routing, mobility, HIP, shim6": "nothing may follow mobility there",
    "ERSPAN type III with an IP datagram": "tshark reads Ethernet alone there",
    "ERSPAN type II": "type I has no sequence number",
    "VXLAN on any port": "tshark goes by the port",
    "VXLAN on any port, padded inside": "likewise",
    "VXLAN with a group policy on any port": "likewise",
    "GENEVE on any port": "likewise",
    "GENEVE on any port, IP straight inside": "likewise",
    "TZSP on any port": "likewise",
    "TZSP with 802.11 inside on any port": "likewise",
    "VXLAN on any port, VLAN and IPv6 inside": "likewise",
    "VXLAN-GPE port with VXLAN": "likewise",
    "VXLAN-GPE on any port": "likewise",
}
"""Frames of the tables in which tshark finds no TCP, and why."""


def via(items: Iterable[Frame | CaptureNotice], skipped: Counter[str] | None = None) -> list[Segment | CaptureNotice]:
    return list(Dissection(items, skipped).segments())


def own(items: Iterable[Frame | CaptureNotice], skipped: Counter[str] | None = None) -> list[Segment | CaptureNotice]:
    return [segment for segment in segments(items, skipped) if not isinstance(segment, DnsMessage)]


def numbered(*datas: tuple[int, bytes]) -> list[Frame]:
    return [replace(octets.frame(data, link_type, number=number)) for number, (link_type, data) in enumerate(datas, 1)]


@pytest.mark.long
def test_all_committed_captures_give_the_segments_of_our_own_walk() -> None:
    """Field by field: keys with their tunnels, numbers, flags, payload, what is missing, frame, time, capture."""
    counted: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    expected = own(open_capture(COMMITTED), counted[0])

    assert via(open_capture(COMMITTED), skipped=counted[1]) == expected
    assert counted[0] == counted[1]
    assert len({segment.capture for segment in expected}) == len(COMMITTED) >= 70
    assert sum(isinstance(segment, Segment) and bool(segment.payload) for segment in expected) > 1_500


def test_every_link_and_tunnel_of_the_tables() -> None:
    rows = [*LINKED, *octets.WHOLE]
    frames = numbered(*((link_type, data) for _, link_type, data, _ in rows))
    actual_segments: dict[int, list[Segment]] = {}
    for other_segment in via(frames):
        assert isinstance(other_segment, Segment)
        actual_segments.setdefault(other_segment.frame, []).append(other_segment)

    differing = {
        row[0] for row, frame in zip(rows, frames, strict=True) if actual_segments.get(frame.number) != [segment(frame)]
    }
    assert differing == OTHERWISE.keys()
    assert all(
        frame.number not in actual_segments for row, frame in zip(rows, frames, strict=True) if row[0] in OTHERWISE
    )


TUNNELS: list[tuple[int, Callable[[bytes], bytes]]] = [
    (1, lambda data: octets.ethernet(0x800, octets.ip4(octets.gtp(data), 17))),
    (1, lambda data: octets.ethernet(0x800, octets.ip4(octets.gtp(data, 0x34, b"\0\0\0\x85\x01\0\x01\0"), 17))),
    (
        127,
        lambda data: octets.radiotap(
            octets.wlan(octets.SNAP + b"\x08\0" + data, kind=0x88, quality=b"\0\0"), 0, time=True
        ),
    ),
]


@pytest.mark.parametrize("number", some(range(len(TUNNELS))))
def test_a_conversation_in_a_tunnel(number: int) -> None:
    """A whole capture with its datagrams wrapped: both front ends agree, and find what is in the plain one."""
    link_type, wrap = TUNNELS[number]
    frames = list(open_capture([COMMITTED[0].parents[1] / "v5-qos" / "capture.pcapng"]))
    wrapped = []
    for frame in frames:
        assert isinstance(frame, Frame)
        data = wrap(frame.data[14:])
        wrapped.append(replace(frame, link_type=link_type, data=data, original_length=len(data)))
    expected = own(wrapped)

    assert via(wrapped) == expected
    plain = [
        (segment.sequence, segment.payload, segment.frame) for segment in own(frames) if isinstance(segment, Segment)
    ]
    assert [
        (segment.sequence, segment.payload, segment.frame) for segment in expected if isinstance(segment, Segment)
    ] == plain


LLC = octets.SNAP + b"\x08\0"
SECOND = octets.ip4(octets.tcp(b"\xd0\0"))


def test_two_equal_layers_of_a_frame_are_two_segments() -> None:
    """The trap of pyshark's JSON and EK modes: they keep one of them."""
    both = octets.subframe(LLC + octets.IP4, last=False) + octets.subframe(LLC + SECOND)
    three = octets.subframe(LLC + SECOND, last=False) + both
    frames = numbered(*((105, octets.wlan(raw, kind=0x88, quality=b"\x80\0")) for raw in (both, three)))
    actual_segments = via(frames)

    assert [(segment.payload, segment.frame) for segment in actual_segments if isinstance(segment, Segment)] == [
        (octets.PINGREQ, 1), (b"\xd0\0", 1), (b"\xd0\0", 2), (octets.PINGREQ, 2), (b"\xd0\0", 2),
    ]  # fmt: skip
    key = segment(octets.frame(octets.IP4, 228)).key  # type: ignore[union-attr]
    assert {segment.key for segment in actual_segments if isinstance(segment, Segment)} == {key}
    skipped: Counter[str] = Counter()
    assert own(frames, skipped) == []
    assert skipped == {"wlan_aggregate": 2}


def test_vlans_of_one_datagram_are_not_those_of_the_next() -> None:
    tagged = octets.SNAP + b"\x81\0" + octets.vlan(7, 0x800, octets.IP4)
    both = octets.subframe(tagged, last=False) + octets.subframe(LLC + SECOND)
    actual_segments = via(numbered((105, octets.wlan(both, kind=0x88, quality=b"\x80\0"))))

    assert [segment.key[12:] for segment in actual_segments if isinstance(segment, Segment)] == [b"\0\x07\x04", b""]


def test_what_icmp_quotes_is_no_segment() -> None:
    quoting = octets.ip4(b"\x03\x01\0\0\0\0\0\0" + octets.IP4, 1)
    quoting_6 = octets.ip6(b"\x01\x01\0\0\0\0\0\0" + octets.IP6, 58)
    both = octets.subframe(LLC + quoting, last=False) + octets.subframe(LLC + SECOND)
    skipped: Counter[str] = Counter()
    frames = numbered((228, quoting), (229, quoting_6), (105, octets.wlan(both, kind=0x88, quality=b"\x80\0")))
    noted: list[tuple[str, str, int]] = []
    actual_segments = list(
        Dissection(frames, skipped, note_skipped=lambda *arguments: noted.append(arguments)).segments()
    )

    assert [(segment.payload, segment.frame) for segment in actual_segments if isinstance(segment, Segment)] == [
        (b"\xd0\0", 3)
    ]
    assert skipped == {"not_tcp": 2}
    assert noted == [(frames[0].capture, "not_tcp", 1)] * 2


def pdml(data: bytes, link_type: int, *more: str) -> bytes:
    """tshark's answer for one frame."""
    written = _file([octets.frame(data, link_type)])
    words = [*command(find_tool("tshark", "for tests")), *more]
    done = subprocess.run(words, input=written, capture_output=True, check=True)
    begin, end = done.stdout.index(b"<packet>"), done.stdout.index(b"</packet>") + len(b"</packet>")
    return done.stdout[begin:end]


def _file(frames: list[Frame]) -> bytes:
    import io

    stream = io.BytesIO()
    with PcapngWriter(stream) as writer:
        for frame in frames:
            writer.write(frame)
    return stream.getvalue()


def test_of_tcp_inside_tcp_the_innermost_counts() -> None:
    inner = octets.ip4(octets.tcp(b"inside!!"))
    message = b"\x30\xff" + len(inner).to_bytes(2, "big") + bytes(4) + inner
    outer = bytearray(octets.ip4(octets.tcp(message)))
    outer[20:24] = b"\x0d\x3a\x27\x0f"
    answer = pdml(bytes(outer), 228, "-d", "tcp.port==9999,gtp")
    assert answer.count(b'<proto name="tcp"') == 2

    number, actual_segments = dissected(answer, octets.frame(bytes(outer), 228, number=12))

    assert number == 1
    assert [(segment.payload, segment.frame, endpoints(segment.key)[1]) for segment in actual_segments] == [
        (b"inside!!", 12, "10.0.0.2:1883")
    ]


def test_fragments_give_the_segment_with_the_number_of_the_last_frame() -> None:
    whole = octets.tcp(b"x" * 1000)
    four = [
        octets.ip4(whole[at : at + 256], fragment=(0x2000 if at + 256 < len(whole) else 0) | at // 8)
        for at in (256, 0, 768, 512)
    ]
    six = [
        octets.ip6(octets.fragment_header(6, at, at == 0) + whole[at : at + 512 if not at else None], 44)
        for at in (512, 0)
    ]
    frames = numbered(*((228, raw) for raw in four), *((229, raw) for raw in six))
    skipped: Counter[str] = Counter()

    actual_segments = via(frames, skipped=skipped)

    assert actual_segments == own(frames)
    assert [(len(segment.payload), segment.frame) for segment in actual_segments if isinstance(segment, Segment)] == [
        (1000, 4),
        (1000, 6),
    ]
    assert skipped == {}


@pytest.mark.long
@pytest.mark.parametrize("length", [40, 54, 60, 70, 96, 200])
def test_snap_lengths(length: int) -> None:
    frames = [frame for frame in open_capture(COMMITTED[:12]) if isinstance(frame, Frame)]
    cut = [replace(frame, data=frame.data[:length]) for frame in frames]
    counted: tuple[Counter[str], Counter[str]] = Counter(), Counter()

    assert via(cut, skipped=counted[0]) == own(cut, counted[1])
    assert counted[0] == counted[1]


@pytest.mark.long
def test_frames_cut_at_every_byte() -> None:
    """Whatever is left of a tunnel: no more than our own walk finds, and nothing raises."""
    frames: list[Frame] = []
    for name, link_type, data, _ in [*LINKED, *octets.WHOLE]:
        if name not in OTHERWISE and len(data) > 90:
            frames += [
                replace(octets.frame(data[:at], link_type, len(data)), number=len(frames) + at)
                for at in range(len(data))
            ]
    frames = [replace(frame, number=number) for number, frame in enumerate(frames, 1)]
    assert len(frames) > 1_500
    walked = {
        number: other_segment
        for number, other_segment in enumerate(map(segment, frames), 1)
        if isinstance(other_segment, Segment)
    }
    actual_segments = [segment for segment in via(frames) if isinstance(segment, Segment)]

    assert len(actual_segments) > 50
    # Of a header without its last two bytes, the urgent pointer, tshark still tells the rest.
    assert [
        segment
        for segment in actual_segments
        if segment != walked.get(segment.frame) and segment.missing != len(octets.PINGREQ)
    ] == []


def test_longer_frames_than_tshark_reads_are_cut() -> None:
    data = octets.ethernet(0x800, octets.ip4(octets.tcp(b"y" * 300_000), total=0))
    (actual_segment,) = via([octets.frame(data), octets.frame(octets.ethernet(0x806, bytes(46)), number=2)])

    assert isinstance(actual_segment, Segment)
    assert len(actual_segment.payload) + actual_segment.missing == 300_000
    assert len(actual_segment.payload) == MAX_FRAME_BYTES - 54


def test_data_of_a_reset() -> None:
    data = bytearray(octets.ip4(octets.tcp(b"Access denied")))
    data[33] = 0x14
    (actual_segment,) = via(numbered((228, bytes(data))))

    assert isinstance(actual_segment, Segment)
    assert (actual_segment.flags, actual_segment.payload, actual_segment.missing) == (0x14, b"Access denied", 0)


def test_notices_stay_in_their_place_and_captures_keep_their_numbers() -> None:
    drops, error = CaptureDrops("b", 0, None, 3), CaptureError("b", "is cut", 9, 1)
    frames: list[Frame | CaptureNotice] = [
        octets.frame(octets.IP4, 228, number=7),
        drops,
        replace(octets.frame(octets.IP6, 229), capture="b", timestamp_ns=-1),
        error,
    ]
    assert via(frames) == own(frames)
    assert [type(segment).__name__ for segment in via(frames)] == ["Segment", "CaptureDrops", "Segment", "CaptureError"]
    assert via([drops, error]) == [drops, error]
    assert via([]) == []


def test_link_types_that_nobody_knows() -> None:
    skipped: Counter[str] = Counter()
    frames = [
        octets.frame(octets.IP4, 147),
        octets.frame(octets.IP4, 99_999, number=2),
        octets.frame(octets.IP4, 228, number=3),
    ]

    assert [segment.frame for segment in via(frames, skipped=skipped) if isinstance(segment, Segment)] == [3]
    assert skipped == {"unsupported_link_type": 2}


@pytest.mark.long
def test_few_frames_are_on_the_way() -> None:
    pulled, most = 0, 0

    def frames() -> Iterator[Frame]:
        nonlocal pulled
        for number in range(1, 4 * MAX_AHEAD):
            pulled += 1
            yield octets.frame(octets.ethernet(0x800, octets.ip4(octets.tcp(bytes(1200)))), number=number)

    dissection = Dissection(frames())
    for single_segment in dissection.segments():
        assert isinstance(single_segment, Segment)
        most = max(most, pulled - single_segment.frame)
    assert dissection.answered == pulled == 4 * MAX_AHEAD - 1
    assert most <= MAX_AHEAD


def test_who_waits_for_each_segment_gets_it_before_the_next_frame() -> None:
    seen: list[int] = []

    def frames() -> Iterator[Frame]:
        for number in (1, 2, 3):
            assert seen == list(range(1, number))
            yield octets.frame(octets.IP4, 228, number=number)

    for single_segment in Dissection(frames(), waiting=True).segments():
        assert isinstance(single_segment, Segment)
        seen.append(single_segment.frame)
    assert seen == [1, 2, 3]


def rc4(key: bytes, data: bytes) -> bytes:
    state, at = list(range(256)), 0
    for number in range(256):
        at = (at + state[number] + key[number % len(key)]) % 256
        state[number], state[at] = state[at], state[number]
    buffer, first, second = bytearray(), 0, 0
    for other_number in data:
        first = (first + 1) % 256
        second = (second + state[first]) % 256
        state[first], state[second] = state[second], state[first]
        buffer.append(other_number ^ state[(state[first] + state[second]) % 256])
    return bytes(buffer)


def test_encrypted_802_11_with_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, vector = bytes.fromhex("0102030405"), b"\1\2\3"
    plain = LLC + octets.IP4
    sealed = vector + b"\0" + rc4(vector + key, plain + zlib.crc32(plain).to_bytes(4, "little"))
    frames = numbered((105, octets.wlan(sealed, flags=0x41)))
    without: Counter[str] = Counter()
    assert via(frames, skipped=without) == []
    assert without == {"wlan_encrypted": 1}

    (tmp_path / "80211_keys").write_text('"wep","0102030405"\n', "utf-8")
    monkeypatch.setenv("WIRESHARK_CONFIG_DIR", str(tmp_path))
    (actual_segment,) = via(frames)

    assert actual_segment == segment(octets.frame(octets.IP4, 228))


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exit 0", "ended early; exit code 0)"),
        ("echo 'no memory' >&2; exit 2", "ended early; exit code 2): no memory"),
        ("kill -9 $$", "signal 9"),
        ('echo \'<packet><proto name="geninfo"><field name="num" show="5"/></proto></packet>\'; sleep 60', "frame 5"),
        ("echo '<packet></packet>'; sleep 60", "frame 0"),
        ("echo '<packet>&&&&<<<</packet>'; sleep 60", "frame 0"),
        ("exec 0<&-; sleep 0.2; exit 3", "exit code 3"),
    ],
)
def test_a_tshark_that_fails_is_an_error(
    script: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(script, tmp_path, monkeypatch)
    drops = CaptureDrops("x.pcap", 0, None, 3)
    actual_segments = via([drops, *numbered(*[(228, octets.IP4)] * 3000)])

    assert actual_segments[0] == drops
    (error,) = (segment for segment in actual_segments if isinstance(segment, CaptureError))
    assert error.capture == "x.pcap"
    assert error.message.startswith("tshark failed (")
    assert expected in error.message
    assert error.message.endswith("frames not yet dissected are missing")


def test_what_was_read_before_tshark_failed_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = find_tool("tshark", "for tests")
    # Three answers, then no more.
    fake(
        f"'{real}' \"$@\" | awk '/<packet>/ {{ n++ }} n > 3 {{ exit }} {{ print; fflush() }}'; exit 4",
        tmp_path,
        monkeypatch,
    )
    actual_segments = via(numbered(*[(228, octets.IP4)] * 40))

    assert [segment.frame for segment in actual_segments if isinstance(segment, Segment)] == [1, 2, 3]
    assert isinstance(actual_segments[-1], CaptureError)
    assert actual_segments[-1].frames == 3


def fake(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "bin" / "tshark"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")


def test_a_missing_tshark_is_told_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match=r"tshark is needed to read captures with --via tshark.*apt-get install"):
        Dissection(())


def test_who_looks_no_further_leaves_no_tshark_behind() -> None:
    dissection = Dissection(numbered(*[(228, octets.IP4)] * 400))
    running = dissection.segments()
    next(running)
    running.close()  # type: ignore[attr-defined]
    assert dissection._process.ended


@pytest.mark.long
@pytest.mark.parametrize(
    "folders",
    [
        pytest.param(("derived/suricata-mqtt5-props", "tcp-tcpdump"), id="data"),
        pytest.param(("derived/paho-v5-live",), id="corpora", marks=corpora.needs("captures/derived/paho-v5-live/*")),
    ],
)
def test_captures_of_links_and_transports(folders: tuple[str, ...]) -> None:
    """Where both know the link type: the same segments, and no more left aside than our own walk leaves."""

    def read(items: list[Segment | CaptureNotice]) -> list[Segment]:
        return [segment for segment in items if isinstance(segment, Segment)]

    paths = [
        path
        for folder in folders
        for path in sorted(corpora.path("captures", folder).glob("*.pcap*"))
        if path.stat().st_size < 100_000 and "user0" not in path.name
    ]
    assert len(paths) > 30
    assert read(via(open_capture(paths))) == read(own(open_capture(paths)))


def test_udp_beside_is_counted_by_its_reason() -> None:
    skipped: Counter[str] = Counter()
    assert via(numbered((228, octets.ip4(octets.udp(1884, b"\x0b\x04\x04\x01\0\x3cdev01"), 17))), skipped=skipped) == []
    assert skipped == {"mqtt_sn": 1}
