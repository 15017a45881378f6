"""JSON Lines with decoded payloads: lines of `report.jsonl`, each with the decoded value of its payload.

A separate class writes them, so that lines without decoders cost nothing more.
"""

from __future__ import annotations

from typing import Any, Final

from mqttscope.events import Event, PacketEvent
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.view import utf8
from mqttscope.payloads.decoders import DecodedPayload
from mqttscope.payloads.values import as_json
from mqttscope.report.base import Sink, View
from mqttscope.report.jsonl import EventJsonLines, dumps, harmless
from mqttscope.report.public import decoded_of, with_decoded
from mqttscope.secrets.packets import hides_payload

MAX_VALUE_BYTES: Final = 1 << 18
"""Maximum size of a value as JSON; a larger value is replaced by an error."""


class DecodedLines:
    """Writes every event as one line; a PUBLISH with a decoder has its ``payload`` as an object."""

    def __init__(self, sink: Sink, view: View) -> None:
        self.sink = sink
        self.payload_limit = view.payload_limit
        self.show_secrets = view.show_secrets
        self._lines = EventJsonLines(sink, payload_limit=view.payload_limit, show_secrets=view.show_secrets)
        self._decoders = view.decoders()

    def feed(self, event: Event) -> None:
        line = self.line(event)
        if line is not None:
            self.sink.write(harmless(line.encode()))

    def close(self) -> None:
        """Do nothing: no line waits."""

    def flush(self) -> None:
        """Do nothing: no line waits."""

    def line(self, event: Event) -> str | None:
        """The line of an event, or ``None``."""
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


def decoded_view(decoded: DecodedPayload, payload_limit: int, *, show_secrets: bool) -> dict[str, Any]:
    """The decoded payload as JSON: ``format``, and ``value`` or ``error`` (docs/payloads.md)."""
    fields: dict[str, Any] = {"format": utf8(decoded.label)}
    if decoded.problem:
        return fields | {"error": utf8(decoded.problem)}
    shown = decoded.shown(show_secrets=show_secrets)
    value = as_json(shown.value, payload_limit)
    size = len(dumps(value))
    if size > MAX_VALUE_BYTES:
        fields["error"] = f"the value takes {size} bytes as JSON, more than {MAX_VALUE_BYTES}"
    else:
        fields["value"] = value
        if shown.cut:
            fields["truncated"] = True
    if shown.hidden:
        fields["redacted"] = True
    if decoded.note:
        fields["note"] = utf8(decoded.note)
    return fields
