"""What frames hold beside TCP that somebody may expect to be read: stable reasons, words for them, what reads them.

A frame without a TCP segment has a reason (`NotSegment.reason`).  Most are ordinary: ARP, DNS, ICMP.  Those of
`UNREAD` are not: MQTT may be inside, or looks as if it were.  They are named in one line, whatever else was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from mqttscope.net.segment import NotSegment

READS, WITH_KEYS, NOTHING = "tshark", "tshark with keys", "nothing"
"""What would read a frame that is not read."""
OFFER = "--via tshark"
OFFER_ELSEWHERE = "mqttscope inspect --via tshark"
"""The same for commands that have no such option."""


@dataclass(slots=True, frozen=True)
class Unread:
    """One reason."""

    words: str
    """What is counted, after "3 frames"."""
    reader: str
    """`READS`, `WITH_KEYS` or `NOTHING`."""
    note: str = ""
    """What else is to be said."""
    group: str = "not_tcp"
    """The reason that it is part of, where reasons are counted coarsely."""


UNREAD: dict[str, Unread] = {
    **{f"gtp_u_version_{number}": Unread(f"of GTP-U version {number}", READS) for number in (0, 2, 3, 4, 5, 6, 7)},
    "gtp_u": Unread("of GTP-U with unknown content", READS),
    "erspan": Unread("of ERSPAN in an unknown form", READS),
    "vxlan_gpe": Unread("of VXLAN-GPE with unknown content", READS),
    "tzsp": Unread("of TZSP with unknown content", READS),
    "l2tp_version_3": Unread("of L2TP version 3", READS),
    "ppp_compressed": Unread("of PPP with compressed headers", READS, group="not_ip"),
    "ppp_encrypted": Unread("of encrypted or compressed PPP", NOTHING, group="not_ip"),
    "capwap": Unread("of CAPWAP", READS),
    "teredo": Unread("of Teredo", READS),
    "lisp": Unread("of LISP", READS),
    "wlan_encrypted": Unread("of encrypted 802.11", WITH_KEYS, group="not_ip"),
    "wlan_fragment": Unread("of fragmented 802.11", READS, group="not_ip"),
    "wlan_aggregate": Unread("of aggregated 802.11", READS, group="not_ip"),
    "macsec": Unread("of encrypted MACsec", WITH_KEYS, group="not_ip"),
    "esp": Unread("of encrypted IPsec", WITH_KEYS),
    "wireguard": Unread("of encrypted WireGuard", WITH_KEYS),
    "mqtt_sn": Unread("of MQTT-SN over UDP", NOTHING, "not MQTT"),
    "quic": Unread("of QUIC", NOTHING, "MQTT over QUIC is encrypted"),
    "incomplete_fragments": Unread("with IP fragments of TCP whose other fragments are missing", NOTHING),
    "unsupported_link_type": Unread("of an unsupported link type", READS, group="unsupported_link_type"),
    "malformed": Unread("with malformed headers", NOTHING, group="malformed"),
    "truncated": Unread("cut inside their headers by the snap length", NOTHING, group="truncated"),
}
"""What is worth a word, by its reason, in the order in which it is named."""


@cache
def reason(name: str) -> NotSegment:
    """The shared constant of a reason."""
    return NotSegment(name, f"the frame is one {UNREAD[name].words}, which is not read")


def not_read(skipped: Mapping[str, int]) -> dict[str, int]:
    """Of frames counted by reason, those that are worth a word."""
    return {name: skipped[name] for name in UNREAD if skipped.get(name)}


def grouped(skipped: Mapping[str, int]) -> dict[str, int]:
    """Frames counted by reason, coarsely: ``not_ip``, ``not_tcp``, ``malformed``, ``truncated``, ...."""
    found: dict[str, int] = {}
    for name, count in skipped.items():
        group = UNREAD[name].group if name in UNREAD else name
        found[group] = found.get(group, 0) + count
    return found


def sentence(skipped: Mapping[str, int], *, by_tshark: bool = False, offer: str = OFFER) -> str | None:
    """One line about what was not read, or ``None``.

    ``by_tshark``: tshark has looked at the frames already.  ``offer``: how the user lets tshark read them.
    """
    parts = [_part(UNREAD[name], count, by_tshark, offer) for name, count in not_read(skipped).items()]
    return f"not read: {', '.join(parts)}" if parts else None


def _part(one: Unread, count: int, by_tshark: bool, offer: str) -> str:
    said = [one.note] if one.note else []
    if one.reader == READS and not by_tshark:
        said.append(f"{offer} reads {'it' if count == 1 else 'them'}")
    elif one.reader == WITH_KEYS:
        who = "tshark" if by_tshark else offer
        said.append(f"{who} reads {'it' if count == 1 else 'them'} with keys: --tshark-option")
    elif one.note:
        said.append("nothing here reads it")
    behind = f" ({'; '.join(said)})" if said else ""
    return f"{count:,} {'frame' if count == 1 else 'frames'} {one.words}{behind}"
