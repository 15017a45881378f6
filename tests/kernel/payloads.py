"""Payloads for the kernel: parts of secrets, escapes and binary bytes, joined at random, sent by one client.

``python -m tests.kernel.payloads --count 100`` compares the lines of many such captures, a hundred payloads in each.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

from tests.kernel.mutation import Record, written

_CLIENT, _SERVER = b"\x0a\0\0\2\x0a\0\0\1", b"\x0a\0\0\1\x0a\0\0\2"
_PARTS = (
    b"password", b"PassWord", b"pass", b"pin", b"Key", b"token", b"psk", b"secret", b"sig", b"auth", b"pwd",
    b"bearer ", b"Basic ", b"\0\4MQTT", b"=", b":", b'":"', b"'", b'"', b" ", b"\n", b"\r\n", b"\t", b"{", b"}", b",",
    b";", b"&", b"s3cr3tV4lue", b"abcdefgh1234", b"hunter22", b"12345678", b"x", b"0", b"%", b"%2", b"%70", b"%3D",
    b"%4b", b"&#112;", b"&#x70;", b"&#61;", b"&quot;", b"&lt;", b"&lt", b"\\", b"\\\\", b"\\x70", b"\\u0070",
    b"\\u{70}", b"\\u{00070}", b"\\X70", b"\\xba", b"/*", b"*/", b"//", b"://", b":\\/\\/", b"http://u:", b"@host/",
    b"-P ", b" -p ", b" -u ", b"curl ", b"mysql", b"mosquitto_pub", b"-pw=", b"--user=bob:", b"\x15\0\5PLAIN\x16\0",
    b"\x16\0", b"\x16", b"eyJ", b"AKIA", b"sk-", b"ya29.", b"ghp_", b"_live_", b"-----BEGIN PRIVATE KEY-----",
    b"\x1f\x8b\x08", b"\x78\x9c", b"\xff", b"\0", b"\x80\xc3", b" %70assword=abc12345 ", b" p/**/assword=hunter22 ",
    b" \\u0070assword=abcd1234 ", "\u00e9".encode(), "\u2028".encode(), b"a", b"e", b"s", b"t", b"p", b"k",
)  # fmt: skip


def capture(payloads: Iterable[bytes]) -> bytes:
    """A capture with one connection of MQTT 3.1.1, whose client publishes these payloads."""
    connect = b"\x10\x0d\0\4MQTT\4\2\0\x3c\0\1c"
    records, sequence, now = [], [1000, 2000], 1_700_000_000_000_000_000

    def send(side: int, flags: int, data: bytes) -> None:
        nonlocal now
        now += 1_000_000
        addresses, ports = (_CLIENT, (40_000, 1883)) if not side else (_SERVER, (1883, 40_000))
        numbers = sequence[side], sequence[1 - side] if flags & 16 else 0
        tcp = struct.pack("!HHIIBBHHH", *ports, *numbers, 0x50, flags, 64_240, 0, 0) + data
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0x4000, 64, 6, 0) + addresses
        records.append(Record(now, bytes(12) + b"\x08\0" + ip + tcp, 34 + len(tcp)))
        sequence[side] += len(data) + bool(flags & 2)

    for side, flags, data in ((0, 2, b""), (1, 18, b""), (0, 16, b""), (0, 24, connect), (1, 24, b"\x20\2\0\0")):
        send(side, flags, data)
    for payload in payloads:
        length, size = 3 + len(payload), b""
        while length > 127:
            size += bytes((length & 127 | 128,))
            length >>= 7
        send(0, 24, b"\x30" + size + bytes((length,)) + b"\0\1a" + payload)
    return written(1, records)


def drawn(random: Random, count: int) -> Iterator[bytes]:
    """Payloads, short ones and some that are longer than a line shows."""
    for _ in range(count):
        parts = random.choices(_PARTS, k=random.choice((2, 3, 4, 5, 8)))
        if random.random() < 0.3:
            parts.insert(random.randrange(len(parts)), random.randbytes(random.choice((3, 30, 300, 5_000))))
        if random.random() < 0.1:
            parts.insert(random.randrange(len(parts)), b"long text, " * random.choice((30, 500)))
        yield b"".join(parts)


def main() -> None:
    """Compare many captures."""
    from tests.kernel.comparison import difference

    parser = argparse.ArgumentParser(prog="python -m tests.kernel.payloads", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("build") / "payloads.pcap", help="file for the last capture")
    options = parser.parse_args()
    options.keep.parent.mkdir(parents=True, exist_ok=True)
    random = Random(options.seed)
    for number in range(options.count):
        data = capture(drawn(random, 100))
        if why := difference(data, limit=random.choice((0, 10, 100, 4_000, 65_536))):
            options.keep.write_bytes(data)
            sys.exit(f"capture {number} of seed {options.seed}, in {options.keep}: {why}")
    sys.stdout.write(f"{options.count} captures\n")


if __name__ == "__main__":
    main()
