"""What is replaced, and how the user has it: the kinds of values, and the choice of one treatment for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Value(StrEnum):
    """Kinds of values that a capture holds and that may be nobody else's business."""

    PASSWORDS = "passwords"
    AUTHENTICATION = "authentication"
    """Authentication Data, and the name of a method that is not one of the usual ones."""
    USER_NAMES = "user-names"
    CLIENT_IDENTIFIERS = "client-identifiers"
    TOPICS = "topics"
    """Topic Names and Topic Filters, those of wills and responses, Response Information."""
    PAYLOADS = "payloads"
    """Of messages and of wills."""
    CORRELATION_DATA = "correlation-data"
    USER_PROPERTIES = "user-properties"
    CONTENT_TYPES = "content-types"
    """Content types that are not registered, or not widely known."""
    REASON_STRINGS = "reason-strings"
    HOST_NAMES = "host-names"
    """In HTTP, in TLS and in Server References."""
    HTTP_HEADERS = "http-headers"
    """Paths, queries, and all header fields that WebSocket does not need."""
    TLS = "tls"
    """Randoms, tickets, certificates and all that is encrypted."""
    ADDRESSES = "addresses"
    """IP addresses."""
    MACS = "macs"


class Treatment(StrEnum):
    """What becomes of a kind."""

    KEEP = "keep"
    HASH = "hash"
    """Another value of the same length and form; equal ones stay equal."""
    BLANK = "blank"
    """The same filler for all values."""


FILLER: Final = b"acdefghijklmnoqrstuvwxyz"
"""Bytes in the place of what is not understood: letters with which no packet begins."""
BLANK: Final = b"x"
NOT_UNDERSTOOD: Final = "not-understood"
"""What is counted of bytes that belong to nothing that could be read."""


Values = list[tuple[str, int]]
"""Kinds of some values, and how many bytes each has."""


@dataclass(slots=True)
class Choice:
    """What the user wants of each kind, and what was done."""

    treatments: Mapping[Value, Treatment] = field(default_factory=dict)
    """Kinds that are not hashed."""
    counts: Counter[str] = field(default_factory=Counter)
    """Values that were replaced, by kind."""
    sizes: Counter[str] = field(default_factory=Counter)
    """Bytes of them."""
    fresh: Values = field(default_factory=list)
    """What was counted since the last `take_fresh`."""

    @classmethod
    def of(cls, keep: Collection[str] = (), blank: Collection[str] = ()) -> Choice:
        kept = {Value(one): Treatment.KEEP for one in keep}
        return cls({**kept, **{Value(one): Treatment.BLANK for one in blank}})

    def of_kind(self, kind: Value) -> Treatment:
        return self.treatments.get(kind, Treatment.HASH)

    def count(self, kind: str, size: int, values: int = 1) -> None:
        """Note that values of this kind were replaced; ``size``: how many bytes they have together."""
        if values:
            self.counts[kind] += values
            self.sizes[kind] += size

    def value(self, kind: str, size: int) -> None:
        """Note that a value in a payload was replaced, which counts again where TCP or the capture has it again."""
        self.count(kind, size)
        self.fresh.append((kind, size))

    def take_fresh(self) -> Values:
        found, self.fresh = self.fresh, []
        return found

    def count_again(self, values: Values, times: int) -> None:
        """Add ``times`` to the count of these values, and their bytes as often; a negative number subtracts."""
        for kind, size in values:
            self.counts[kind] += times
            self.sizes[kind] += times * size


def filler(length: int) -> bytes:
    """So many bytes that say nothing and begin no packet."""
    return FILLER[:1] * length
