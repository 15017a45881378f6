"""Numbers of cases over all connections of a capture, and the hash by which a capture is known again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from mqttscope.mutate import Case, Flow, NotApplicable, case, cases, select
from mqttscope.replay.script import Script


def capture_hash(scripts: Iterable[Script]) -> str:
    """Hash of what was said on the connections: the same for every file format and compression of one capture."""
    made = sha256(b"mqttscope capture 1")
    for script in scripts:
        made.update(b"connection %s" % script.version.text.encode())
        for entry in script.entries:
            made.update(b"%c%d:" % (b">" if entry.from_client else b"<", len(entry.raw)))
            made.update(entry.raw)
    return made.hexdigest()


@dataclass(slots=True, frozen=True)
class Numbered:
    """A case with its number in the capture."""

    number: int
    index: int
    """Of its connection among all flows."""
    case: Case


@dataclass(slots=True)
class Numbering:
    """The cases of a capture: all mutations of the first flow, those of the next, and then a second turn."""

    flows: Sequence[Flow]
    """All flows of the capture, whichever are asked for: numbers must not depend on that."""
    seed: int
    sender: str

    def counts(self) -> list[int]:
        """How many mutations there are for each flow."""
        return [len(select(version=flow.version, sender=self.sender)) for flow in self.flows]

    def of(self, number: int) -> Numbered:
        """The case of a number; `NotApplicable` where its mutation has nothing to do in its flow."""
        counts = self.counts()
        turn, place = divmod(number, sum(counts))
        for index, count in enumerate(counts):
            if place < count:
                flow = self.flows[index]
                return Numbered(number, index, case(flow, self.seed, turn * count + place, sender=self.sender))
            place -= count
        raise NotApplicable("there is no such case")

    def cases(self, pattern: str, chosen: Iterable[int], turns: int = 1, *, begin: int = 0) -> Iterator[Numbered]:
        """The applicable cases of a pattern on chosen flows, in the order of their numbers, from a turn on."""
        counts, wanted = self.counts(), set(chosen)
        for turn in range(begin, begin + turns):
            first = turn * sum(counts)
            for index, count in enumerate(counts):
                if index in wanted:
                    flow, start = self.flows[index], turn * count
                    for one in cases(flow, self.seed, pattern, sender=self.sender, start=start):
                        yield Numbered(first + one.number - start, index, one)
                first += count
