from mqttscope.lint.finding import Scope
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Confidence, Findings, Needs, Rule, RuleContext, Severity, examples
from mqttscope.lint.session_model import SessionModel
from mqttscope.mqtt.packets import Publish


class DupOnFirstTransmission(Rule):
    """A PUBLISH has the DUP flag set although its message was never sent before.

    DUP indicates that the receiver may already have the message.  A wrong DUP flag hides real repeats; servers that
    copy it from the publisher's PUBLISH mislead every subscriber that checks it.  SES306 reports messages of a
    discarded session.

    Instead, set DUP only when you resend the same PUBLISH with the same packet identifier.
    """

    code = "PUB208"
    scope = Scope.SESSION
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-3.3.1-3": "server", "MQTT-4.3.2-2": "", "MQTT-4.3.3-2": ""},
        V3_1_1: {"MQTT-3.3.1-3": "server"},
    }
    also = {V3_1_1: ("MQTT-4.3.2-1", "MQTT-4.3.3-1"), V3_1: ("V31-PUBLISH-dup-on-resend",)}
    when = "dup"
    needs = Needs.OPENING | Needs.SESSION_BIRTH | Needs.WHOLE_SENDER
    models = (SessionModel,)

    good = examples("""
        DUP 0 on the first transmission
            opened; > publish a qos=1 id=1; < puback 1
        a continued session
            opened resume < present; > publish a dup qos=1 id=1; < puback 1
        resent while the acknowledgement was in flight
            opened 3.1.1; > publish a qos=1 id=1; < puback 1; crossing > publish a dup qos=1 id=1; < puback 1
        resent in MQTT 3.1.1, whether or not the server kept the session
            opened 3.1.1 resume; > publish a dup qos=1 id=1; < puback 1
        the first transmission is not in the capture
            opened; lost > publish a qos=1 id=1; > publish a dup qos=1 id=1
    """)
    bad = examples("""
        the first message of a new session
            opened; > publish a dup qos=1 id=1 !dup
        after a clean start, with QoS 2
            opened; > publish a dup qos=2 id=1 !dup
        forwarded by the server, in MQTT 3.1.1
            opened 3.1.1; < publish a dup qos=1 id=1 !dup
        another message with a free identifier
            opened 3.1; > publish a 1 qos=1 id=1; < puback 1; > publish a 2 dup qos=1 id=1 !dup
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for an earlier transmission on this connection."""
        identifier = packet.packet_identifier
        if packet.qos not in (1, 2) or identifier is None or at.sender.running(identifier, "publish") is not None:
            return None
        if at.connection.session_present and not at.connection.clean_start:
            return None  # the message may come from an earlier connection of the session
        ended = at.party.ended.get(identifier)
        if ended is not None:
            if at.party.repeats(packet, at.topic, ended.exchange):
                return None
        elif at.party.has_sent(identifier) or not _has_no_backlog(at):
            return None
        elif at.connection.clean_start and at.history.carries:
            model = at.model(SessionModel)
            if not model.before_apart and model.is_discarded(packet, at):
                return None
        precise = ("MQTT-4.3.2-2" if packet.qos == 1 else "MQTT-4.3.3-2") if at.version is V5 else None
        if precise is None and at.version is V3_1_1:
            precise = "MQTT-4.3.2-1" if packet.qos == 1 else "MQTT-4.3.3-1"
        cited = [] if at.from_client or at.version is V3_1 else ["MQTT-3.3.1-3"]
        return self.report(
            "dup",
            f"PUBLISH {at.topic!r} with identifier {identifier} has DUP 1 on its first transmission",
            confidence=Confidence.LIKELY if at.version is V3_1 else Confidence.CERTAIN,
            statements=(*cited, *([precise] if precise else [])),
        )


def _has_no_backlog(at: RuleContext) -> bool:
    """Whether the sender cannot have messages from an earlier connection to resend."""
    connection = at.connection
    # 3.1.1 MQTT-4.4.0-1: with CleanSession 0 a client resends, whatever the Session Present flag; in 5.0 resending in a
    # lost session is SES201.
    return bool(connection.clean_start) or not at.from_client
