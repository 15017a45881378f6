from mqttscope.lint.rules import V3_1, V3_1_1, V5, Confidence, Findings, Needs, Rule, RuleContext, Severity, examples
from mqttscope.lint.session_model import SessionModel, doubted
from mqttscope.lint.strings import shown
from mqttscope.lint.topics import Seen
from mqttscope.mqtt.packets import Publish, Pubrel
from mqttscope.mqtt.topics import matches


class CleanStartIgnored(Rule):
    """A side continues with the old session although the client asked for a new one.

    With Clean Start (CleanSession) 1 both sides begin with nothing.  A server that still sends what it had under way
    hands the client messages and packet identifiers that it knows nothing of; a client that does confuses the server
    in the same way.  Session Present 1 is CON215.  Messages for an old subscription before the client has subscribed
    to anything are a heuristic warning, since a server may subscribe for a client.

    Instead, throw away subscriptions and unfinished messages on a clean start; what still has to be sent is published
    as a new message.
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
    Memory = Seen

    good = examples("""
        nothing of the old session
            opened resume session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2; < publish a x qos=1 id=7
            > reset; @1 opened; @1 > subscribe 1 a:2; @1 < suback 1 2; @1 < publish a x qos=1 id=7
        the session continues
            opened resume session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2; < publish a x qos=1 id=7
            > reset; @1 opened resume session_expiry_interval=3600 < present; @1 < publish a x dup qos=1 id=7
        the message is published again as a new one
            opened resume session_expiry_interval=3600; > publish a x qos=2 id=7; > reset; @1 opened
            @1 > publish a x qos=2 id=7; @1 < pubrec 7; @1 > pubrel 7; @1 < pubcomp 7
        an old subscription is made again
            opened resume session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2; > reset; @1 opened
            @1 > subscribe 1 a:2; @1 < publish a x qos=1 id=7
        another user's client of the same name
            opened resume user_name=alice session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2; > reset
            @1 opened user_name=bob; @1 < publish a
    """)
    bad = examples("""
        a message of the server
            opened resume session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2; < publish a x qos=1 id=7
            > reset; @1 opened; @1 < publish a x dup qos=1 id=7 !dup; @1 > puback 7
        a PUBREL of the server, in MQTT 3.1.1
            opened 3.1.1 resume; > subscribe 1 a:2; < suback 1 2; < publish a x qos=2 id=7; > pubrec 7; > reset
            @1 opened; @1 < pubrel 7 !packet_identifier; @1 > pubcomp 7
        a message of the client, in MQTT 3.1
            opened 3.1 resume; > publish a x qos=1 id=7; > reset; @1 opened; @1 > publish a x dup qos=1 id=7 !dup
        an old subscription, once
            opened resume session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2; > reset; @1 opened
            @1 < publish a !topic_name; @1 < publish a
    """)

    def check(self, packet: Publish | Pubrel, at: RuleContext) -> Findings:
        """Look for what belongs to the session that was discarded."""
        if not at.history.carries or not at.connection.clean_start:
            return None
        model = at.model(SessionModel)
        if model.owner != at.key:
            return None
        identifier = packet.packet_identifier
        one = None
        if identifier is not None and not at.party.has_sent(identifier):
            one = model.discarded(at.direction).get(identifier)
        who = "client" if at.from_client else "server"
        doubt = doubted(apart=model.before_apart)
        if isinstance(packet, Pubrel):
            if one is None or one.qos != 2 or one.answered or identifier in at.party.owes_pubrel:
                return None  # nothing of before, or the answer to a PUBREC, whose sender has not forgotten
            told = f"the {who} sends PUBREL {identifier} of the old session"
            return self._told("packet_identifier", told, at, related=(one.related,), **doubt)
        if packet.dup and packet.qos:
            if one is None or not model.is_discarded(packet, at):
                return None
            if not model.before_apart and at.version is not V3_1:
                doubt["confidence"] = Confidence.CERTAIN  # nothing was sent before that this could repeat
            told = f"the {who} sends PUBLISH {shown(at.topic or '')} with identifier {identifier} of the old session"
            return self._told("dup", told, at, related=(one.related,), **doubt)
        topic = at.topic
        if at.from_client or topic is None or at.history.subscriptions.requests or not model.discarded_filters:
            return None
        found = next((name for name in model.discarded_filters if matches(name, topic, shared=at.version is V5)), None)
        if found is None or not at.memory(self).first(f"{at.key}"):
            return None
        told = f"the server delivers {shown(topic)} for {found!r}, a subscription of the old session"
        return self._told("topic_name", told, at, severity=Severity.WARNING, confidence=Confidence.HEURISTIC)

    def _told(self, field: str, what: str, at: RuleContext, **how: object) -> Findings:
        told = f"clean start of {at.client_name!r} did not discard the old session: {what}"
        return self.report(field, told, **how)  # type: ignore[arg-type]
