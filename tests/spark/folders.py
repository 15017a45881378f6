"""Frames of committed captures as sets of files that rotate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from mqttscope.net.frame import Frame
from tests.capture.test_pcap import pcap_file
from tests.cli.running import capture
from tests.lake import parts
from tests.lake.parts import as_pcapng, moved
from tests.spark.collection import wide

SECOND = 1_000_000_000
BEGIN_NS = 1_795_207_680 * SECOND


def frames_of(name: str) -> list[Frame]:
    """The frames of a committed capture."""
    return parts.frames_of(capture(name))


def one_after_the_other(names: Iterable[str], begin_ns: int) -> list[Frame]:
    """Captures after each other, a second between them."""
    frames: list[Frame] = []
    for name in names:
        frames += moved(frames_of(name), frames[-1].timestamp_ns + SECOND if frames else begin_ns)
    return frames


def as_pcap(frames: Sequence[Frame]) -> bytes:
    """A pcap file with nanoseconds."""
    records = [(*divmod(frame.timestamp_ns, SECOND), frame.data) for frame in frames]
    return pcap_file(records, magic=0xA1B23C4D, network=frames[0].link_type)


def in_pieces(frames: Sequence[Frame], count: int) -> list[Sequence[Frame]]:
    """Frames in so many pieces of about the same length."""
    edges = [len(frames) * number // count for number in range(count + 1)]
    return [frames[start:stop] for start, stop in pairwise(edges)]


def rotated(folder: Path) -> dict[Path, bytes]:
    """Two taps whose files rotate: a pcap set with connections that time out, and a pcapng set beside it."""
    # Rules of session and broker scope find something in these, over several files.
    together = [frame for path in wide(folder.parent / "wide", 1) for frame in parts.frames_of(Path(path))]
    tap = moved(together, BEGIN_NS - 600 * SECOND)
    tap += one_after_the_other(
        ["v311-will", "v311-retained", "v311-session-present", "v311-redelivery", "keep-alive", "v5-reason-codes",
         "v5-will-delay", "v5-topic-alias-client", "v5-shared-subscription", "v5-session-present"], BEGIN_NS,
    )  # fmt: skip
    # What is open by then has been idle for too long.
    tap += moved(frames_of("v5-flow-control"), tap[-1].timestamp_ns + 4 * 3600 * SECOND)
    other = one_after_the_other(
        ["session-taken-over", "planted-violations", "failing-device", "auth-exchange"], BEGIN_NS + 5 * SECOND
    )
    result = {folder / f"tap_{number:05d}.pcap": as_pcap(some) for number, some in enumerate(in_pieces(tap, 6))}
    return result | {
        folder / f"dev_{number:05d}.pcapng": as_pcapng(some) for number, some in enumerate(in_pieces(other, 3))
    }
