"""JSON Lines with decoded payloads: the lines of `report.jsonl`, and what decoders made of payloads beside their bytes.

They are written by a class of their own, so that the lines of runs without decoders cost nothing more.
"""

from __future__ import annotations

from typing import Any, Final

from mqttscope.events import Event, PacketEvent
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.view import utf8
from mqttscope.payloads.decoders import Decoded
from mqttscope.payloads.values import as_json
from mqttscope.report.base import Sink, View
from mqttscope.report.jsonl import JsonLines, dumps, harmless
from mqttscope.report.public import decoded_of, with_decoded
from mqttscope.secrets.packets import hides_payload

MAX_VALUE_BYTES: Final = 1 << 18
"""A value that is longer as JSON is left out, and the line says so."""


class DecodedLines:
    """Writes every event as one line; one of a PUBLISH that a decoder is for has its ``payload`` as an object."""

    def __init__(self, sink: Sink, view: View) -> None:
        self.sink = sink
        self.payload_limit = view.payload_limit
        self.show_secrets = view.show_secrets
        self._lines = JsonLines(sink, payload_limit=view.payload_limit, show_secrets=view.show_secrets)
        self._decoders = view.decoders()

    def feed(self, event: Event) -> None:
        line = self.line(event)
        if line is not None:
            self.sink.write(harmless(line.encode()))

    def close(self) -> None:
        """Nothing waits to be written."""

    def flush(self) -> None:
        """Nothing waits to be written."""

    def line(self, event: Event) -> str | None:
        """The line of an event, ``None`` for one that has none."""
        return self._packet(event) if isinstance(event, PacketEvent) else self._lines.other(event)

    def _packet(self, event: PacketEvent) -> str:
        decoded = decoded_of(event)
        if decoded is None and self._decoders is not None:
            decoded = self._decoders.decode(event)
        if decoded is None:
            return self._lines.packet_line(event)
        shown: Event = with_decoded(event, decoded, show_secrets=self.show_secrets)
        assert isinstance(shown, PacketEvent)
        line = self._lines.packet_line(shown)
        packet = event.packet
        doubt = event.connection.side(event.direction).doubt
        if not self.show_secrets and isinstance(packet, Publish) and hides_payload(packet, doubt):
            value: dict[str, Any] = {"format": utf8(decoded.label), "redacted": True}
        else:
            value = decoded_view(decoded, self.payload_limit, show_secrets=self.show_secrets)
        return f'{line[:-2]},"payload":{dumps(value).decode()}}}\n'


def decoded_view(decoded: Decoded, payload_limit: int, *, show_secrets: bool) -> dict[str, Any]:
    """What a decoder made of a payload, as JSON: ``format``, and ``value`` or ``error`` (docs/payloads.md)."""
    made: dict[str, Any] = {"format": utf8(decoded.label)}
    if decoded.problem:
        return made | {"error": utf8(decoded.problem)}
    shown = decoded.shown(show_secrets=show_secrets)
    value = as_json(shown.value, payload_limit)
    size = len(dumps(value))
    if size > MAX_VALUE_BYTES:
        made["error"] = f"the value takes {size} bytes as JSON, more than {MAX_VALUE_BYTES}"
    else:
        made["value"] = value
        if shown.cut:
            made["truncated"] = True
    if shown.hidden:
        made["redacted"] = True
    if decoded.note:
        made["note"] = utf8(decoded.note)
    return made
