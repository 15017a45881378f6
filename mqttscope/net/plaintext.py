"""What was inside TLS: bytes of one direction that somebody with the keys has decrypted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Plaintext:
    """The content of one TLS record, or of a part of it.  It comes behind the segment that completed the record."""

    key: bytes
    """Direction key as `Segment.key`."""
    data: bytes
    frame: int
    """The frame that completed the record."""
    timestamp_ns: int
    capture: str
