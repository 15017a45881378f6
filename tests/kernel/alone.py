"""The kernel alone on very many damaged captures, with a host without any information: for a build with sanitizers.

``python -m tests.kernel.alone --count 1000000``.  The compiler's ``-fsanitize=address,undefined`` stops at the first
wrong access.
"""

from __future__ import annotations

import argparse
import sys
from random import Random
from types import SimpleNamespace
from typing import Any

from mqttscope.dissect.kernel_path import reason_codes
from mqttscope.kernel import native
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment
from mqttscope.net.segment import Fragment, Segment, plain_key
from tests.kernel import mutation, payloads

_TEXTS = (b'"text"',) * 256


class Host:
    """Answers every call of the kernel with the least that it accepts."""

    def unusual(self, data: bytes, number: int, link_type: int, timestamp_ns: int, length: int) -> bytes | bool | None:
        piece = segment(Frame(number, timestamp_ns, link_type, data, length, ""))
        return plain_key(piece.key) if type(piece) is Segment else True if isinstance(piece, Fragment) else None

    def opened(self, *args: Any) -> object:
        return self

    def ready(self, state: object) -> tuple[bytes, bytes, int, int, list[int], list[int]]:
        return b"client", b"server", 0, 0, [1, 2, 3], []

    def introduce(self, state: object) -> tuple[bytes, bytes]:
        return b"client", b"server"

    def turn(self, timestamp_ns: int) -> tuple[int, bytes, bytes, bool]:
        return timestamp_ns // 10**9 * 10**9, b"before", b"after", timestamp_ns >= 10**9

    def advance(self, timestamp_ns: int) -> int:
        return timestamp_ns + 10**9

    def text(self, raw: bytes) -> bytes:
        return raw

    def names_secret(self, name: bytes) -> bytes:
        return name[:1] if name[:1] == b"p" else b""

    def nothing(self, *args: Any) -> None:
        """Take any call."""

    topic = block = payload = text
    data = packet = reset = copied = ended = closed = seen = write = nothing
    counted = counted_all = topic_counted = client_of_topic = nothing


class CountingHost(Host):
    """Answers the calls of a kernel that counts."""

    def __init__(self) -> None:
        self.rows: dict[bytes, SimpleNamespace] = {}

    def ready(self, state: object) -> tuple[Any, ...]:
        exchanges = [(1, 1, 2, 1, 5), (7, 2, 0, 0, 9)]
        return _window(), 3, 40, 4, 100, 100, 0, -(1 << 63), 50, 1, 1, 1, 2, exchanges, exchanges, [(2, 0, 0, 0, 8)]

    def topic_row(self, name: bytes, timestamp_ns: int) -> tuple[Any, ...]:
        row = self.rows.setdefault(name[:40], SimpleNamespace())
        return row, _window(), set(), {3}

    def ended(self, *args: Any) -> int:  # type: ignore[override]
        return 10**9


def _window() -> SimpleNamespace:
    return SimpleNamespace(second=-2, packets=0, bytes=0, peak_packets=0, peak_bytes=0)


def read(data: bytes, *, counting: bool = False) -> bool:
    """Read a capture; returns whether the kernel took it."""
    module = native()
    assert module is not None
    host = CountingHost() if counting else Host()
    try:
        kernel = module.Kernel(
            data, host, host, SimpleNamespace(packets=0), b"opening", _TEXTS, (_TEXTS, _TEXTS, _TEXTS), reason_codes(),
            300, False, False,
        )  # fmt: skip
    except ValueError:
        return False
    if kernel.survey() is not None:
        return False
    if counting:
        kernel.make_counts(SimpleNamespace(_releases=0), _window(), _window(), SimpleNamespace(), 3)
    while kernel.next(1 << 62, False, 0) is not None:
        pass
    for _, _, number in kernel.open():
        kernel.end(number)
    kernel.flush()
    kernel.settle_topic(b"a")
    kernel.settle()
    kernel.counts()
    return True


def main() -> None:
    """Read very many captures."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernel.alone", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random = Random(options.seed)
    originals = list(mutation.mutated(400, options.seed))
    originals += [payloads.capture(payloads.drawn(random, 20)) for _ in range(100)]
    read_count = 0
    for _ in range(options.count):
        data = bytearray(random.choice(originals))
        for _ in range(random.choice((1, 1, 2, 4, 8))):
            data[random.randrange(len(data))] = random.choice((0, 1, 127, 128, 255, random.randrange(256)))
        content = bytes(data[: random.choice((len(data), len(data), random.randrange(len(data) + 1)))])
        read_count += read(content, counting=random.random() < 0.5)
    sys.stdout.write(f"{options.count} captures, {read_count} read\n")


if __name__ == "__main__":
    main()
