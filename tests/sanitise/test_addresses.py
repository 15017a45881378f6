"""Addresses in the place of others: the same class, the same networks, the same length as text."""

from __future__ import annotations

import random
from ipaddress import IPv4Address, IPv6Address, ip_address

from mqttscope.net.proxy_protocol import SIGNATURE, header_length, told_endpoints
from mqttscope.sanitise.addresses import Addresses
from mqttscope.sanitise.pseudonyms import Pseudonyms
from tests.each import each

ADDRESSES = Addresses(Pseudonyms(b"key"))


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
        ("203.0.113.77", "203.0.113."),
        ("fe80::abcd", "fe80::"),
        ("2001:db8::7", "2001:db8:"),
    ],
)
def test_the_prefix_that_names_a_class_stays(address: str, network: str) -> None:
    assert moved(address).startswith(network)
    assert moved(address) != address


def test_no_two_addresses_become_one_and_all_keep_their_class_and_length() -> None:
    draw = random.Random(7)
    known: dict[str, str] = {}
    for _ in range(400):
        address = str(IPv4Address(draw.randrange(1 << 32)))
        made = moved(address)
        one, other = IPv4Address(address), IPv4Address(made)
        assert known.setdefault(made, address) == address
        assert len(made) == len(address)
        assert (one.is_private, one.is_multicast, one.is_loopback) == (
            other.is_private,
            other.is_multicast,
            other.is_loopback,
        )


def test_networks_stay_together() -> None:
    first, second, other = (moved(one).split(".") for one in ("8.8.8.8", "8.8.8.9", "8.9.8.8"))

    assert first[:3] == second[:3]
    assert first[:1] == other[:1]
    assert first[1] != other[1]
    six = [IPv6Address(ADDRESSES.ip(IPv6Address(f"2a00:1450::{one}").packed)).exploded for one in "12"]
    assert six[0][:-2] == six[1][:-2]
    assert six[0] != six[1]


def test_hardware_addresses() -> None:
    made = ADDRESSES.mac(bytes.fromhex("0017f2aabbcc"))

    assert made[0] & 3 == 2
    assert made != ADDRESSES.mac(bytes.fromhex("0017f2aabbcd"))
    assert ADDRESSES.mac(b"\xff" * 6) == b"\xff" * 6
    assert ADDRESSES.mac(bytes(6)) == bytes(6)


def test_texts_keep_what_is_no_address() -> None:
    assert ADDRESSES.text(b"at 127.0.0.1:1883, v1.2.3") == b"at 127.0.0.1:1883, v1.2.3"
    made = ADDRESSES.text(b"at 10.20.30.40!")
    assert (len(made), made[:6], made[-1:]) == (15, b"at 10.", b"!")
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
    made = ADDRESSES.proxied(header)

    assert header_length(made) == len(header) == len(made)
    before, after = told_endpoints(header), told_endpoints(made)
    assert (before is None) is (after is None)
    if before is not None and after is not None:
        assert before[0] != after[0]
        assert [one.rpartition(":")[2] for one in before] == [one.rpartition(":")[2] for one in after]
