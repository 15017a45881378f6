"""PUBLISH packets of clients that are not whole: cut off, malformed, or with bytes that the capture lacks."""

from __future__ import annotations

from collections.abc import Iterator

from mqttscope.events import MalformedEvent, UnparsedEvent
from mqttscope.explain import describe
from mqttscope.explain.oddities import announced, is_whole
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.wire import counted

MAX_SHOWN = 3
"""Maximum number of unfinished messages that are described."""
_ENDS = ("fin", "reset")
"""Reasons of the dissector for bytes that the end of the connection cut off."""


class UnfinishedMessages:
    """Describes the first unfinished messages, and counts the others."""

    def __init__(self) -> None:
        self._sentences: list[str] = []
        self._further = 0

    def note(self, event: MalformedEvent | UnparsedEvent, topic: str) -> None:
        """Take the bytes of a PUBLISH of a client."""
        if len(self._sentences) >= MAX_SHOWN:
            self._further += 1
            return
        client = describe.name(event.connection.client_identifier) or event.connection.client
        name = describe.name(topic)
        rest = "and not the rest of it"
        if isinstance(event, MalformedEvent):
            length, total = len(event.malformed.raw), announced(event.malformed.raw)
            missing = event.malformed.missing if event.malformed.reason is not MalformedReason.TRUNCATED else 0
        else:
            length, missing, total = event.unparsed.length, event.unparsed.missing, announced(event.unparsed.raw)
            if event.unparsed.reason not in _ENDS:
                rest = "and the capture does not have the rest of it"
        what = f"the beginning of a message to {name}, {rest}"
        if is_whole(event):
            what = f"a malformed message to {name}"
        elif not missing and length < total:
            what = f"{length:,} of the {total:,} bytes of a message to {name}, {rest}"
        self._sentences.append(f"{client} sent {what} (frame {event.frame}).")

    def sentences(self) -> Iterator[str]:
        """A sentence for each of the first ones, and their number if there are more."""
        yield from self._sentences
        if self._further:
            yield f"{counted(self._further, 'more unfinished message')} {describe.are(self._further)} not shown."
