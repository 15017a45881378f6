"""What is known of one TCP connection: plain data, which the table of connections (`flows`) keeps and moves on."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from mqttscope.net.reassembly import NEVER, HalfStream

if TYPE_CHECKING:
    from mqttscope.net.segment import Segment


class Verdict(Enum):
    """What a segment has to do with the flow that is known between its endpoints."""

    SAME = "same"
    """It belongs to the flow, or is a late segment of it."""
    NEW = "new"
    """Another connection has begun."""
    COPY = "copy"
    """It repeats the flow's own numbers so soon that it may be a copy, or a connection with the same numbers."""
    RESUMED = "resumed"
    """The flow was reset, and the side that sends this continues: the reset may have been ignored."""
    CONTINUES = "continues"
    """The other side has taken what was sent after the reset: it was ignored, and the connection continues."""
    KNOCK = "knock"
    """A SYN with numbers of its own inside of a connection that lives: a device that came back, or a stranger.  The
    other side answers with SYN-ACK, or tells where the connection stands (RFC 5961 section 4) and continues."""
    EARLY = "early"
    """A reset that says itself that something before it has not come yet: frames of two queues are not in order."""
    OTHER = "other"
    """It says nothing of the segments that are kept, and is judged by itself."""
    STRAY = "stray"
    """Its numbers have nothing to do with the flow: a connection of which the beginning was not captured, or noise."""


@dataclass(slots=True)
class Flow:
    """One TCP connection.  Plain data, except for ``context``."""

    key: bytes
    """Direction key from the initiator to the responder."""
    initiator_known: bool
    """Whether a SYN or SYN-ACK said who the initiator is; else it is assumed to be the side with the higher port."""
    opened_ns: int
    """Capture time of the first segment."""
    first_frame: int
    capture: str
    """The capture of the first segment."""
    last_timestamp_ns: int
    last_frame: int
    last_capture: str
    initiator: HalfStream = field(default_factory=HalfStream)
    """What the initiator sent."""
    responder: HalfStream = field(default_factory=HalfStream)
    """What the responder sent."""
    syn_seen: bool = False
    syn_ack_seen: bool = False
    closed: str = ""
    """How the flow ended (see ``FlowClosed.how``), empty while it is open."""
    closed_ns: int = 0
    disowned: bool = False
    """A side that no longer knew the connection reset it."""
    check_ns: int = 0
    """Capture time from which on the next segment has to look whether the flow went idle or a hole is due."""
    clear: bool = False
    """Both directions are in order, so that the next segment may take the fast path."""
    context: object | None = None
    """For the layer above."""
    kept: list[Segment] = field(default_factory=list)
    """Segments of which only later ones say whether they belong to the flow or to the next connection."""
    doubt: Verdict = Verdict.SAME
    """Why they are kept."""
    kept_until_ns: int = NEVER
    """Capture time at which that is decided without more evidence."""
    furthest_ns: int = -NEVER
    """Capture time of the last segment of the capture before, where the next one overlaps with it."""
    views: list[bytes] = field(default_factory=list)
    """Direction keys with other tags or tunnels under which the same segments were captured again."""
    handshake_again: int = 0
    """Segments with data or SYN that came again, one after the other, with a SYN or SYN-ACK among them."""
    doubled: bool = False
    """A second view was seen of it."""
    past: list[Flow] = field(default_factory=list)
    """The connections before it, of which a second view may still show something."""


Entry = tuple[Flow, HalfStream, HalfStream, bool]
"""A flow, the half that sends, the other half, whether the sender is the initiator."""
