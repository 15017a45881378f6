"""The expression language of ``--filter`` in all commands: ``type == publish and topic matches "a/#"``.

=========  ==================================================================================================
compile    an expression to a `Filter`; raises `FilterError` with the place of the mistake
field      part of an event that an expression can test; names are the keys of the JSON form
absent     a field that an event does not have: every comparison with it is false
=========  ==================================================================================================

``parser`` reads expressions, ``fields`` defines the fields, ``literals`` reads values, ``evaluate`` checks types and
builds closures from ``operators``.  The language is documented in ``docs/filters.md``.
"""

from __future__ import annotations

from mqttscope.events import Event, MalformedEvent, PacketEvent
from mqttscope.filter.evaluate import build
from mqttscope.filter.fields import FieldKind, FilterField, lookup, names
from mqttscope.filter.parser import FilterError
from mqttscope.payloads.decoders import Decoders
from mqttscope.session.capture_time import captured

__all__ = ["FieldKind", "Filter", "FilterError", "FilterField", "compile", "lookup", "names"]

ACKNOWLEDGED = "tcp_acknowledged"
"""The field that requires a second reading of the captures."""
_OF_THE_RUN = ("connection", "packet", ACKNOWLEDGED)
"""Fields with values that depend on all captures of a run."""


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

        Relative times count from the timestamp of the first event passed in.
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
        """Whether it depends on the run as a whole: its numbers, or the time of its first event."""
        remembers = self._observed is not None
        return remembers or self._origin is not None or not self.asked.isdisjoint(_OF_THE_RUN)

    @property
    def asks_payloads(self) -> bool:
        """Whether it tests decoded fields of payloads."""
        return self._source is not None

    def use(self, payloads: Decoders) -> None:
        """Decode payloads with these decoders; the default decodes JSON and known content types."""
        if self._source is not None:
            self._source.decoders = payloads
            self._observed = payloads if payloads.remembers else None

    @property
    def start_ns(self) -> int | None:
        """Origin of relative times; ``None`` before the first event, and without relative times."""
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
    compiled = Filter(text, payloads)
    compiled.start_ns = start_ns
    return compiled


def compile(text: str, payloads: Decoders | None = None) -> Filter:  # noqa: A001 - filter.compile reads as re.compile
    """Compile an expression; FilterError shows what is wrong and where.

    ``payloads``: decoders for expressions with fields of payloads.
    """
    return Filter(text, payloads)
