"""Cases as reports show them: with an asterisk for each byte of a password or of Authentication Data.

The bytes of a mutated packet may be cut, moved or damaged, so that its fields cannot always be told apart.  What was
secret in the recorded packets is therefore looked for as well, wherever it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mqttscope.mqtt.codec import packet_end
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mutate import Action, Case, Change
from mqttscope.redact.packets import hidden_ranges, holds_secrets
from mqttscope.replay.script import Script
from mqttscope.trial.run import Result

MIN_KNOWN = 4
"""Bytes of the shortest secret that is looked for outside of its field: shorter ones are in too much."""
RUN = 6
"""Bytes in a row of a longer one that are not shown either."""
_Ranges = list[tuple[int, int]]


def concealed_case(result: Result) -> Case:
    """The case of a result without its secrets; the case itself where it has none."""
    case = result.case
    known, version = known_secrets(result.script), case.version
    sends = iter(concealed([one.data for one in case.flow.steps if one.action is Action.SEND], version, known))
    steps = [
        replace(one, data=next(sends) if one.action is Action.SEND else concealed([one.data], version, known)[0])
        for one in case.flow.steps
    ]
    changes = tuple(_change(one, result.script, version, known) for one in case.flow.changes)
    if steps == case.flow.steps and changes == case.flow.changes:
        return case
    return replace(case, flow=replace(case.flow, steps=steps, changes=changes))


def concealed(parts: Sequence[bytes], version: ProtocolVersion, known: Sequence[bytes] = ()) -> list[bytes]:
    """Parts of one stream without its secrets, ``known`` ones and those that stand in their fields."""
    joined = b"".join(parts)
    places = [*_of_packets(joined, version), *_of_parts(parts, version)]
    for value in known:
        places += _occurrences(joined, value)
    shown = _covered(joined, places)
    found, at = [], 0
    for part in parts:
        found.append(shown[at : at + len(part)])
        at += len(part)
    return found


def _places(raw: bytes, version: ProtocolVersion) -> _Ranges:
    """Where secrets stand in a packet whose type has some.

    Of other packets everything is shown, however broken they are: that is what a mutation is about, and what was
    recorded as a secret is known.
    """
    return hidden_ranges(raw, version) if holds_secrets(raw) else []


def known_secrets(script: Script | None) -> list[bytes]:
    """What is secret in the packets of a connection, as far as it is long enough to be known again."""
    entries = () if script is None else script.entries
    version = ProtocolVersion.V5 if script is None else script.version
    values = {one.raw[start:end] for one in entries for start, end in _places(one.raw, version)}
    return sorted((one for one in values if len(one) >= MIN_KNOWN), key=len, reverse=True)


def _of_packets(joined: bytes, version: ProtocolVersion) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(joined):
        body, end = packet_end(joined, at, len(joined))
        if body <= 0:
            # Nobody knows where the next packet begins.
            end = len(joined)
        yield from ((at + start, at + stop) for start, stop in _places(joined[at:end], version))
        at = end


def _of_parts(parts: Sequence[bytes], version: ProtocolVersion) -> Iterator[tuple[int, int]]:
    """The same by the steps, which are whole packets mostly, whatever their lengths say."""
    at = 0
    for part in parts:
        yield from ((at + start, at + stop) for start, stop in _places(part, version))
        at += len(part)


def _occurrences(data: bytes, value: bytes) -> Iterator[tuple[int, int]]:
    """Where a secret stands, or `RUN` bytes of it in a row."""
    size = min(RUN, len(value))
    for start in range(len(value) - size + 1):
        run = value[start : start + size]
        at = data.find(run)
        while at >= 0:
            yield at, at + size
            at = data.find(run, at + 1)


def _covered(data: bytes, places: _Ranges) -> bytes:
    if not places:
        return data
    shown = bytearray(data)
    for start, end in places:
        end = min(end, len(data))
        shown[start:end] = b"*" * (end - start)
    return bytes(shown)


def _change(one: Change, script: Script | None, version: ProtocolVersion, known: Sequence[bytes]) -> Change:
    if one.entry is None or script is None:
        return replace(one, inserted=concealed([one.inserted], version, known)[0])
    end = one.offset + len(one.removed)
    secret = _places(script.entries[one.entry].raw, version)
    places = [(max(start, one.offset) - one.offset, min(stop, end) - one.offset) for start, stop in secret]
    places = [(start, stop) for start, stop in places if start < stop]
    # What takes the place of a secret may have a part of it.
    instead = (
        [(0, len(one.inserted))] if places else [row for value in known for row in _occurrences(one.inserted, value)]
    )
    return replace(one, removed=_covered(one.removed, places), inserted=_covered(one.inserted, instead))
