"""SES303."""

from dataclasses import dataclass

from mqttscope.lint.context import ConnectionKey, RuleContext
from mqttscope.lint.examples import client, closes, conversation, lost, on, opened, server
from mqttscope.lint.finding import Confidence, Related, Report, Severity
from mqttscope.lint.rule import V3_1_1, V5, Findings, Needs, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Connack, Connect, Disconnect
from mqttscope.mqtt.properties import Properties
from mqttscope.session.connection import Connection
from mqttscope.session.history import NEVER_NS

SECOND_NS = 1_000_000_000
ENDLESS = 0xFFFFFFFF
"""Session Expiry Interval of a session that does not expire (5.0 3.1.2.11.2)."""
_TAKEN_OVER = 0x8E
_FOR_A_MINUTE = Properties(session_expiry_interval=60)
_FOR_AN_HOUR = Properties(session_expiry_interval=3_600)
_LEAVES = (client(Disconnect()), closes("client"))


@dataclass(slots=True)
class Book:
    """What is known of the session of one client."""

    owner: ConnectionKey | None = None
    """The connection that has it, or had it last."""
    capture: str = ""
    """Where that one began."""
    user_name: str | None = None
    state: str = ""
    """``live`` while the connection is open, then ``ended`` or ``kept``; empty where nothing is certain."""
    until_ns: int = 0
    """When it ended, or when it will."""
    slack_ns: int = 0
    """How long after that a server may still have it."""
    told_ns: int = 0
    """When the server told the owner that another connection takes the session over."""
    lasting: bool = False
    """Whether the owner's session outlives its connection."""
    connack: Related | None = None
    """What gave the owner its session."""


class SessionPresentWrong(Rule):
    """CONNACK says that there is a session where it must have ended, or that there is none where one continues.

    The client relies on Session Present: told 1 it does not subscribe again and waits for messages that never come,
    told 0 it throws its own half away.  A session ends with its connection (Session Expiry Interval 0, CleanSession 1
    in 3.1.1) or when its interval has run out.  That a kept session is gone is worth a note only, since the server may
    have been restarted or an operator may have ended it; it is an error where the server has just taken the session
    from another connection of the client.  Sessions older than the capture are not judged.  Where the two connections
    are in different captures it is a heuristic warning at most: these may be of different servers with one address.

    Instead, keep the state of a session exactly as long as its interval says, and report it as it is.
    """

    code = "SES303"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    confidence = Confidence.LIKELY
    versions = (V3_1_1, V5)
    statements = {
        V5: {"MQTT-3.1.2-6": "", "MQTT-3.1.3-2": "", "MQTT-3.2.2-3": ""},
        V3_1_1: {"MQTT-3.1.3-2": "", "MQTT-3.2.2-3": ""},
    }
    also = {V3_1_1: ("MQTT-3.1.2-4", "MQTT-3.2.2-2")}
    looks_at = (Connack, Disconnect)
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE
    settings = {"tolerance": 60}
    Memory = Book

    good = [
        conversation(
            "a session older than the capture",
            *opened(clean_start=False, session_present=True),
        ),
        conversation(
            "back before the interval has run out, and after it",
            *opened(connect=_FOR_A_MINUTE),
            *_LEAVES,
            *on(1, *opened(clean_start=False, connect=_FOR_A_MINUTE, session_present=True), *_LEAVES),
            client(after=300),
            *on(2, *opened(clean_start=False, connect=_FOR_A_MINUTE)),
        ),
        conversation(
            "DISCONNECT changed the interval",
            *opened(connect=_FOR_A_MINUTE),
            client(Disconnect(reason_code=0, properties=_FOR_AN_HOUR)),
            closes("client"),
            client(after=600),
            *on(1, *opened(clean_start=False, session_present=True)),
        ),
        conversation(
            "CONNACK changed the interval",
            *opened(connect=_FOR_A_MINUTE, connack=_FOR_AN_HOUR),
            *_LEAVES,
            client(after=600),
            *on(1, *opened(clean_start=False, session_present=True)),
        ),
        conversation(
            "the server may not have noticed yet that the client is gone",
            *opened(),
            closes("client", "reset"),
            *on(1, *opened(clean_start=False, session_present=True)),
        ),
        conversation(
            "taken over while the connection was open, where both answers are right",
            *opened(),
            *on(1, *opened(clean_start=False, session_present=True)),
        ),
        conversation(
            "another user's client of the same name",
            *opened(user_name="alice"),
            *_LEAVES,
            client(after=300),
            *on(1, *opened(user_name="bob", clean_start=False, session_present=True)),
        ),
        conversation(
            "the interval may have been in bytes that were lost",
            *opened(connect=_FOR_A_MINUTE),
            lost(client(Disconnect(reason_code=0, properties=_FOR_AN_HOUR))),
            closes("client"),
            client(after=600),
            *on(1, *opened(clean_start=False, session_present=True)),
        ),
    ]
    bad = [
        conversation(
            "the session ended with its connection",
            *opened(),
            *_LEAVES,
            client(after=5),
            *on(1, *opened(clean_start=False)[:1], server(Connack(session_present=True)).marked("session_present")),
        ),
        conversation(
            "CleanSession 1 in 3.1.1",
            *opened(V3_1_1),
            *_LEAVES,
            client(after=5),
            *on(
                1,
                *opened(V3_1_1, clean_start=False)[:1],
                server(Connack(session_present=True)).marked("session_present"),
            ),
        ),
        conversation(
            "the interval has run out",
            *opened(connect=_FOR_A_MINUTE),
            *_LEAVES,
            client(after=300),
            *on(1, *opened(clean_start=False)[:1], server(Connack(session_present=True)).marked("session_present")),
        ),
        conversation(
            "taken over, and lost in doing so",
            *opened(connect=_FOR_AN_HOUR),
            *on(1, *opened(clean_start=False, connect=_FOR_AN_HOUR)[:1]),
            server(Disconnect(reason_code=_TAKEN_OVER)),
            *on(1, server(Connack()).marked("session_present")),
            closes("server"),
        ),
        conversation(
            "a note: gone before its time",
            *opened(connect=_FOR_AN_HOUR),
            *_LEAVES,
            *on(1, *opened(clean_start=False)[:1], server(Connack()).marked("session_present")),
        ),
    ]

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Compare CONNACK with the book of the client's session, and begin a new page."""
        if isinstance(packet, Disconnect):
            book: Book = at.memory(self)
            if packet.reason_code == _TAKEN_OVER and book.owner == at.key:
                book.told_ns = at.timestamp_ns
            return None
        assert isinstance(packet, Connack)
        connect, sent = at.history.connect, at.history.connect_sent
        if packet.reason_code or at.history.connack is not None or packet.session_present is None:
            return None
        if connect is None or sent is None or not at.connection.client_identifier:
            return None
        book = at.memory(self)
        found = None
        if not connect.clean_start and connect.client_identifier and book.user_name == connect.user_name:
            found = self._compare(book, packet.session_present, sent.timestamp_ns, at)
        book.owner, book.user_name, book.state = at.key, connect.user_name, "live"
        book.capture = at.connection.capture
        book.told_ns = 0
        book.lasting = _lasts(connect, packet, at)
        event = at.event
        book.connack = Related("the CONNACK before it", at.number, event.frame, event.timestamp_ns)
        return found

    def _compare(self, book: Book, present: bool, asked_ns: int, at: RuleContext) -> Report | None:
        """What is wrong with Session Present, if anything is."""
        now = at.timestamp_ns
        if present and book.state in ("ended", "kept") and now > book.until_ns + book.slack_ns:
            gone = (now - book.until_ns) / SECOND_NS
            how = "ended with its connection" if book.state == "ended" else "had run out"
            return self._told(book, present, f"its session {how} {gone:,.0f} s before", at)
        if present or book.state not in ("live", "kept"):
            return None
        if book.lasting and book.state in ("live", "kept") and asked_ns <= book.told_ns <= now:
            return self._told(book, present, "taken over from another connection", at)
        if book.state == "kept" and now + book.slack_ns < book.until_ns:
            why = "its session was to be kept, which a restart or an operator may have ended"
            return self._told(book, present, why, at, severity=Severity.INFO, confidence=Confidence.HEURISTIC)
        return None

    def _told(
        self,
        book: Book,
        present: bool,
        why: str,
        at: RuleContext,
        severity: Severity | None = None,
        confidence: Confidence | None = None,
    ) -> Report:
        if book.owner is not None and book.capture != at.event.capture and severity is None:
            # The captures may be of different servers with one address.
            severity, confidence = Severity.WARNING, Confidence.HEURISTIC
        statements = None if present or at.version is V5 else ("MQTT-3.2.2-2", "MQTT-3.1.2-4")
        return self.report(
            "session_present",
            f"CONNACK for {at.client_name!r}: Session Present {present:d}, expected {not present:d} ({why})",
            severity=severity,
            confidence=confidence,
            statements=statements,
            related=() if book.connack is None else (book.connack,),
        )

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """What becomes of the session when the connection that has it ends."""
        if at.history.connack is None or not connection.client_identifier:
            return None
        book: Book = at.memory(self)
        if book.owner != at.key:
            return None
        book.state = ""
        how = connection.closed_how
        if how not in ("fin", "reset") or at.client.gapped or at.party.malformed:
            return None  # who knows when it ended, or what a DISCONNECT said
        tolerance = float(self.set["tolerance"])
        seconds = _kept_seconds(at)
        # Both sides have ended an orderly connection, so the server knows; of a reset it may learn much later.
        ending = SECOND_NS if how == "fin" else round(tolerance * SECOND_NS)
        if seconds is None:
            return None
        if not seconds:
            book.state, book.until_ns, book.slack_ns = "ended", at.timestamp_ns, ending
        elif seconds == ENDLESS:
            book.state, book.until_ns, book.slack_ns = "kept", NEVER_NS, 0
        else:
            book.state, book.until_ns = "kept", at.timestamp_ns + seconds * SECOND_NS
            book.slack_ns = round(max(tolerance, seconds / 10) * SECOND_NS)
        return None


def _lasts(connect: Connect, connack: Connack, at: RuleContext) -> bool:
    """Whether the session outlives the connection, as far as CONNECT and CONNACK say."""
    if at.version is not V5:
        return not connect.clean_start
    for packet in (connack, connect):
        said = None if packet.properties is None else packet.properties.session_expiry_interval
        if said is not None:
            return bool(said)
    return False


def _kept_seconds(at: RuleContext) -> int | None:
    """How long the session is kept after the end of its connection; ``None`` where that is open."""
    connect = at.history.connect
    if connect is None or at.history.connack is None:
        return None
    if at.version is not V5:
        return 0 if connect.clean_start else ENDLESS
    seconds = at.connection.session_expiry_interval or 0
    asked = None if connect.properties is None else connect.properties.session_expiry_interval
    if (
        seconds
        and not asked
        and at.history.client.disconnect is not None
        and not _lasts(connect, at.history.connack, at)
    ):
        return None  # raised from 0, which is not allowed: a server may take it or not
    return seconds
