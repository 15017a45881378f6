"""The expression language of ``--filter``, the same in every command: ``type == publish and topic matches "a/#"``.

=========  ==================================================================================================
compile    an expression to a `Filter`; raises `FilterError` with the place of the mistake
field      what an expression can ask for; names are the keys of the JSON form
absent     a field that an event does not have: every comparison with it is false
=========  ==================================================================================================

``parser`` reads expressions, ``fields`` knows what they can ask for, ``literals`` reads values, ``evaluate`` checks
types and makes closures of ``operators``.  The language is documented in ``docs/filters.md``.
"""

from __future__ import annotations

from mqttscope.events import Event, MalformedEvent, PacketEvent
from mqttscope.filter.evaluate import build
from mqttscope.filter.fields import Field, FieldKind, lookup, names
from mqttscope.filter.parser import FilterError
from mqttscope.payloads.decoders import Decoders
from mqttscope.session.capture_time import captured

__all__ = ["Field", "FieldKind", "Filter", "FilterError", "compile", "lookup", "names"]

ACKNOWLEDGED = "tcp_acknowledged"
"""The field that captures are read a second time for."""
_OF_THE_RUN = ("connection", "packet", ACKNOWLEDGED)
"""Fields of which the captures as a whole decide."""


class Filter:
    """A compiled expression."""

    __slots__ = ("_observed", "_origin", "_source", "_test", "asked", "text")

    def __init__(self, text: str, payloads: Decoders | None = None) -> None:
        self.text = text
        self._observed: Decoders | None = None
        built = build(text)
        self._test, self._origin, self.asked, self._source = built.test, built.origin, built.asked, built.source
        if payloads is not None:
            self.use(payloads)

    def matches(self, event: Event) -> bool:
        """Whether the expression is true for the event.

        Relative times count from the timestamp of the first event that was asked about.
        """
        origin = self._origin
        if origin is not None and origin.timestamp_ns is None:
            origin.timestamp_ns = captured(getattr(event, "timestamp_ns", None))
        if self._observed is not None:
            self._observed.observe(event)
        kind = type(event)
        if kind is PacketEvent:
            return self._test(event, event.packet)  # type: ignore[union-attr]
        if kind is MalformedEvent:
            return self._test(event, event.malformed.packet)  # type: ignore[union-attr]
        return self._test(event, None)

    @property
    def is_of_the_run(self) -> bool:
        """Whether it asks for what is known of a run as a whole: its numbers, and the time at which it begins."""
        remembers = self._observed is not None
        return remembers or self._origin is not None or not self.asked.isdisjoint(_OF_THE_RUN)

    @property
    def asks_payloads(self) -> bool:
        """Whether it asks for fields of what payloads hold."""
        return self._source is not None

    def use(self, payloads: Decoders) -> None:
        """Decode payloads with these decoders; without them, JSON and what content types name is decoded."""
        if self._source is not None:
            self._source.decoders = payloads
            self._observed = payloads if payloads.remembers else None

    @property
    def start_ns(self) -> int | None:
        """What relative times count from; ``None`` before the first event and where there are no relative times."""
        return None if self._origin is None else self._origin.timestamp_ns

    @start_ns.setter
    def start_ns(self, timestamp_ns: int | None) -> None:
        if self._origin is not None:
            self._origin.timestamp_ns = timestamp_ns

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.text, self.start_ns, None if self._source is None else self._source.decoders)

    def __repr__(self) -> str:
        return f"Filter({self.text!r})"


def _rebuild(text: str, start_ns: int | None, payloads: Decoders | None = None) -> Filter:
    made = Filter(text, payloads)
    made.start_ns = start_ns
    return made


def compile(text: str, payloads: Decoders | None = None) -> Filter:  # noqa: A001 - filter.compile reads as re.compile
    """Compile an expression; FilterError shows what is wrong with it and where.

    ``payloads``: what decodes payloads, where the expression asks for fields of these.
    """
    return Filter(text, payloads)
