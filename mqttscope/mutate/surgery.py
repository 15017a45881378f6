"""Changing the bytes of one field and leaving the rest of the packet right."""

from __future__ import annotations

from collections.abc import Callable

from mqttscope.mutate.fields import Field
from mqttscope.mutate.layout import Layout
from mqttscope.mutate.mutation import NotApplicableError, Target
from mqttscope.mutate.samples import ensure

LONGEST = 65_535
"""Most bytes that a string or binary field can have (5.0 1.5.4, 1.5.6)."""


def prepared(target: Target, field: Field) -> tuple[Layout, int]:
    """The packet with the field in it, taken apart, and the place of the field's first piece."""
    ensure(target.packet, field.path, target.version)
    layout = target.layout()
    index = layout.index(field.path)
    if index < 0:
        raise NotApplicableError(f"the packet has no {field.name}")
    return layout, index


def head_of(field: Field) -> int:
    """Bytes of a piece that are not its value: the identifier of a property."""
    return 0 if field.row is None else 1


def with_value(target: Target, field: Field, make: Callable[[bytes], bytes]) -> bytes:
    """The packet with other bytes as the field's value, all other lengths right."""
    layout, index = prepared(target, field)
    piece = layout.pieces[index]
    head = head_of(field)
    piece.data = piece.data[:head] + make(piece.data[head:])
    return layout.join()


def with_length(target: Target, field: Field, make: Callable[[int], int], part: int = 0) -> bytes:
    """The packet where the two length bytes of a string or binary field lie, and nothing else does."""

    def lie(value: bytes) -> bytes:
        start = 2 + int.from_bytes(value[:2], "big") if part else 0
        true = int.from_bytes(value[start : start + 2], "big")
        told = make(true)
        if not 0 <= told <= LONGEST or told == true:
            raise NotApplicableError(f"{field.name} cannot lie like that")
        return value[:start] + told.to_bytes(2, "big") + value[start + 2 :]

    return with_value(target, field, lie)


def cut_at(target: Target, field: Field, *, inside: bool) -> bytes:
    """The packet that ends before the field, or in it; the Remaining Length is that of what is left.

    Inside a property block its length too is that of what is left of it.
    """
    layout, index = prepared(target, field)
    data = layout.pieces[index].data
    if inside and len(data) < 2:
        raise NotApplicableError(f"one cannot cut inside of {field.name}")
    if layout.block(index) and inside:
        # The block ends in the field, and what follows the block stays.
        block = layout.block(index).removesuffix("property_length")
        behind = [one for one in layout.pieces[index + 1 :] if not one.field.startswith(block)]
        layout.pieces[index].data = data[: max(1, len(data) - 1)]
        layout.pieces[index + 1 :] = behind
        return layout.join()
    if inside:
        layout.pieces[index].data = data[: max(1, len(data) - 1)]
        index += 1
    del layout.pieces[index:]
    return layout.join(blocks=False)


def break_off(target: Target, field: Field, *, inside: bool) -> bytes:
    """The packet whose bytes end before the field, or in it, and whose lengths are all still those of the whole."""
    layout, index = prepared(target, field)
    data = layout.pieces[index].data
    if inside and len(data) < 2:
        raise NotApplicableError(f"one cannot break off inside of {field.name}")
    del layout.pieces[index + 1 :]
    layout.pieces[index].data = data[:-1] if inside else b""
    return layout.join(blocks=False, remaining_length=layout.remaining_length)
