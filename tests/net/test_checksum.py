"""What the checksum of a frame proves: each row of that section in docs/connections.md has a case here."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttscope.net.checksum import MAX_LENGTH, RIGHT, UNJUDGED, WRONG, judge_checksum
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment, walk
from mqttscope.net.segment import Fragment, Segment
from tests.conftest import ROOT
from tests.net.octets import (
    A4,
    A6,
    B4,
    B6,
    VXLAN,
    ethernet,
    extension,
    frame,
    ip4,
    ip6,
    one,
    tcp,
    udp,
    vlan,
)  # fmt: skip

WORDS: Final = {"right": RIGHT, "wrong": WRONG, "unjudged": UNJUDGED}
FOUR, SIX = A4 + B4, A6 + B6
GRE: Final = b"\0\0\x08\0"


def words(data: bytes) -> int:
    """The ones' complement sum of 16-bit words, word by word."""
    total = 0
    for at in range(0, len(data), 2):
        total += data[at] << 8 | (data[at + 1] if at + 1 < len(data) else 0)
        total = (total & 0xFFFF) + (total >> 16)
    return total


def pseudo(addresses: bytes, length: int) -> bytes:
    """The pseudo-header: the form of IPv6 has the same sum as that of IPv4."""
    return addresses + length.to_bytes(4, "big") + bytes((0, 0, 0, 6))


def filled(data: bytes, field: int) -> bytes:
    """A segment with this checksum."""
    return data[:16] + field.to_bytes(2, "big") + data[18:]


def right(addresses: bytes, payload: bytes = b"\xc0\0", options: bytes = b"") -> bytes:
    data = tcp(payload, options)
    return filled(data, ~words(pseudo(addresses, len(data)) + data) & 0xFFFF)


def flipped(data: bytes, at: int = -1, bit: int = 0) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)


def checksums(*frames: Frame) -> list[int]:
    """Results for the segments of frames, reassembled from fragments; the quick way and the walk agree."""
    table, numbers = FragmentTable(), []
    for each_frame in frames:
        result = segment(each_frame)
        whole = table.feed(result) if isinstance(result, Fragment) else result
        if isinstance(result, Segment):
            assert one(walk(each_frame)).checksum == result.checksum
        if isinstance(whole, Segment):
            numbers.append(whole.checksum)
    return numbers


def plain(data: bytes) -> Frame:
    return frame(ethernet(0x800, ip4(data)))


def offered(length: int) -> bytes:
    """A wrong segment of this length."""
    return flipped(right(FOUR, bytes(length - 20)))


def fragments(data: bytes, cut: int = 0) -> list[Frame]:
    first, second = ip4(data[:16], fragment=0x2000), ip4(data[16:], fragment=2)
    return [frame(first, 228), frame(second[: len(second) - cut], 228, len(second), 2)]


HEAD: Final = pseudo(FOUR, len(tcp()))
BAD: Final = flipped(right(FOUR))
BAD6: Final = flipped(right(SIX))
CASES: Final[dict[str, Callable[[], list[Frame]]]] = {
    "sum-right": lambda: [plain(right(FOUR)), plain(right(FOUR, b"odd")), frame(ethernet(0x86DD, ip6(right(SIX))))],
    "bit-flipped": lambda: [plain(flipped(right(FOUR), at)) for at in range(22) if at != 12],
    "in-vlan": lambda: [frame(ethernet(0x8100, vlan(7, 0x800, ip4(BAD))))],
    "in-tunnel": lambda: [
        frame(ip4(udp(4789, VXLAN + ethernet(0x800, ip4(BAD))), 17), 228),
        frame(ip4(GRE + ip4(BAD), 47), 228),
        frame(ip4(ip6(BAD6), 41), 228),
    ],
    "in-ipv6": lambda: [
        frame(ethernet(0x86DD, ip6(BAD6))),
        frame(ip6(extension(6) + BAD6, 0), 229),
    ],
    "in-fragments": lambda: fragments(BAD),
    "longest-of-a-link": lambda: [plain(offered(MAX_LENGTH))],
    "joined": lambda: [plain(offered(MAX_LENGTH + 1))],
    "left-to-the-interface": lambda: [
        plain(filled(tcp(), words(HEAD))),
        frame(ethernet(0x86DD, ip6(filled(tcp(b"x"), words(pseudo(SIX, 21)))))),
    ],
    "left-without-length": lambda: [plain(filled(tcp(), words(pseudo(FOUR, 0))))],
    "field-zero": lambda: [plain(tcp())],
    "cut": lambda: [
        frame(ethernet(0x800, ip4(BAD))[:-1], original_length=56),
        *fragments(BAD, cut=1),
    ],
    "length-beyond-frame": lambda: [
        frame(ip4(BAD, total=43), 228),
        frame(ip4(BAD, total=0), 228),
        frame(ip6(BAD6, length=23), 229),
        frame(ip6(BAD6, length=0), 229),
    ],
    "options-of-ip": lambda: [frame(ip4(BAD, options=b"\x83\x07\x04" + A4 + b"\0"), 228)],
    "routing-header": lambda: [frame(ip6(extension(6) + BAD6, kind), 229) for kind in (43, 60, 135, 139, 140)],
}  # fmt: skip


def table() -> list[tuple[str, str]]:
    text = (ROOT / "docs" / "connections.md").read_text(encoding="utf-8")
    section = text.partition("\n## Evidence of checksums\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([a-z0-9-]+)` \| .+ \| (\w+) \|$", section, re.MULTILINE)


def test_the_table_names_each_case() -> None:
    assert [name for name, _ in table()] == [*CASES]


@pytest.mark.parametrize(("name", "word"), table())
def test_what_a_checksum_proves(name: str, word: str) -> None:
    frames = CASES[name]()
    numbers = checksums(*frames)
    assert numbers
    assert set(numbers) == {WORDS[word]}


def test_a_right_checksum_is_right_wherever_a_wrong_one_proves_nothing() -> None:
    segments = [
        frame(ip4(right(FOUR), options=bytes(4)), 228),
        frame(ip4(right(FOUR), total=0), 228),
        frame(ip6(extension(6) + right(SIX), 43), 229),
    ]
    assert checksums(*segments) == [RIGHT] * 3


@given(
    st.binary(max_size=300),
    st.sampled_from((FOUR, SIX)),
    st.integers(0, 1 << 20),
    st.integers(0, 7),
    st.binary(max_size=9),
)
def test_sums_are_those_of_words_and_each_flipped_bit_shows(
    payload: bytes, addresses: bytes, place: int, bit: int, before: bytes
) -> None:
    data = right(addresses, payload)
    whole = before + addresses + data + payload  # bytes around it do not count
    start = len(before) + len(addresses)
    assert judge_checksum(whole, len(before), start, start + len(data)) == RIGHT
    at = len(before) + place % (len(addresses) + len(data))
    assert judge_checksum(flipped(whole, at, bit), len(before), start, start + len(data)) != RIGHT
