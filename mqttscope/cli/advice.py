"""Advice on standard error at the end of a run: why nothing was found, and what may help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from mqttscope.mqtt.wire import counted
from mqttscope.net import segment
from mqttscope.session.connection import port_of

if TYPE_CHECKING:
    from mqttscope.dissect import Dissector
    from mqttscope.lake.finding_collector import ConnectionCounts

    Counted = Dissector | ConnectionCounts
    """Counts about connections: from a dissector, or from the rows of a lake."""

_NAMES = {"mqtt": "plain MQTT", "ws": "WebSocket", "tls": "TLS"}
_READ = {"mqtt": "read as that", "ws": "read as that", "tls": "listed as that"}
"""Words by protocol; the names repeat `mqttscope.dissect.options`, which is slow to import."""
MANY_COPIES = 20
"""Minimum number of duplicate segments that makes the message suggest a remedy."""
OFFER = "--via tshark"
OFFER_ELSEWHERE = "mqttscope inspect --via tshark"
"""`OFFER` for commands without that option."""
_REMEDY = "capture complete frames with `tcpdump -s 0` or `tshark -s 0`"


def nothing_found(dissector: Dissector) -> str:
    """Message for a capture without MQTT, and what may help."""
    flows = dissector.flows.opened_flows
    if not flows:
        return "no TCP connection found"
    sentence = f"no MQTT found in {flows:,} TCP connection{'s' if flows > 1 else ''}"
    if dissector.other_tls:
        server, count = dissector.other_tls.most_common(1)[0]
        port = port_of(server)
        sentence += (
            f"; {sum(dissector.other_tls.values()):,} of them TLS, {count:,} to {server}"
            f" (--port {port}:tls lists them as MQTT)"
        )
    return sentence


def snap_length(dissector: Dissector, skipped: Mapping[str, int]) -> str | None:
    """Message if the snap length cut off most of the payload, or cut frames inside their headers."""
    cut, remaining = dissector.cut_bytes, dissector.kept_bytes
    if cut > remaining:
        share = "all" if not remaining else f"{cut:,} of {cut + remaining:,}"
        return f"the snap length cut off {share} bytes of TCP payload: {_REMEDY}"
    truncated = skipped.get("truncated", 0)
    if truncated and not dissector.flows.opened_flows:
        return f"the snap length cut {counted(truncated, 'frame')} inside the headers: {_REMEDY}"
    return None


def unread_sentence(skipped: Mapping[str, int], *, by_tshark: bool = False, offer: str = OFFER) -> str | None:
    """One line about unread frames and their reasons, or ``None``.

    ``by_tshark``: whether tshark dissected the frames.  ``offer``: option or command that uses tshark.
    """
    parts = []
    for name, count in segment.notable_reasons(skipped).items():
        reason = segment.UNREAD[name]
        frames, them = ("frame", "it") if count == 1 else ("frames", "them")
        notes = [reason.note] if reason.note else []
        if reason.reader == segment.READS and not by_tshark:
            notes.append(f"{offer} reads {them}")
        elif reason.reader == segment.WITH_KEYS:
            notes.append(f"{'tshark' if by_tshark else offer} reads {them} with keys in the profile of Wireshark")
        elif notes:
            notes.append("nothing here reads it")
        parts.append(f"{count:,} {frames} {reason.words}" + (f" ({'; '.join(notes)})" if notes else ""))
    return f"not read: {', '.join(parts)}" if parts else None


def not_read(
    dissector: Dissector, skipped: Mapping[str, int], *, via: str | None = None, live: bool = False
) -> str | None:
    """Message about frames without a TCP segment that may still matter.

    ``via``: ``tshark`` if it dissected the frames.  ``live``: whether the frames come from interfaces.
    """
    left = dict(skipped)
    if not dissector.flows.opened_flows:
        left.pop("truncated", None)  # `snap_length` reports these, with a remedy
    return unread_sentence(left, by_tshark=via is not None, offer=OFFER_ELSEWHERE if live else OFFER)


def named_otherwise(dissector: Dissector) -> Iterator[str]:
    """Messages about ports with a different protocol than the user specified."""
    for (port, named, spoken), count in sorted(dissector.named_otherwise.items()):
        speak = "speaks" if count == 1 else "speak"
        was = "was" if count == 1 else "were"
        yield (
            f"--port {port}:{named}: {counted(count, 'connection')} there {speak} {_NAMES[spoken]}, not"
            f" {_NAMES[named]}, and {was} {_READ[spoken]}"
        )


def undecrypted(dissector: Dissector) -> Iterator[str]:
    """Messages about TLS that was not decrypted despite keys."""
    for reason, count in dissector.undecrypted.most_common():
        names = dissector.undecrypted_names[reason]
        more = f" and {count - len(names):,} more" if count > len(names) else ""
        yield f"TLS not decrypted: {', '.join(names)}{more}: {reason}"


def discarded(dissector: Counted) -> str | None:
    """Message about segments with data that belong to no connection."""
    count = dissector.discarded_segments
    if not count:
        return None
    verb = "was" if count == 1 else "were"
    size = counted(dissector.discarded_bytes, "byte")
    return (
        f"{counted(count, 'segment')} ({size}) {verb} ignored: data after the end of a connection, data for an"
        " abandoned gap, or late copies"
    )


def of_connections(dissector: Dissector, *, deduplicates: bool = True, one_sided: bool = True) -> Iterator[str]:
    """Messages about the connections of a run: ports, discarded segments, copies, single directions, overlaps.

    ``deduplicates``: copies are already removed, or cannot be.  ``one_sided``: whether to mention single directions.
    """
    yield from named_otherwise(dissector)
    yield from undecrypted(dissector)
    yield from counted_of_connections(dissector, deduplicates=deduplicates, one_sided=one_sided)


def counted_of_connections(dissector: Counted, *, deduplicates: bool = True, one_sided: bool = True) -> Iterator[str]:
    """Messages about connections, except ports and TLS."""
    lost = discarded(dissector)
    if lost is not None:
        yield lost
    if dissector.copied_segments:
        were = "was" if dissector.copied_segments == 1 else "were"
        more = (
            "" if deduplicates or dissector.copied_segments < MANY_COPIES else "; --deduplicate reads each frame once"
        )
        copied = counted(dissector.copied_segments, "segment")
        yield f"{copied} {were} captured twice (two taps or a mirrored port?){more}"
    if dissector.one_sided and one_sided:
        have = "has" if dissector.one_sided == 1 else "have"
        yield f"{counted(dissector.one_sided, 'connection')} {have} one direction only in the capture"
    if dissector.overlaps:
        places = counted(dissector.overlaps, "place")
        yield (
            f"bytes of a stream were repeated with different content, or accepted with a wrong checksum, in {places};"
            " the first copy is shown"
        )
    if dissector.damaged_segments:
        were, them = ("was", "it") if dissector.damaged_segments == 1 else ("were", "them")
        damaged = counted(dissector.damaged_segments, "segment")
        yield (
            f"{damaged} with a wrong checksum {were} ignored: no receiver accepts {them}"
            f" (--dont-verify-checksums reads {them})"
        )


def selected_nothing(
    dissector: Dissector, connections: tuple[int, ...], *, filtered: bool, matched: bool, whole: bool
) -> str | None:
    """Message if selected connections do not exist, or nothing matched the filter.

    ``whole``: whether the captures were read to their end, so that every connection is known.
    """
    known = dissector.connections
    absent = [number for number in connections if number >= known] if whole or not matched else []
    if absent:
        last = "the only connection is number 0" if known == 1 else f"numbers go from 0 to {known - 1}"
        names = ", ".join(map(str, absent))
        return f"connection {names} does not exist: {last}"
    if filtered and not matched:
        return f"nothing matches the filter in {counted(dissector.packets, 'packet')}"
    return None
