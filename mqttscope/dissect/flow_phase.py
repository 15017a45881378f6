"""The phases of a flow above TCP, and what leads from which phase to which.

A flow is what TCP carries between two endpoints.  Nothing in TCP says what its bytes mean, and captures may begin in
the middle, so the dissector finds out, by evidence in this order: the first bytes of either side (CONNECT, an HTTP
upgrade, a TLS hello), the port that the user named or IANA assigned, and packets that are plausible in a row.

* ``undecided``: what arrives is kept, up to a limit, until the evidence is enough.
* ``mqtt``: the bytes are MQTT packets, and where each begins is known.  Nearly all traffic is read in this phase.
* ``searching``: the bytes are MQTT, but in one direction at least it is not known where the next packet begins: the
  capture began in the middle, or bytes are missing.  That stream looks for a place where packets fit.
* ``ws``: the bytes are a WebSocket, first its HTTP exchange and then its frames, with MQTT inside of the frames.  Each
  direction has phases of its own there (`net.http_upgrade.WebSocketPhase`).
* ``tls``: the bytes are TLS.  They are listed, not read, unless somebody decrypts them.
* ``ignored``: no MQTT.  Nothing is kept of the flow any more.

What carries MQTT is not a phase that ends when MQTT begins, since a flow speaks the same from its first byte to its
last.  A WebSocket stays ``ws``, and its messages go to streams of packets that search where they have to without a
change of the phase.  TLS stays ``tls``, and what was decrypted of it is a second `FlowState` inside of the first one,
which begins ``undecided`` like any other: it is plain MQTT, or a WebSocket again.  Where it is ``ignored``, the
outer one still lists its TLS.

The table has no way for what cannot happen: a trigger that does not fit the phase is a fault of the program.
"""

from __future__ import annotations

from enum import StrEnum


class FlowPhase(StrEnum):
    """What a flow speaks, as far as that is known."""

    UNDECIDED = "undecided"
    MQTT = "mqtt"
    SEARCHING = "searching"
    WEBSOCKET = "ws"
    TLS = "tls"
    IGNORED = "ignored"


class FlowTrigger(StrEnum):
    """What says more of it."""

    SPEAKS_MQTT = "speaks MQTT"
    """By a CONNECT, packets in a row, or the port; or the connection continues after a reset that nobody heeds."""
    SPEAKS_WEBSOCKET = "speaks WebSocket"
    """By an HTTP upgrade, or the port."""
    SPEAKS_TLS = "speaks TLS"
    """By a hello, or the port; or somebody has decrypted some of it."""
    FRAMING_LOST = "framing lost"
    """A direction does not know any more where the next packet begins."""
    FRAMING_FOUND = "framing found"
    """All directions know."""
    NO_MQTT = "no MQTT"
    """Nothing speaks for MQTT: not the bytes, not the names in an upgrade or hello, not the port."""


UNDECIDED, MQTT, SEARCHING, WEBSOCKET, TLS, IGNORED = FlowPhase

TRANSITIONS = {
    (UNDECIDED, FlowTrigger.SPEAKS_MQTT): MQTT,
    (UNDECIDED, FlowTrigger.SPEAKS_WEBSOCKET): WEBSOCKET,
    (UNDECIDED, FlowTrigger.SPEAKS_TLS): TLS,
    (UNDECIDED, FlowTrigger.NO_MQTT): IGNORED,
    (MQTT, FlowTrigger.FRAMING_LOST): SEARCHING,
    (SEARCHING, FlowTrigger.FRAMING_FOUND): MQTT,
    (WEBSOCKET, FlowTrigger.NO_MQTT): IGNORED,
    (TLS, FlowTrigger.NO_MQTT): IGNORED,
}
"""The next phase for each phase and what may happen in it."""
