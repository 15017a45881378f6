"""What several rules have to know beyond one connection, followed once for all of them.

A model belongs to a key as the memory of a rule does: to a session or to a server.  A rule names the models that it
reads (``Rule.models``) and gets the one of its key by `RuleContext.model`.  The engine moves a model on by each event
after all rules have judged it, so that rules find it in the state before the event, like the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from mqttscope.lint.finding import Scope

if TYPE_CHECKING:
    from mqttscope.events import GapEvent
    from mqttscope.lint.context import RuleContext
    from mqttscope.mqtt.declare import ControlPacket, Malformed
    from mqttscope.mqtt.stream import Unparsed
    from mqttscope.session.connection import Connection


class Model:
    """State of one key.  Subclasses are dataclasses of plain data, bounded, and begin with defaults alone."""

    code: ClassVar[str]
    """A word that no other model has; codes of rules are no words."""
    scope: ClassVar[Scope]
    """Whose state it is; rules that read it have the same scope."""
    looks_at: ClassVar[tuple[type[ControlPacket], ...]] = ()
    """Packet classes that ``follow`` is called for."""
    when: ClassVar[dict[type[ControlPacket], str]] = {}
    """Of these packet classes only those packets of which this attribute is true, or which bear this sign
    (`signs.SIGNS`)."""
    Memory: ClassVar[Any]
    """The class itself: what is made for a key that is new."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        # Twice, where a dataclass with slots is made of the class.
        cls.Memory = cls

    def follow(self, packet: Any, at: RuleContext) -> None:
        """Move on by a packet; connection and history are in the state before it."""

    def opened(self, connection: Connection, at: RuleContext) -> None:
        """A connection is seen for the first time."""

    def gap(self, event: GapEvent, at: RuleContext) -> None:
        """Bytes of a connection are lost."""

    def unparsed(self, unparsed: Unparsed, at: RuleContext) -> None:
        """Bytes of a connection belong to no packet."""

    def damaged(self, found: Malformed, at: RuleContext) -> None:
        """A packet breaks the layout; where it can be read to its end, ``follow`` comes as well."""

    def due(self, connection: Connection, at: RuleContext) -> None:
        """The time has come that the model asked for (`RuleContext.ask`)."""

    def closed(self, connection: Connection, at: RuleContext) -> None:
        """A connection has ended."""

    @property
    def has_room(self) -> bool:
        """Whether all that there was could be followed; if not, rules judge less of it (`Linter.limits_told`)."""
        return True
