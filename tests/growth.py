"""What stays in memory of things that are over."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable


def kept_of_each(do: Callable[[int], None], *, count: int, before: int = 100) -> float:
    """Bytes of Python objects that stay after each of ``count`` calls of ``do``, which gets their numbers.

    ``before``: so many calls come first, after which tables and caches that fill up once are full.
    """
    for number in range(before):
        do(number)
    tracemalloc.start()
    try:
        gc.collect()
        first = tracemalloc.get_traced_memory()[0]
        for number in range(before, before + count):
            do(number)
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - first) / count
    finally:
        tracemalloc.stop()
