"""Addresses in the place of others: the same class, the same networks, the same length as text."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.net.proxy_protocol import SIGNATURE, header_length, parse_endpoints
from mqttscope.redact.addresses import _CLASSES, Addresses
from mqttscope.redact.pseudonyms import Pseudonyms
from tests.each import each

ADDRESSES = Addresses(Pseudonyms(b"key"))


def knowing(addresses: Iterable[bytes], key: bytes = b"key") -> Addresses:
    """What replaces the addresses of a capture that holds these."""
    new_addresses = Addresses(Pseudonyms(key))
    for address in addresses:
        new_addresses.note(address)
    return new_addresses


def moved(address: str) -> str:
    return str(ip_address(ADDRESSES.ip(ip_address(address).packed)))


@each("address", ["127.0.0.1", "0.0.0.0", "255.255.255.255", "224.0.0.251", "::1", "::", "ff02::1"])
def test_addresses_without_a_secret_stay(address: str) -> None:
    assert moved(address) == address


@each(
    "address, network",
    [
        ("10.20.30.40", "10."),
        ("192.168.178.20", "192.168."),
        ("169.254.7.8", "169.254."),
        ("100.64.7.8", "100."),
        ("198.18.7.8", "198.19."),
        ("fe80::abcd", "fe80::"),
        ("2001:db8::7", "2001:db8:"),
    ],
)
def test_the_prefix_that_names_a_class_stays(address: str, network: str) -> None:
    assert moved(address).startswith(network)
    assert moved(address) != address


CLASSES = tuple(map(ip_network, (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16",
    "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4", "::/128", "::1/128", "fe80::/64", "2001:db8::/32", "fd00::/8",
    "fc00::/8", "ff00::/8",
)))  # fmt: skip
STAYS = tuple(map(ip_network, ("0.0.0.0/32", "127.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32", "::/127", "ff00::/8")))


def class_of(address: IPv4Address | IPv6Address) -> object:
    return next((network for network in CLASSES if address in network), None)


def near(network: str, bits: int) -> st.SearchStrategy[IPv4Address | IPv6Address]:
    """Addresses of a small part of a network, so that many are neighbours."""
    actual_network = ip_network(network)
    return st.integers(0, (1 << bits) - 1).map(lambda number: actual_network.network_address + number)


ANY_ADDRESS = st.one_of(
    st.ip_addresses(),
    near("192.0.2.0/24", 8), near("198.51.100.0/24", 8), near("203.0.113.0/24", 8), near("10.0.0.0/8", 5),
    near("10.0.0.0/8", 18), near("172.16.0.0/12", 20), near("192.168.0.0/16", 11), near("169.254.0.0/16", 16),
    near("100.64.0.0/10", 22), near("198.18.0.0/15", 6), near("8.8.8.0/24", 8), near("192.160.0.0/12", 20),
    near("2001:db8::/32", 4), near("fd00::/8", 40), near("fe80::/10", 9), near("2a00:1450::/32", 10),
    near("::ffff:0:0/96", 3), near("127.0.0.0/8", 3), near("255.255.255.248/29", 3), near("0.0.0.0/8", 4),
    near("::/120", 3), near("239.1.0.0/16", 4), near("ff02::/16", 2),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.sets(ANY_ADDRESS, min_size=1, max_size=25), st.binary(min_size=1, max_size=8))
def test_no_address_becomes_one_of_the_capture_and_no_two_become_one(
    addresses: set[IPv4Address | IPv6Address], key: bytes
) -> None:
    chunks = [address.packed for address in addresses]
    new_addresses = knowing(chunks, key)
    again = knowing(sorted(chunks), key)
    replaced = {address: ip_address(new_addresses.ip(address.packed)) for address in addresses}

    assert {address: ip_address(again.ip(address.packed)) for address in sorted(addresses, key=str)} == replaced
    assert len(set(replaced.values())) == len(replaced)
    for address, other in replaced.items():
        assert class_of(address) == class_of(other)
        if any(address in network for network in STAYS if network.version == address.version):
            assert address == other
            continue
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            assert other == IPv6Address(b"\0" * 10 + b"\xff\xff" + new_addresses.ip(address.ipv4_mapped.packed))
            continue
        assert other not in addresses
        width = 32 if isinstance(address, IPv6Address) else 8
        number = max((network.prefixlen for network in CLASSES if address in network), default=0)
        # Neither the network stays, nor anything of it but what names the class.
        network = ip_network((address, max(number + 1, 3 * width)), strict=False)
        assert number >= 3 * width or other not in network
        if isinstance(address, IPv4Address):
            assert len(str(address)) == len(str(other))


def test_a_network_of_which_every_address_is_known() -> None:
    chunks = [bytes((192, 168, number, other)) for number in range(10) for other in range(10)]
    addresses = knowing(chunks)
    actual_chunks = {addresses.ip(raw) for raw in chunks}

    assert len(actual_chunks) == len(chunks)
    assert actual_chunks.isdisjoint(chunks)
    assert {raw[:2] for raw in actual_chunks} == {b"\xc0\xa8"}


def in_networks(networks: Iterable[bytes], hosts: Iterable[int]) -> list[bytes]:
    hosts = list(hosts)
    return [network + bytes((host,)) for network in networks for host in hosts]


def inner(begin: tuple[int, ...], last: Iterable[int]) -> list[bytes]:
    return [bytes((*begin, number)) for number in last]


@each(
    "networks, hosts, elsewhere",
    [
        # Every network of so many digits is in the capture, or every one but one.
        (inner((192, 168), range(10)), range(1, 201, 9), True),
        (inner((192, 168), range(9)), range(1, 201, 9), True),
        # Every network of the class is in the capture: there is room in others of them, or in no class.
        (inner((192, 168), range(256)), (20,), False),
        (inner((169, 254), range(256)), (7,), False),
        # The usual network of one would be another one of them.
        (inner((1, 0), range(10)) + inner((2, 0), range(10)) + [b"\5\5\5"], range(9), True),
        (inner((9, 9), range(10)) + inner((8, 8), range(10)), range(10), True),
        (inner((10, 0), range(100)), (1, 2), True),
        ([bytes((0x20, 1, 0x0D, 0xB8, 0, 0, 0, number, 0, 0, 0, 0, 0, 0, 0)) for number in range(10)], range(10), True),
    ],
)
def test_no_address_stays_in_its_network_however_crowded_its_class_is(
    networks: list[bytes], hosts: Iterable[int], elsewhere: bool
) -> None:
    chunks = in_networks(networks, hosts)
    size = 3 if len(chunks[0]) == 4 else 8
    addresses, again = knowing(chunks), knowing(reversed(chunks))
    result = {raw: addresses.ip(raw) for raw in chunks}

    assert {raw: again.ip(raw) for raw in reversed(chunks)} == result
    assert len(set(result.values())) == len(result)
    assert set(result.values()).isdisjoint(chunks)
    assert [raw for raw, other in result.items() if raw[:size] == other[:size]] == []
    assert {class_of(ip_address(raw)) for raw in chunks} == {class_of(ip_address(raw)) for raw in result.values()}
    held = {raw[:size] for raw in chunks}
    assert elsewhere is held.isdisjoint(raw[:size] for raw in result.values())


def test_where_a_class_has_no_room_addresses_are_of_no_class(monkeypatch: pytest.MonkeyPatch) -> None:
    small = ip_network("203.0.112.0/23")
    row = (int(small.network_address), int(small.netmask), small.prefixlen)
    monkeypatch.setattr("mqttscope.redact.addresses._CLASSES", (*_CLASSES, row))
    chunks = in_networks(inner((203, 0), range(112, 114)), range(256))
    for known, left in ((chunks, 0), (chunks[:-100], 100)):
        addresses = knowing(known)
        address = {raw: ip_address(addresses.ip(raw)) for raw in known}

        assert len(set(address.values())) == len(address)
        assert sum(address in small for address in address.values()) == left
        assert all(raw[:3] != other.packed[:3] for raw, other in address.items())
        # Those of no class stay together, and are in no network of the capture.
        assert len({other.packed[:3] for other in address.values() if other not in small}) <= 2
        assert {class_of(other) for other in address.values()} == {None}


@settings(max_examples=5, deadline=None)
@given(
    st.sets(st.integers(0, 255), max_size=30),
    st.sets(st.integers(0, 255), min_size=1, max_size=2),
    st.binary(max_size=4),
)
def test_addresses_of_a_crowded_class_leave_their_networks(absent: set[int], hosts: set[int], key: bytes) -> None:
    chunks = in_networks(inner((192, 168), set(range(256)) - absent), hosts)
    addresses = knowing(chunks, key)
    result = {raw: addresses.ip(raw) for raw in chunks}

    assert len(set(result.values())) == len(result)
    assert set(result.values()).isdisjoint(chunks)
    for raw, other in result.items():
        assert raw[:2] == other[:2]
        assert raw[2] != other[2]


@settings(max_examples=30, deadline=None)
@given(st.sets(st.binary(min_size=6, max_size=6), min_size=1), st.binary(min_size=1, max_size=8))
def test_no_hardware_address_becomes_one_of_the_capture(addresses: set[bytes], key: bytes) -> None:
    new_addresses = knowing(addresses, key)
    replaced = {address: new_addresses.mac(address) for address in addresses}

    assert len(set(replaced.values())) == len(replaced)
    for raw, other in replaced.items():
        if raw[0] & 1 or not any(raw):
            assert raw == other or raw.startswith(b"\x33\x33\xff")
        else:
            assert other not in addresses
            assert other[0] & 3 == 2


def test_groups_that_end_with_an_address_end_with_another() -> None:
    mac, group = bytes.fromhex("3333ffaabbcc"), IPv6Address("ff02::1:ffaa:bbcc")

    assert (ADDRESSES.mac(mac)[:3], ADDRESSES.mac(mac)[3:] == mac[3:]) == (mac[:3], False)
    assert moved(str(group)).startswith("ff02::1:ff")
    assert moved(str(group)) != str(group)
    assert ADDRESSES.mac(bytes.fromhex("01005e0000fb")) == bytes.fromhex("01005e0000fb")


def test_networks_stay_together() -> None:
    first, second, other = (moved(text).split(".") for text in ("8.8.8.8", "8.8.8.9", "8.9.8.8"))

    assert first[:3] == second[:3]
    assert first[:1] == other[:1]
    assert first[1] != other[1]
    six = [IPv6Address(ADDRESSES.ip(IPv6Address(f"2a00:1450::{text}").packed)).exploded for text in "12"]
    assert six[0][:-2] == six[1][:-2]
    assert six[0] != six[1]


def test_hardware_addresses() -> None:
    raw = ADDRESSES.mac(bytes.fromhex("0017f2aabbcc"))

    assert raw[0] & 3 == 2
    assert raw != ADDRESSES.mac(bytes.fromhex("0017f2aabbcd"))
    assert ADDRESSES.mac(b"\xff" * 6) == b"\xff" * 6
    assert ADDRESSES.mac(bytes(6)) == bytes(6)


def test_texts_keep_what_is_no_address() -> None:
    assert ADDRESSES.text(b"at 127.0.0.1:1883, v1.2.3") == b"at 127.0.0.1:1883, v1.2.3"
    raw = ADDRESSES.text(b"at 10.20.30.40!")
    assert (len(raw), raw[:6], raw[-1:]) == (15, b"at 10.", b"!")
    assert len(ADDRESSES.text(b"999.1.1.1")) == 9


@each(
    "header",
    [
        b"PROXY TCP4 198.18.77.7 10.20.30.40 51000 1883\r\n",
        b"PROXY TCP6 2001:db8::77 fd00::2 51000 1883\r\n",
        b"PROXY UNKNOWN\r\n",
        SIGNATURE + b"\x21\x11\x00\x10" + bytes((9, 9, 9, 9, 10, 20, 30, 40)) + b"\xc7\x38\x07\x5b" + b"\x04\0\1x",
        SIGNATURE + b"\x20\x00\x00\x00",
    ],
)
def test_headers_of_the_proxy_protocol_stay_headers(header: bytes) -> None:
    raw, sizes = ADDRESSES.proxy_header(header)
    blank, _ = ADDRESSES.proxy_header(header, blank=True)

    assert header_length(blank) == len(header) == len(blank)
    assert header_length(raw) == len(header) == len(raw)
    before, after = parse_endpoints(header), parse_endpoints(raw)
    assert (before is None) is (after is None)
    if before is not None and after is not None:
        assert before[0] != after[0]
        assert len(sizes) == 2
        assert parse_endpoints(blank) not in (before, after)
        assert [text.rpartition(":")[2] for text in before] == [text.rpartition(":")[2] for text in after]


@pytest.mark.parametrize("keep", [False, True])
def test_what_else_a_header_of_the_proxy_protocol_says_is_gone(keep: bool) -> None:
    raw, _ = ADDRESSES.proxy_header(b"PROXY UNKNOWN password=hush!1 ::1\r\n", keep=keep)
    assert raw == b"PROXY UNKNOWN *************** ::1\r\n"
    raw, _ = ADDRESSES.proxy_header(SIGNATURE + b"\x21\x11\x00\x12" + bytes(12) + b"\xe0\0\3pwd", keep=keep)
    assert b"pwd" not in raw


def test_addresses_of_the_proxy_protocol_are_kept_where_that_is_asked_for() -> None:
    header = b"PROXY TCP4 203.0.113.7 198.51.100.9 51000 1883\r\n"
    assert ADDRESSES.proxy_header(header, keep=True) == (header, [])
