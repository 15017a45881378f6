"""The first bytes of a file."""

from __future__ import annotations

import io
import os

from mqttscope.capture.limited import Limited


def test_what_is_written_behind_is_not_there() -> None:
    whole = io.BytesIO(b"0123456789")
    part = Limited(whole, 6)

    assert [part.read(4), part.read(4), part.read(4), part.read()] == [b"0123", b"45", b"", b""]
    assert (part.seek(2), part.read(), part.tell()) == (2, b"2345", 6)
    assert (part.seek(0, os.SEEK_END), part.seek(-2, os.SEEK_CUR), part.read(1)) == (6, 4, b"4")
    assert (part.seek(8), part.read(), part.seek(-6, os.SEEK_END)) == (8, b"", 0)


def test_a_file_that_has_become_shorter() -> None:
    part = Limited(io.BytesIO(b"012"), 6)

    assert (part.seek(0, os.SEEK_END), part.seek(1), part.read(), part.read(2)) == (3, 1, b"12", b"")


def test_it_is_at_its_beginning_wherever_the_file_was() -> None:
    whole = io.BytesIO(b"0123456789")
    whole.seek(3)

    assert Limited(whole, 6).read() == b"012345"
