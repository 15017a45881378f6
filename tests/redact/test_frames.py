"""Frames with other addresses: every link layer, right and wrong checksums, tunnels, options, padding."""

from __future__ import annotations

import struct
from dataclasses import replace

from mqttscope.capture.write import ip_frame
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment
from mqttscope.net.segment import Fragment, Segment, endpoints, is_ipv4_key
from mqttscope.redact.addresses import Addresses
from mqttscope.redact.frames import FrameRedactor, adjusted, word_sum
from mqttscope.redact.kinds import TreatmentChoice
from mqttscope.redact.pseudonyms import Pseudonyms
from tests.each import each
from tests.net import octets

PAYLOAD = b"\x30\x0bsecret-data-here"
COOKIE = b"\x22\x0acookie!!\x01\x01"
LLC = b"\xaa\xaa\x03\0\0\0\x08\0"
IP = octets.ip4(octets.tcp(PAYLOAD))
ETHERNET = octets.ethernet(0x0800, IP)
VXLAN = octets.ethernet(0x0800, octets.ip4(octets.udp(4789, b"\x08\0\0\0\0\0\x07\0" + ETHERNET), 17))


def frames(choice: TreatmentChoice | None = None) -> FrameRedactor:
    return FrameRedactor(Addresses(Pseudonyms(b"key")), choice or TreatmentChoice(), ip_frame)


def moved(frame: Frame, choice: TreatmentChoice | None = None) -> Frame:
    moved_frame = frames(choice).rewrite(frame, octets.one(segment(frame)))
    assert moved_frame.data is not None
    return replace(
        frame,
        data=bytes(moved_frame.data),
        link_type=moved_frame.link_type,
        original_length=moved_frame.original_length,
    )


def checksums(data: bytes, ip: int = 14) -> tuple[int, int]:
    """What is missing to the right checksums of an IPv4 frame: 0 where they are right."""
    length = (data[ip] & 15) * 4
    total = int.from_bytes(data[ip + 2 : ip + 4], "big")
    covered = data[ip + 12 : ip + 20] + struct.pack("!HH", 6, total - length) + data[ip + length : ip + total]
    return -word_sum(data[ip : ip + length]) % 0xFFFF, -word_sum(covered) % 0xFFFF


def summed(data: bytes, ip: int = 14) -> bytes:
    """An IPv4 frame with right checksums."""
    buffer = bytearray(data)
    length = (buffer[ip] & 15) * 4
    buffer[ip + 10 : ip + 12] = bytes(2)
    buffer[ip + length + 16 : ip + length + 18] = bytes(2)
    for at, value in zip((ip + 10, ip + length + 16), checksums(bytes(buffer), ip), strict=True):
        buffer[at : at + 2] = value.to_bytes(2, "big")
    return bytes(buffer)


@each(
    "kind, data",
    [
        (1, ETHERNET),
        (1, octets.ethernet(0x8100, octets.vlan(7, 0x0800, IP))),
        (1, octets.ethernet(0x88A8, octets.vlan(7, 0x8100, octets.vlan(8, 0x86DD, octets.ip6(octets.tcp(PAYLOAD)))))),
        (
            1,
            octets.ethernet(
                0x0800, octets.ip4(octets.tcp(PAYLOAD, octets.TIMESTAMPS), options=b"\x07\x07\x04\xc0\xa8\x01\x01\0")
            ),
        ),
        (0, b"\x02\0\0\0" + IP),
        (101, IP),
        (101, octets.ip6(octets.tcp(PAYLOAD))),
        (113, b"\0\0\0\x01\0\x06\0\x17\xf2\xaa\xbb\xcc\0\0\x08\0" + IP),
        (276, b"\x08\0\0\0\0\0\0\x02\0\x01\0\x06\0\x17\xf2\xaa\xbb\xcc\0\0" + IP),
        (9, octets.ppp(IP)),
    ],
    ids=["Ethernet", "VLAN", "QinQ", "options", "loopback", "raw", "raw 6", "cooked", "cooked 2", "PPP"],
)
def test_plain_frames_keep_their_layout(kind: int, data: bytes) -> None:
    frame = octets.frame(data, kind)
    before, new_frame = octets.one(segment(frame)), moved(frame)
    after = octets.one(segment(new_frame))

    assert (len(new_frame.data), new_frame.link_type) == (len(data), kind)
    assert (after.sequence, after.flags, after.window) == (before.sequence, before.flags, before.window)
    size = 8 if is_ipv4_key(before.key) else 32
    assert after.key[size:] == before.key[size:]
    assert len(after.payload) == len(PAYLOAD)
    for secret in (PAYLOAD[2:], bytes.fromhex("0017f2aabbcc"), bytes((10, 0, 0, 4)), bytes((192, 168, 1, 1))):
        assert secret not in new_frame.data


@each(
    "kind, data",
    [
        (1, VXLAN),
        (1, octets.ethernet(0x0800, octets.ip4(octets.gtp(IP), 17))),
        (1, octets.ethernet(0x86DD, octets.ip6(octets.extension(6) + octets.tcp(PAYLOAD), 60))),
        (105, octets.wlan(LLC + IP)),
        (127, octets.radiotap(octets.wlan(LLC + IP))),
        (239, b"\x02\0\0\0" + b"\x0c\0\x0a\0eth-host\0"[:12] + struct.pack("<HH", 4 + len(IP), 9) + IP),
    ],
    ids=["VXLAN", "GTP", "extension headers", "802.11", "radiotap", "NFLOG"],
)
def test_what_holds_more_addresses_and_names_is_taken_off(kind: int, data: bytes) -> None:
    frame = octets.frame(data, kind)
    before, work = octets.one(segment(frame)), frames()
    moved_frame = work.rewrite(frame, before)
    assert moved_frame.data is not None
    after = octets.one(segment(replace(frame, data=bytes(moved_frame.data), link_type=moved_frame.link_type)))

    assert work.rebuilt == 1
    assert moved_frame.link_type == (101 if len(before.key) in (12, 36) else 1)
    assert (after.sequence, after.acknowledgment, after.flags) == (before.sequence, before.acknowledgment, before.flags)
    assert len(after.payload) == len(PAYLOAD)
    for secret in (b"secret", b"eth-host", bytes((10, 0, 0, 4))):
        assert secret not in moved_frame.data


def test_equal_addresses_in_two_tunnels_stay_apart() -> None:
    other = VXLAN.replace(b"\x08\0\0\0\0\0\x07\0", b"\x08\0\0\0\0\0\x09\0")
    work, keys = frames(), []
    for data in (VXLAN, other, VXLAN):
        frame = octets.frame(data)
        moved_frame = work.rewrite(frame, octets.one(segment(frame)))
        assert moved_frame.data is not None
        keys.append(
            octets.one(segment(replace(frame, data=bytes(moved_frame.data), link_type=moved_frame.link_type))).key
        )

    assert keys[0] == keys[2] != keys[1]
    assert endpoints(keys[0]) == endpoints(keys[1])


@each("right", [True, False])
def test_right_checksums_stay_right_and_wrong_ones_wrong(right: bool) -> None:
    for payload in (b"", b"x", PAYLOAD, b"y" * 1001):
        data = summed(octets.ethernet(0x0800, octets.ip4(octets.tcp(payload, octets.TIMESTAMPS + COOKIE, None))))
        if not right:
            data = data[:60] + bytes((data[60] ^ 1,)) + data[61:]
        raw = moved(octets.frame(data)).data
        assert checksums(raw)[0] == checksums(data)[0] == 0
        assert (checksums(raw)[1] == 0) is right
        assert checksums(raw)[1] == checksums(data)[1]


def test_options_that_may_be_a_cookie_go() -> None:
    raw = moved(octets.frame(octets.ethernet(0x0800, octets.ip4(octets.tcp(PAYLOAD, octets.TIMESTAMPS + COOKIE))))).data

    assert b"cookie" not in raw
    assert octets.TIMESTAMPS in raw
    for odd in (b"\x08\x00\x01\x01", b"\x05\xff\x01\x01", b"\x00abc", b"\x02\x04\x05\xb4"):
        assert len(moved(octets.frame(octets.ethernet(0x0800, octets.ip4(octets.tcp(PAYLOAD, odd))))).data) > 54


def test_padding_and_trailers_are_zeros() -> None:
    raw = moved(octets.frame(ETHERNET + b"left over in memory")).data

    assert raw.endswith(bytes(19))
    assert len(raw) == len(ETHERNET) + 19


def test_cut_frames_are_cut_in_the_same_place() -> None:
    for length in range(54, len(ETHERNET)):
        frame = octets.frame(ETHERNET[:length], original_length=len(ETHERNET))
        before, after = octets.one(segment(frame)), octets.one(segment(moved(frame)))
        assert (len(after.payload), after.missing) == (len(before.payload), before.missing)
        assert b"secret"[: max(0, length - 56)] not in after.payload or length <= 57


def test_addresses_stay_where_the_user_says_so() -> None:
    raw = moved(octets.frame(ETHERNET), TreatmentChoice.of(["addresses", "macs"])).data
    blank = octets.one(segment(moved(octets.frame(ETHERNET), TreatmentChoice.of([], ["addresses", "macs"]))))

    assert raw[:34] == ETHERNET[:34]
    assert endpoints(blank.key)[0].startswith("0.0.0.0:")


def test_fragments_have_their_place() -> None:
    whole = octets.tcp(PAYLOAD)
    parts = [
        octets.frame(octets.ethernet(0x0800, octets.ip4(whole[:24], fragment=0x2000))),
        octets.frame(octets.ethernet(0x0800, octets.ip4(whole[24:], fragment=0x0003))),
        octets.frame(octets.ethernet(0x86DD, octets.ip6(octets.fragment_header(6, 0, True) + whole[:24], 44))),
    ]
    segments = [segment(part) for part in parts]
    assert all(isinstance(part, Fragment) for part in segments)
    fragments = [
        frames().fragment(part, held) for part, held in zip(parts, segments, strict=True) if isinstance(held, Fragment)
    ]

    assert [None if part is None else (part.offset, part.length) for part in fragments] == [(0, 24), (24, 14), (0, 24)]
    for part in fragments:
        assert part is not None
        assert part.frame.data is not None
        assert b"secr" not in part.frame.data
        assert bytes((10, 0, 0, 4)) not in part.frame.data
    # A header in two pieces, and a fragment in a tunnel, are not plain.
    cut = octets.frame(octets.ethernet(0x0800, octets.ip4(whole[:16], fragment=0x2000)))
    held = segment(cut)
    assert isinstance(held, Fragment)
    assert frames().fragment(cut, held) is None


def test_sums_of_ones_complement() -> None:
    assert word_sum(b"\x12\x34\xff\xff") == 0x1234
    assert word_sum(b"\x34", odd=True) == 0x34
    assert word_sum(b"\x34") == 0x3400
    assert adjusted(0xABCD, 5, 5) == 0xABCD
    # The example of RFC 1624, section 4.
    assert adjusted(0xDD2F, 0x5555, 0x3285) == 0


def test_a_segment_is_one() -> None:
    assert isinstance(segment(octets.frame(ETHERNET)), Segment)
