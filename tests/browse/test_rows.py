"""Rows of fixed size, in memory and on a spool."""

from __future__ import annotations

import pytest

from mqttscope.browse.rows import BLOCK_ROWS, MAX_COUNT, ROW_BYTES, IndexRow, RowKind, RowStore

COUNT = 3 * BLOCK_ROWS + 17


class Memory:
    """A spool in memory."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> int:
        self.data += data
        return len(self.data) - len(data)

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self.data[offset : offset + size])

    def overwrite(self, offset: int, data: bytes) -> None:
        self.data[offset : offset + len(data)] = data


def row(number: int) -> IndexRow:
    """Every fifth is no packet, and has the number of the next one."""
    kind = RowKind.GAP if number % 5 == 4 else RowKind.PACKET
    packet = number - number // 5 - (1 if number % 5 == 4 else 0) + (1 if number % 5 == 4 else 0)
    return IndexRow(number << 20, number * 1_000, 7, number + 1, number % 3, MAX_COUNT, packet, kind, 33, 0x30, 0, 2)


def filled(left_number: int) -> tuple[RowStore, Memory]:
    spool = Memory()
    store = RowStore(spool, kept_blocks=left_number)
    for number in range(COUNT):
        assert store.append(row(number)) == number
    return store, spool


@pytest.mark.parametrize("expected", [1, 2, 100])
def test_rows_are_the_same_wherever_they_are(expected: int) -> None:
    store, spool = filled(expected)

    assert len(store) == COUNT
    assert len(spool.data) == max(0, 4 - expected) * BLOCK_ROWS * ROW_BYTES
    assert list(store.run(0, COUNT + 10)) == [row(number) for number in range(COUNT)]
    some = (0, 1, BLOCK_ROWS - 1, BLOCK_ROWS, COUNT - 1)
    assert [store[number] for number in some] == [row(number) for number in some]
    assert list(store.run(BLOCK_ROWS - 2, BLOCK_ROWS + 2)) == [
        row(number) for number in range(BLOCK_ROWS - 2, BLOCK_ROWS + 2)
    ]


@pytest.mark.parametrize("expected", [1, 100])
def test_the_worst_finding_of_a_row_counts(expected: int) -> None:
    store, _ = filled(expected)
    for number in (3, COUNT - 1):
        for severity in (2, 3, 1):
            store.note(number, severity)

        assert store[number] == row(number)._replace(severity=3)
    assert sum(index_row.severity for index_row in store.run(0, COUNT)) == 6


def test_a_packet_is_found_by_its_number() -> None:
    store, _ = filled(1)
    for number in (*range(12), COUNT - 3, COUNT - 1):
        held = row(number)
        if held.kind == RowKind.PACKET:
            assert store.of_packet(held.number) == number

    assert store.of_packet(COUNT) is None
    assert RowStore(Memory()).of_packet(0) is None
    for number in (-1, COUNT):
        with pytest.raises(IndexError):
            store[number]
