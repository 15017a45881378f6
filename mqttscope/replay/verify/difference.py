"""What may differ between a recorded connection and its replay, and what a comparison found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mqttscope.mqtt.constants import PacketType, ProtocolVersion, reason_name
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.view import without_topic
from mqttscope.replay.script import Entry, Script

MAX_TOLD = 60
"""Characters of a topic or a value that a message repeats."""
_LAST = 1 << 62


class DifferenceKind(StrEnum):
    """What kind of difference it is; the names are stable."""

    NOT_CONNECTED = "not-connected"
    REASON_CODE = "reason-code"
    SESSION_PRESENT = "session-present"
    GRANTED_QOS = "granted-qos"
    PROPERTY = "property"
    MISSING_ANSWER = "missing-answer"
    UNEXPECTED_ANSWER = "unexpected-answer"
    MISSING_DELIVERY = "missing-delivery"
    EXTRA_DELIVERY = "extra-delivery"
    PAYLOAD = "payload"
    DELIVERY_QOS = "delivery-qos"
    RETAIN = "retain"
    ORDER = "order"
    CLOSE = "close"
    MALFORMED = "malformed"


class DeviceKind(StrEnum):
    """What a device did otherwise than the recorded client; the names are stable."""

    NEVER_CONNECTED = "never-connected"
    EXTRA_CONNECTION = "extra-connection"
    MISSING_PACKET = "missing-packet"
    EXTRA_PACKET = "extra-packet"
    FIELD = "field"
    ORDER = "order"
    MISSING_ACKNOWLEDGEMENT = "missing-acknowledgement"
    EXTRA_ACKNOWLEDGEMENT = "extra-acknowledgement"
    REASON_CODE = "reason-code"
    CLOSE = "close"
    MALFORMED = "malformed"


@dataclass(slots=True, eq=False)
class Difference:
    """One thing that the live broker (or device) did otherwise than the recorded one."""

    kind: DifferenceKind | DeviceKind
    script: Script
    """The recorded connection."""
    recorded: Entry | None = None
    live: Entry | None = None
    """Either is ``None`` where there is no such packet; both are where it is about the transport."""
    field: str = ""
    """Path of the field as in JSON (``properties.user_property``), empty where it is about the packet as a whole."""
    expected: Any = None
    """The recorded value, ``None`` for what is absent."""
    found: Any = None
    message: str = ""
    """One sentence.  It repeats no values of User Properties, payloads, or Authentication Data."""
    live_script: Script | None = None
    """The connection of ``live``."""
    follows: int = 0
    """Packets that were not sent or not delivered because of it, on any connection; they are no differences of
    their own."""

    option: str = ""
    """The option of the user that it follows from, ``--client``; empty where it is the broker's."""
    certain: bool = False
    """Whether it follows from the option without a doubt."""
    cause: str = ""
    """The cause of it and of others like it: ``the broker does not speak MQTT 5.0``; empty where it stands for
    itself."""

    @property
    def counts(self) -> bool:
        """Whether it is the broker's, as far as is known."""
        return not (self.option and self.certain)

    @property
    def place(self) -> tuple[int, int]:
        """For the order of the recording; what only the replay has comes after."""
        recorded, live = self.recorded, self.live
        return (_LAST if recorded is None else recorded.place, _LAST if live is None else live.place)

    @property
    def name(self) -> str:
        return self.script.name

    @property
    def number(self) -> int:
        return self.script.connection.number

    @property
    def version(self) -> ProtocolVersion:
        return self.script.version


@dataclass(slots=True)
class Tally:
    """What became of the packets of one connection that the broker sent, in the recording or in the replay."""

    script: Script
    _states: dict[int, str] = field(default_factory=dict)
    _reasons: Counter[str] = field(default_factory=Counter)

    def equal(self, entry: Entry) -> None:
        """It is the same on both sides, unless something else is said of it."""
        self._states.setdefault(id(entry), "equal")

    def different(self, entry: Entry) -> None:
        self._states[id(entry)] = "different"

    def otherwise(self) -> None:
        """A difference is about no packet of the broker: there was no connection, or it ended otherwise."""
        self._states[-1 - len(self._states)] = "different"

    def follow(self, entry: Entry) -> None:
        """It is missing because of a difference somewhere else."""
        self._states[id(entry)] = "follows"

    def not_judged(self, entry: Entry, reason: str) -> None:
        self._states[id(entry)] = "not judged"
        self._reasons[reason] += 1

    def _count(self, state: str) -> int:
        return sum(one == state for one in self._states.values())

    @property
    def compared(self) -> int:
        return self.equals + self.differing

    @property
    def equals(self) -> int:
        return self._count("equal")

    @property
    def differing(self) -> int:
        return self._count("different")

    @property
    def following(self) -> int:
        """Packets that are missing because of a difference somewhere else."""
        return self._count("follows")

    @property
    def unjudged(self) -> int:
        return self._count("not judged")

    @property
    def reasons(self) -> dict[str, int]:
        return dict(self._reasons)


@dataclass(slots=True)
class Verification:
    """What a comparison found."""

    differences: list[Difference] = field(default_factory=list)
    """By connection, within one in the order of the recording."""
    tallies: list[Tally] = field(default_factory=list)
    """One for each recorded connection."""

    @property
    def judged(self) -> int:
        return sum(one.compared > 0 for one in self.tallies)

    @property
    def nothing(self) -> str:
        """What to say where nothing could be compared; empty where something was, or differs."""
        if self.judged or self.differences:
            return ""
        total = len(self.tallies)
        return f"nothing to compare: no packet could be judged in {total:,} connection{'' if total == 1 else 's'}"

    @property
    def by_cause(self) -> dict[str, list[Difference]]:
        """Differences by their cause, the most frequent cause first; those without one come last."""
        groups: dict[str, list[Difference]] = {}
        for one in self.differences:
            groups.setdefault(one.cause, []).append(one)
        return dict(sorted(groups.items(), key=lambda group: (not group[0], -len(group[1]))))

    @property
    def counting(self) -> list[Difference]:
        """Those that do not certainly follow from an option of the user."""
        return [one for one in self.differences if one.counts]


def reason_text(kind: PacketType, code: int, version: ProtocolVersion) -> str:
    """``0x87 Not authorized``."""
    return f"0x{code:02x} {reason_name(kind, code, version)}"


def short(text: str) -> str:
    """A text of the wire for a message: in quotes, and cut where it is long."""
    return repr(text if len(text) <= MAX_TOLD else text[: MAX_TOLD - 3] + "...")


def described(entry: Entry) -> str:
    """``PUBLISH to 'a/b'``."""
    told = entry.type.upper()
    if isinstance(entry.packet, Publish):
        return f"{told} to {short(entry.topic) if entry.topic else f'an {without_topic(entry.packet)} topic'}"
    return told
