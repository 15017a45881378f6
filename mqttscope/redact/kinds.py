"""Kinds of values in a capture, and the treatment that the user chooses for each kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Value(StrEnum):
    """Kinds of possibly confidential values in a capture."""

    PASSWORDS = "passwords"
    AUTHENTICATION = "authentication"
    """Authentication Data, and unusual names of Authentication Methods."""
    USER_NAMES = "user-names"
    CLIENT_IDENTIFIERS = "client-identifiers"
    TOPICS = "topics"
    """Topic Names, Topic Filters, Will Topics, Response Topics, Response Information."""
    PAYLOADS = "payloads"
    """Payloads of messages and wills."""
    CORRELATION_DATA = "correlation-data"
    USER_PROPERTIES = "user-properties"
    CONTENT_TYPES = "content-types"
    """Content types that are not registered or not common."""
    REASON_STRINGS = "reason-strings"
    HOST_NAMES = "host-names"
    """Host names in HTTP, TLS and Server References."""
    HTTP_HEADERS = "http-headers"
    """Paths, queries, and all header fields that WebSocket does not need."""
    TLS = "tls"
    """Randoms, tickets, certificates and all encrypted bytes."""
    ADDRESSES = "addresses"
    """IP addresses."""
    MACS = "macs"


class Treatment(StrEnum):
    """Treatment of one kind of values."""

    KEEP = "keep"
    HASH = "hash"
    """Replace with another value of equal length and form; equal values stay equal."""
    BLANK = "blank"
    """Replace all values with one filler."""


FILLER: Final = b"acdefghijklmnoqrstuvwxyz"
"""Bytes that replace what is not understood: letters that cannot begin a packet."""
BLANK: Final = b"x"
NOT_UNDERSTOOD: Final = "not-understood"
"""Name of the count of bytes that were not understood."""
Values = list[tuple[str, int]]
"""Kind and number of bytes of each value."""


@dataclass(slots=True)
class TreatmentChoice:
    """Treatments chosen by the user, and counts of replaced values."""

    treatments: Mapping[Value, Treatment] = field(default_factory=dict)
    """Treatments of the kinds that are not hashed."""
    counts: Counter[str] = field(default_factory=Counter)
    """Number of replaced values, by kind."""
    sizes: Counter[str] = field(default_factory=Counter)
    """Number of bytes of replaced values, by kind."""
    fresh: Values = field(default_factory=list)
    """Values counted since the last `take_fresh`."""

    @classmethod
    def of(cls, keep: Collection[str] = (), blank: Collection[str] = ()) -> TreatmentChoice:
        treatments = {Value(name): Treatment.KEEP for name in keep}
        return cls({**treatments, **{Value(name): Treatment.BLANK for name in blank}})

    def treatment_of(self, kind: Value) -> Treatment:
        return self.treatments.get(kind, Treatment.HASH)

    def count(self, kind: str, size: int, values: int = 1) -> None:
        """Count replaced values of a kind; ``size`` is their total number of bytes."""
        if values:
            self.counts[kind] += values
            self.sizes[kind] += size

    def value(self, kind: str, size: int) -> None:
        """Count a replaced value in a payload; it counts again if TCP or the capture repeats it."""
        self.count(kind, size)
        self.fresh.append((kind, size))

    def take_fresh(self) -> Values:
        values, self.fresh = self.fresh, []
        return values

    def count_again(self, values: Values, times: int) -> None:
        """Count these values ``times`` more, with their bytes; a negative number subtracts."""
        for kind, size in values:
            self.counts[kind] += times
            self.sizes[kind] += times * size


def filler(length: int) -> bytes:
    """Meaningless bytes that cannot begin a packet."""
    return FILLER[:1] * length
