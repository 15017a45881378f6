"""Base class of event reports that receive events without secrets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

from mqttscope.events import Event, PacketEvent
from mqttscope.report.base import View
from mqttscope.report.public import public_event, public_packet, with_decoded, with_public_names


class PublicReport(ABC):
    """A report that receives events without their secrets.

    Secrets are hidden here, once.  A report itself hides secrets in payloads that it decompresses (`report.payload`)
    and in details of a transport (`secrets.addresses`): connections are passed on unchanged, since packets are
    numerous.  `report.jsonl` does not use this class, to be faster.
    """

    def __init__(self, view: View, *, all_bytes: bool = False) -> None:
        """``all_bytes``: show payloads beyond the limit of the view, all fields of malformed packets, and metrics."""
        self.view = view
        self._payload_limit = None if all_bytes else view.payload_limit
        self._spans = all_bytes
        self._decoders = view.decoders(detailed=all_bytes)

    @final
    def feed(self, event: Event) -> None:
        """Write an event."""
        decoded = None if self._decoders is None else self._decoders.decode(event)
        if not self.view.show_secrets:
            if type(event) is PacketEvent:
                event = public_packet(event, self._payload_limit, spans=self._spans)
            else:
                event = public_event(event, spans=self._spans)
            event = with_public_names(event, spans=self._spans)
        if decoded is not None:
            event = with_decoded(event, decoded, show_secrets=self.view.show_secrets, spans=self._spans)
        self.show(event)

    @abstractmethod
    def show(self, event: Event) -> None:
        """Write an event without its secrets."""

    def close(self) -> None:  # noqa: B027 (most hold nothing back)
        """Write the rest of the output."""
