from mqttscope.lint.rules import V3_1, V3_1_1, V5, Confidence, Findings, Needs, Rule, RuleContext, Severity, examples
from mqttscope.lint.session_model import SessionModel, doubted
from mqttscope.lint.strings import shown
from mqttscope.lint.topics import ReportedTexts
from mqttscope.mqtt.packets import Publish, Pubrel
from mqttscope.mqtt.topics import matches


class CleanStartIgnored(Rule):
    """A side continues the old session although the client asked for a new one.

    With Clean Start (CleanSession) 1 both sides start without state.  A server that still sends unfinished messages
    gives the client unknown messages and packet identifiers; a client that does so confuses the server in the same
    way.  Session Present 1 is CON215.  Messages for an old subscription before the client has subscribed to anything
    are a heuristic warning, since a server may subscribe on behalf of a client.

    Instead, discard subscriptions and unfinished messages on a clean start, and publish messages that are still needed
    as new ones.
    """

    code = "SES306"
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-3.1.2-4": "", "MQTT-3.1.4-4": "server"},
        V3_1_1: {"MQTT-3.1.2-6": "", "MQTT-3.1.4-3": "server"},
        V3_1: {"V31-CONNECT-clean-session": ""},
    }
    signs = ("carries",)
    needs = Needs.OPENING | Needs.WHOLE_SENDER
    models = (SessionModel,)
    Memory = ReportedTexts

    good = examples("""
        no packets of the old session
            opened resume session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2; < publish a x qos=1 id=7
            > reset; @1 opened; @1 > subscribe 1 a:2; @1 < suback 1 2; @1 < publish a x qos=1 id=7
        the session continues
            opened resume session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2; < publish a x qos=1 id=7
            > reset; @1 opened resume session_expiry_interval=3600 < present; @1 < publish a x dup qos=1 id=7
        the message is published as a new one
            opened resume session_expiry_interval=3600; > publish a x qos=2 id=7; > reset; @1 opened
            @1 > publish a x qos=2 id=7; @1 < pubrec 7; @1 > pubrel 7; @1 < pubcomp 7
        an old subscription is made again
            opened resume session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2; > reset; @1 opened
            @1 > subscribe 1 a:2; @1 < publish a x qos=1 id=7
        a client with the same identifier but another user name
            opened resume user_name=alice session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2; > reset
            @1 opened user_name=bob; @1 < publish a
    """)
    bad = examples("""
        a message from the server
            opened resume session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2; < publish a x qos=1 id=7
            > reset; @1 opened; @1 < publish a x dup qos=1 id=7 !dup; @1 > puback 7
        a PUBREL from the server, in MQTT 3.1.1
            opened 3.1.1 resume; > subscribe 1 a:2; < suback 1 2; < publish a x qos=2 id=7; > pubrec 7; > reset
            @1 opened; @1 < pubrel 7 !packet_identifier; @1 > pubcomp 7
        a message from the client, in MQTT 3.1
            opened 3.1 resume; > publish a x qos=1 id=7; > reset; @1 opened; @1 > publish a x dup qos=1 id=7 !dup
        a message for an old subscription, reported once
            opened resume session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2; > reset; @1 opened
            @1 < publish a !topic_name; @1 < publish a
    """)

    def check(self, packet: Publish | Pubrel, at: RuleContext) -> Findings:
        """Look for packets of the discarded session."""
        if not at.history.carries or not at.connection.clean_start:
            return None
        model = at.model(SessionModel)
        if model.owner != at.key:
            return None
        identifier = packet.packet_identifier
        exchange = None
        if identifier is not None and not at.party.has_sent(identifier):
            exchange = model.discarded(at.direction).get(identifier)
        who = "client" if at.from_client else "server"
        doubt = doubted(apart=model.before_apart)
        if isinstance(packet, Pubrel):
            if exchange is None or exchange.qos != 2 or exchange.answered or identifier in at.party.owes_pubrel:
                return None  # unrelated, or the answer to a PUBREC from a peer that kept its state
            text = f"the {who} sends PUBREL {identifier} of the old session"
            return self._report("packet_identifier", text, at, related=(exchange.related,), **doubt)
        if packet.dup and packet.qos:
            if exchange is None or not model.is_discarded(packet, at):
                return None
            if not model.before_apart and at.version is not V3_1:
                doubt["confidence"] = Confidence.CERTAIN  # nothing was sent before that this could repeat
            text = f"the {who} sends PUBLISH {shown(at.topic or '')} with identifier {identifier} of the old session"
            return self._report("dup", text, at, related=(exchange.related,), **doubt)
        topic = at.topic
        if at.from_client or topic is None or at.history.subscriptions.requests or not model.discarded_filters:
            return None
        old = next((name for name in model.discarded_filters if matches(name, topic, shared=at.version is V5)), None)
        if old is None or not at.memory(self).first(f"{at.key}"):
            return None
        text = f"the server delivers {shown(topic)} for {old!r}, a subscription of the old session"
        return self._report("topic_name", text, at, severity=Severity.WARNING, confidence=Confidence.HEURISTIC)

    def _report(self, field: str, violation: str, at: RuleContext, **how: object) -> Findings:
        text = f"clean start of {at.client_name!r} did not discard the old session: {violation}"
        return self.report(field, text, **how)  # type: ignore[arg-type]
