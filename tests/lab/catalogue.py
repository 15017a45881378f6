"""What is planted, and what is true then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mqttscope.explain.fates import Fate
from mqttscope.explain.model import QUIET, Cause
from tests.lab.clients import PLAIN, TLS, WEBSOCKET
from tests.lab.rig import AMQTT, COMMAND, MOSQUITTO, PAHO, RAW, Lab
from tests.lab.wire import CLIENT, SERVER

ANY = "*"
"""In a truth, the client that sent no CONNECT."""
BOTH = ("3.1.1", "5.0")
ALL_TRANSPORTS = (PLAIN, WEBSOCKET, TLS)
BARE_ENDS = frozenset((
    Cause.CLIENT_CLOSED, Cause.CLIENT_RESET, Cause.SERVER_CLOSED, Cause.SERVER_RESET, Cause.CLIENT_DISCONNECT,
    Cause.SERVER_DISCONNECT,
))  # fmt: skip
"""They say who closed and how, and no reason: nothing that is planted contradicts them."""
MODEST = QUIET | BARE_ENDS
"""What a capture that lacks something may leave it at."""
LATE, SHORT, CLOCK, ONE_WAY = "begins late", "snapped", "clock set", "one direction"


@dataclass(slots=True)
class Truth:
    """What `explain` has to say about one case."""

    causes: dict[str, frozenset[Cause]] = field(default_factory=dict)
    """Right first causes, by Client Identifier; `ANY` for a connection without one."""
    also: frozenset[Cause] = frozenset()
    """Causes that may stand further down."""
    fates: dict[str, frozenset[Fate]] = field(default_factory=dict)
    """Right fates of the last message to the topic, by client."""
    topic: str = ""
    guilty: frozenset[str] = frozenset()
    """Sides that really break the protocol: the linter may find errors of them."""
    afterwards: str = ""
    """A word of what came of the first end that was planted."""
    words: tuple[str, ...] = ()
    """Arguments without which the commands cannot know what is spoken."""

    @classmethod
    def end(cls, name: str, *causes: Cause, also: tuple[Cause, ...] = (), guilty: tuple[str, ...] = ()) -> Truth:
        return cls({name: frozenset(causes)}, frozenset(also), guilty=frozenset(guilty))

    @classmethod
    def lost(cls, topic: str, name: str, *fates: Fate, guilty: tuple[str, ...] = ()) -> Truth:
        return cls(topic=topic, fates={name: frozenset(fates)}, guilty=frozenset(guilty))


Plant = Callable[[Lab], Truth]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault."""

    name: str
    plant: Plant
    config: str = ""
    """Of mosquitto."""
    brokers: tuple[str, ...] = (MOSQUITTO,)
    clients: tuple[str, ...] = (RAW,)
    versions: tuple[str, ...] = BOTH
    transports: tuple[str, ...] = ALL_TRANSPORTS
    needs_wire: bool = False
    """Something is done to frames."""
    recorded_at: tuple[str, ...] = (CLIENT, SERVER)
    damages: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    """Files that the configuration names."""


FAULTS: dict[str, Fault] = {}


def fault(**words: object) -> Callable[[Plant], Plant]:
    """Enter a kind of fault in the catalogue, with the name of its function."""

    def enter(plant: Plant) -> Plant:
        FAULTS[plant.__name__] = Fault(plant.__name__, plant, **words)  # type: ignore[arg-type]
        return plant

    return enter


LIBRARIES = (RAW, PAHO)
EVERY_CLIENT = (RAW, PAHO, COMMAND)
EVERY_BROKER = (MOSQUITTO, AMQTT)
