"""Copies of a message beyond the subscriptions of a client that match it.

A broker sends one copy, or one for each matching subscription (5.0 3.3.4, 3.1.1 3.3.5).  Further copies within a second
on the same connection may be of an equal message that the capture lacks.  A witness contradicts that: a client that has
one matching subscription of QoS 1 or 2, stays connected for a second more and got one copy would have got the other
message too.  Without a witness, the copies count as messages that no captured client published.  They do so, too,
if the client may have subscriptions that the capture does not show, or messages from before its connection: a session
that it resumed, or a filter that begins with ``$`` and that brokers give a meaning of their own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from mqttscope.events import PacketEvent
from mqttscope.explain import describe
from mqttscope.explain.arrivals import DISJOINT, doubled_text, section
from mqttscope.explain.fates import NEVER, SECOND, Got, Published, Subscriber
from mqttscope.explain.model import MAX_REPORTED
from mqttscope.explain.origins import Origins
from mqttscope.mqtt import packets
from mqttscope.mqtt.topics import matches
from mqttscope.mqtt.wire import counted
from mqttscope.session.matching import FAILURE

SURPLUS = (
    "Look in the broker why it sends further copies: stale sessions or routes, or several nodes that each deliver."
)
MAX_COPIES = 1_000
"""Maximum number of surplus copies that are followed."""
Key = tuple[str, str]


@dataclass(slots=True)
class SurplusCopy:
    """A delivery that no subscription explains."""

    message: Published
    key: Key
    client: Subscriber
    event: PacketEvent


class SurplusWatch(Protocol):
    """Messages and clients of a capture (`messages.MessageWatch`)."""

    clients: OrderedDict[Key, Subscriber]
    published: dict[int, Published]
    origins: Origins
    surplus: list[SurplusCopy]
    now_ns: int

    def is_whole(self, server: str, topic: str) -> bool: ...


def surplus_copy(
    message: Published | None, key: Key, client: Subscriber, event: PacketEvent, publish: packets.Publish
) -> SurplusCopy | None:
    """A delivery as a surplus copy of the last equal message, if it may be one."""
    got = None if message is None else message.got.get(key, {}).get("")
    if message is None or got is None or not publish.qos or publish.retain or publish.dup:
        return None
    filters = [
        wanted for wanted in client.filters.values() if matches(wanted.plain_filter, message.topic, shared=False)
    ]
    is_known = client.complete and not event.connection.session_present
    is_plain = not any(name.startswith("$") and not name.startswith("$SYS/") for name in client.filters)
    is_steady = all(
        wanted.ended_ns is None
        and wanted.code is not None
        and wanted.code < FAILURE
        and wanted.asked_ns < message.timestamp_ns
        for wanted in filters
    )
    is_together = got.connection == event.connection.number and event.timestamp_ns - got.timestamp_ns <= SECOND
    if not (is_known and is_plain and is_steady and is_together and message.repetition is None):
        return None
    return SurplusCopy(message, key, client, event)


def settle_surplus(watch: SurplusWatch) -> None:
    """Give the copies with a witness to their deliveries, and count the others as messages of unseen clients."""
    copies, watch.surplus = watch.surplus, []
    rows: dict[tuple[int, Key], list[SurplusCopy]] = {}
    for copy in copies:
        rows.setdefault((id(copy.message), copy.key), []).append(copy)
    doubtful = []
    for (_, key), group in rows.items():
        message, last_ns = group[0].message, group[-1].event.timestamp_ns
        got = message.got[key][""]
        # Only a client that got the message can be a witness: usually a few of many.
        others = ((other, watch.clients[other]) for other in message.got if other in watch.clients)
        witness = next(
            (
                client.name
                for other, client in others
                if (id(message), other) not in rows and _is_witness(watch, message, other, client, last_ns)
            ),
            None,
        )
        due = sum(len(held.subscriptions) for held in message.held.get(key, ()))
        is_counted = got.copies == 1 + len(got.beside) and got.copies + len(group) > due > 0 and not got.passed_on
        if witness is not None and is_counted and not got.echo and watch.is_whole(message.server, message.topic):
            got.surplus, got.witness = [copy.event.frame for copy in group], witness
        else:
            doubtful += group
    for copy in sorted(doubtful, key=lambda copy: copy.event.timestamp_ns):
        watch.origins.add_unknown(copy.client, copy.message.topic, copy.event)


def _is_witness(watch: SurplusWatch, message: Published, key: Key, client: Subscriber, last_ns: int) -> bool:
    """Whether a client would have got an equal message that another client published until a time."""
    held, copies = message.held.get(key, ()), message.got.get(key, {})
    got = copies.get("")
    if got is None or len(copies) > 1 or len(held) != 1 or len(held[0].subscriptions) != 1 or held[0].share:
        return False
    wanted, reader = held[0].subscriptions[0], got.reader
    over_ns = min(watch.now_ns, client.ends.get(got.connection, (NEVER, 0))[0], wanted.ended_ns or NEVER)
    return (
        (got.copies, got.again, got.repetition, got.echo) == (1, None, None, "")
        and wanted.applies(message, key)
        and bool(wanted.qos)
        and not wanted.no_local
        and wanted.code is not None
        and over_ns >= last_ns + SECOND
        and not (reader.one_sided or reader.server_side.gapped)
        and not client.full_until(message.timestamp_ns)
        and all(
            key in other.got
            for other in watch.published.values()
            if (other.server, other.topic, other.checksum) == (message.server, message.topic, message.checksum)
            and other.timestamp_ns <= last_ns
        )
    )


def several_copies(message: Published, key: Key, share: str, got: Got) -> tuple[str, str, tuple[str, ...]] | None:
    """Words about a message that came several times at once, the remark, and advice."""
    if not got.surplus:
        text = doubled_text(message, key, share, got)
        return (text, "came more than once, once for each matching subscription", (DISJOINT,)) if text else None
    names = [describe.name(wanted.topic_filter) for held in message.held.get(key, ()) for wanted in held.subscriptions]
    frames = [f"{frame:,}" for frame in sorted([got.frame, *got.beside, *got.surplus])]
    verb, due = ("matches", "1 copy is") if len(names) == 1 else ("match", f"{len(names)} copies are")
    text = (
        f", {len(frames)} times (frames {describe.listed(frames)}): {counted(len(names), 'subscription')} {verb}"
        f" ({describe.listed(names)}), so that at most {due} due ({section(got)}); likely the broker sent the others"
        f" itself, since {got.witness}, with one matching subscription, got one copy"
    )
    return text, "came more often than subscriptions match, likely by the broker", (SURPLUS,)


def surplus_sentences(watch: SurplusWatch, of: Callable[[str], bool] | None) -> Iterator[str]:
    """A sentence for each client with surplus copies; ``of`` chooses clients by their names."""
    rows: dict[Key, list[tuple[Published, Got]]] = {}
    for message in watch.published.values():
        for key, copies in message.got.items():
            got = copies.get("")
            if got is not None and got.surplus and key in watch.clients:
                rows.setdefault(key, []).append((message, got))
    for key, group in islice(rows.items(), MAX_REPORTED):
        name, (message, got) = watch.clients[key].name, group[0]
        if of is None or of(name):
            yield (
                f"{name} got {counted(len(group), 'message')} more often than its subscriptions match; the first:"
                f" {describe.name(message.topic)}, frame {got.frame}. Likely the broker sent further copies: --message"
                " TOPIC shows them."
            )
