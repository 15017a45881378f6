"""Validates Topic Names and Topic Filters, and matches filters with names.

Sections 4.7 (names, filters, wildcards) and 4.8.2 (Shared Subscriptions) of 5.0; 4.7 of 3.1.1 is equal, without
shares.  Matching compares characters exactly: no case folding, no Unicode normalisation, no collapsing of empty
levels (5.0 MQTT-4.7.3-4).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from operator import eq
from typing import Final

MAX_TOPIC_BYTES: Final = 65_535
"""Longest Topic Name or Topic Filter in bytes of UTF-8 (5.0 4.7.3)."""
SHARE: Final = "$share"
"""First level that marks the Topic Filter of a Shared Subscription (5.0 4.8.2)."""
MAX_PATTERN_LEVELS: Final = 64
"""Wildcard filters of more levels are matched level by level; building a pattern for them costs more than it gains."""
FILTER_PROBLEMS: Final = {
    "empty": "it is empty",
    "too_long": "it is longer than 65535 bytes",
    "null_character": "it contains the null character",
    "hash_not_last": "# must be the last level",
    "hash_not_alone": "# must be alone in its level",
    "plus_not_alone": "+ must be alone in its level",
    "share_name_missing": "$share/ must be followed by a share name",
    "share_name_invalid": "the share name contains + or #",
    "share_filter_missing": "the share name must be followed by a filter",
}
"""Descriptions of the results of `topic_filter_problem`."""


def utf8_length(text: str) -> int:
    """Length of text in UTF-8 as sent; an escaped ill-formed byte counts as one byte."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return len(text.encode("utf-8", "surrogatepass"))


def _common_problem(text: str) -> str | None:
    """A problem that both names and filters can have (5.0 4.7.3)."""
    if not text:
        return "empty"
    if len(text) > MAX_TOPIC_BYTES // 4 and utf8_length(text) > MAX_TOPIC_BYTES:
        return "too_long"
    return "null_character" if "\0" in text else None


def topic_name_problem(topic: str) -> str | None:
    """Reason why ``topic`` is not a valid Topic Name; ``None`` if it is valid.

    ``empty``, ``too_long`` (more than `MAX_TOPIC_BYTES`), ``null_character``, ``wildcard`` (``+`` or ``#`` anywhere,
    5.0 4.7.1).  The first of these that applies, in this order.  A PUBLISH with a Topic Alias may nevertheless have an
    empty Topic Name field.
    """
    problem = _common_problem(topic)
    if problem is None and ("+" in topic or "#" in topic):
        return "wildcard"
    return problem


def topic_filter_problem(filter: str, *, shared: bool = True) -> str | None:  # noqa: A002 - the specification's word
    """Reason why ``filter`` is not a valid Topic Filter; ``None`` if it is valid.

    ``empty``, ``too_long``, ``null_character``; then for the filter of a Shared Subscription ``share_name_missing``,
    ``share_name_invalid`` (``+`` or ``#`` in it), ``share_filter_missing``; then, at the first level that breaks the
    rules of wildcards, ``hash_not_alone`` or ``plus_not_alone`` (beside other characters in its level) or
    ``hash_not_last``.  ``shared=False`` takes ``$share`` for an ordinary level, as 3.1.1 does.
    """
    problem = _common_problem(filter)
    if problem is not None:
        return problem
    if shared and (filter == SHARE or filter.startswith("$share/")):
        name, _, rest = filter[len(SHARE) + 1 :].partition("/")
        if not name:
            return "share_name_missing"
        if "+" in name or "#" in name:
            return "share_name_invalid"
        if not rest:
            return "share_filter_missing"
        filter = rest  # noqa: A001
    return _wildcard_problem(filter)


def _wildcard_problem(filter: str) -> str | None:  # noqa: A002
    if "+" not in filter and "#" not in filter:
        return None
    levels = filter.split("/")
    last = len(levels) - 1
    for index, level in enumerate(levels):
        if "#" in level:
            if len(level) > 1:
                return "hash_not_alone"
            if index < last:
                return "hash_not_last"
        elif "+" in level and len(level) > 1:
            return "plus_not_alone"
    return None


def is_valid_topic_name(topic: str) -> bool:
    return topic_name_problem(topic) is None


def is_valid_topic_filter(filter: str, *, shared: bool = True) -> bool:  # noqa: A002
    return topic_filter_problem(filter, shared=shared) is None


def parse_shared(filter: str) -> tuple[str, str] | None:  # noqa: A002
    """ShareName and Topic Filter of a Shared Subscription (5.0 4.8.2).

    ``None`` for an ordinary filter, and for one that begins with ``$share`` but lacks a valid ShareName or a filter.
    The filter after the ShareName is not validated.
    """
    if not filter.startswith("$share/"):
        return None
    name, _, rest = filter[len(SHARE) + 1 :].partition("/")
    if not name or not rest or "+" in name or "#" in name:
        return None
    return name, rest


def matches(filter: str, topic: str, *, shared: bool = True) -> bool:  # noqa: A002
    """Whether a Topic Filter matches a Topic Name (5.0 4.7).

    ``$share/ShareName/`` is removed first unless ``shared`` is false.  An invalid filter matches nothing,
    and nothing matches the empty name; the name is not validated otherwise.
    """
    if not topic or topic_filter_problem(filter, shared=shared) is not None:
        return False
    if shared and filter.startswith("$share/"):
        filter = filter.split("/", 2)[2]  # noqa: A001
    return _match_levels(filter.split("/"), topic)


def _match_levels(wanted: list[str], topic: str) -> bool:
    first = wanted[0]
    if topic[:1] == "$" and first in ("+", "#"):
        return False  # 5.0 MQTT-4.7.2-1
    count = len(wanted)
    levels = topic.split("/", count)
    if wanted[-1] == "#":
        count -= 1
        if len(levels) < count:
            return False
    elif len(levels) != count:
        return False
    return all(wanted[index] in (levels[index], "+") for index in range(count))


def compile_filter(filter: str, *, shared: bool = True) -> Callable[[str], bool]:  # noqa: A002
    """`matches` for one filter and many names: a function from a Topic Name to whether the filter matches it.

    Never raises; for an invalid filter the function returns false for every name.
    """
    if topic_filter_problem(filter, shared=shared) is not None:
        return _nothing
    if shared and filter.startswith("$share/"):
        filter = filter.split("/", 2)[2]  # noqa: A001
    if filter == "#":
        return _everything
    plain, _, tail = filter.rpartition("/")
    if "+" not in filter:
        return partial(_below, plain, plain + "/") if tail == "#" else partial(eq, filter)
    wanted = filter.split("/")
    if len(wanted) > MAX_PATTERN_LEVELS:
        return partial(_match_nonempty, wanted)
    return partial(_match_pattern, re.compile(_pattern(wanted), re.DOTALL).fullmatch)


def _pattern(wanted: list[str]) -> str:
    # Possessive: the regular expression never backtracks into a level.
    levels = ["[^/]*+" if level == "+" else re.escape(level) for level in wanted]
    if wanted[0] == "+":
        levels[0] = r"(?!\$|\Z)[^/]*+"
    if wanted[-1] != "#":
        return "/".join(levels)
    return "/".join(levels[:-1]) + "(?:/.*)?"


def _nothing(topic: str) -> bool:
    return False


def _everything(topic: str) -> bool:
    return topic[:1] not in ("$", "")


def _below(parent: str, prefix: str, topic: str) -> bool:
    return topic.startswith(prefix) or (topic == parent and topic != "")


def _match_pattern(fullmatch: Callable[[str], object], topic: str) -> bool:
    return fullmatch(topic) is not None


def _match_nonempty(wanted: list[str], topic: str) -> bool:
    return topic != "" and _match_levels(wanted, topic)
