"""A sink of comments on frames."""

from __future__ import annotations


class Comments:
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, str]] = []
        self.about = ""

    def write(self, data: bytes, /) -> object:
        """Nothing but comments is written."""
        raise AssertionError(data)

    def comment(self, capture: str, frame: int, text: str) -> None:
        """Keep a comment."""
        self.rows.append((capture, frame, text))

    def finish(self, about: str) -> None:
        """Keep the comment of the section."""
        self.about = about
