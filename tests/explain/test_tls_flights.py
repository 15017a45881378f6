"""Client certificates in handshakes, however they are split."""

from __future__ import annotations

from datetime import UTC, datetime

from mqttscope.explain.tls_flights import FlightReader, Flights, validity
from tests.each import each
from tests.net.hellos import certificate, chain, message, record, server_hello

FLIGHT = server_hello() + message(11, bytes(3) + bytes(300)) + message(13, bytes(9)) + message(14, b"")
SENT = message(11, b"\0\0\x05" + bytes(5)) + message(16, bytes(66))
EMPTY = message(11, bytes(3)) + message(16, bytes(66))


def read(data: bytes, size: int, start: int = 0xFFFFFF00) -> FlightReader:
    """A reader after segments of this size, the first with this sequence number."""
    reader = FlightReader()
    for at in range(0, len(data), size):
        reader.feed(data[at : at + size], (start + at) & 0xFFFFFFFF)
    return reader


def in_records(data: bytes, size: int) -> bytes:
    return b"".join(record(22, data[at : at + size]) for at in range(0, len(data), size))


@each("size", [1, 3, 7, 100, 2_000])
@each("record_size", [1, 5, 1_000])
def test_every_split_gives_the_same(size: int, record_size: int) -> None:
    assert read(in_records(FLIGHT, record_size), size).is_request
    assert read(in_records(SENT, record_size), size).certificates == 5
    assert read(in_records(EMPTY, record_size), size).certificates == 0


def test_a_repeated_segment_is_ignored_and_a_missing_one_ends_the_reading() -> None:
    data = record(22, EMPTY)
    reader = read(data[:5], 5, 100)
    reader.feed(data[:5], 100)
    reader.feed(data[5:], 105)
    assert reader.certificates == 0

    reader = read(data[:5], 5, 100)
    reader.feed(data[6:], 106)
    assert (reader.certificates, reader.is_done) == (None, True)


def test_the_reading_ends_at_change_cipher_spec() -> None:
    reader = read(record(20, b"\1") + record(22, EMPTY), 1_000)

    assert (reader.certificates, reader.is_done) == (None, True)


@each("server, client, word", [(FLIGHT, EMPTY, "empty"), (FLIGHT, SENT, "sent"), (SENT, EMPTY, ""), (FLIGHT, b"", "")])
def test_certificate(server: bytes, client: bytes, word: str) -> None:
    flights = Flights(read(record(22, client), 99), read(record(22, server), 99))

    assert flights.certificate == word


def seconds(*date: int) -> int:
    return int(datetime(*date, tzinfo=UTC).timestamp())  # type: ignore[arg-type, misc]


@each(
    "first, last, expected",
    [
        ("260102030405Z", "20520102030405Z", (seconds(2026, 1, 2, 3, 4, 5), seconds(2052, 1, 2, 3, 4, 5))),
        ("991231235959Z", "260102030405Z", (seconds(1999, 12, 31, 23, 59, 59), seconds(2026, 1, 2, 3, 4, 5))),
        ("500101000000Z", "491231235959Z", (seconds(1950, 1, 1), seconds(2049, 12, 31, 23, 59, 59))),
        ("261302030405Z", "260102030405Z", None),
        ("00010101000000+2359", "260102030405Z", None),
        ("\xff60102030405Z", "260102030405Z", None),
    ],
)
def test_validity(first: str, last: str, expected: tuple[int, int] | None) -> None:
    assert validity(certificate(first, last)) == expected


def test_a_certificate_that_is_cut_anywhere_has_no_validity() -> None:
    whole = certificate("260102030405Z", "270102030405Z")

    assert [validity(whole[:end]) for end in range(len(whole))] == [None] * len(whole)


@each("size", [1, 7, 2_000])
def test_the_validity_of_a_chain(size: int) -> None:
    certificates = [certificate(f"{year}0102030405Z", "300102030405Z") for year in (24, 25)]
    reader = read(in_records(server_hello() + chain(*certificates) + message(14, b""), 100), size)

    assert [start for start, _ in reader.valid] == [seconds(2024, 1, 2, 3, 4, 5), seconds(2025, 1, 2, 3, 4, 5)]
