"""Models: knowledge beyond one connection that several rules share.

A model belongs to a key, as the memory of a rule does: to a session or to a server.  A rule names the models that it
reads (``Rule.models``) and gets them from `RuleContext.model`.  The engine updates a model with each event after all
rules have judged the event, so rules find it in the state before the event, like the connection.
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
    """State of one key.  Subclasses are bounded dataclasses of plain data, with defaults for all fields."""

    code: ClassVar[str]
    """A word that no other model has; codes of rules are never words."""
    scope: ClassVar[Scope]
    """The kind of key; rules that read the model have the same scope."""
    looks_at: ClassVar[tuple[type[ControlPacket], ...]] = ()
    """Packet classes that ``follow`` is called for."""
    when: ClassVar[dict[type[ControlPacket], str]] = {}
    """Restricts a packet class to packets with this attribute true, or with this sign (`signs.SIGNS`)."""
    Memory: ClassVar[Any]
    """The class itself: created for a new key."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        # Called twice for a dataclass with slots, which creates the class again.
        cls.Memory = cls

    def follow(self, packet: Any, at: RuleContext) -> None:
        """Handle a packet; connection and history are in the state before it."""

    def opened(self, connection: Connection, at: RuleContext) -> None:
        """Handle the first event of a connection."""

    def gap(self, event: GapEvent, at: RuleContext) -> None:
        """Handle lost bytes of a connection."""

    def unparsed(self, unparsed: Unparsed, at: RuleContext) -> None:
        """Handle bytes of a connection that belong to no packet."""

    def damaged(self, packet: Malformed, at: RuleContext) -> None:
        """Handle a malformed packet; if it could be read to its end, ``follow`` is called as well."""

    def due(self, connection: Connection, at: RuleContext) -> None:
        """Handle the time that the model asked for (`RuleContext.ask`)."""

    def closed(self, connection: Connection, at: RuleContext) -> None:
        """Handle the end of a connection."""

    @property
    def has_room(self) -> bool:
        """Whether everything could be followed; if not, rules may miss findings (`Linter.limit_sentences`)."""
        return True
