"""The broker's side of the connection of a case: written down, and not listened to without end."""

from __future__ import annotations

import time
from collections.abc import Callable

from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.trial.conversation import Conversation
from mqttscope.trial.inbox import Inbox

MAX_NOTED_BYTES = 64 * 1024
"""What is kept of the words of a broker that is not listened to any longer."""


class Heard(Inbox):
    """An inbox that notes everything in a conversation, and hands packets on."""

    def __init__(self, conversation: Conversation, took: Callable[[ControlPacket | Malformed], None]) -> None:
        super().__init__(conversation.version)
        self.conversation = conversation
        self._took = took

    def received(self, data: bytes) -> None:
        """Bytes of the broker."""
        if not self.flooded:
            self.conversation.add(False, data, time.time_ns())
        super().received(data)

    def ended(self, how: str, detail: str) -> None:
        """The broker has ended the connection."""
        super().ended(how, detail)
        if self.how:
            self.conversation.add(False, b"", time.time_ns(), ends="reset" if how == "reset" else "fin")

    def drowned(self) -> None:
        """More came than is listened to: its beginning shows what it was."""
        super().drowned()
        self.conversation.shorten(MAX_NOTED_BYTES)

    def took(self, packet: ControlPacket | Malformed) -> None:
        """A packet of the broker."""
        self._took(packet)
