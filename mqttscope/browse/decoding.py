"""Events of rows with secrets hidden and payloads decoded.

Rows are shown in any order, so decoding Sparkplug B searches backwards for the BIRTH that names the metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mqttscope.browse.index import Index
from mqttscope.browse.rows import PACKETS
from mqttscope.browse.selection import as_shown
from mqttscope.events import Event, PacketEvent
from mqttscope.mqtt.constants import PacketType
from mqttscope.payloads.decoders import Decoders
from mqttscope.payloads.sparkplug import BIRTHS, Births
from mqttscope.payloads.sparkplug_topics import read_topic
from mqttscope.report.base import View
from mqttscope.report.public import with_decoded

MAX_ROWS_SOUGHT: Final = 50_000
"""Maximum number of rows searched for the BIRTH of a Sparkplug B edge node."""
MAX_BIRTHS_SOUGHT: Final = 4_000
"""Maximum number of PUBLISH packets checked in these rows."""


def as_decoded(index: Index, number: int, view: View) -> Event:
    """Event of a row with secrets hidden, decoded by the decoders of the view."""
    event = index.exact(number)
    decoders = view.decoders(detailed=True)
    if decoders is not None and decoders.remembers and isinstance(event, PacketEvent):
        decoders = decoders.with_births(births_before(index, number, event.topic))
    return with_payload(event, decoders, show_secrets=view.show_secrets)


def with_payload(event: Event, decoders: Decoders | None, *, show_secrets: bool) -> Event:
    """An event with secrets hidden and its payload decoded."""
    decoded = None if decoders is None else decoders.decode(event)
    shown = as_shown(event, show_secrets=show_secrets)
    return shown if decoded is None else with_decoded(shown, decoded, show_secrets=show_secrets, spans=True)


def births_before(index: Index, number: int, topic: str | None) -> Births:
    """Sparkplug B aliases valid at a row: from the last BIRTH of its edge node, and later ones of its devices."""
    births, place = Births(), read_topic(topic)
    if place is None or place.kind == "NBIRTH":
        return births
    published: list[tuple[str, bytes]] = []
    for event in _publishes_before(index, number):
        other = read_topic(event.topic)
        if other is not None and other.kind in BIRTHS and (other.group, other.node) == (place.group, place.node):
            published.append((event.topic or "", event.packet.payload))  # type: ignore[attr-defined]
            if other.kind == "NBIRTH":
                break
    for name, payload in reversed(published):
        births.observe(name, payload)
    return births


def _publishes_before(index: Index, number: int) -> Iterator[PacketEvent]:
    """PUBLISH packets before a row in reverse order, up to the limits for one key."""
    left, stop, first = MAX_BIRTHS_SOUGHT, number, max(0, number - MAX_ROWS_SOUGHT)
    while stop > first:
        start = max(first, stop - 4_096)
        for at, row in reversed(list(enumerate(index.rows.run(start, stop), start))):
            if row.kind in PACKETS and row.header >> 4 == PacketType.PUBLISH:
                event = index.event(at, row, whole=False)
                if isinstance(event, PacketEvent):
                    yield event
                left -= 1
                if not left:
                    return
        stop = start
