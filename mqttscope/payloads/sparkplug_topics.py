"""Topics of Sparkplug B, with their levels: group, message type, edge node, device or Host Application (3.0, 4.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

NAMESPACE: Final = "spBv1.0"
STATE: Final = "STATE"
NODE_TYPES: Final = ("NBIRTH", "NDEATH", "NDATA", "NCMD")
"""Message types of edge nodes."""
DEVICE_TYPES: Final = ("DBIRTH", "DDEATH", "DDATA", "DCMD")
"""Message types of devices."""
_RELATED: Final = re.compile(
    rf"spBv1\.0(?:/|\Z)|{STATE}/[^/]+\Z|[^/]*/[^/]*/(?:{'|'.join((*NODE_TYPES, *DEVICE_TYPES))})(?:/|\Z)"
)


@dataclass(frozen=True, slots=True)
class SparkplugTopic:
    """The parts of a topic of the namespace."""

    group: str
    kind: str
    """``NBIRTH``, ``DDATA`` ..."""
    node: str
    device: str | None = None


def read_topic(topic: str | None) -> SparkplugTopic | None:
    """The parts of a topic; ``None`` if it does not belong to an edge node or device."""
    levels = (topic or "").split("/", 5)
    if levels[0] != NAMESPACE or not 4 <= len(levels) <= 5 or levels[2][:1] not in ("N", "D"):
        return None
    return SparkplugTopic(levels[1], levels[2], levels[3], levels[4] if len(levels) == 5 else None)


def host_of_state(topic: str | None) -> str | None:
    """The Host ID of a STATE topic; ``None`` for any other topic."""
    levels = (topic or "").split("/", 3)
    return levels[2] if len(levels) == 3 and levels[:2] == [NAMESPACE, STATE] and levels[2] else None


def is_state(topic: str | None) -> bool:
    """Whether a topic belongs to a Host Application, in the form of 3.0 or of earlier versions."""
    levels = (topic or "").split("/", 2)
    return levels[:2] == [NAMESPACE, STATE] or (len(levels) == 2 and levels[0] == STATE)


def has_required_qos(topic_filter: str) -> bool:
    """Whether Sparkplug wants a subscription with QoS 1 in a session that ends with the connection (5.3, 5.4, 5.6)."""
    levels = topic_filter.split("/", 4)
    return levels[0] == NAMESPACE and (levels[1:2] == [STATE] or levels[2:3] in (["NCMD"], ["DCMD"]))


def is_related(topic: str) -> bool:
    """Whether a topic or filter belongs to Sparkplug, or looks as if it should."""
    return _RELATED.match(topic) is not None
