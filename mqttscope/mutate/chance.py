"""A source of choice that gives the same choices everywhere.

The state of `random` belongs to the process, and how it makes numbers of bits has changed between versions of Python.
A case that was found last month has to be the same bytes today, so choices come from SHA-256 in counter mode: block
``n`` is the digest of the key and ``n``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

DOMAIN = "mqttscope mutate 1"
"""Stands first in every key; the number changes when the same key has to give other choices."""


class Chance:
    """Choices that follow from a key and from nothing else."""

    __slots__ = ("_block", "_key", "_left")

    def __init__(self, *key: str | int) -> None:
        # Length before text, so that ("ab", "c") and ("a", "bc") are different keys.
        parts = [DOMAIN, *(str(one) for one in key)]
        text = b"".join(len(one.encode()).to_bytes(4, "big") + one.encode() for one in parts)
        self._key = hashlib.sha256(text).digest()
        self._block = 0
        self._left = b""

    def octets(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        parts = [self._left]
        have = len(self._left)
        while have < count:
            parts.append(hashlib.sha256(self._key + self._block.to_bytes(8, "big")).digest())
            self._block += 1
            have += 32
        whole = b"".join(parts)
        self._left = whole[count:]
        return whole[:count]

    def below(self, end: int) -> int:
        """A number from 0 to ``end - 1``, each as likely as any other."""
        if end < 1:
            raise ValueError(f"there is no number from 0 to {end - 1}")
        size = max(1, ((end - 1).bit_length() + 7) // 8)
        # Numbers above the last full multiple would make the small remainders likelier.
        limit = (1 << 8 * size) // end * end
        while True:
            number = int.from_bytes(self.octets(size), "big")
            if number < limit:
                return number % end

    def pick(self, choices: Sequence[T]) -> T:
        """One of the choices."""
        return choices[self.below(len(choices))]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """The values in another order (Fisher-Yates)."""
        made = list(values)
        for last in range(len(made) - 1, 0, -1):
            other = self.below(last + 1)
            made[last], made[other] = made[other], made[last]
        return made


__all__ = ["Chance"]
