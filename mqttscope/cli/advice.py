"""Advice on standard error at the end of a run: that nothing was found, why, and what may help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from mqttscope.mqtt.wire import counted
from mqttscope.net import segment

if TYPE_CHECKING:
    from mqttscope.dissect import Dissector
    from mqttscope.lake.finding_collector import OfConnections

    Counted = Dissector | OfConnections
    """What was counted of connections: by a dissector, or in the rows of a lake."""

_NAMES = {"mqtt": "plain MQTT", "ws": "WebSocket", "tls": "TLS"}
_READ = {"mqtt": "read as that", "ws": "read as that", "tls": "listed as that"}
"""By protocol, as `mqttscope.dissect.options` names them, which takes a while to import."""
MANY_COPIES = 20
"""From this many segments that were captured twice, the message says what to do about it."""
OFFER = "--via tshark"
OFFER_ELSEWHERE = "mqttscope inspect --via tshark"
"""The same for commands that have no such option."""
_REMEDY = "capture complete frames with `tcpdump -s 0` or `tshark -s 0`"


def nothing_found(dissector: Dissector) -> str:
    """The message when a capture holds no MQTT, and what may help."""
    flows = dissector.flows.opened_flows
    if not flows:
        return "no TCP connection found"
    said = f"no MQTT found in {flows:,} TCP connection{'s' if flows > 1 else ''}"
    if dissector.other_tls:
        server, count = dissector.other_tls.most_common(1)[0]
        port = server.rpartition(":")[2]
        said += (
            f"; {sum(dissector.other_tls.values()):,} of them TLS, {count:,} to {server}"
            f" (--port {port}:tls lists them as MQTT)"
        )
    return said


def snap_length(dissector: Dissector, skipped: Mapping[str, int]) -> str | None:
    """The message when the snap length took most of the payload, or cut frames inside their headers."""
    cut, kept = dissector.cut_bytes, dissector.kept_bytes
    if cut > kept:
        share = "all" if not kept else f"{cut:,} of {cut + kept:,}"
        return f"the snap length cut off {share} bytes of TCP payload: {_REMEDY}"
    truncated = skipped.get("truncated", 0)
    if truncated and not dissector.flows.opened_flows:
        return f"the snap length cut {counted(truncated, 'frame')} inside the headers: {_REMEDY}"
    return None


def unread_sentence(skipped: Mapping[str, int], *, by_tshark: bool = False, offer: str = OFFER) -> str | None:
    """One line about frames that were not read, by their reasons, or ``None``.

    ``by_tshark``: tshark has looked at the frames already.  ``offer``: how the user lets tshark read them.
    """
    parts = []
    for name, count in segment.not_read(skipped).items():
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
    """The message about frames that hold no TCP segment and may matter all the same.

    ``via``: ``tshark`` if it has dissected the frames.  ``live``: no file is read.
    """
    left = dict(skipped)
    if not dissector.flows.opened_flows:
        left.pop("truncated", None)  # `snap_length` says it, with a remedy
    return unread_sentence(left, by_tshark=via is not None, offer=OFFER_ELSEWHERE if live else OFFER)


def named_otherwise(dissector: Dissector) -> Iterator[str]:
    """The message about ports on which another protocol is spoken than the user named."""
    for (port, named, found), count in sorted(dissector.named_otherwise.items()):
        speak = "speaks" if count == 1 else "speak"
        was = "was" if count == 1 else "were"
        yield (
            f"--port {port}:{named}: {counted(count, 'connection')} there {speak} {_NAMES[found]}, not"
            f" {_NAMES[named]}, and {was} {_READ[found]}"
        )


def undecrypted(dissector: Dissector) -> Iterator[str]:
    """The messages about TLS that was not decrypted though keys were given."""
    for reason, count in dissector.undecrypted.most_common():
        names = dissector.undecrypted_names[reason]
        more = f" and {count - len(names):,} more" if count > len(names) else ""
        yield f"TLS not decrypted: {', '.join(names)}{more}: {reason}"


def discarded(dissector: Counted) -> str | None:
    """The message about segments with data that no connection took."""
    count = dissector.discarded_segments
    if not count:
        return None
    verb = "belongs to no connection and was" if count == 1 else "belong to no connection and were"
    size = counted(dissector.discarded_bytes, "byte")
    return (
        f"{counted(count, 'segment')} ({size}) {verb} not read: data after an end or after its gap was given up,"
        " or copies that came late"
    )


def of_connections(dissector: Dissector, *, deduplicates: bool = True, one_sided: bool = True) -> Iterator[str]:
    """The messages about the connections of a run: ports, discarded segments, copies, single directions, overlaps.

    ``deduplicates``: copies are left out already, or cannot be.  ``one_sided``: whether single directions are among
    them.
    """
    yield from named_otherwise(dissector)
    yield from undecrypted(dissector)
    yield from counted_of_connections(dissector, deduplicates=deduplicates, one_sided=one_sided)


def counted_of_connections(dissector: Counted, *, deduplicates: bool = True, one_sided: bool = True) -> Iterator[str]:
    """The same without the ports."""
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
            f"bytes of a stream came again with other content, or were accepted with a wrong checksum, in {places};"
            " those that came first are shown"
        )
    if dissector.damaged_segments:
        were, them = ("was", "it") if dissector.damaged_segments == 1 else ("were", "them")
        damaged = counted(dissector.damaged_segments, "segment")
        yield (
            f"{damaged} with a wrong checksum {were} not read: no receiver accepted {them}"
            f" (--dont-verify-checksums reads {them})"
        )


def selected_nothing(
    dissector: Dissector, connections: tuple[int, ...], *, filtered: bool, matched: bool, whole: bool
) -> str | None:
    """The message when the user asked for connections that are not there, or nothing matched the filter.

    ``whole``: the captures were read to their end, so that every connection was seen.
    """
    known = dissector.connections
    absent = [number for number in connections if number >= known] if whole or not matched else []
    if absent:
        last = "the only one is number 0" if known == 1 else f"numbers go from 0 to {known - 1}"
        names = ", ".join(map(str, absent))
        return f"there is no connection {names}: {last}"
    if filtered and not matched:
        return f"nothing matches the filter in {counted(dissector.packets, 'packet')}"
    return None
