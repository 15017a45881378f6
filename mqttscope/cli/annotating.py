"""Annotated copies of captures: ``lint --output pcapng=FILE`` and ``explain --format pcapng``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from mqttscope.capture.annotate import Annotation, annotate
from mqttscope.capture.files import STDIN, find_captures
from mqttscope.capture.read import first_time
from mqttscope.cli.output import CAPTURE, FileSink, refuse_inputs, refuse_name, same_file, warn
from mqttscope.events import ConnectionClosed, ConnectionOpened, Event
from mqttscope.net.segment import plain_key, reverse_key
from mqttscope.secrets.addresses import public_name

PCAPNG = "pcapng"
SUFFIX = ".pcapng"
MAX_COMMENTS = 200_000
"""Maximum number of comments; further ones are counted."""
MAX_LINES = 50
"""Maximum number of comments on one frame; further ones are counted."""


def is_copy(output: str | None) -> bool:
    """Whether an output is named like a capture, which makes an annotated copy of it."""
    return output is not None and output.lower().endswith(SUFFIX)


def divide(outputs: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """The file of the annotated copy among the values of ``--output``, and the other values."""
    copies, others = [], []
    for value in outputs:
        name, equals, path = value.partition("=")
        if equals and name == PCAPNG:
            if not path:
                raise click.UsageError(f"--output {value}: no file after the =")
            copies.append(path)
        elif is_copy(value) and not (equals and "/" not in name):
            copies.append(value)
        else:
            others.append(value)
    if len(copies) > 1:
        raise click.UsageError("--output: an annotated copy is given twice")
    for copy in copies:
        if any(same_file(copy, other.partition("=")[2] or other) for other in others):
            raise click.UsageError("two outputs go to the same file")
    return (copies[0] if copies else None), tuple(others)


class AnnotatedCopy(FileSink):
    """A copy of the captures with comments, written when all of them are read (`report.base.CommentSink`)."""

    def __init__(self, path: str, captures: Sequence[str], *, all_frames: bool) -> None:
        """``all_frames``: copy also the frames of connections without MQTT, and of other protocols."""
        refuse_inputs(path, captures)
        if STDIN in captures:
            raise click.UsageError("an annotated copy needs captures that can be read twice, not standard input")
        refuse_name(path, "--output", CAPTURE)
        super().__init__(path, captures)
        self._captures = captures
        self._connections: set[bytes] | None = None if all_frames else set()
        self._comments: dict[str, dict[int, dict[str, int]]] = {}
        """Comments by capture and frame, with how often each came."""
        self._count = 0

    def note(self, event: Event) -> None:
        """Handle an event: the frames of its connection belong to the copy."""
        if self._connections is not None and isinstance(event, ConnectionOpened | ConnectionClosed):
            key = event.connection.flow_key
            self._connections |= {plain_key(key), plain_key(reverse_key(key))}

    def comment(self, capture: str, frame: int, text: str) -> None:
        """Keep a comment on a frame; a frame may have several."""
        self._count += 1
        if self._count > MAX_COMMENTS:
            return
        comments = self._comments.setdefault(capture, {}).setdefault(frame, {})
        if len(comments) >= MAX_LINES:
            text = ""
        comments[text] = comments.get(text, 0) + 1

    def finish(self, about: str) -> None:
        """Write the copy: captures in the order of their first frames, as they were read."""
        if self._count > MAX_COMMENTS:
            warn(f"limit: {self.path} has the first {MAX_COMMENTS:,} of {self._count:,} comments")
        names = [name for name in find_captures(self._captures) if isinstance(name, str)]
        for name in sorted(names, key=_begin) if len(names) > 1 else names:
            comments = self._comments.get(name) or self._comments.get(public_name(name)) or {}
            texts = {frame: _text(lines) for frame, lines in comments.items()}
            annotation = Annotation(about, texts, self._connections)
            try:
                with open(name, "rb") as file:
                    error = annotate(file, name, annotation, self)
            except OSError:
                continue  # reported when it was read
            if error is not None:
                warn(f"{self.path}: the copy of {public_name(name)} ends after frame {error.frames:,}")
        self.flush()


def _text(lines: dict[str, int]) -> str:
    more = lines.pop("", 0)
    return "\n".join([*lines, f"and {more:,} more"] if more else lines)


def _begin(name: str) -> float:
    try:
        with open(name, "rb") as file:
            return first_time(file)
    except OSError:
        return float("-inf")
