"""The phases of an MQTT connection, and which packet leads from which phase to which.

A phase says how far the two sides have come with each other, as the last packet that changes it left things:

* ``opening``: the transport is there, and neither CONNECT nor CONNACK was seen.  Where the capture began later than the
  connection it stays in this phase, with all other packets, until a packet says more.
* ``connecting``: the client has sent CONNECT, and the server has not answered it.  AUTH changes nothing here.
* ``connected``: the server has accepted the client with a CONNACK of reason code 0.
* ``refused``: the server has answered with another reason code, and has to close the transport.
* ``disconnected``: a side has sent DISCONNECT.  Which one it was is not part of the phase (`Connection.disconnect_by`).

Only three types of packets change the phase, and two of them have a side: the client sends CONNECT, the server CONNACK,
either of them DISCONNECT (the server since 5.0).  All others leave it as it is.

The state machine of a client or a server refuses what does not fit.  A reader of captures cannot: the packet was sent
and the two sides will go by it.  So the table has a way from every phase for every trigger, and the side that sends
is not asked.  `SPECIFIED` holds the ways that the specification provides, from wherever the capture began.  In the
others the packets of both sides crossed, or one of them broke the protocol, which is for rules to say: there, the last
packet decides.

How the transport ended is no phase (`Connection.closed_how`): a connection that is ``connected`` when its transport
closes has ended without DISCONNECT, which is what makes a server publish a Will Message.
"""

from __future__ import annotations

from enum import StrEnum


class ConnectionPhase(StrEnum):
    """How far client and server have come with each other."""

    OPENING = "opening"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    REFUSED = "refused"
    DISCONNECTED = "disconnected"


class ConnectionTrigger(StrEnum):
    """A packet that changes the phase."""

    CONNECT = "CONNECT"
    ACCEPTANCE = "CONNACK (accepted)"
    """CONNACK with reason code 0."""
    REFUSAL = "CONNACK (refused)"
    """CONNACK with any other."""
    DISCONNECT = "DISCONNECT"


OPENING, CONNECTING, CONNECTED, REFUSED, DISCONNECTED = ConnectionPhase
CONNECT, ACCEPTANCE, REFUSAL, DISCONNECT = ConnectionTrigger

SPECIFIED = {
    (OPENING, CONNECT): CONNECTING,
    (OPENING, ACCEPTANCE): CONNECTED,
    (OPENING, REFUSAL): REFUSED,
    (OPENING, DISCONNECT): DISCONNECTED,
    (CONNECTING, ACCEPTANCE): CONNECTED,
    (CONNECTING, REFUSAL): REFUSED,
    (CONNECTING, DISCONNECT): DISCONNECTED,
    (CONNECTED, DISCONNECT): DISCONNECTED,
}
"""What the specification provides, from wherever the capture began."""
TRANSITIONS = SPECIFIED | {
    # A second CONNECT is a protocol error (5.0 3.1.0-2).
    (CONNECTING, CONNECT): CONNECTING,
    (CONNECTED, CONNECT): CONNECTING,
    (REFUSED, CONNECT): CONNECTING,
    (DISCONNECTED, CONNECT): CONNECTING,
    # Where more than one CONNACK comes (5.0 3.2.0-2), or one crosses a DISCONNECT of the client.
    (CONNECTED, ACCEPTANCE): CONNECTED,
    (CONNECTED, REFUSAL): REFUSED,
    (REFUSED, ACCEPTANCE): CONNECTED,
    (REFUSED, REFUSAL): REFUSED,
    (DISCONNECTED, ACCEPTANCE): CONNECTED,
    (DISCONNECTED, REFUSAL): REFUSED,
    # Each side may say it, before it knows what the other one has said.
    (REFUSED, DISCONNECT): DISCONNECTED,
    (DISCONNECTED, DISCONNECT): DISCONNECTED,
}
"""The next phase for every phase and trigger."""
