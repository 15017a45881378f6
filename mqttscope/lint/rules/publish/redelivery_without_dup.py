from mqttscope.lint.context import RuleContext
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Confidence, Findings, Needs, Related, Rule, Severity, examples, shown
from mqttscope.lint.session_model import SessionModel, doubted
from mqttscope.mqtt.packets import Publish
from mqttscope.session.inflight import SENT


class RedeliveryWithoutDup(Rule):
    """A PUBLISH that has not been acknowledged is sent again with DUP 0.

    DUP tells the receiver that it may have the message already.  Without it the receiver of QoS 1 hands the message on
    twice without a sign, and the packet identifier is taken a second time while it is in use.  The same identifier
    with another topic or another payload is a new message: ACK202.

    Instead, set DUP to 1 whenever a PUBLISH is sent again, on the same connection or on a later one of the session.
    """

    code = "PUB311"
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-3.3.1-1": ""},
        V3_1_1: {"MQTT-3.3.1-1": ""},
        V3_1: {"V31-HEADER-dup-scope": "", "V31-PUBLISH-dup-on-resend": ""},
    }
    when = "qos"
    signs = ("taken", "carries")
    needs = Needs.WHOLE
    models = (SessionModel,)

    good = examples("""
        with DUP 1, after a reconnect
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a A dup qos=1 id=7; @1 < puback 7
        the server has lost the session
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600; @1 > publish a A qos=1 id=7; @1 < puback 7
        the same again after the PUBACK
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; < puback 7; > publish a A qos=1 id=7
            < puback 7; > reset; @1 opened resume session_expiry_interval=3600 < present; @1 > publish a A qos=1 id=7
            @1 < puback 7
        the PUBACK may be among what the capture lost
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; lost < puback 7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a A qos=1 id=7; @1 < puback 7
        another user's client of the same name
            opened resume user_name=alice session_expiry_interval=3600; > publish a A qos=1 id=7; > reset
            @1 opened resume user_name=bob session_expiry_interval=3600 < present; @1 > publish a A qos=1 id=7
            @1 < puback 7
        PUBREL after a reconnect
            opened resume session_expiry_interval=3600; > publish a A qos=2 id=7; < pubrec 7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > pubrel 7
    """)
    bad = examples("""
        after a reconnect
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a A qos=1 id=7 !dup; @1 < puback 7
        by the server, in MQTT 3.1.1
            opened 3.1.1 resume; < publish a A qos=2 id=7; > reset; @1 opened resume < present
            @1 < publish a A qos=2 id=7 !dup
        on the same connection, in MQTT 3.1.1
            opened 3.1.1; > publish a A qos=1 id=7; +5 > publish a A qos=1 id=7 !dup
        its topic was an alias at first
            opened resume session_expiry_interval=3600 < topic_alias_maximum=5; > publish a topic_alias=1
            > publish - A qos=1 id=7 topic_alias=1; > reset; @1 opened resume session_expiry_interval=3600 < present
            @1 > publish a A qos=1 id=7 !dup
        in MQTT 3.1
            opened 3.1 resume; > publish a A qos=1 id=7; > reset; @1 opened resume; @1 > publish a A qos=1 id=7 !dup
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for the message among what its sender waits for, on this connection and on those before."""
        identifier, party = packet.packet_identifier, at.party
        if packet.dup or identifier is None:
            return None
        running = at.sender.running(identifier, "publish")
        if running is not None:
            if not party.in_step() or party.settled.get(identifier) == running.packet:
                return None
            if running.qos != packet.qos or not party.repeats(packet, at.topic, running):
                return None  # ACK202
            seconds = (at.timestamp_ns - running.timestamp_ns) / 1e9
            first = Related.to(f"PUBLISH {identifier}", running)
            return self._told(at, identifier, f"{seconds:.3g} s after it was sent first", first)
        if not at.history.carries or party.has_sent(identifier):
            return None
        model = at.model(SessionModel)
        one = model.carried(at.direction, at).get(identifier)
        if one is None or not one.sure or one.answered or one.phase is not SENT:
            return None
        if not one.is_message(packet, at.topic):
            return None
        doubt = doubted(apart=model.apart)
        if model.resumed is None:
            if not at.from_client:
                return None  # a server that has lost the session begins with the same identifiers
            doubt.setdefault("confidence", Confidence.HEURISTIC)
        return self._told(at, identifier, "after the reconnect", one.related, **doubt)

    def _told(self, at: RuleContext, identifier: int, when: str, first: Related, **doubt: object) -> Findings:
        topic = "" if at.topic is None else f" {shown(at.topic)}"
        return self.report(
            "dup",
            f"PUBLISH{topic} with identifier {identifier} is sent again with DUP 0, {when}",
            related=(first,),
            **doubt,  # type: ignore[arg-type]
        )
