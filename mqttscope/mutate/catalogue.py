"""Catalogue of all mutations by name, and their selection by pattern."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from itertools import chain

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mutate import lengths
from mqttscope.mutate.answers import ANSWERS, reason_code_mutations
from mqttscope.mutate.connection import OPENING, TRANSPORT
from mqttscope.mutate.connects import CONNACK, CONNECT, version_mutations
from mqttscope.mutate.exchanges import EXCHANGES
from mqttscope.mutate.flow import CLIENT
from mqttscope.mutate.mutation import Mutation
from mqttscope.mutate.property_blocks import property_mutations
from mqttscope.mutate.requests import FILTERS, PUBLISH, SUBSCRIBE
from mqttscope.mutate.values import binary_mutations, boundary_mutations, number_mutations, string_mutations

_AREAS = (CONNECT, CONNACK, PUBLISH, FILTERS, SUBSCRIBE, ANSWERS, OPENING, EXCHANGES, TRANSPORT, lengths.RANDOM)
"""Tables of mutations; the functions of `_MAKERS` make further mutations by data type and packet type."""
_MAKERS = (
    lengths.header_mutations,
    string_mutations,
    number_mutations,
    binary_mutations,
    lengths.field_length_mutations,
    lengths.cut_mutations,
    lengths.remaining_length_mutations,
    boundary_mutations,
    lengths.presence_mutations,
    property_mutations,
    reason_code_mutations,
    version_mutations,
)
ASSUMED = ProtocolVersion.V3_1_1
"""Version that a linter assumes if the packets do not give one."""
BEFORE_THE_LEVEL = ",".join(
    (
        "connect.protocol_name:cut-*",
        "connect.protocol_level:cut-before",
        "connect.remaining_length:five-bytes",
        "connect.remaining_length:all-ones",
        "flow:first-packet-*",
        "flow:connect-dropped",
    )
)
"""Pattern of the mutations that hide the protocol level of CONNECT, or come before it."""


@cache
def catalogue() -> tuple[Mutation, ...]:
    """All mutations, sorted by name."""
    by_name: dict[str, Mutation] = {}
    for declared in chain(*_AREAS, *(make() for make in _MAKERS)):
        if declared.name in by_name:
            raise ValueError(f"two mutations have the name {declared.name}")
        by_name[declared.name] = declared
    return tuple(by_name[name] for name in sorted(by_name))


@cache
def _by_name() -> dict[str, Mutation]:
    return {mutation.name: mutation for mutation in catalogue()}


def mutation(name: str) -> Mutation:
    return _by_name()[name]


def matches(name: str, pattern: str) -> bool:
    """Whether a name matches a pattern.

    A pattern is one or more words separated by commas.  A word is a name, the beginning of a name up to a ``.`` or
    ``:`` (``publish.topic_name``), or a glob with ``*`` and ``?`` (``*:utf8-*``).
    """
    words = [word.strip() for word in pattern.split(",")]
    return any(word and (fnmatchcase(name, word) or _begins(name, word)) for word in words)


def _begins(name: str, word: str) -> bool:
    # After the colon a point is part of a version: a name that ends with 3.1 is not the beginning of one with 3.1.1.
    return ":" not in word and name.startswith((word + ":", word + "."))


def select(
    pattern: str = "*", *, version: ProtocolVersion | None = None, sender: str | None = None
) -> tuple[Mutation, ...]:
    """Mutations that match a pattern, optionally limited to a version and a sender."""
    return tuple(
        mutation
        for mutation in catalogue()
        if matches(mutation.name, pattern)
        and (version is None or version in mutation.versions)
        and (sender is None or sender in mutation.senders)
    )


def cited_instead(mutation: Mutation, version: ProtocolVersion, sender: str = CLIENT) -> tuple[str, ...]:
    """Statements that a linter may cite instead of `Mutation.broken`; empty if the packets give the version.

    Before a CONNECT names the version, a linter that reads a capture assumes one and cites its
    statements.  A broker is judged by the version of the flow, which is known.
    """
    if version == ASSUMED or not matches(mutation.name, BEFORE_THE_LEVEL) or not mutation.broken(version, sender):
        return ()
    return mutation.broken(ASSUMED, sender)
