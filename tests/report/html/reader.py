"""Reads pages as a browser would: tags, attributes, text, and the documents of their rows."""

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
        self.texts: list[str] = []

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
        self.texts.append(data)


def read(page: bytes) -> Reader:
    reader = Reader()
    reader.feed(page.decode())
    reader.close()
    assert reader.open == []
    return reader


def documents(page: bytes) -> list[Any]:
    """The JSON documents of the rows, in the order of the page."""
    return [json.loads(hit) for hit in re.findall(rb"<code>(.*?)</code>", page)]


def rows(page: bytes) -> list[str]:
    """The rows of the list: lines of markup."""
    blocks = re.findall(r'<noscript class="rows">\n(.*?)\n</noscript>', page.decode(), re.S)
    return [line for block in blocks for line in block.split("\n")]
