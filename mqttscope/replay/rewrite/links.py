"""Copies of scripts that can be changed, with their links kept right: what answers what, what is sent again.

Whoever changes a recording copies it first (`copy_scripts`), so that nobody else's is touched, and then works on the
copy: `say` gives an entry other words, `drop` takes entries out, `renumber` puts the places in order again.  Packets
are shared between copies and therefore never changed in place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Publish
from mqttscope.replay.script import Entry, Script


def copy_scripts(scripts: Iterable[Script]) -> list[Script]:
    """New scripts with new entries that link to each other; packets and their bytes are the same objects.

    Each entry names the one of the capture that it comes from as its ``origin``.
    Links to entries outside of these scripts are lost.
    """
    made: dict[Entry, Entry] = {}
    copies = []
    for script in scripts:
        entries = [replace(entry, origin=entry.origin or entry) for entry in script.entries]
        made.update(zip(script.entries, entries, strict=True))
        copies.append(replace(script, entries=entries, ending=replace(script.ending)))
    for entry in made.values():
        if entry.answers is not None:
            entry.answers = made.get(entry.answers)
        if entry.resends is not None:
            entry.resends = made.get(entry.resends)
    return copies


def say(entry: Entry, packet: ControlPacket, version: ProtocolVersion) -> None:
    """Let an entry say something else.  ``packet`` is a new one: it gets the bytes that it is encoded to."""
    packet.raw = entry.raw = encode(packet, version)
    entry.packet = packet


def rename(script: Script, client_identifier: str) -> None:
    """Give the connection of a script another Client Identifier; its packets are not looked at."""
    script.connection = replace(script.connection, client_identifier=client_identifier)


def in_order(scripts: Iterable[Script]) -> list[tuple[Script, Entry]]:
    """All entries in the order of their places."""
    pairs = [(script, entry) for script in scripts for entry in script.entries]
    pairs.sort(key=lambda pair: pair[1].place)
    return pairs


def client_entries(scripts: Iterable[Script]) -> Iterator[tuple[Script, Entry]]:
    """What clients sent, script by script."""
    for script in scripts:
        for entry in script.entries:
            if entry.from_client:
                yield script, entry


def drop(scripts: list[Script], gone: Collection[Entry]) -> list[Entry]:
    """Take entries out of scripts, and with them everything that answers them; returns all that was taken out.

    Where a PUBLISH goes that is sent again later, the first repetition that is left takes its place: it loses its DUP
    flag, since for the receiver it is the first (5.0 3.3.1.1), and the answers are its answers.
    """
    if not gone:
        return []
    out = dict.fromkeys(gone)
    heirs: dict[Entry, Entry] = {}
    for script, entry in in_order(scripts):
        if entry in out:
            continue
        first, answered = entry.resends, entry.answers
        if first is not None and first in out:
            entry.resends = heirs.get(first)
            if entry.resends is None:
                heirs[first] = entry
                if isinstance(entry.packet, Publish) and entry.packet.dup:
                    say(entry, replace(entry.packet, dup=False), script.version)
        if answered is not None and answered in out:
            entry.answers = heirs.get(answered)
            if entry.answers is None:
                out[entry] = None
    for script in scripts:
        script.entries = [entry for entry in script.entries if entry not in out]
    return list(out)


def renumber(scripts: list[Script]) -> None:
    """Count places from 0 without holes again, after entries were taken out or put in.

    An entry that was put in has the place of the one that it stands behind in its script.
    """
    pairs = in_order(scripts)
    old = [entry.place for _, entry in pairs]
    bounds = sorted({place for script in scripts for place in (script.opened_place, script.ended_place)})
    before: dict[int, int] = {}
    at = 0
    for bound in bounds:
        while at < len(old) and old[at] < bound:
            at += 1
        before[bound] = at
    for script in scripts:
        script.opened_place, script.ended_place = before[script.opened_place], before[script.ended_place]
    for place, (_, entry) in enumerate(pairs):
        entry.place = place


def restore_aliases(script: Script) -> int:
    """Put Topic Names where an alias is used that is not set, or set to something else (5.0 3.3.2.3.4).

    Happens where the PUBLISH that set it was taken out.  The alias stays, so that it is set from there on; returns
    how many packets were changed.  One whose topic was never known is left as it is.
    """
    changed = 0
    known: dict[tuple[bool, int], str] = {}
    for entry in script.entries:
        packet = entry.packet
        if not isinstance(packet, Publish) or not packet.properties:
            continue
        alias = packet.properties.topic_alias
        if alias is None:
            continue
        key = entry.from_client, alias
        if not packet.topic_name:
            if entry.topic is None or known.get(key) == entry.topic:
                continue
            say(entry, replace(packet, topic_name=entry.topic), script.version)
            changed += 1
        known[key] = entry.topic or packet.topic_name
    return changed
