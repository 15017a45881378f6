"""Prepares recorded connections for a broker: which cases they give, and in which form they are played.

What is legal depends on the limits that a broker announces.  So a mutation is not applied to the connection as it was
recorded, but to a copy with the live broker's CONNACK in it and with the client's packets within its limits
(`fitted`).  `Numbering` counts the cases over all connections of a capture, and `capture_hash` recognises the capture
whatever its file format, so that the number of a case means the same in every run.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Connack, Connect, Publish, Subscribe
from mqttscope.mutate import Case, Entry, NotApplicableError, RecordedFlow, case, cases, select
from mqttscope.replay.client import adapt
from mqttscope.replay.script import C2S, S2C, Script
from mqttscope.session.connection import Connection


def capture_hash(scripts: Iterable[Script]) -> str:
    """Hash of what was said on the connections: the same for every file format and compression of one capture."""
    made = sha256(b"mqttscope capture 1")
    for script in scripts:
        made.update(b"connection %s" % script.version.text.encode())
        for entry in script.entries:
            made.update(b"%c%d:" % (b">" if entry.from_client else b"<", len(entry.raw)))
            made.update(entry.raw)
    return made.hexdigest()


@dataclass(slots=True, frozen=True)
class Numbered:
    """A case with its number in the capture."""

    number: int
    index: int
    """Of its connection among all flows."""
    case: Case


@dataclass(slots=True)
class Numbering:
    """The cases of a capture: all mutations of the first flow, those of the next, and then a second turn."""

    flows: Sequence[RecordedFlow]
    """All flows of the capture, whichever are asked for: numbers must not depend on that."""
    seed: int
    sender: str

    def counts(self) -> list[int]:
        return [len(select(version=flow.version, sender=self.sender)) for flow in self.flows]

    def of(self, number: int) -> Numbered:
        """The case of a number; `NotApplicableError` where its mutation has nothing to do in its flow."""
        counts = self.counts()
        turn, place = divmod(number, sum(counts))
        for index, count in enumerate(counts):
            if place < count:
                flow = self.flows[index]
                return Numbered(number, index, case(flow, self.seed, turn * count + place, sender=self.sender))
            place -= count
        raise NotApplicableError("there is no such case")

    def cases(self, pattern: str, chosen: Iterable[int], turns: int = 1, *, begin: int = 0) -> Iterator[Numbered]:
        """The applicable cases of a pattern on chosen flows, in the order of their numbers, from a turn on."""
        counts, wanted = self.counts(), set(chosen)
        for turn in range(begin, begin + turns):
            first = turn * sum(counts)
            for index, count in enumerate(counts):
                if index in wanted:
                    flow, start = self.flows[index], turn * count
                    for one in cases(flow, self.seed, pattern, sender=self.sender, start=start):
                        yield Numbered(first + one.number - start, index, one)
                first += count


def flow_of(script: Script, capture_hash: str, number: int) -> RecordedFlow:
    entries = [Entry(one.from_client, one.packet, one.raw, one.timestamp_ns) for one in script.entries]
    return RecordedFlow(entries, script.version, capture_hash, number)


def fitted(
    script: Script, connack: Connack | None, *, user_name: str | None = None, password: bytes | None = None
) -> Script:
    """A copy of the script for a broker that answers its CONNECT with this CONNACK.

    ``user_name`` and ``password`` replace the recorded ones.  Without a CONNACK only these are changed.
    """
    made = copy.deepcopy(script)
    live = Connection(script.connection.number, "", "", "", 0, 0, handshake_seen=True)
    live.assume_version(script.version, "the recording", known=True)
    recorded = script.connection
    for number, (entry, original) in enumerate(zip(made.entries, script.entries, strict=True)):
        packet = entry.packet
        if entry.from_client:
            fit = None
            if isinstance(packet, Connect):
                own = user_name if user_name is not None else packet.user_name
                fit = adapt.connect(original, {}, user_name, password_for(script.version, own, password))
            elif isinstance(packet, Publish) and connack is not None:
                fit = adapt.publish(original, live, recorded)
            elif isinstance(packet, Subscribe) and connack is not None:
                fit = adapt.subscribe(original, live, recorded)
            if fit is not None and fit.refused is None:
                entry.packet, entry.raw = fit.packet, fit.raw
            if isinstance(entry.packet, Connect | Publish):
                live.apply(entry.packet, C2S, number, 0, 0)
        elif isinstance(packet, Connack) and connack is not None:
            entry.packet, entry.raw = connack, connack.raw
            live.apply(connack, S2C, number, 0, 0)
    return made


def password_for(version: ProtocolVersion, user_name: str | None, password: bytes | None) -> bytes | None:
    """The password where it may be sent: before 5.0 there is none without a User Name (3.1.1 MQTT-3.1.2-22)."""
    return None if user_name is None and version < ProtocolVersion.V5 else password


def recorded_failures(script: Script) -> frozenset[int]:
    """Reason codes of failures that the recorded server gave."""
    found: set[int] = set()
    for entry in script.entries:
        if not entry.from_client:
            codes: Sequence[int] = getattr(entry.packet, "reason_codes", None) or ()
            one = getattr(entry.packet, "reason_code", None)
            found.update(code for code in (*codes, *((one,) if one is not None else ())) if code)
    return frozenset(found)
