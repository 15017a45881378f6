"""Retained messages that a broker sends with another topic than the live messages with the same payload.

A bridge may add a prefix to the topics of live messages only.  Then the retained copy has the topic without it, and a
client that subscribes to the topic of the live messages gets no retained one.  The report shows that if a delivery with
RETAIN 1 has the payload of a live delivery of the broker, or topic and payload of a message to another broker, and live
messages from there came with the changed topic; one of the two topics has to end with the other one.  A client that
published the retained copy to this broker itself contradicts it, and so does a live delivery with its topic.

A delivery with RETAIN 1 that has topic and payload of a message to another captured broker is called a copy of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mqttscope.events import PacketEvent
from mqttscope.explain import describe, model
from mqttscope.explain.fates import NEVER, SECOND, Subscriber
from mqttscope.explain.forwards import RENAMED_NS, Sighting
from mqttscope.mqtt.topics import matches
from mqttscope.session.connection import host_of
from mqttscope.session.matching import FAILURE

MAX_LIVE = 1_000
"""Maximum number of topics of other brokers with a changed topic of live messages, the latest ones."""
MAX_COPIES = 10
"""Maximum number of topics with retained copies that are reported."""
Clients = Mapping[tuple[str, str], Subscriber]


@dataclass(slots=True)
class RetainedCopy:
    """Deliveries of a retained message to one topic, with the place of the first one."""

    client: str
    frame: int
    published: Sighting | None
    """The message at another broker."""
    live: Sighting | None
    """A live delivery of the payload with another topic."""
    count: int = 0


class RetainedCopies:
    """Finds retained messages that came from another broker, and their live deliveries with another topic."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], RetainedCopy] = {}
        """The copies by host of the broker and topic."""
        self._left_out = 0
        self._live: OrderedDict[tuple[str, str], Sighting] = OrderedDict()
        """The last live delivery with a changed topic, by host of the broker and topic at another one."""

    def note_live(self, event: PacketEvent, sightings: Iterable[Sighting]) -> None:
        """Take a delivery with RETAIN 0, and all PUBLISH packets with its payload before it."""
        server, topic = host_of(event.connection.server), event.topic or ""
        for sighting in sightings:
            is_far = host_of(sighting.connection.server) != server
            if not is_far or not 0 <= event.timestamp_ns - sighting.timestamp_ns <= RENAMED_NS:
                continue
            place = server, sighting.topic
            if sighting.topic == topic:
                self._live.pop(place, None)
            elif prefix(sighting.topic, topic):
                self._live[place] = Sighting(event.timestamp_ns, event.frame, event.connection, topic, False)
                self._live.move_to_end(place)
                if len(self._live) > MAX_LIVE:
                    self._live.popitem(last=False)

    def note(self, event: PacketEvent, client: str, sightings: Iterable[Sighting], asked: str = "") -> bool:
        """Take a delivery with RETAIN 1 and all PUBLISH packets with its payload; whether these show its origin.

        ``asked``: a Topic Filter that the topic of the live delivery has to match, if it is not empty.
        """
        server, topic = host_of(event.connection.server), event.topic or ""
        published = live = None
        is_contradicted = False
        for sighting in sightings:
            is_here, is_same = host_of(sighting.connection.server) == server, sighting.topic == topic
            if is_here and is_same and sighting.from_client:
                return False
            if not is_here and is_same and sighting.from_client:
                published = sighting
            elif is_here and not sighting.from_client and not sighting.is_retained:
                is_contradicted = is_contradicted or is_same
                live = sighting if prefix(topic, sighting.topic) else live
        if live is None and published is not None:
            live = self._live.get((server, topic))
        live = None if is_contradicted else live
        if asked and (live is None or not matches(asked, live.topic)):
            return False
        if published is None and live is None:
            return False
        row = self._rows.get((server, topic))
        if row is None:
            if len(self._rows) >= MAX_COPIES:
                self._left_out += 1
                return True
            row = self._rows[server, topic] = RetainedCopy(client, event.frame, published, live)
        row.count += 1
        return True

    @property
    def has_deliveries(self) -> bool:
        """Whether a retained message came from another broker, or with another topic."""
        return bool(self._rows)

    def sentences(self, clients: Clients, now_ns: int) -> Iterator[str]:
        """A sentence for each topic of a retained copy."""
        for (server, topic), row in self._rows.items():
            which = "One delivery" if row.count == 1 else f"{row.count:,} deliveries"
            text = f"{which} with RETAIN 1 to {describe.name(topic)} (the first to {row.client}, frame {row.frame})"
            verb = "has" if row.count == 1 else "have"
            published, live = row.published, row.live
            if published is not None:
                other = published.connection
                name = describe.name(other.client_identifier) or other.client
                text += (
                    f" {verb} topic and payload of the message that {name} published to {other.server} (frame"
                    f" {published.frame})"
                )
            else:
                text += f" {verb} the payload of a live message"
            if live is None:
                yield f"{text}: most probably a bridge brought it, and this broker keeps it."
                continue
            changed = describe.name(live.topic)
            text += (
                f"; {server} sends such messages live as {changed} (frame {live.frame}): most probably the broker keeps"
                f" the retained copy with another topic ({prefix(topic, live.topic)})"
            )
            vain = list(_without(clients, server, topic, live, now_ns))
            if vain:
                text += f", so that later subscribers to {changed} get no retained message: "
                text += describe.listed(vain, model.MAX_REPORTED)
            yield f"{text}. Check how the bridge and the broker change the topics of retained messages."
        if self._left_out:
            yield f"limit: retained copies of {MAX_COPIES:,} topics are shown; further deliveries: {self._left_out:,}."


def prefix(retained: str, live: str) -> str:
    """The difference of two topics if one ends with the other, as words; empty if they differ otherwise."""
    if live.endswith(f"/{retained}"):
        return f"without {describe.name(live.removesuffix(retained))}"
    if retained.endswith(f"/{live}"):
        return f"with {describe.name(retained.removesuffix(live))} before it"
    return ""


def _without(clients: Clients, server: str, topic: str, live: Sighting, now_ns: int) -> Iterator[str]:
    """Clients that subscribed to the live topic later, and got no retained message for that."""
    for client in clients.values():
        for wanted in client.filters.values() if client.server == server else ():
            over_ns = min(now_ns, client.ends.get(wanted.connection, (NEVER, 0))[0], wanted.ended_ns or NEVER)
            is_due = wanted.asks_for_retained and wanted.granted_ns is not None and (wanted.code or 0) < FAILURE
            if (
                is_due
                and wanted.retained is None
                and live.timestamp_ns < wanted.asked_ns <= over_ns - SECOND
                and client.gap_ns < wanted.asked_ns
                and matches(wanted.plain_filter, live.topic, shared=False)
                and not matches(wanted.plain_filter, topic, shared=False)
            ):
                yield f"{client.name} ({describe.name(wanted.topic_filter)} in frame {wanted.frame})"
                break
