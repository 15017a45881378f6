"""Events of rows as they may be shown, with what decoders make of their payloads.

Rows are looked at in any order: the BIRTH that names metrics of Sparkplug B is looked for before the row.
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
from mqttscope.payloads.sparkplug import BIRTHS, Births, read_topic
from mqttscope.report.base import View
from mqttscope.report.public import with_decoded

MAX_ROWS_SOUGHT: Final = 50_000
"""Rows before one of Sparkplug B in which the BIRTH of its edge node is looked for."""
MAX_BIRTHS_SOUGHT: Final = 4_000
"""PUBLISH packets among them that are looked at."""


def as_decoded(index: Index, number: int, view: View) -> Event:
    """The event of a row as it may be shown, decoded as the view asks for it."""
    event = index.exact(number)
    decoders = view.decoders()
    if decoders is not None and decoders.remembers and isinstance(event, PacketEvent):
        decoders = decoders.after(births_before(index, number, event.topic))
    return with_payload(event, decoders, show_secrets=view.show_secrets)


def with_payload(event: Event, decoders: Decoders | None, *, show_secrets: bool) -> Event:
    """An event as it may be shown, with what decoders make of its payload."""
    decoded = None if decoders is None else decoders.decode(event)
    shown = as_shown(event, show_secrets=show_secrets)
    return shown if decoded is None else with_decoded(shown, decoded, show_secrets=show_secrets, spans=True)


def births_before(index: Index, number: int, topic: str | None) -> Births:
    """The aliases of Sparkplug B that hold for a row: of the last BIRTH of its edge node, and of its devices since."""
    births, place = Births(), read_topic(topic)
    if place is None or place.kind == "NBIRTH":
        return births
    found: list[tuple[str, bytes]] = []
    for event in _publishes_before(index, number):
        other = read_topic(event.topic)
        if other is not None and other.kind in BIRTHS and (other.group, other.node) == (place.group, place.node):
            found.append((event.topic or "", event.packet.payload))  # type: ignore[attr-defined]
            if other.kind == "NBIRTH":
                break
    for name, payload in reversed(found):
        births.observe(name, payload)
    return births


def _publishes_before(index: Index, number: int) -> Iterator[PacketEvent]:
    """PUBLISH packets before a row, the last first, as many as a key may take to look for."""
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
