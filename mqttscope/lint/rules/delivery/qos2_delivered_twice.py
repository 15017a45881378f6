from mqttscope.lint.message_model import SETTLE_NS, DeliveredCopy, Messages
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Confidence, Findings, Needs, Related, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, MessageRule, pairing_of, steady_match
from mqttscope.lint.session_model import SessionModel, session_match
from mqttscope.mqtt import Publish


class Qos2DeliveredTwice(MessageRule):
    """A message that was published once with QoS 2 reaches a subscriber twice.

    Preventing duplicates is the purpose of the four packets of QoS 2.  An error if the publisher resent the packet and
    the server treated it as a new message.  Otherwise another publisher that was not captured may have sent the same
    payload, which is a warning.  In a continued session, deliveries on the previous connection also count if their
    exchange ended there.

    Instead, keep the packet identifier of a QoS 2 message until its PUBREL, and forward the message once.
    """

    code = "DLV417"
    severities = (Severity.ERROR, Severity.WARNING)
    statements = {V3_1: {"V31-PUBLISH-qos2-hold": ""}}
    also = {V5: ("MQTT-4.3.3-10",), V3_1_1: ("MQTT-4.3.3-2",)}
    when = "qos"
    needs = ALL_SUBSCRIPTIONS | Needs.WHOLE_SENDER
    models = (Messages, SessionModel)

    good = examples("""
        resent by the publisher, delivered once
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 2; opened 3.1.1; +2 > publish a 21.5 qos=2 id=7
            +5 > publish a 21.5 dup qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; @1 < publish a 21.5 qos=2 id=3
            @1 > pubrec 3; @1 < pubrel 3; @1 > pubcomp 3
        one copy for each subscription
            @1 opened client=c2; @1 > subscribe 1 a:2 #:2; @1 < suback 1 2 2; opened 3.1.1
            +2 > publish a 21.5 qos=2 id=7; +5 > publish a 21.5 dup qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7
            @1 < publish a 21.5 qos=2 id=3; @1 > pubrec 3; @1 < pubrel 3; @1 > pubcomp 3; @1 < publish a 21.5 qos=2 id=4
            @1 > pubrec 4; @1 < pubrel 4; @1 > pubcomp 4
        published twice
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 2; opened; +2 > publish a 21.5 qos=2 id=7
            < pubrec 7; > pubrel 7; < pubcomp 7; +2 > publish a 21.5 qos=2 id=8; < pubrec 8; > pubrel 8; < pubcomp 8
            @1 < publish a 21.5 qos=2 id=3; @1 > pubrec 3; @1 < pubrel 3; @1 > pubcomp 3; @1 < publish a 21.5 qos=2 id=4
            @1 > pubrec 4; @1 < pubrel 4; @1 > pubcomp 4
        delivered with QoS 1
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened 3.1.1; +2 > publish a 21.5 qos=2 id=7
            < pubrec 7; > pubrel 7; < pubcomp 7; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
            @1 < publish a 21.5 qos=1 id=2; @1 > puback 2
        the exchange continues on the next connection: the PUBREC was lost, so PUBLISH is resent
            @1 opened client=c2 resume session_expiry_interval=3600; @1 > subscribe 1 a:2; @1 < suback 1 2; opened
            +2 > publish a 21.5 qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; @1 < publish a 21.5 qos=2 id=3
            @1 > pubrec 3; @1 > reset; @2 opened client=c2 resume session_expiry_interval=3600 < present
            @2 < publish a 21.5 dup qos=2 id=3; @2 > pubrec 3; @2 < pubrel 3; @2 > pubcomp 3
        after a session that was not continued
            @1 opened client=c2 resume session_expiry_interval=3600; @1 > subscribe 1 a:2; @1 < suback 1 2; opened
            +2 > publish a 21.5 qos=2 id=7 retain; < pubrec 7; > pubrel 7; < pubcomp 7; @1 < publish a 21.5 qos=2 id=3
            @1 > pubrec 3; @1 < pubrel 3; @1 > pubcomp 3; @1 > disconnect; @1 > fin
            @2 opened client=c2; @2 > subscribe 1 a:2; @2 < suback 1 2; @2 < publish a 21.5 retain qos=2 id=1
            @2 > pubrec 1; @2 < pubrel 1; @2 > pubcomp 1
        the capture may lack a message with the same content
            @1 opened client=c2 resume session_expiry_interval=3600; @1 > subscribe 1 a:2; @1 < suback 1 2; opened
            +2 > publish a 21.5 qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; lost > publish a 21.5 qos=2 id=8
            > pingreq; < pingresp; @1 < publish a 21.5 qos=2 id=3; @1 > pubrec 3; @1 < pubrel 3; @1 > pubcomp 3
            @1 > disconnect; @1 > fin; @2 opened client=c2 resume session_expiry_interval=3600 < present
            @2 < publish a 21.5 qos=2 id=4; @2 > pubrec 4; @2 < pubrel 4; @2 > pubcomp 4
    """)
    bad = examples("""
        resent by the publisher
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 2; opened 3.1.1; +2 > publish a 21.5 qos=2 id=7
            +5 > publish a 21.5 dup qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; @1 < publish a 21.5 qos=2 id=3
            @1 > pubrec 3; @1 < pubrel 3; @1 > pubcomp 3; @1 < publish a 21.5 qos=2 id=4 !packet_identifier
            @1 > pubrec 4; @1 < pubrel 4; @1 > pubcomp 4
        resent by the publisher, in 3.1
            @1 opened 3.1 client=c2; @1 > subscribe 1 a:2; @1 < suback 1 2; opened; +2 > publish a 21.5 qos=2 id=7
            +5 > publish a 21.5 dup qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; @1 < publish a 21.5 qos=2 id=3
            @1 > pubrec 3; @1 < pubrel 3; @1 > pubcomp 3; @1 < publish a 21.5 qos=2 id=4 !packet_identifier
            @1 > pubrec 4; @1 < pubrel 4; @1 > pubcomp 4
        published once: only a warning
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 2; opened; +2 > publish a 21.5 qos=2 id=7
            < pubrec 7; > pubrel 7; < pubcomp 7; @1 < publish a 21.5 qos=2 id=3; @1 > pubrec 3; @1 < pubrel 3
            @1 > pubcomp 3; @1 < publish a 21.5 qos=2 id=4 !packet_identifier; @1 > pubrec 4; @1 < pubrel 4
            @1 > pubcomp 4
        again in the continued session: only a warning
            @1 opened client=c2 resume session_expiry_interval=3600; @1 > subscribe 1 a:2; @1 < suback 1 2; opened
            +2 > publish a 21.5 qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; @1 < publish a 21.5 qos=2 id=3
            @1 > pubrec 3; @1 < pubrel 3; @1 > pubcomp 3; @1 > disconnect; @1 > fin
            @2 opened client=c2 resume session_expiry_interval=3600 < present
            @2 < publish a 21.5 qos=2 id=4 !packet_identifier; @2 > pubrec 4; @2 < pubrel 4; @2 > pubcomp 4
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Count the copies that the client has received, each with its packet identifier."""
        if packet.qos != 2:
            return None
        pairing = pairing_of(packet, at)
        sent = None if pairing is None or pairing.retained else pairing.sole
        copies = None if pairing is None or sent is None or sent.qos != 2 else sent.copies.get(pairing.owner)
        if pairing is None or sent is None or not copies:
            return None
        match = steady_match(sent.topic, sent.timestamp_ns - SETTLE_NS, at, session_match(sent.topic, at))
        connect = at.history.connect
        model = at.model(Messages)
        if match is None or (connect is not None and connect.bridge) or model.hides(sent.topic):
            return None
        if model.waits_behind_a_hole(at):
            return None  # it may have been published twice
        counted = {(copy.key, copy.packet_identifier) for copy in copies if copy.qos == 2 and not copy.retained}
        if len(counted) < len(match.subscriptions) or (at.key, packet.packet_identifier) in counted:
            return None
        if not all(copy.key == at.key or self._has_ended(copy, at) for copy in copies):
            return None  # an exchange that another connection began
        first = copies[0]
        return self.report(
            "packet_identifier",
            f"message on {sent.topic!r}, published with QoS 2, reaches {pairing.owner!r} {len(copies) + 1} times",
            severity=None if sent.resent else Severity.WARNING,
            confidence=None if sent.resent else Confidence.HEURISTIC,
            related=(
                Related.to("the message as published", sent),
                Related.to("the message as delivered before", first),
            ),
        )

    def _has_ended(self, copy: DeliveredCopy, at: RuleContext) -> bool:
        """Whether the delivery was completed on an earlier connection of the continued session."""
        model = at.model(SessionModel)
        return model.has_all_filters(at) and model.whole and copy.packet_identifier not in model.server_sent
