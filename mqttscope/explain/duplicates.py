"""Messages that clients get several times: several publishers of one payload, and shares that are not distributed.

Several clients publish one message if they send equal payloads to one topic of one broker within 0.1 s, again and
again: at least three different payloads, and most of the payloads that any of them publishes there.  Payloads that
only one of them publishes contradict it, and so does a payload that never changes.  Bridges that run on each node of a
cluster do that.

A share is due one copy of each message (5.0 4.8.2).  Copies to two of its members within a second show that the broker
does not distribute it, if it happens with at least two messages and most of them.  A member that went away or did not
acknowledge its copy, and a publisher that sent the message again, contradict that: then the second copy is another try.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from mqttscope.explain import describe, model
from mqttscope.explain.fates import SECOND, Got, Published, Subscriber
from mqttscope.mqtt import ProtocolVersion
from mqttscope.mqtt.wire import counted

ROUND_NS = 100_000_000
"""Maximum time between the first and the last PUBLISH of one payload by several clients."""
LEAST_ROUNDS = 3
"""Minimum number of different payloads that several clients publish."""
LEAST_SHARED = 2
"""Minimum number of messages that several members of a share get."""
PART = 0.8
"""Minimum part of the payloads that come from all of the publishers."""
EMPTY = 0
"""Checksum of an empty payload."""
Key = tuple[str, str]
Clients = Mapping[Key, Subscriber]


def copies_of_share(message: Published, share: str) -> dict[Key, Got]:
    """The copies of a message that went to several members of a share, by client; empty if one copy went out."""
    copies = {key: got[share] for key, got in message.got.items() if share in got}
    if len(copies) < 2 or message.repetition is not None:
        return {}
    until_ns = max(copy.timestamp_ns for copy in copies.values())
    for copy in copies.values():
        is_gone = 0 < copy.reader.closed_ns <= until_ns
        if is_gone or copy.again is not None or copy.is_abandoned or not copy.arrived:
            return {}
    return copies if until_ns - min(copy.timestamp_ns for copy in copies.values()) <= SECOND else {}


def members_beside(message: Published, key: Key, share: str, clients: Clients) -> str:
    """Words about other members of a share that got a message beside a client; empty if no other one did."""
    others = [clients[other].name for other in copies_of_share(message, share) if other != key and other in clients]
    if not others:
        return ""
    verb = "got it too, where one copy is due" if len(others) == 1 else "got it too, although one copy is due"
    which = "another member" if len(others) == 1 else "other members"
    return f"; {describe.listed(others)}, {which} of the share ({describe.name(share)}), {verb}"


def undistributed(messages: Iterable[Published], clients: Clients) -> Iterator[str]:
    """A sentence for each share with messages that went to several members."""
    totals = Counter[tuple[str, str]]()
    rows: dict[tuple[str, str], list[tuple[Published, dict[Key, Got]]]] = {}
    for message in messages:
        for share in message.shares:
            totals[message.server, share] += 1
            copies = copies_of_share(message, share)
            if copies:
                rows.setdefault((message.server, share), []).append((message, copies))
    good = {place: row for place, row in rows.items() if len(row) >= max(LEAST_SHARED, totals[place] / 2)}
    for (server, share), row in islice(good.items(), model.MAX_REPORTED):
        message, copies = row[0]
        readers = Counter(key for _, got in row for key in got)
        names = [clients[key].name for key, _ in readers.most_common() if key in clients]
        places = describe.listed([f"{copy.frame:,}" for copy in copies.values()])
        is_defined = next(iter(copies.values())).reader.version is ProtocolVersion.V5
        rule = "5.0 4.8.2" if is_defined else "5.0 4.8.2; in 3.1.1 shares are an extension of the broker"
        yield (
            f"{describe.listed(names)} are members of one share ({describe.name(share)}), and {len(row):,} of"
            f" {counted(totals[server, share], 'message')} went to several of them, where one copy is due ({rule}): the"
            f" broker does not distribute the share. The first: frame {message.frame}, delivered in frames {places}."
            " Check whether the broker supports Shared Subscriptions, and whether several nodes of it each distribute"
            " them."
        )
    if len(good) > model.MAX_REPORTED:
        yield describe.more_not_shown(len(good) - model.MAX_REPORTED)


def published_by_several(messages: Iterable[Published], clients: Clients) -> Iterator[str]:
    """A sentence for each topic with payloads that several clients publish together."""
    by_topic: dict[tuple[str, str], list[list[Published]]] = {}
    open_rounds: dict[tuple[str, str, int], list[Published]] = {}
    for message in messages:
        place = message.server, message.topic, message.checksum
        if message.checksum == EMPTY:
            continue
        members = open_rounds.get(place, [])
        is_alike = members and 0 <= message.timestamp_ns - members[0].timestamp_ns <= ROUND_NS
        if is_alike and all(other.key != message.key for other in members):
            members.append(message)
        else:
            open_rounds[place] = [message]
            by_topic.setdefault((message.server, message.topic), []).append(open_rounds[place])
    texts = [text for rounds in by_topic.values() if (text := _round_text(rounds, clients))]
    yield from texts[: model.MAX_REPORTED]
    if len(texts) > model.MAX_REPORTED:
        yield describe.more_not_shown(len(texts) - model.MAX_REPORTED)


def _round_text(rounds: list[list[Published]], clients: Clients) -> str:
    """A sentence about the publishers of one topic that send equal payloads; empty if they do not."""
    sets = Counter(frozenset(message.key for message in members) for members in rounds if len(members) > 1)
    if not sets:
        return ""
    publishers = sets.most_common(1)[0][0]
    good = [members for members in rounds if {message.key for message in members} == publishers]
    total = sum(any(message.key in publishers for message in members) for members in rounds)
    if len({members[0].checksum for members in good}) < LEAST_ROUNDS or len(good) < PART * total:
        return ""
    first = good[0]
    spread = max(members[-1].timestamp_ns - members[0].timestamp_ns for members in good)
    names = describe.listed([message.client for message in first], model.MAX_REPORTED)
    frames = describe.listed([f"{message.frame:,}" for message in first])
    every = [message for members in good for message in members]
    readers = [key for key in first[0].got if key in clients and all(key in message.got for message in every)]
    topic = describe.name(first[0].topic)
    text = f"{names} publish each payload to {topic} within {describe.span(spread)}, {len(good):,} of {total:,} times"
    text += f" (the first: frames {frames})"
    if readers:
        who = describe.listed([clients[key].name for key in readers])
        verb = "gets" if len(readers) == 1 else "get"
        text += f", so that {who} {verb} each value {len(publishers):,} times"
        if all(copy.copies == 1 for key in readers for message in every for copy in message.got[key].values()):
            text += ": the broker passes each message on once"
    return f"{text}. Let one of them publish it; bridges on several nodes of a cluster do this."
