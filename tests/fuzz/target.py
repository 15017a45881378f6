"""No matter what bytes a target gets, it returns: an exception out of it is a finding.

What all targets share: their names, how they are loaded, and how a target takes decisions from its input.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

NAMES = ("decode", "stream", "headers", "segments", "reports", "files", "websocket", "filter", "lint")
"""Every target, by the name of its module."""


@dataclass(slots=True)
class Target:
    """One law and where to start."""

    name: str
    law: str
    """The first line of its module."""
    check: Callable[[bytes], None]
    """Raises when the law does not hold for these bytes."""
    seeds: Callable[[], Iterable[bytes]]
    dictionary: Callable[[], Iterable[bytes]]
    """Words that are worth inserting."""
    max_length: int
    """Longest input, in bytes; longer ones only cost time."""


def load(name: str) -> Target:
    """The target of this name; what it tests is imported only now, so that a fuzzer can instrument it."""
    module = importlib.import_module(f"tests.fuzz.{name}")
    law = (module.__doc__ or "").partition("\n")[0]
    dictionary = getattr(module, "dictionary", lambda: ())
    seeds = partial(unique, module)
    return Target(name, law, module.check, seeds, dictionary, module.MAX_LENGTH)


@dataclass(slots=True)
class Input:
    """Reads decisions off the front of an input; at its end everything is 0 and empty."""

    data: bytes
    at: int = field(default=0)

    def left(self) -> int:
        return len(self.data) - self.at

    def number(self, size: int = 1) -> int:
        return int.from_bytes(self.take(size), "big")

    def take(self, size: int) -> bytes:
        raw = self.data[self.at : self.at + size]
        self.at += len(raw)
        return raw

    def rest(self) -> bytes:
        return self.take(self.left())


def cuts(data: bytes, random: Random, pieces: int) -> list[bytes]:
    """Bytes in about as many pieces, cut anywhere; for 1 in single bytes."""
    edges = {random.randint(0, len(data)) for _ in range(pieces)} if pieces > 1 else set(range(len(data)))
    return [data[start:end] for start, end in pairwise(sorted({0, len(data), *edges}))]


def unique(module: Any) -> Iterator[bytes]:
    """The seeds of a target that fit, each once."""
    return (seed for seed in dict.fromkeys(module.seeds()) if len(seed) <= module.MAX_LENGTH)
