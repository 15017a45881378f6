"""The baseline: packets damaged by one who knows nothing of MQTT.

What structure is worth shows only against bytes that were changed without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mqttscope.mutate.flow import CLIENT, SERVER
from mqttscope.mutate.mutation import Kind, Mutation, Target

_BOTH = (CLIENT, SERVER)
EXTREMES = (0x00, 0x01, 0x7E, 0x7F, 0x80, 0x81, 0xC0, 0xFE, 0xFF)
"""Bytes next to which something changes its meaning."""


def random_mutations() -> Iterator[Mutation]:
    """Random bytes in the place of a packet, and packets with random damage."""
    rows: tuple[tuple[str, str, Callable[[Target], bytes]], ...] = (
        ("bytes", "A packet is replaced by 1 to 64 random bytes.", _bytes),
        ("bits", "One to eight bits of a packet are turned over.", _bits),
        ("insert", "One to eight random bytes come into a packet.", _insert),
        ("delete", "One to eight bytes of a packet are left out.", _delete),
        ("repeat", "A piece of a packet comes twice.", _repeat),
        ("byte", "One byte of a packet is an extreme value.", _byte),
    )
    for slug, description, change in rows:
        yield Mutation(f"random:{slug}", Kind.RANDOM, description, change_packet=change, senders=_BOTH)


def _bytes(target: Target) -> bytes:
    return target.chance.octets(1 + target.chance.below(64))


def _bits(target: Target) -> bytes:
    data = bytearray(target.raw)
    for _ in range(1 + target.chance.below(8)):
        bit = target.chance.below(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def _insert(target: Target) -> bytes:
    at = target.chance.below(len(target.raw) + 1)
    return target.raw[:at] + target.chance.octets(1 + target.chance.below(8)) + target.raw[at:]


def _delete(target: Target) -> bytes:
    at = target.chance.below(len(target.raw))
    return target.raw[:at] + target.raw[at + 1 + target.chance.below(8) :]


def _repeat(target: Target) -> bytes:
    start = target.chance.below(len(target.raw))
    end = start + 1 + target.chance.below(len(target.raw) - start)
    return target.raw[:end] + target.raw[start:end] + target.raw[end:]


def _byte(target: Target) -> bytes:
    at = target.chance.below(len(target.raw))
    value = target.chance.pick(EXTREMES)
    return target.raw[:at] + bytes((value,)) + target.raw[at + 1 :]
