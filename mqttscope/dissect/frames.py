"""The entrance for frames: walks them down to segments, then joins the way of the segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from mqttscope.dissect.dissector import Dissector
from mqttscope.dissect.options import Options
from mqttscope.dissect.run import dissect_segments
from mqttscope.events import Event
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.frame import CaptureError, CaptureNotice, Frame
from mqttscope.net.headers import segment as segment_of
from mqttscope.net.segment import Fragment, NotSegment, Segment


def segments(
    frames: Iterable[Frame | CaptureNotice],
    skipped: Counter[str] | None = None,
    fragments: FragmentTable | None = None,
) -> Iterator[Segment | CaptureNotice]:
    """Frames to segments; notices pass through.

    IP fragments are put together.  Frames without TCP are counted by reason in ``skipped``; a link type that cannot
    be read is a `CaptureError` once per capture.  ``fragments`` is a table whose counts somebody wants to see.
    """
    fragments = FragmentTable() if fragments is None else fragments
    counted: Counter[str] = skipped if skipped is not None else Counter()
    told: set[tuple[str, str]] = set()
    for frame in frames:
        if type(frame) is not Frame:
            yield frame  # type: ignore[misc]
            continue
        found = segment_of(frame)
        if type(found) is Segment:
            yield found
            continue
        whole = fragments.feed(found) if isinstance(found, Fragment) else found
        if isinstance(whole, Segment):
            yield whole
        elif isinstance(whole, NotSegment):
            counted[whole.reason] += 1
            if whole.reason == "unsupported_link_type" and (frame.capture, whole.detail) not in told:
                told.add((frame.capture, whole.detail))
                yield CaptureError(frame.capture, whole.detail, None, frame.number - 1)
    if incomplete := fragments.incomplete():
        counted["incomplete_fragments"] += incomplete


def dissect(
    frames: Iterable[Frame | CaptureNotice],
    options: Options | None = None,
    dissector: Dissector | None = None,
    skipped: Counter[str] | None = None,
) -> Iterator[Event]:
    """Events of captured frames in capture order."""
    return dissect_segments(segments(frames, skipped), options, dissector)
