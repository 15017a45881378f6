"""TLS without names: what an observer sees of it stays the same, in any cut of its bytes."""

from __future__ import annotations

import random
import ssl
from itertools import pairwise
from typing import Any

from mqttscope.net.tls_hello import TlsObserver
from mqttscope.redact.addresses import Addresses
from mqttscope.redact.http import HeadRedactor
from mqttscope.redact.kinds import TreatmentChoice
from mqttscope.redact.packets import PacketRedactor
from mqttscope.redact.pseudonyms import Pseudonyms
from mqttscope.redact.tls import TlsStream, TlsValues
from tests.conftest import ROOT
from tests.each import each
from tests.net.hellos import client_hello, extension, message, record, server_hello, vector

NAME = b"plant-seven.example"
SNI = extension(0, vector(2, b"\0" + vector(2, NAME)))
ALPN = extension(16, vector(2, vector(1, b"mqtt"), vector(1, b"plantproto")))
TICKET = extension(35, b"ticket of the client")
SHARE = extension(51, vector(2, b"\0\x1d" + vector(2, b"k" * 32)))
VERSIONS = extension(43, b"\x04\x03\x04\x03\x03")
PSK = extension(41, vector(2, vector(2, b"identity-of-pump") + b"\0\0\0\7") + vector(2, vector(1, b"binder" * 5)))
UNKNOWN = extension(0x1234, b"plant secret")
HELLO = client_hello(SNI, ALPN, TICKET, SHARE, VERSIONS, UNKNOWN, PSK, session_id=b"session-identifier-of-a-pump-777")
ANSWER = server_hello(extension(51, b"\0\x1d" + vector(2, b"s" * 32)), session_id=b"session-identifier-of-a-pump-777")
PEM = (ROOT / "tests" / "material" / "self-signed.pem").read_text("utf-8")
CERTIFICATE = ssl.PEM_cert_to_DER_cert(PEM[PEM.index("-----BEGIN CERTIFICATE") :])


def values() -> TlsValues:
    names = Pseudonyms(b"key")
    packets = PacketRedactor(names, TreatmentChoice())
    return TlsValues(names, HeadRedactor(names, Addresses(names), packets), packets)


def replaced(data: bytes, cuts: list[int] | None = None) -> bytes:
    """A direction with other values; what is not learned is a zero."""
    buffer = bytearray(len(data))

    def learn(at: int, raw: bytes, new: bytes) -> None:
        assert data[at : at + len(raw)] == raw
        assert len(new) == len(raw)
        buffer[at : at + len(raw)] = new

    stream = TlsStream(values(), learn)
    places = [0, *(cuts or []), len(data)]
    for start, end in pairwise(places):
        stream.feed(start, data[start:end])
    stream.close()
    return bytes(buffer)


def seen(client: bytes, server: bytes) -> dict[str, Any]:
    observer = TlsObserver()
    observer.feed(True, client)
    observer.feed(False, server)
    document = observer.summary()
    for name in ("server_name", "alpn_offered"):
        document[name] = [len(each) for each in document[name] or ()]
    return document


CLIENT = (
    record(22, message(1, HELLO[4:]) if HELLO[:1] != b"\x01" else HELLO)
    + record(20, b"\1") + record(22, b"encrypted finished message") + record(23, b"application data")
    + record(21, b"12")
)  # fmt: skip
SERVER = (
    record(22, ANSWER + message(11, vector(3, vector(3, CERTIFICATE))) + message(14, b""))
    + record(22, message(4, b"\0\0\1\0" + vector(2, b"ticket of the server")))
    + record(21, b"\2\x30")
)  # fmt: skip


def test_an_observer_sees_the_same() -> None:
    client, server = replaced(CLIENT), replaced(SERVER)

    assert seen(client, server) == seen(CLIENT, SERVER)
    assert seen(CLIENT, SERVER)["client_hello"]
    assert seen(CLIENT, SERVER)["resumed"] is not None
    for secret in (
        NAME, b"plantproto", b"ticket of", b"session-id", b"kkkk", b"ssss", b"identity", b"binder", b"plant secret",
        b"encrypted", b"application data",
    ):  # fmt: skip
        assert secret in CLIENT + SERVER
        assert secret not in client + server
    assert b"mqtt" in client


def test_any_cut_gives_the_same() -> None:
    for seed in range(10):
        draw = random.Random(seed)
        for data in (CLIENT, SERVER):
            assert replaced(data, sorted(draw.sample(range(1, len(data)), 9))) == replaced(data)


def test_certificates_keep_their_structure() -> None:
    new_raw = values().message(11, vector(3, vector(3, CERTIFICATE)))[6:]

    def tags(raw: bytes) -> list[tuple[int, int, int]]:
        rows, at = [], 0
        while at < len(raw):
            size, body = raw[at + 1], at + 2
            if size > 0x80:
                body += size & 0x7F
                size = int.from_bytes(raw[at + 2 : body], "big")
            rows.append((raw[at], at, size))
            if raw[at] & 0x20:
                rows += tags(raw[body : body + size])
            at = body + size
        return rows

    assert tags(new_raw) == tags(CERTIFICATE)
    assert new_raw != CERTIFICATE
    subject = b"localhost" if b"localhost" in CERTIFICATE else CERTIFICATE[-40:]
    assert subject not in new_raw


@each(
    "kind, body, expected",
    [
        (12, b"\x03\0\x1d" + vector(1, b"public") + b"\x04\x03" + vector(2, b"signature"), b"\x03\0\x1d\x06"),
        (
            12,
            vector(2, b"p" * 9) + vector(2, b"g") + vector(2, b"y" * 9) + b"\4\1" + vector(2, b"signature"),
            b"\0\x09",
        ),
        (13, vector(1, b"\1") + vector(2, b"\4\1") + vector(2, vector(2, b"\x30\x05\x0c\x03abc")), b"\1\1\0\2\4\1"),
        (15, b"\x04\x03" + vector(2, b"signature"), b"\x04\x03\0\x09"),
        (16, vector(1, b"public"), b"\x06"),
        (16, vector(2, b"premaster secret"), b"\0\x10"),
        (22, b"\1" + vector(3, b"\x30\x03\x0c\x01x"), b"\1\0\0\5\x30\x03\x0c\x01"),
        (99, b"anything", b""),
        (1, b"\3\3short", b"\3\3"),
        (11, b"\xff\xff\xff\xff", b""),
        (41, b"", b""),
    ],
)
def test_messages_keep_their_lengths_inside(kind: int, body: bytes, expected: bytes) -> None:
    raw = values().message(kind, body)

    assert len(raw) == len(body)
    assert raw.startswith(expected)
    for secret in (b"public", b"signature", b"premaster", b"anything", b"abc"):
        assert secret not in raw


def test_bytes_without_framing_and_beside_gaps_are_replaced() -> None:
    learned: list[tuple[int, bytes, bytes]] = []
    stream = TlsStream(values(), lambda *row: learned.append(row))
    stream.feed(0, record(23, b"x" * 40)[:20])
    stream.gap(10)
    stream.feed(30, b"secret and more" + record(23, b"y" * 5))
    stream.gap(500)
    stream.feed(600, b"no record of anything")
    stream.close()

    assert all(raw != new_raw for _, raw, new_raw in learned if len(raw) > 5)
    assert sum(len(raw) for _, raw, _ in learned) == 20 + 15 + 10 + 21
