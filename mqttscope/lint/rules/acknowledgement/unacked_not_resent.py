from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, RuleContext, examples, shown
from mqttscope.lint.session_model import (
    ResumptionRule,
    SessionModel,
    UnansweredMessage,
    doubted,
    may_be_dropped,
    may_move,
)
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connack, Publish
from mqttscope.session.inflight import SENT


class UnackedNotResent(ResumptionRule):
    """A message that was unacknowledged when the connection broke is not resent although the session continues.

    The sender of a QoS 1 or 2 message keeps it until it is acknowledged.  A message that is not resent is lost, and
    with QoS 2 its packet identifier stays in use.  The same holds for PUBREL.  Reported ``timeout`` seconds after the
    CONNACK if the sender is still active and has nothing else in flight.  Reported at once if another message takes the
    packet identifier, since that ends the wrong exchange.  An equal message with another identifier may be the resent
    one (ACK313).  A QoS 1 message whose Message Expiry Interval has run out may be dropped, and a server may send a
    QoS 1 message to another member of a Shared Subscription.

    Instead, resend every unacknowledged PUBLISH and PUBREL in the original order, with the original packet identifiers,
    before anything new.
    """

    code = "ACK311"
    looks_at = (Connack, Publish)
    sender = None
    signs = {Publish: ("carries",)}
    statements = {
        V5: {"MQTT-4.4.0-1": "", "MQTT-4.8.2-4": "server"},
        V3_1_1: {"MQTT-4.4.0-1": ""},
        V3_1: {"V31-RETRY-reconnect": ""},
    }
    also = {
        V5: ("MQTT-3.1.2-5", "MQTT-3.1.2-23", "MQTT-3.10.4-3", "MQTT-4.3.2-3", "MQTT-4.3.3-3", "MQTT-4.3.3-5"),
        V3_1_1: ("MQTT-3.1.2-4", "MQTT-3.10.4-3", "MQTT-4.1.0-1", "MQTT-4.3.2-1", "MQTT-4.3.3-1"),
    }

    good = examples("""
        resent
            opened resume session_expiry_interval=3600; > publish a x qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a x dup qos=1 id=7; @1 < puback 7
            +31 @1 > pingreq; @1 < pingresp; @1 > pingreq; @1 < pingresp
        PUBREL resent
            opened resume session_expiry_interval=3600; > publish a x qos=2 id=7; < pubrec 7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > pubrel 7; @1 < pubcomp 7; +31 @1 > pingreq
            @1 < pingresp; @1 > pingreq; @1 < pingresp
        acknowledged on the old connection just in time
            opened resume session_expiry_interval=3600; > publish a x qos=1 id=7
            @1 opened resume session_expiry_interval=3600 < present; < puback 7; < fin; +31 @1 > pingreq; @1 < pingresp
            @1 > pingreq; @1 < pingresp
        the session is gone
            opened resume session_expiry_interval=3600; > publish a x qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600; +31 @1 > pingreq; @1 < pingresp; @1 > pingreq; @1 < pingresp
        the session was not kept
            opened 3.1.1; > publish a x qos=1 id=7; > reset; @1 opened; +31 @1 > pingreq; @1 < pingresp; @1 > pingreq
            @1 < pingresp
        the capture may have lost the acknowledgement
            opened resume session_expiry_interval=3600; > publish a x qos=1 id=7; lost < puback 7; > pingreq; > reset
            @1 opened resume session_expiry_interval=3600 < present; +31 @1 > pingreq; @1 < pingresp; @1 > pingreq
            @1 < pingresp
        the client has sent nothing since
            opened resume session_expiry_interval=3600; > publish a x qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600 < present; +31 @1 < publish b; @1 < publish b
        an equal message with another packet identifier, which may be the one
            opened resume session_expiry_interval=3600; > publish a x qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a x qos=1 id=8; @1 < puback 8
            +31 @1 > pingreq; @1 < pingresp; @1 > pingreq; @1 < pingresp
        another message from the server waits for its acknowledgement
            opened resume session_expiry_interval=3600; > subscribe 1 #:1; < suback 1 1
            < publish a x qos=1 id=7 & publish a y qos=1 id=8; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 < publish a x dup qos=1 id=7; +31 @1 > pingreq
            @1 < pingresp; @1 > pingreq; @1 < pingresp
        a Shared Subscription has other members
            opened resume session_expiry_interval=3600; > subscribe 1 $share/g/a:1; < suback 1 1
            < publish a x qos=1 id=7; > reset; @1 opened resume session_expiry_interval=3600 < present; +31 @1 > pingreq
            @1 < pingresp; @1 > pingreq; @1 < pingresp
        it has expired
            opened resume session_expiry_interval=3600; > publish a qos=1 id=7 message_expiry_interval=5; > reset
            @1 opened resume session_expiry_interval=3600 < present; +31 @1 > pingreq; @1 < pingresp; @1 > pingreq
            @1 < pingresp
        the message is now too large for the client
            opened resume session_expiry_interval=3600; > subscribe 1 a:1; < suback 1 1; < publish a x qos=1 id=7
            > reset; @1 opened resume session_expiry_interval=3600 maximum_packet_size=8 < present; +31 @1 > pingreq
            @1 < pingresp; @1 > pingreq; @1 < pingresp
        a client with the same identifier but another user name
            opened resume user_name=alice session_expiry_interval=3600; > publish a x qos=1 id=7; > reset
            @1 opened resume user_name=bob session_expiry_interval=3600 < present; +31 @1 > pingreq; @1 < pingresp
            @1 > pingreq; @1 < pingresp
        resent, and then its packet identifier is reused
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a A dup qos=1 id=7; @1 < puback 7
            @1 > publish a B qos=1 id=7; @1 < puback 7
        another message uses the identifier, and the session does not continue
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600; @1 > publish a B qos=1 id=7; @1 < puback 7
        another message after a clean start
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; > reset
            @1 opened session_expiry_interval=3600; @1 > publish a B qos=1 id=7; @1 < puback 7
        another message, and the capture lacks the earlier acknowledgement
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; lost < puback 7; > pingreq; < pingresp
            > reset; @1 opened resume session_expiry_interval=3600 < present; @1 > publish a B qos=1 id=7; @1 < puback 7
        another message, after an acknowledgement that arrived during the takeover
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7
            @1 opened resume session_expiry_interval=3600 < present; < puback 7; < fin; @1 > publish a B qos=1 id=7
            @1 < puback 7
        another message on a Shared Subscription; another member may have received the first
            opened resume session_expiry_interval=3600; > subscribe 1 $share/g/a:1; < suback 1 1
            < publish a A qos=1 id=7; > reset; @1 opened resume session_expiry_interval=3600 < present
            @1 < publish a B qos=1 id=7; @1 > puback 7
        another message after the first one expired
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7 message_expiry_interval=5; > reset
            +9 @1 opened resume session_expiry_interval=3600 < present; @1 > publish a B qos=1 id=7; @1 < puback 7
    """)
    bad = examples("""
        PUBLISH of the client
            opened resume session_expiry_interval=3600; > publish a x qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600 < present; +31 @1 > pingreq; @1 < pingresp !!
        PUBLISH of the server, in MQTT 3.1.1
            opened 3.1.1 resume; > subscribe 1 a:1; < suback 1 1; < publish a x qos=1 id=7; > reset
            @1 opened resume < present; +31 @1 > pingreq; @1 < pingresp; @1 > pingreq !!; @1 < pingresp
        PUBREL of the client
            opened resume session_expiry_interval=3600; > publish a x qos=2 id=7; < pubrec 7; > reset
            @1 opened resume session_expiry_interval=3600 < present; +31 @1 > pingreq; @1 < pingresp !!
        in MQTT 3.1, which has no Session Present flag
            opened 3.1 resume; > publish a x qos=1 id=7; > reset; @1 opened resume; +31 @1 > pingreq; @1 < pingresp !!
        QoS 2 on a Shared Subscription, with two messages
            opened resume session_expiry_interval=3600; > subscribe 1 $share/g/a:2; < suback 1 2
            < publish a x qos=2 id=7 & publish a qos=2 id=8; > reset
            @1 opened resume session_expiry_interval=3600 < present; +31 @1 > pingreq; @1 < pingresp; @1 > pingreq !!
        taken over while the old connection was still open
            opened resume session_expiry_interval=3600; > publish a x qos=1 id=7
            @1 opened resume session_expiry_interval=3600 < present; < fin; +31 @1 > pingreq; @1 < pingresp !!
        another message takes its packet identifier
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600 < present
            @1 > publish a B qos=1 id=7 !packet_identifier; @1 < puback 7
        by the server, before the PUBCOMP, in MQTT 3.1.1
            opened 3.1.1 resume; > subscribe 1 #:2; < suback 1 2; < publish a A qos=2 id=7; > pubrec 7; < pubrel 7
            > reset; @1 opened resume < present; @1 < publish b B qos=1 id=7 !packet_identifier; @1 > puback 7
    """)

    def check(self, packet: Connack | Publish, at: RuleContext) -> Findings:
        """Start the timeout, and check whether another message uses the identifier of an unfinished exchange."""
        if isinstance(packet, Connack):
            return super().check(packet, at)
        identifier, model = packet.packet_identifier, at.model(SessionModel)
        if identifier is None or not model.resumed or at.party.has_sent(identifier) or not at.party.in_step():
            return None
        exchange = model.carried(at.direction, at).get(identifier)
        if exchange is None or not exchange.sure or exchange.answered or not exchange.differs(packet, at.topic):
            return None
        if may_be_dropped(exchange, at.direction, model, at):
            return None
        return self.report(
            "packet_identifier",
            f"{exchange.step} id {exchange.packet_identifier} ({shown(exchange.topic or '')}) was unacknowledged when "
            "the connection broke, and another message uses its packet identifier when the session continues",
            related=(exchange.related,),
            **doubted(apart=model.apart),
        )

    def blames(self, exchange: UnansweredMessage, direction: Direction, at: RuleContext) -> bool:
        """Messages that have not expired and, at QoS 1 from a server, cannot have gone to another client."""
        if exchange.expires_ns <= at.timestamp_ns:
            return False  # ACK314 reports it if it has QoS 2
        if _has_new_identifier(exchange, direction, at):
            return False  # ACK313 reports it if it has DUP
        return not may_move(exchange, direction, at.model(SessionModel))

    def describe(self, exchange: UnansweredMessage) -> str:
        """The packet, its identifier and its topic."""
        topic = "" if exchange.topic is None else f" ({shown(exchange.topic)})"
        return (
            f"{exchange.step} id {exchange.packet_identifier}{topic} was unacknowledged when the connection broke, and "
            "was not resent when the session continued"
        )


def _has_new_identifier(exchange: UnansweredMessage, direction: Direction, at: RuleContext) -> bool:
    """Whether an equal message was sent on this connection, with another packet identifier."""
    if exchange.phase is not SENT or exchange.topic is None or exchange.checksum is None:
        return False
    party, side = at.history.party(direction), at.connection.side(direction)
    key = exchange.topic, exchange.checksum
    if any((ended.topic, ended.checksum) == key for ended in party.ended.values()):
        return True
    return any((row.topic, party.checksums.get(row.packet_identifier)) == key for row in side.exchanges.values())
