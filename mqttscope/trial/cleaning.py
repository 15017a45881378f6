"""Cleaning up behind cases: at once where the broker serves, else when it is back, and at the end as far as it goes."""

from __future__ import annotations

import asyncio

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.trial.companion import forget_retained, forget_session
from mqttscope.trial.conversation import Conversation
from mqttscope.trial.door import Door
from mqttscope.trial.leavings import accepted, leavings

LAST_S = 3.0
"""How long the end of a run may take to clean up what is left."""
MAX_NAMED = 20
"""Things that are named in one sentence; further ones are counted."""


class Cleaner:
    """What is still to be removed from a broker."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self._owing: list[Conversation] = []

    def owe(self, conversation: Conversation) -> None:
        """What this conversation leaves behind has to go, whatever becomes of it."""
        self._owing.append(conversation)

    async def settle(self, version: ProtocolVersion, seconds: float) -> list[str]:
        """Remove all that is owed; returns what could not be, by name.  ``seconds`` is for each answer."""
        left: list[str] = []
        while self._owing:
            left += await self._forget(self._owing[0], version, seconds)
            del self._owing[0]
        return list(dict.fromkeys(left))

    async def finish(self, version: ProtocolVersion, seconds: float, most_s: float | None = None) -> str:
        """The last attempt, within `LAST_S` unless told; returns a sentence on what may be left, or nothing."""
        if not self._owing:
            return ""
        left: list[str] = []
        try:
            async with asyncio.timeout(LAST_S if most_s is None else most_s):
                left = await self.settle(version, seconds)
        except TimeoutError:
            left = [told for one in self._owing for told in leavings(one).told()]
        left = list(dict.fromkeys(left))
        if not left:
            return ""
        more = f" and {len(left) - MAX_NAMED:,} more" if len(left) > MAX_NAMED else ""
        return f"may be left on {self.door.target}: {', '.join(left[:MAX_NAMED])}{more}"

    async def _forget(self, conversation: Conversation, version: ProtocolVersion, seconds: float) -> list[str]:
        """Clean up behind one conversation; returns what is left."""
        found = leavings(conversation)
        left = []
        for spoken, identifier in found.sessions:
            lasting = identifier in found.lasting
            gone = await forget_session(self.door, spoken, identifier, seconds, lasting=lasting)
            if not gone and accepted(conversation):
                left.append(f"session {identifier}")
        if found.topics:
            topics = await forget_retained(self.door, version, found.topics, seconds)
            # A broker that closes for the deletion as it did for the message has not kept it.
            left += (f"retained message {topic}" for topic in topics if topic not in found.doubtful)
        return left
