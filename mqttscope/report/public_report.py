"""The base of reports of events that get them as they may be shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

from mqttscope.events import Event, PacketEvent
from mqttscope.report.base import View
from mqttscope.report.public import public_event, public_packet, with_decoded, with_public_names


class PublicReport(ABC):
    """A report of events that gets them without their secrets, whatever it writes of them.

    What it is fed is made public here, and once.  Bytes that a report makes of these, by unpacking a payload, are left
    to it (`report.payload`), and so are the details of a transport (`redact.addresses`): connections are passed on as
    they are, since packets come in large numbers.  `report.jsonl` has a lane of its own for these instead, for its
    speed.
    """

    def __init__(self, view: View, *, all_bytes: bool = False) -> None:
        """``all_bytes``: payloads are shown beyond the limit of the view, and all fields of malformed packets."""
        self.view = view
        self._looked_at = None if all_bytes else view.payload_limit
        self._spans = all_bytes
        self._decoders = view.decoders()

    @final
    def feed(self, event: Event) -> None:
        """Write one event."""
        decoded = None if self._decoders is None else self._decoders.decode(event)
        if not self.view.show_secrets:
            if type(event) is PacketEvent:
                event = public_packet(event, self._looked_at, spans=self._spans)
            else:
                event = public_event(event, spans=self._spans)
            event = with_public_names(event, spans=self._spans)
        if decoded is not None:
            event = with_decoded(event, decoded, show_secrets=self.view.show_secrets, spans=self._spans)
        self.show(event)

    @abstractmethod
    def show(self, event: Event) -> None:
        """Write one event without its secrets."""

    def close(self) -> None:  # noqa: B027 (most hold nothing back)
        """Write what is left at the end."""
