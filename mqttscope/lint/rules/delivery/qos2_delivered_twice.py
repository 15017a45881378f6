from mqttscope.lint.message_model import SETTLE_NS, Copy, Messages
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Confidence, Findings, Needs, Related, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, MessageRule, paired, steady_match
from mqttscope.lint.session_model import SessionModel, session_match
from mqttscope.mqtt import Publish


class Qos2DeliveredTwice(MessageRule):
    """A message that was published once with QoS 2 reaches a subscriber twice.

    QoS 2 is what one pays four packets for so that this does not happen.  It is an error where the publisher has sent
    the same packet again, which the server has taken for another message; elsewhere another publisher that was not
    captured may have sent the same payload, which is a warning.  When a session continues, what was delivered on the
    connection before counts as well, once its exchange had ended there.

    Instead, keep the packet identifier of a QoS 2 message until its PUBREL, and hand the message on once.
    """

    code = "DLV417"
    severities = (Severity.ERROR, Severity.WARNING)
    statements = {V3_1: {"V31-PUBLISH-qos2-hold": ""}}
    also = {V5: ("MQTT-4.3.3-10",), V3_1_1: ("MQTT-4.3.3-2",)}
    when = "qos"
    needs = ALL_SUBSCRIPTIONS | Needs.WHOLE_SENDER
    models = (Messages, SessionModel)

    good = examples("""
        sent again by the publisher, delivered once
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 2; opened 3.1.1; +2 > publish a 21.5 qos=2 id=7
            +5 > publish a 21.5 dup qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; @1 < publish a 21.5 qos=2 id=3
            @1 > pubrec 3; @1 < pubrel 3; @1 > pubcomp 3
        a copy for each subscription
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
        the exchange continues on the next connection, with a PUBLISH for a PUBREC that got lost
            @1 opened client=c2 resume session_expiry_interval=3600; @1 > subscribe 1 a:2; @1 < suback 1 2; opened
            +2 > publish a 21.5 qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; @1 < publish a 21.5 qos=2 id=3
            @1 > pubrec 3; @1 > reset; @2 opened client=c2 resume session_expiry_interval=3600 < present
            @2 < publish a 21.5 dup qos=2 id=3; @2 > pubrec 3; @2 < pubrel 3; @2 > pubcomp 3
        after a session that did not continue
            @1 opened client=c2 resume session_expiry_interval=3600; @1 > subscribe 1 a:2; @1 < suback 1 2; opened
            +2 > publish a 21.5 qos=2 id=7 retain; < pubrec 7; > pubrel 7; < pubcomp 7; @1 < publish a 21.5 qos=2 id=3
            @1 > pubrec 3; @1 < pubrel 3; @1 > pubcomp 3; @1 > disconnect; @1 > fin
            @2 opened client=c2; @2 > subscribe 1 a:2; @2 < suback 1 2; @2 < publish a 21.5 retain qos=2 id=1
            @2 > pubrec 1; @2 < pubrel 1; @2 > pubcomp 1
        a message of the same content may have been lost by the capture
            @1 opened client=c2 resume session_expiry_interval=3600; @1 > subscribe 1 a:2; @1 < suback 1 2; opened
            +2 > publish a 21.5 qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; lost > publish a 21.5 qos=2 id=8
            > pingreq; < pingresp; @1 < publish a 21.5 qos=2 id=3; @1 > pubrec 3; @1 < pubrel 3; @1 > pubcomp 3
            @1 > disconnect; @1 > fin; @2 opened client=c2 resume session_expiry_interval=3600 < present
            @2 < publish a 21.5 qos=2 id=4; @2 > pubrec 4; @2 < pubrel 4; @2 > pubcomp 4
    """)
    bad = examples("""
        sent again by the publisher
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 2; opened 3.1.1; +2 > publish a 21.5 qos=2 id=7
            +5 > publish a 21.5 dup qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; @1 < publish a 21.5 qos=2 id=3
            @1 > pubrec 3; @1 < pubrel 3; @1 > pubcomp 3; @1 < publish a 21.5 qos=2 id=4 !packet_identifier
            @1 > pubrec 4; @1 < pubrel 4; @1 > pubcomp 4
        sent again by the publisher, in 3.1
            @1 opened 3.1 client=c2; @1 > subscribe 1 a:2; @1 < suback 1 2; opened; +2 > publish a 21.5 qos=2 id=7
            +5 > publish a 21.5 dup qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; @1 < publish a 21.5 qos=2 id=3
            @1 > pubrec 3; @1 < pubrel 3; @1 > pubcomp 3; @1 < publish a 21.5 qos=2 id=4 !packet_identifier
            @1 > pubrec 4; @1 < pubrel 4; @1 > pubcomp 4
        published once: only a warning
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 2; opened; +2 > publish a 21.5 qos=2 id=7
            < pubrec 7; > pubrel 7; < pubcomp 7; @1 < publish a 21.5 qos=2 id=3; @1 > pubrec 3; @1 < pubrel 3
            @1 > pubcomp 3; @1 < publish a 21.5 qos=2 id=4 !packet_identifier; @1 > pubrec 4; @1 < pubrel 4
            @1 > pubcomp 4
        again after the session continues: only a warning
            @1 opened client=c2 resume session_expiry_interval=3600; @1 > subscribe 1 a:2; @1 < suback 1 2; opened
            +2 > publish a 21.5 qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; @1 < publish a 21.5 qos=2 id=3
            @1 > pubrec 3; @1 < pubrel 3; @1 > pubcomp 3; @1 > disconnect; @1 > fin
            @2 opened client=c2 resume session_expiry_interval=3600 < present
            @2 < publish a 21.5 qos=2 id=4 !packet_identifier; @2 > pubrec 4; @2 < pubrel 4; @2 > pubcomp 4
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Count the copies that the client has got of the message, each with its packet identifier."""
        if packet.qos != 2:
            return None
        found = paired(packet, at)
        sent = None if found is None or found.retained else found.sole
        copies = None if found is None or sent is None or sent.qos != 2 else sent.copies.get(found.owner)
        if found is None or sent is None or not copies:
            return None
        match = steady_match(sent.topic, sent.timestamp_ns - SETTLE_NS, at, session_match(sent.topic, at))
        connect = at.history.connect
        model = at.model(Messages)
        if match is None or (connect is not None and connect.bridge) or model.hides(sent.topic):
            return None
        if model.waits_behind_a_hole(at):
            return None  # it may have been published twice
        counted = {(one.key, one.packet_identifier) for one in copies if one.qos == 2 and not one.retained}
        if len(counted) < len(match.subscriptions) or (at.key, packet.packet_identifier) in counted:
            return None
        if not all(one.key == at.key or self._has_ended(one, at) for one in copies):
            return None  # an exchange that another connection began
        first = copies[0]
        return self.report(
            "packet_identifier",
            f"message on {sent.topic!r}, published with QoS 2, reaches {found.owner!r} {len(copies) + 1} times",
            severity=None if sent.resent else Severity.WARNING,
            confidence=None if sent.resent else Confidence.HEURISTIC,
            related=(
                Related.to("the message as published", sent),
                Related.to("the message as delivered before", first),
            ),
        )

    def _has_ended(self, copy: Copy, at: RuleContext) -> bool:
        """Whether the delivery on an earlier connection had come to its end there, in the session that continues."""
        model = at.model(SessionModel)
        return model.has_all_filters(at) and model.whole and copy.packet_identifier not in model.server_sent
