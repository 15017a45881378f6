from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, RuleContext, examples, shown
from mqttscope.lint.session_model import Carried, ResumptionRule, SessionModel, doubted, may_be_dropped, may_move
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connack, Publish


class UnackedNotResent(ResumptionRule):
    """A message without acknowledgment when the connection broke is not sent again although the session continues.

    Until its acknowledgment the sender keeps a message of QoS 1 or 2, and the server and the client rely on that:
    what is not sent again is lost, and in QoS 2 its packet identifier stays taken.  The same holds for PUBREL.  Judged
    ``timeout`` seconds after the CONNACK, where the sender still speaks and has nothing else under way, and at once
    where the packet identifier is given to another message, which ends the wrong exchange.  A message of
    QoS 1 whose Message Expiry Interval has run out may be dropped, and a server may give one of QoS 1 to another
    member of a Shared Subscription.

    Instead, send every unacknowledged PUBLISH and PUBREL again, in their old order and with their old packet
    identifiers, before anything new.
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
        sent again
            opened resume session_expiry_interval=3600; > publish a x qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a x dup qos=1 id=7; @1 < puback 7
            +31 @1 > pingreq; @1 < pingresp; @1 > pingreq; @1 < pingresp
        PUBREL sent again
            opened resume session_expiry_interval=3600; > publish a x qos=2 id=7; < pubrec 7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > pubrel 7; @1 < pubcomp 7; +31 @1 > pingreq
            @1 < pingresp; @1 > pingreq; @1 < pingresp
        acknowledged on the old connection after all
            opened resume session_expiry_interval=3600; > publish a x qos=1 id=7
            @1 opened resume session_expiry_interval=3600 < present; < puback 7; < fin; +31 @1 > pingreq; @1 < pingresp
            @1 > pingreq; @1 < pingresp
        the session is gone
            opened resume session_expiry_interval=3600; > publish a x qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600; +31 @1 > pingreq; @1 < pingresp; @1 > pingreq; @1 < pingresp
        a session that was not kept
            opened 3.1.1; > publish a x qos=1 id=7; > reset; @1 opened; +31 @1 > pingreq; @1 < pingresp; @1 > pingreq
            @1 < pingresp
        the answer may have been lost by the capture
            opened resume session_expiry_interval=3600; > publish a x qos=1 id=7; lost < puback 7; > pingreq; > reset
            @1 opened resume session_expiry_interval=3600 < present; +31 @1 > pingreq; @1 < pingresp; @1 > pingreq
            @1 < pingresp
        the client has said nothing since
            opened resume session_expiry_interval=3600; > publish a x qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600 < present; +31 @1 < publish b; @1 < publish b
        something else of the server waits for its acknowledgment
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
        too long for the client by now
            opened resume session_expiry_interval=3600; > subscribe 1 a:1; < suback 1 1; < publish a x qos=1 id=7
            > reset; @1 opened resume session_expiry_interval=3600 maximum_packet_size=8 < present; +31 @1 > pingreq
            @1 < pingresp; @1 > pingreq; @1 < pingresp
        another user's client of the same name
            opened resume user_name=alice session_expiry_interval=3600; > publish a x qos=1 id=7; > reset
            @1 opened resume user_name=bob session_expiry_interval=3600 < present; +31 @1 > pingreq; @1 < pingresp
            @1 > pingreq; @1 < pingresp
        sent again, then its packet identifier is free
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a A dup qos=1 id=7; @1 < puback 7
            @1 > publish a B qos=1 id=7; @1 < puback 7
        another message takes the identifier, and the session does not continue
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600; @1 > publish a B qos=1 id=7; @1 < puback 7
        another message after a clean start
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; > reset
            @1 opened session_expiry_interval=3600; @1 > publish a B qos=1 id=7; @1 < puback 7
        another message, and the acknowledgment before is not in the capture
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; lost < puback 7; > pingreq; < pingresp
            > reset; @1 opened resume session_expiry_interval=3600 < present; @1 > publish a B qos=1 id=7; @1 < puback 7
        another message after an acknowledgment that came after the takeover
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7
            @1 opened resume session_expiry_interval=3600 < present; < puback 7; < fin; @1 > publish a B qos=1 id=7
            @1 < puback 7
        another message of a share, whose first one another member may have got
            opened resume session_expiry_interval=3600; > subscribe 1 $share/g/a:1; < suback 1 1
            < publish a A qos=1 id=7; > reset; @1 opened resume session_expiry_interval=3600 < present
            @1 < publish a B qos=1 id=7; @1 > puback 7
        another message when the first one has expired
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
        in MQTT 3.1, where CONNACK does not say whether the session continues
            opened 3.1 resume; > publish a x qos=1 id=7; > reset; @1 opened resume; +31 @1 > pingreq; @1 < pingresp !!
        QoS 2 on a Shared Subscription, of two messages
            opened resume session_expiry_interval=3600; > subscribe 1 $share/g/a:2; < suback 1 2
            < publish a x qos=2 id=7 & publish a qos=2 id=8; > reset
            @1 opened resume session_expiry_interval=3600 < present; +31 @1 > pingreq; @1 < pingresp; @1 > pingreq !!
        taken over, while the old connection was still open
            opened resume session_expiry_interval=3600; > publish a x qos=1 id=7
            @1 opened resume session_expiry_interval=3600 < present; < fin; +31 @1 > pingreq; @1 < pingresp !!
        its packet identifier is given to another message
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600 < present
            @1 > publish a B qos=1 id=7 !packet_identifier; @1 < puback 7
        by the server, before the PUBCOMP, in MQTT 3.1.1
            opened 3.1.1 resume; > subscribe 1 #:2; < suback 1 2; < publish a A qos=2 id=7; > pubrec 7; < pubrel 7
            > reset; @1 opened resume < present; @1 < publish b B qos=1 id=7 !packet_identifier; @1 > puback 7
    """)

    def check(self, packet: Connack | Publish, at: RuleContext) -> Findings:
        """Begin to wait; look whether a packet identifier that is taken is given to another message."""
        if isinstance(packet, Connack):
            return super().check(packet, at)
        identifier, model = packet.packet_identifier, at.model(SessionModel)
        if identifier is None or not model.resumed or at.party.has_sent(identifier) or not at.party.in_step():
            return None
        one = model.carried(at.direction, at).get(identifier)
        if one is None or not one.sure or one.answered or not one.differs(packet, at.topic):
            return None
        if may_be_dropped(one, at.direction, model, at):
            return None
        return self.report(
            "packet_identifier",
            f"{one.step} id {identifier} ({shown(one.topic or '')}) was unacknowledged when the connection broke, and "
            "another message takes its packet identifier when the session continues",
            related=(one.related,),
            **doubted(apart=model.apart),
        )

    def blames(self, one: Carried, direction: Direction, at: RuleContext) -> bool:
        """What has not expired; of a server's QoS 1 what cannot have gone to somebody else."""
        if one.expires_ns <= at.timestamp_ns:
            return False  # ACK314, where it is one of QoS 2
        return not may_move(one, direction, at.model(SessionModel))

    def tell(self, one: Carried) -> str:
        """The packet, its identifier and its topic."""
        topic = "" if one.topic is None else f" ({shown(one.topic)})"
        return (
            f"{one.step} id {one.packet_identifier}{topic} was unacknowledged when the connection broke and was not "
            "sent again when the session continued"
        )
