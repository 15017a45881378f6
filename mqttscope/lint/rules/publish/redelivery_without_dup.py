from mqttscope.lint.context import RuleContext
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Confidence, Findings, Needs, Related, Rule, Severity, examples, shown
from mqttscope.lint.session_model import SessionModel, doubted
from mqttscope.mqtt.packets import Publish
from mqttscope.session.inflight import SENT
from mqttscope.session.matching import FAILURE


class RedeliveryWithoutDup(Rule):
    """An unacknowledged PUBLISH is resent with DUP 0.

    DUP indicates that the receiver may already have the message.  Without it a QoS 1 receiver cannot detect the
    duplicate, and the packet identifier seems to be used twice.  The same identifier with another topic or another
    payload is a new message, which ACK202 reports.

    An acknowledged identifier is free for a new message, but not while its acknowledgment is under way: if the
    acknowledgment number of TCP shows that the sender had not received it, the PUBLISH cannot be a new message.  A
    proxy that ends TCP for its client acknowledges at once, and nothing is reported there.

    Instead, set DUP to 1 whenever you resend a PUBLISH, on the same connection or on a later one of the session.
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
    signs = ("taken", "carries", "unaware")
    needs = Needs.WHOLE
    models = (SessionModel,)

    good = examples("""
        with DUP 1, after a reconnect
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a A dup qos=1 id=7; @1 < puback 7
        the server has lost the session
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; > reset
            @1 opened resume session_expiry_interval=3600; @1 > publish a A qos=1 id=7; @1 < puback 7
        an equal message after the PUBACK
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; < puback 7; > publish a A qos=1 id=7
            < puback 7; > reset; @1 opened resume session_expiry_interval=3600 < present; @1 > publish a A qos=1 id=7
            @1 < puback 7
        the capture may lack the PUBACK
            opened resume session_expiry_interval=3600; > publish a A qos=1 id=7; lost < puback 7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > publish a A qos=1 id=7; @1 < puback 7
        a client with the same identifier but another user name
            opened resume user_name=alice session_expiry_interval=3600; > publish a A qos=1 id=7; > reset
            @1 opened resume user_name=bob session_expiry_interval=3600 < present; @1 > publish a A qos=1 id=7
            @1 < puback 7
        the same again, and the PUBACK may have arrived
            opened; > publish a A qos=1 id=7; crossing < puback 7; > publish a A qos=1 id=7; < puback 7
        another message while the PUBACK is under way: not the same one again
            opened; > publish a A qos=1 id=7; < puback 7; crossing > publish a B qos=1 id=7; < puback 7
        with DUP 1 while the PUBACK is under way
            opened 3.1.1; > publish a A qos=1 id=7; < puback 7; crossing > publish a A dup qos=1 id=7; < puback 7
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
        while the PUBACK is under way
            opened; > publish a A qos=1 id=7; < puback 7; crossing > publish a A qos=1 id=7 !dup; < puback 7
        by the server, while the PUBCOMP is under way
            opened 3.1.1; < publish a A qos=2 id=7; > pubrec 7; < pubrel 7; > pubcomp 7
            crossing < publish a A qos=2 id=7 !dup
        the first PUBLISH used a Topic Alias
            opened resume session_expiry_interval=3600 < topic_alias_maximum=5; > publish a topic_alias=1
            > publish - A qos=1 id=7 topic_alias=1; > reset; @1 opened resume session_expiry_interval=3600 < present
            @1 > publish a A qos=1 id=7 !dup
        in MQTT 3.1
            opened 3.1 resume; > publish a A qos=1 id=7; > reset; @1 opened resume; @1 > publish a A qos=1 id=7 !dup
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for the message among the unacknowledged ones of this and earlier connections."""
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
            return self._report(at, identifier, f"{seconds:.3g} s after the first transmission", first)
        ended = party.ended.get(identifier)
        if ended is not None and party.in_step() and at.acknowledged < ended.answer_position:
            first_sent = ended.exchange
            if party.settled.get(identifier) == ended.packet or ended.qos != packet.qos:
                return None
            if ended.reason_code >= FAILURE or packet.missing or not party.repeats(packet, at.topic, first_sent):
                return None
            seconds = (at.timestamp_ns - ended.timestamp_ns) / 1e9
            when = f"{seconds:.3g} s after the first transmission: its acknowledgment was under way"
            return self._report(at, identifier, when, Related.to(f"PUBLISH {identifier}", first_sent))
        if not at.history.carries or party.has_sent(identifier):
            return None
        model = at.model(SessionModel)
        exchange = model.carried(at.direction, at).get(identifier)
        if exchange is None or not exchange.sure or exchange.answered or exchange.phase is not SENT:
            return None
        if not exchange.is_message(packet, at.topic):
            return None
        doubt = doubted(apart=model.apart)
        if model.resumed is None:
            if not at.from_client:
                return None  # a server that has lost the session reuses the same identifiers
            doubt.setdefault("confidence", Confidence.HEURISTIC)
        return self._report(at, identifier, "after the reconnect", exchange.related, **doubt)

    def _report(self, at: RuleContext, identifier: int, when: str, first: Related, **doubt: object) -> Findings:
        topic = "" if at.topic is None else f" {shown(at.topic)}"
        return self.report(
            "dup",
            f"PUBLISH{topic} with identifier {identifier} is resent with DUP 0, {when}",
            related=(first,),
            **doubt,  # type: ignore[arg-type]
        )
