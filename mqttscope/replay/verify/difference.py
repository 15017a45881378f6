"""Kinds of differences between a recorded connection and its replay, and the result of a comparison."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mqttscope.mqtt.constants import PacketType, ProtocolVersion, reason_name
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.view import without_topic
from mqttscope.replay.script import Script, ScriptEntry

MAX_TEXT_CHARACTERS = 60
"""Maximum number of characters of a topic or a value in a message."""
_LAST = 1 << 62


class DifferenceKind(StrEnum):
    """Kind of a difference; the names are stable."""

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
    """Kind of a device's deviation from the recorded client; the names are stable."""

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
    """One difference between the live broker (or device) and the recorded one."""

    kind: DifferenceKind | DeviceKind
    script: Script
    """The recorded connection."""
    recorded: ScriptEntry | None = None
    live: ScriptEntry | None = None
    """Either is ``None`` without such a packet; both are for a difference of the transport."""
    field: str = ""
    """Path of the field as in JSON (``properties.user_property``); empty for the packet as a whole."""
    expected: Any = None
    """The recorded value; ``None`` if it is absent."""
    actual: Any = None
    message: str = ""
    """One sentence, without values of User Properties, payloads, or Authentication Data."""
    live_script: Script | None = None
    """The connection of ``live``."""
    follows: int = 0
    """Number of packets not sent or not delivered because of it, on any connection; they are not differences of
    their own."""

    option: str = ""
    """The user's option that causes it, such as ``--client``; empty if the broker causes it."""
    certain: bool = False
    """Whether it certainly follows from the option."""
    cause: str = ""
    """Common cause of it and of other differences: ``the broker does not speak MQTT 5.0``; empty without a common
    cause."""

    @property
    def counts(self) -> bool:
        """Whether it fails the run: it does not certainly follow from an option."""
        return not (self.option and self.certain)

    @property
    def place(self) -> tuple[int, int]:
        """Sort key in the order of the recording; packets that only the replay has come last."""
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
    """Result for each packet of the broker on one connection, in the recording or in the replay."""

    script: Script
    _states: dict[int, str] = field(default_factory=dict)
    _reasons: Counter[str] = field(default_factory=Counter)

    def equal(self, entry: ScriptEntry) -> None:
        """Mark a packet as the same on both sides, unless it is marked already."""
        self._states.setdefault(id(entry), "equal")

    def different(self, entry: ScriptEntry) -> None:
        self._states[id(entry)] = "different"

    def otherwise(self) -> None:
        """Count a difference without a packet of the broker: a missing connection, or another end."""
        self._states[-1 - len(self._states)] = "different"

    def follow(self, entry: ScriptEntry) -> None:
        """Mark a packet as missing because of a difference somewhere else."""
        self._states[id(entry)] = "follows"

    def not_judged(self, entry: ScriptEntry, reason: str) -> None:
        self._states[id(entry)] = "not judged"
        self._reasons[reason] += 1

    def _count(self, state: str) -> int:
        return sum(entry_state == state for entry_state in self._states.values())

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
        """Number of packets missing because of a difference somewhere else."""
        return self._count("follows")

    @property
    def unjudged(self) -> int:
        return self._count("not judged")

    @property
    def reasons(self) -> dict[str, int]:
        return dict(self._reasons)


@dataclass(slots=True)
class Verification:
    """Result of a comparison."""

    differences: list[Difference] = field(default_factory=list)
    """Differences by connection, in the order of the recording."""
    tallies: list[Tally] = field(default_factory=list)
    """Tally of each recorded connection."""

    @property
    def judged(self) -> int:
        return sum(tally.compared > 0 for tally in self.tallies)

    @property
    def nothing(self) -> str:
        """Message if nothing could be compared; empty if something was compared or differs."""
        if self.judged or self.differences:
            return ""
        total = len(self.tallies)
        return f"nothing to compare: no packet could be judged in {total:,} connection{'' if total == 1 else 's'}"

    @property
    def by_cause(self) -> dict[str, list[Difference]]:
        """Differences by cause, the most frequent cause first; differences without a cause come last."""
        groups: dict[str, list[Difference]] = {}
        for difference in self.differences:
            groups.setdefault(difference.cause, []).append(difference)
        return dict(sorted(groups.items(), key=lambda group: (not group[0], -len(group[1]))))

    @property
    def counting(self) -> list[Difference]:
        """Differences that do not certainly follow from an option of the user."""
        return [difference for difference in self.differences if difference.counts]


def reason_text(kind: PacketType, code: int, version: ProtocolVersion) -> str:
    """Reason Code with its name: ``0x87 Not authorized``."""
    return f"0x{code:02x} {reason_name(kind, code, version)}"


def short(text: str) -> str:
    """A text from the wire, for a message: quoted, and cut if it is long."""
    return repr(text if len(text) <= MAX_TEXT_CHARACTERS else text[: MAX_TEXT_CHARACTERS - 3] + "...")


def described(entry: ScriptEntry) -> str:
    """Packet type, and topic of a PUBLISH: ``PUBLISH to 'a/b'``."""
    name = entry.type.upper()
    if isinstance(entry.packet, Publish):
        return f"{name} to {short(entry.topic) if entry.topic else f'an {without_topic(entry.packet)} topic'}"
    return name
