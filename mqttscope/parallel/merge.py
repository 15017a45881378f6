"""Puts in order what several processes say, each in its own order, with little memory.

A process sends `Batch` after `Batch`: entries with their places, and how far it is.  What lies before the place that
all have come to is complete, and `Merge.take` gives it in order.  A process that is ahead has a bounded number of bytes
waiting here; beyond that it waits itself.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from mqttscope.budget import unfinished_bytes
from mqttscope.net.flow_expiry import MAX_FLOWS
from mqttscope.parallel.crew import END, Crew, Outlet, unpickled
from mqttscope.parallel.walk import IndivisibleError, Rank, Walk

BATCH_BYTES: Final = 1 << 18
"""About so much goes into one batch."""
ENTRY_BYTES: Final = 128
"""What an entry counts beside its text."""
AHEAD_BYTES: Final = 8 << 20
"""So much of a process that is ahead waits for the others."""
EVERYTHING: Final = 1 << 62
"""The place that a process has come to which is done."""

Columns = tuple[list[int], list[Any], list[int], list[Any]]
"""Places, and three columns whose meaning is that of who sends and takes them: of lines a text, a number, and more."""


Entries = tuple[list[int], list[int], list[Any], list[int], list[Any]]
"""In which order they are to be taken, and the same."""


@dataclass(slots=True)
class Batch:
    """What a process has to say of some frames."""

    done: int
    """Place before which it has nothing more to say."""
    flows: int
    """It has no more flows at any time in between."""
    buffered: int
    """It holds no more bytes for flows."""
    limited: int
    """Of other things whose number is limited, as many as it may have had in memory."""
    entries: Columns
    ranks: dict[int, Rank] = field(default_factory=dict)
    """Of entries, by their place in the list, that other processes may have entries at the place of."""
    size: int = 0


class Sender:
    """Gathers the entries of a process, and sends them."""

    def __init__(self, outlet: Outlet, walk: Walk) -> None:
        self._outlet = outlet
        self.walk = walk
        self._opened = self._flows = self._limited = 0
        self.limited = 0
        """How many there are now of what is limited in number; the sender reckons with one more for each entry."""
        self.size = 0
        self._renew()

    def _renew(self) -> None:
        self.places: list[int] = []
        self.texts: list[Any] = []
        self.codes: list[int] = []
        self.more: list[Any] = []
        self.ranks: dict[int, Rank] = {}
        self.size = 0

    def add(self, text: str, code: int, more: Any, size: int = 0) -> None:
        """Add an entry at the place of the event at hand."""
        walk = self.walk
        if walk.rank is not None:
            self.ranks[len(self.places)] = walk.rank
        self.places.append(walk.place)
        self.texts.append(text)
        self.codes.append(code)
        self.more.append(more)
        self.size += ENTRY_BYTES + size
        if self.size >= BATCH_BYTES:
            self.send(walk.place)

    def send(self, done: int) -> None:
        """Send what was gathered: nothing more comes before a place."""
        flows = self.walk.dissector.flows
        # What was reached in between is at most what was there before, and all that came.
        bounds = (
            self._flows + flows.opened_flows - self._opened,
            flows.budget.most,
            self._limited + len(self.places),
        )
        # As a plain tuple: `marshal` takes several times as long for many texts.
        self._outlet.send(pickle.dumps((done, *bounds, self.columns(), self.ranks), pickle.HIGHEST_PROTOCOL))
        self._opened, self._flows, self._limited = flows.opened_flows, len(flows.flows), self.limited
        flows.budget.most = flows.budget.used
        self._renew()

    def columns(self) -> Columns:
        return self.places, self.texts, self.codes, self.more


def read_batch(message: bytes | bytearray) -> Batch:
    """A batch as `Sender` sent it."""
    done, flows, buffered, limited, entries, ranks = pickle.loads(message)
    return Batch(done, flows, buffered, limited, entries, ranks, len(message))


class _Queue:
    """What waits of one process."""

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque()
        self.start = 0
        """Entries of the first batch that were taken."""
        self.done = 0
        self.size = 0


class Merge:
    """What waits of all processes."""

    def __init__(self, count: int, *, max_limited: int | None = None) -> None:
        """``max_limited``: the limit for what batches count as ``limited``."""
        self._queues = [_Queue() for _ in range(count)]
        self._max_limited = EVERYTHING if max_limited is None else max_limited
        self._unfinished_bytes = unfinished_bytes()
        self.most_bytes = 0
        """The most bytes of messages that ever waited."""

    def has_room(self, number: int) -> bool:
        """Whether more is to be read of a process: always of the one that is furthest back."""
        queue = self._queues[number]
        return queue.size < AHEAD_BYTES or queue.done == min(one.done for one in self._queues)

    def add(self, number: int, batch: Batch) -> None:
        """Take a batch of a process."""
        queue = self._queues[number]
        queue.batches.append(batch)
        queue.size += batch.size
        queue.done = batch.done
        self.most_bytes = max(self.most_bytes, sum(one.size for one in self._queues))

    def take(self) -> Iterator[Entries]:
        """Entries that are complete, in order, in pieces."""
        bound = min(one.done for one in self._queues)
        places: list[int] = []
        texts: list[Any] = []
        codes: list[int] = []
        more: list[Any] = []
        ranks: dict[int, Rank] = {}
        owners: list[tuple[int, int]] = []
        limits = [0, 0, 0]
        for number, queue in enumerate(self._queues):
            most = [0, 0, 0]
            while queue.batches:
                batch, start = queue.batches[0], queue.start
                found = batch.entries
                stop = bisect_left(found[0], bound, start)
                for at, value in enumerate((batch.flows, batch.buffered, batch.limited)):
                    most[at] = max(most[at], value)
                if batch.ranks:
                    base = len(places) - start
                    ranks.update((base + at, rank) for at, rank in batch.ranks.items() if start <= at < stop)
                places += found[0][start:stop]
                texts += found[1][start:stop]
                codes += found[2][start:stop]
                more += found[3][start:stop]
                queue.start = stop
                if stop < len(found[0]) or batch.done > bound:
                    break
                queue.batches.popleft()
                queue.size -= batch.size
                queue.start = 0
            owners.append((len(places), number))
            limits = [one + other for one, other in zip(limits, most, strict=True)]
        if limits[0] >= MAX_FLOWS or limits[1] > self._unfinished_bytes or limits[2] >= self._max_limited:
            raise IndivisibleError("a limit for all flows together may be reached")
        if not places:
            return
        if ranks:
            order = _ranked(places, ranks, owners)
        else:
            order = sorted(range(len(places)), key=places.__getitem__)
        yield order, places, texts, codes, more


def gather(crew: Crew, take: Callable[[Entries], None], *, max_limited: int | None = None) -> Any:
    """Take the entries of all processes in order; returns what each of them returned."""
    merge = Merge(crew.count, max_limited=max_limited)
    returned: list[Any] = []
    for number, kind, message in crew.messages(merge.has_room):
        if kind == END:
            returned.append(unpickled(message))
            continue
        merge.add(number, read_batch(message))
        for entries in merge.take():
            take(entries)
    return returned


def _ranked(places: list[int], ranks: dict[int, Rank], owners: list[tuple[int, int]]) -> list[int]:
    """The order of entries by place and rank; what two processes say at one place with one rank has no order."""
    nothing: Rank = ()
    order = sorted(range(len(places)), key=lambda at: (places[at], ranks.get(at, nothing)))
    starts = [stop for stop, _ in owners]
    for one, other in pairwise(order):
        rank = ranks.get(one)
        if rank is not None and places[one] == places[other] and rank == ranks.get(other):
            owner = [bisect_left(starts, at + 1) for at in (one, other)]
            if owner[0] != owner[1]:
                raise IndivisibleError("flows of two captures end in an order that only one process knows")
    return order
