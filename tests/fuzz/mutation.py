"""The same mutations of the same seeds in every run.

No matter the platform or the order of tests: the n-th mutation of a list of seeds is always the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

INTERESTING = (0x00, 0x01, 0x02, 0x7E, 0x7F, 0x80, 0x81, 0xC0, 0xFE, 0xFF)
MAX_STEPS = 4


def mutations(seeds: Sequence[bytes], count: int, *, seed: int = 1) -> Iterator[bytes]:
    """``count`` damaged seeds, taken in turn."""
    random = Random(seed)
    for number in range(count):
        data = bytearray(seeds[number * len(seeds) // count if count > len(seeds) else random.randrange(len(seeds))])
        for _ in range(random.randint(1, MAX_STEPS)):
            _damage(data, random, seeds)
        yield bytes(data)


def _damage(data: bytearray, random: Random, seeds: Sequence[bytes]) -> None:
    at = random.randrange(len(data) + 1)
    length = min(random.choice((1, 1, 2, 4, 8, 32)), len(data) - at)
    way = random.randrange(8)
    if way == 0 and at < len(data):
        data[at] ^= 1 << random.randrange(8)
    elif way == 1 and at < len(data):
        data[at] = random.choice(INTERESTING)
    elif way == 2 and at < len(data):
        data[at] = (data[at] + random.choice((1, -1, 16, -16))) & 0xFF
    elif way == 3:
        del data[at : at + length]
    elif way == 4:
        data[at:at] = data[at : at + length]
    elif way == 5:
        data[at:at] = random.randbytes(random.randint(1, 4))
    elif way == 6:
        other = random.choice(seeds)
        start = random.randrange(len(other) + 1)
        data[at : at + length] = other[start : start + random.randint(1, 32)]
    else:
        del data[random.randrange(len(data) // 2, len(data) + 1) :]
