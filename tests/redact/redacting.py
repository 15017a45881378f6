"""Captures redacted in this process, and what the linter says of both."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator

from mqttscope.capture import PcapngWriter
from mqttscope.capture.read import read_capture
from mqttscope.capture.write import ip_frame
from mqttscope.dissect import Options, dissect
from mqttscope.lint.catalogue import instances, select
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding
from mqttscope.net.frame import CaptureNotice, Frame
from mqttscope.net.segment import Segment
from mqttscope.redact.kinds import TreatmentChoice
from mqttscope.redact.redaction import Redaction
from tests.dissect.secure import as_frame
from tests.dissect.talk import Tape

KEY = b"key of the tests"


def redaction(choice: TreatmentChoice | None = None, key: bytes = KEY) -> Redaction:
    return Redaction(key, choice or TreatmentChoice(), io.BytesIO(), ip_frame, Options())


def redacted(frames: Iterable[Frame | CaptureNotice], run: Redaction | None = None) -> list[Frame]:
    """The frames that are written for some."""
    run = run or redaction()
    for frame in frames:
        if isinstance(frame, Frame):
            run.feed(frame)
    run.close()
    new_frames = []
    for number, result in enumerate(run.results(), 1):
        assert result.data is not None
        new_frames.append(
            Frame(number, result.timestamp_ns, result.link_type, bytes(result.data), result.original_length, "shared")
        )
    return new_frames


def taped(tape: Tape | list[Segment]) -> list[Frame]:
    """The frames of a conversation."""
    return list(map(as_frame, tape if isinstance(tape, list) else tape.segments))


def written(frames: Iterable[Frame]) -> bytes:
    """Frames as a pcapng file."""
    out = io.BytesIO()
    with PcapngWriter(out) as writer:
        for frame in frames:
            writer.write(frame)
    return out.getvalue()


def reread(data: bytes) -> list[Frame]:
    return [frame for frame in read_capture(io.BytesIO(data), "shared") if isinstance(frame, Frame)]


Shape = tuple[object, ...]


def findings(frames: Iterable[Frame | CaptureNotice]) -> Iterator[Finding]:
    """What all rules find in frames."""
    linter = Linter(instances(select(["ALL"]).values()), strict=True)
    for event in dissect(frames):
        yield from linter.feed(event)


def shapes(frames: Iterable[Frame | CaptureNotice]) -> Counter[Shape]:
    """All of what is found but the names in it."""
    return Counter(
        (
            finding.rule, str(finding.severity), str(finding.confidence), finding.timestamp_ns, finding.connection,
            finding.packet, str(finding.direction), finding.packet_type, finding.field, finding.offset, finding.length,
            finding.statements,
        )
        for finding in findings(frames)
    )  # fmt: skip
