"""The content of an explanation: plain values, which reporters show and programs read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Cause(StrEnum):
    """Why a connection ended."""

    NORMAL = "normal"
    """The client sent DISCONNECT with success."""
    CLIENT_DISCONNECT = "client_disconnect"
    """The client sent DISCONNECT with another reason, which no other member names."""
    BAD_CREDENTIALS = "bad_credentials"
    CLIENT_IDENTIFIER_REJECTED = "client_identifier_rejected"
    NOT_AUTHORIZED = "not_authorized"
    """The CONNECT, a subscription or a message was not authorised."""
    BANNED = "banned"
    UNSUPPORTED_VERSION = "unsupported_version"
    SERVER_UNAVAILABLE = "server_unavailable"
    """It reported that it is unavailable or busy."""
    QUOTA_EXCEEDED = "quota_exceeded"
    """A quota, or the rate of messages or of connections."""
    USE_ANOTHER_SERVER = "use_another_server"
    CONNECT_REFUSED = "connect_refused"
    """The CONNACK refused for a reason that no other member names."""
    NOT_LISTENING = "not_listening"
    """The server's host refused the TCP connection."""
    UNREACHABLE = "unreachable"
    """Nothing answered the SYN."""
    NO_MQTT = "no_mqtt"
    """Neither side sent anything."""
    NO_CONNECT = "no_connect"
    """The client sent nothing, and the server gave up."""
    TURNED_AWAY = "turned_away"
    """The server ended the connection before it can have read the CONNECT."""
    WRONG_LISTENER = "wrong_listener"
    """The port speaks something else than the client: TLS, the web, or plain MQTT."""
    WRONG_PATH = "wrong_path"
    """The web server has nothing at the path that the request for a WebSocket names."""
    SERVER_HUNG = "server_hung"
    """The broker worked for no client for a while, and its TCP answered."""
    NO_CONNACK = "no_connack"
    """The CONNECT was not answered."""
    KEEP_ALIVE = "keep_alive"
    TAKEN_OVER = "taken_over"
    PACKET_TOO_LARGE = "packet_too_large"
    RECEIVE_MAXIMUM = "receive_maximum"
    TOPIC_ALIAS = "topic_alias"
    NOT_SUPPORTED = "not_supported"
    """Something that the server had announced not to support: QoS, RETAIN, kinds of subscriptions."""
    PROTOCOL_VIOLATION = "protocol_violation"
    ADMINISTRATIVE_ACTION = "administrative_action"
    SERVER_RESTART = "server_restart"
    """It was shut down, restarted or crashed."""
    PART_REPLACED = "part_replaced"
    """A proxy, ingress or worker process was reloaded or replaced: the older connections ended."""
    SERVER_DISCONNECT = "server_disconnect"
    """The server sent DISCONNECT with a reason that no other member names."""
    TLS_FAILURE = "tls_failure"
    IDLE_TIMEOUT = "idle_timeout"
    """A proxy, load balancer, firewall or NAT ends silent connections."""
    FIXED_AGE = "fixed_age"
    """One side ends the connections of this client at the same age."""
    NO_PING_RESPONSE = "no_ping_response"
    """The client waited for a PINGRESP in vain."""
    HALF_OPEN = "half_open"
    """The path between the two was lost and neither noticed: a dead link, or a NAT that dropped the connection."""
    DEVICE_RESTART = "device_restart"
    """The client lost its state, as a reset or a loss of power makes it."""
    MIDDLEBOX_RESET = "middlebox_reset"
    """A device between the two sent the RST."""
    CLIENT_CLOSED = "client_closed"
    """The client closed the transport without DISCONNECT."""
    CLIENT_RESET = "client_reset"
    SERVER_CLOSED = "server_closed"
    """The server closed the transport, and nothing shows why."""
    SERVER_RESET = "server_reset"
    STILL_OPEN = "still_open"
    """The capture ends while the connection is open."""
    UNREADABLE = "unreadable"
    """The content is encrypted, and the end of its transport shows no cause."""
    NOT_SHOWN = "not_shown"
    """Nothing of the client was captured, so that nothing shows whether it sent DISCONNECT."""


MAX_REPORTED = 20
"""Maximum number of clients of a message that are reported one by one, and of connections with one will."""
PLAIN = frozenset(
    (
        Cause.CLIENT_CLOSED, Cause.CLIENT_RESET, Cause.SERVER_CLOSED, Cause.SERVER_RESET, Cause.STILL_OPEN,
        Cause.UNREADABLE, Cause.NOT_SHOWN,
    )
)  # fmt: skip
"""How a connection ended, if nothing shows why."""
QUIET = frozenset((Cause.NORMAL, Cause.NO_MQTT, Cause.STILL_OPEN, Cause.UNREADABLE, Cause.NOT_SHOWN))
"""Ordinary ends, which need no explanation."""


class Certainty(StrEnum):
    """How sure a cause is."""

    CERTAIN = "certain"
    """A packet states it."""
    LIKELY = "likely"
    """The capture fits this cause, and shows no sign of others that would fit."""
    HYPOTHESIS = "hypothesis"
    """It fits, and so may other causes."""

    @property
    def rank(self) -> int:
        """Higher is surer."""
        return _RANKS[self]


_RANKS = {Certainty.HYPOTHESIS: 0, Certainty.LIKELY: 1, Certainty.CERTAIN: 2}


@dataclass(slots=True, frozen=True)
class Evidence:
    """One sentence, and where it can be seen."""

    text: str
    frame: int | None = None
    timestamp_ns: int | None = None
    capture: str | None = None
    """Where it is not the capture of the explanation."""

    @classmethod
    def at(cls, text: str, place: Any) -> Evidence:
        """A sentence about anything that has a frame, a time and a capture."""
        return cls(text, place.frame, place.timestamp_ns, place.capture)


@dataclass(slots=True, frozen=True)
class Broken:
    """A statement of the specification that was broken, as a rule of the linter found it."""

    statements: tuple[str, ...]
    """Statements with their version: ``5.0 MQTT-3.3.1-4``."""
    by: str
    """``client`` or ``server``."""
    rule: str
    slug: str
    message: str
    confidence: str
    frame: int
    timestamp_ns: int


@dataclass(slots=True, frozen=True)
class Candidate:
    """One cause that fits, with what speaks for it and against it."""

    cause: Cause
    certainty: Certainty
    headline: str
    """One sentence."""
    reasons: tuple[Evidence, ...] = ()
    """Evidence for it, in order."""
    doubts: tuple[Evidence, ...] = ()
    """Evidence against the cause."""
    broken: tuple[Broken, ...] = ()
    advice: tuple[str, ...] = ()
    """Advice, the most useful first."""
    weight: int = 0
    """Ranks candidates of one certainty; higher is more probable."""
    reason_code: int | None = None
    """Frame of the packet that states the cause."""
    stated_by: str = ""
    """The packet that names the cause: ``CONNACK``, ``DISCONNECT`` or ``alert``; empty if it is inferred."""
    event_ns: tuple[int, int] = (0, 0)
    """Beginning and end of the event that this end shares with others; zeros if it is not part of one."""


@dataclass(slots=True, frozen=True)
class Moment:
    """One packet or one act of TCP."""

    timestamp_ns: int
    frame: int
    by: str
    """``client`` or ``server``; empty where it is neither."""
    what: str
    capture: str = ""


@dataclass(slots=True, frozen=True)
class Explanation:
    """Why one connection ended."""

    connection: int
    capture: str
    client: str
    server: str
    client_identifier: str | None
    version: str
    version_known: bool
    transport: str
    opened_ns: int
    opened_frame: int
    ended_ns: int
    ended_frame: int
    ended_capture: str
    ended_by: str | None
    """``client`` or ``server``; ``None`` where the capture does not show it."""
    ended_how: str
    """As in ``Connection.closed_how``."""
    candidates: tuple[Candidate, ...]
    """Never empty, most probable first."""
    timeline: tuple[Moment, ...]
    """The last packets of both sides and what TCP did, in order of time."""
    left_out: int = 0
    """Packets before the timeline."""
    afterwards: tuple[Evidence, ...] = ()
    """Consequences: a will, the client's return."""
    came_back: Evidence | None = None
    """The client's return, where it was seen."""
    notes: tuple[str, ...] = ()
    """Parts that the capture lacks."""
    clock_set: bool = False
    """The times of the capture go back while the connection is open: its duration is unknown."""
    of_stop: bool = False
    """Whether it is an attempt to connect while the server was stopped."""
    server_name: str | None = None
    """Host name of the server, as `Connection.server_name` has it."""

    @property
    def first(self) -> Candidate:
        return self.candidates[0]

    @property
    def cause(self) -> Cause:
        return self.candidates[0].cause

    @property
    def is_quiet(self) -> bool:
        """Whether an end like this needs no explanation."""
        return self.cause in QUIET


class NodeQuestion(StrEnum):
    """Subject of an answer about an edge node."""

    OFFLINE = "offline"
    """A host of Sparkplug received the death of the edge node, or is going to receive it."""
    STALE = "stale"
    """The edge node is gone, and hosts still have it as online."""
    REBIRTH = "rebirth"
    """A host requested a rebirth."""
    NO_BIRTH = "no_birth"
    """Data has metrics that no birth has."""


@dataclass(slots=True, frozen=True)
class NodeAnswer:
    """An answer about one edge node of Sparkplug."""

    node: str
    """``group/node``."""
    question: NodeQuestion
    certainty: Certainty | None
    """``None``: nothing in the capture shows the reason."""
    headline: str
    """One sentence."""
    reasons: tuple[Evidence, ...]
    advice: tuple[str, ...] = ()
    connections: tuple[int, ...] = ()
    """Connections that it is about."""
    is_usual: bool = False
    """Whether it is about an intended end, or about an answered request without a fault before it."""


@dataclass(slots=True, frozen=True)
class UnresolvedName:
    """A client that failed to resolve names."""

    client: str
    """Its address."""
    timestamp_ns: int
    """Time of its first query."""
    reason: str
    """Sentence about the failure with its certainty, without a full stop."""
    advice: str

    @property
    def sentence(self) -> str:
        """Reason and advice."""
        return f"{self.reason}. {self.advice}"


@dataclass(slots=True)
class Totals:
    """Explanations of one run."""

    connections: int = 0
    quiet: int = 0
    """Ended as they should."""
    open: int = 0
    """Still open where the capture ends."""
    unreadable: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    """Ends that need an explanation, by their cause."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Numbers of objects that were discarded at a limit, by their kind."""
    not_shown: int = 0
    """Ended, without a packet of the client in the capture."""
    empty: int = 0
    """Connections without any data among the connections that ended normally."""
    remarks: list[str] = field(default_factory=list)
    """Sentences about ends that need no explanation one by one."""
    unresolved: list[UnresolvedName] = field(default_factory=list)
    """Clients that failed to resolve names; the remarks have their sentences, too."""
    loop: str = ""
    """Summary of the first remark about a message that circulates, or empty."""
