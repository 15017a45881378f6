"""Reads pages as a browser would: tags, attributes, text, and the blocks of JSON in them."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

ALONE = {"meta"}


class Reader(HTMLParser):
    """Tags, their attributes and the text of a page; every tag is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.said: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag not in ALONE:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.said.append(data)


def read(page: bytes) -> Reader:
    reader = Reader()
    reader.feed(page.decode())
    reader.close()
    assert reader.open == []
    return reader


def blocks(page: bytes, kind: str) -> list[Any]:
    """The rows of a kind, of all their blocks."""
    pattern = rb'<script type="application/json" class="%s">(.*?)</script>' % kind.encode()
    return [row for found in re.findall(pattern, page, re.S) for row in json.loads(found)]
