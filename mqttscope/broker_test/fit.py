"""Prepares recorded connections for a broker: adapts them to its limits, and numbers their cases.

The limits that a broker announces decide which mutations are legal.  So mutations are applied to a copy of the
recorded connection with the CONNACK of the live broker and with client packets within its limits (`fit_script`).
`CaseNumbering` numbers the cases of all connections of a capture, and `capture_hash` identifies the capture in every
file format, so that a number selects one case in every run.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Connack, Connect, Publish, Subscribe
from mqttscope.mutate import MutationCase, NotApplicableError, RecordedFlow, RecordedPacket, case, cases, select
from mqttscope.replay.client import adapt
from mqttscope.replay.script import C2S, S2C, Script
from mqttscope.session.connection import Connection


def capture_hash(scripts: Iterable[Script]) -> str:
    """Hash of the packets of all connections, independent of the file format and compression of the capture."""
    digest = sha256(b"mqttscope capture 1")
    for script in scripts:
        digest.update(b"connection %s" % script.version.text.encode())
        for entry in script.entries:
            digest.update(b"%c%d:" % (b">" if entry.from_client else b"<", len(entry.raw)))
            digest.update(entry.raw)
    return digest.hexdigest()


@dataclass(slots=True, frozen=True)
class NumberedCase:
    """A case, with its number in the capture."""

    number: int
    index: int
    """Index of the flow among all flows."""
    case: MutationCase


@dataclass(slots=True)
class CaseNumbering:
    """Numbers of cases: each turn has all mutations of the first flow, then of the second flow, and so on."""

    flows: Sequence[RecordedFlow]
    """All flows of the capture, including unselected ones, so that numbers do not depend on the selection."""
    seed: int
    sender: str

    def counts(self) -> list[int]:
        return [len(select(version=flow.version, sender=self.sender)) for flow in self.flows]

    def of(self, number: int) -> NumberedCase:
        """The case with a number; raises `NotApplicableError` if its mutation cannot be applied to the flow."""
        counts = self.counts()
        turn, place = divmod(number, sum(counts))
        for index, count in enumerate(counts):
            if place < count:
                flow = self.flows[index]
                return NumberedCase(number, index, case(flow, self.seed, turn * count + place, sender=self.sender))
            place -= count
        raise NotApplicableError("no case has this number")

    def cases(self, pattern: str, chosen: Iterable[int], turns: int = 1, *, begin: int = 0) -> Iterator[NumberedCase]:
        """The applicable cases of a pattern on the chosen flows, by number, starting with the turn ``begin``."""
        counts, wanted = self.counts(), set(chosen)
        for turn in range(begin, begin + turns):
            first = turn * sum(counts)
            for index, count in enumerate(counts):
                if index in wanted:
                    flow, start = self.flows[index], turn * count
                    for case in cases(flow, self.seed, pattern, sender=self.sender, start=start):
                        yield NumberedCase(first + case.number - start, index, case)
                first += count


def flow_of(script: Script, capture_hash: str, number: int) -> RecordedFlow:
    entries = [RecordedPacket(row.from_client, row.packet, row.raw, row.timestamp_ns) for row in script.entries]
    return RecordedFlow(entries, script.version, capture_hash, number)


def fit_script(
    script: Script, connack: Connack | None, *, user_name: str | None = None, password: bytes | None = None
) -> Script:
    """A copy of the script, adapted to a broker that answers CONNECT with this CONNACK.

    ``user_name`` and ``password`` replace the recorded ones.  Without a CONNACK, only they change.
    """
    adapted = copy.deepcopy(script)
    live = Connection(script.connection.number, "", "", "", 0, 0, handshake_seen=True)
    live.assume_version(script.version, "the recording", known=True)
    recorded = script.connection
    for number, (entry, original) in enumerate(zip(adapted.entries, script.entries, strict=True)):
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
    return adapted


def password_for(version: ProtocolVersion, user_name: str | None, password: bytes | None) -> bytes | None:
    """The password, or ``None`` if it needs a User Name: before 5.0 it does (3.1.1 MQTT-3.1.2-22)."""
    return None if user_name is None and version < ProtocolVersion.V5 else password


def recorded_failures(script: Script) -> frozenset[int]:
    """Reason codes of failures that the recorded server sent."""
    failures: set[int] = set()
    for entry in script.entries:
        if not entry.from_client:
            codes: Sequence[int] = getattr(entry.packet, "reason_codes", None) or ()
            single: int | None = getattr(entry.packet, "reason_code", None)
            failures.update(code for code in (*codes, single) if code)
    return frozenset(failures)
