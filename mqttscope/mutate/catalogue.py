"""All mutations, by name: for ``--list``, for documentation, for choosing among them."""

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
"""Rows of what packets and flows do; by data type and packet type the functions of `_MAKERS` make them."""
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
"""The version that is taken where nothing tells one."""
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
"""Pattern of these mutations: they hide the protocol level of CONNECT, or come before it."""


@cache
def catalogue() -> tuple[Mutation, ...]:
    """Every mutation there is, in the order of their names."""
    by_name: dict[str, Mutation] = {}
    for declared in chain(*_AREAS, *(make() for make in _MAKERS)):
        if declared.name in by_name:
            raise ValueError(f"two mutations have the name {declared.name}")
        by_name[declared.name] = declared
    return tuple(by_name[name] for name in sorted(by_name))


@cache
def _by_name() -> dict[str, Mutation]:
    return {one.name: one for one in catalogue()}


def mutation(name: str) -> Mutation:
    return _by_name()[name]


def matches(name: str, pattern: str) -> bool:
    """Whether a name is one that a pattern means.

    A pattern is one or more words with commas between them.  A word is a name or its beginning up to a ``.`` or ``:``
    (``publish.topic_name``), or has ``*`` and ``?`` for what may stand there (``*:utf8-*``).
    """
    words = [word.strip() for word in pattern.split(",")]
    return any(word and (fnmatchcase(name, word) or _begins(name, word)) for word in words)


def _begins(name: str, word: str) -> bool:
    # After the colon a point is part of a version: what ends with 3.1 is not the beginning of what ends with 3.1.1.
    return ":" not in word and name.startswith((word + ":", word + "."))


def select(
    pattern: str = "*", *, version: ProtocolVersion | None = None, sender: str | None = None
) -> tuple[Mutation, ...]:
    """Mutations by name, and those that exist in a version and for a sender."""
    return tuple(
        one
        for one in catalogue()
        if matches(one.name, pattern)
        and (version is None or version in one.versions)
        and (sender is None or sender in one.senders)
    )


def cited_instead(one: Mutation, version: ProtocolVersion, sender: str = CLIENT) -> tuple[str, ...]:
    """Statements that a linter may cite in the place of those of `Mutation.broken`; none where the version is told.

    In a capture nothing tells which text is broken before a version is named: a linter has to take some version for
    such a connection, and cites that one.  A broker is judged by the version of the flow: that is known here.
    """
    if version == ASSUMED or not matches(one.name, BEFORE_THE_LEVEL) or not one.broken(version, sender):
        return ()
    return one.broken(ASSUMED, sender)
