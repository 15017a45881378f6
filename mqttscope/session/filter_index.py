"""Topic Filters by their levels, so that finding those that match a topic costs nothing for all the others.

A tree: each edge is a run of levels that filters have in common, ``+`` among them, as long as possible; filters that
end in ``#`` stand at the node of the levels before it.  A filter of thousands of levels is one edge until another one
parts from it, so that the tree is not larger than the filters.  Whoever looks a topic up goes from node to node with
all that still may match, at most two ways from each: by the level itself, and by ``+``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

from mqttscope.mqtt.topics import topic_filter_problem


@dataclass(slots=True)
class Node:
    """What filters have in common up to here."""

    label: str = ""
    """The levels since the node before, with ``/`` between them; the root has none."""
    names: dict[str, bool] = field(default_factory=dict)
    """Filters that end here."""
    below: dict[str, bool] = field(default_factory=dict)
    """Filters that continue with ``#`` alone."""
    children: dict[str, Node] = field(default_factory=dict)
    """By the first level of their label."""


@dataclass(slots=True)
class FilterIndex:
    """Topic Filters under names of their own, found by the topics that they match."""

    root: Node = field(default_factory=Node)
    known: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Place in the order of arrival, and filter, by name."""
    arrived: int = 0
    visited: int = 0
    """Nodes that were looked at so far: the work that was done."""

    def __len__(self) -> int:
        return len(self.known)

    def add(self, name: str, topic_filter: str) -> None:
        """Take a filter; a name that is known keeps its place.  Filters that are not valid match nothing."""
        before = self.known.get(name)
        if before is not None:
            if before[1] == topic_filter:
                return
            place = before[0]
            self._remove(name, before[1])
        else:
            place = self.arrived = self.arrived + 1
        self.known[name] = place, topic_filter
        if topic_filter_problem(topic_filter, shared=False) is None:
            path, below = _path(topic_filter)
            node = self._reach(path)
            (node.below if below else node.names)[name] = True

    def discard(self, name: str) -> None:
        """Forget a filter."""
        before = self.known.pop(name, None)
        if before is not None:
            self._remove(name, before[1])

    def match(self, topic: str, most: int | None = None) -> list[str]:
        """Names of the filters that match a topic, in the order of their arrival; at most that many, any of them."""
        if not topic:
            return []
        found: list[str] = []
        size, hidden = len(topic), topic[0] == "$"  # 5.0 MQTT-4.7.2-1
        if not hidden:
            found += islice(self.root.below, most)
        todo = [(self.root, 0)]
        while todo and (most is None or len(found) < most):
            node, at = todo.pop()
            self.visited += 1
            end = topic.find("/", at)
            level = topic[at:] if end < 0 else topic[at:end]
            children = node.children
            for one in (children.get(level), children.get("+") if level != "+" and (at or not hidden) else None):
                if one is None:
                    continue
                after = _behind(one.label, topic, at, size)
                if after < 0:
                    continue
                if one.below:
                    found += islice(one.below, most)
                if after > size:
                    found += islice(one.names, most)
                elif one.children:
                    todo.append((one, after))
        if len(found) > 1:
            known = self.known
            found.sort(key=lambda name: known[name][0])
        return found if most is None else found[:most]

    def overlapping(self, topic_filter: str, most: int) -> tuple[list[str], int]:
        """Names of the filters that match a topic which this filter matches too, and how many nodes were looked at.

        They are in the order of their arrival.  At most that many nodes are looked at; where there is more, those are
        found that come up first.
        """
        if topic_filter_problem(topic_filter, shared=False) is not None:
            return [], 0
        wanted = topic_filter.split("/")
        last = len(wanted)
        found = list(islice(self.root.below, most)) if wanted[0][:1] != "$" else []
        todo = [(self.root, 0, 0)]
        left = most
        while todo and left > 0 and len(found) < most:
            node, at, above = todo.pop()
            if at == last:
                continue
            level = wanted[at]
            if level in ("+", "#"):
                children = list(islice(node.children.values(), left))
            else:
                children = [one for one in (node.children.get(level), node.children.get("+")) if one is not None]
            left -= len(children) + 1
            self.visited += len(children) + 1
            for child in children:
                if not at and _hides(child.label, level):
                    continue
                after = _along(child.label, wanted, at)
                if after < 0:
                    continue
                depth = above + child.label.count("/") + 1
                # `#` takes the level above it as well, but no topic is empty.
                nothing = depth == 1 and (not wanted[0] or not child.label)
                if after < last or not nothing:
                    found += islice(child.below, most)
                if after == last or (wanted[after] == "#" and not (nothing and after == depth)):
                    found += islice(child.names, most)
                if child.children:
                    todo.append((child, after, depth))
        known = self.known
        found.sort(key=lambda name: known[name][0])
        return found, most - left

    def _reach(self, path: str | None) -> Node:
        """The node of these levels, made where there is none."""
        node = self.root
        rest = path
        while rest is not None:
            level = rest.partition("/")[0]
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = Node(rest)
                return child
            common = _common(child.label, rest)
            if common < len(child.label):
                # They part within the label: the levels before become a node of their own.
                upper = Node(child.label[:common])
                child.label = child.label[common + 1 :]
                upper.children[child.label.partition("/")[0]] = child
                node.children[level] = child = upper
            rest = None if common == len(rest) else rest[common + 1 :]
            node = child
        return node

    def _remove(self, name: str, topic_filter: str) -> None:
        if topic_filter_problem(topic_filter, shared=False) is not None:
            return
        path, below = _path(topic_filter)
        way: list[tuple[Node, str]] = []
        node, rest = self.root, path
        while rest is not None:
            level = rest.partition("/")[0]
            way.append((node, level))
            node = node.children[level]
            rest = None if len(rest) == len(node.label) else rest[len(node.label) + 1 :]
        del (node.below if below else node.names)[name]
        while way and not node.names and not node.below:
            parent, level = way.pop()
            if not node.children:
                del parent.children[level]
            elif len(node.children) == 1:
                (child,) = node.children.values()
                child.label = f"{node.label}/{child.label}"
                parent.children[level] = child
                return
            else:
                return
            node = parent


def _path(topic_filter: str) -> tuple[str | None, bool]:
    """The levels before ``#``, ``None`` for none at all, and whether there is a ``#``."""
    if topic_filter == "#":
        return None, True
    if topic_filter.endswith("/#"):
        return topic_filter[:-2], True
    return topic_filter, False


def _common(one: str, other: str) -> int:
    """How many characters of whole levels two runs of levels have in common; the first level always is."""
    if one == other:
        return len(one)
    at = -1
    while True:
        first, second = one.find("/", at + 1), other.find("/", at + 1)
        first, second = first if first >= 0 else len(one), second if second >= 0 else len(other)
        if first != second or one[at + 1 : first] != other[at + 1 : second]:
            return at
        at = first
        if at == len(one) or at == len(other):
            return at


def _hides(label: str, level: str) -> bool:
    """Whether one of two first levels begins with ``$`` and the other one is a wildcard (5.0 MQTT-4.7.2-1)."""
    first = label.partition("/")[0]
    return (first[:1] == "$" and level in ("+", "#")) or (first == "+" and level[:1] == "$")


def _along(label: str, wanted: list[str], at: int) -> int:
    """How many levels of a filter are used up after a label, that of a last ``#`` never; -1: no topic is in both."""
    last = len(wanted)
    for level in label.split("/"):
        if at == last:
            return -1
        other = wanted[at]
        if other == "#":
            return at
        if other != level and "+" not in (other, level):
            return -1
        at += 1
    return at


def _behind(label: str, topic: str, at: int, size: int) -> int:
    """Where the next level of a topic begins after a label, past the end where there is none; -1: no match."""
    if "+" not in label:
        end = at + len(label)
        if not topic.startswith(label, at):
            return -1
        return end + 1 if end == size or topic[end] == "/" else -1
    for level in label.split("/"):
        if at > size:
            return -1
        end = topic.find("/", at)
        end = size if end < 0 else end
        if level != "+" and (end - at != len(level) or not topic.startswith(level, at)):
            return -1
        at = end + 1
    return at
