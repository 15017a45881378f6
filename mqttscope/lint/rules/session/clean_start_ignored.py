"""SES306."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Needs, Rule
from mqttscope.lint.session_model import SessionModel, doubted
from mqttscope.lint.strings import shown
from mqttscope.lint.topics import Seen
from mqttscope.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from mqttscope.mqtt.topics import matches
from mqttscope.session.inflight import SENT

_KEPT = Properties(session_expiry_interval=3_600)
_BEGINS = opened(clean_start=False, connect=_KEPT)
_BREAKS = closes("client", "reset")
_ASKS = (client(Subscribe(1, subscriptions=[Subscription("a", 2)])), server(Suback(1, reason_codes=[2])))


def _message(qos: int = 1, *, dup: bool = False, payload: bytes = b"x") -> Publish:
    return Publish(dup=dup, qos=qos, topic_name="a", packet_identifier=7, payload=payload)


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
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-3.1.2-4": "", "MQTT-3.1.4-4": "server"},
        V3_1_1: {"MQTT-3.1.2-6": "", "MQTT-3.1.4-3": "server"},
        V3_1: {"V31-CONNECT-clean-session": ""},
    }
    looks_at = (Publish, Pubrel)
    signs = ("carries",)
    needs = Needs.OPENING | Needs.WHOLE_SENDER
    models = (SessionModel,)
    Memory = Seen

    good = examples(
        lambda: [
            conversation(
                "nothing of the old session",
                *_BEGINS,
                *_ASKS,
                server(_message()),
                _BREAKS,
                *on(1, *opened(), *_ASKS, server(_message())),
            ),
            conversation(
                "the session continues",
                *_BEGINS,
                *_ASKS,
                server(_message()),
                _BREAKS,
                *on(1, *opened(clean_start=False, connect=_KEPT, session_present=True), server(_message(dup=True))),
            ),
            conversation(
                "the message is published again as a new one",
                *_BEGINS,
                client(_message(2)),
                _BREAKS,
                *on(1, *opened(), client(_message(2)), server(Pubrec(7)), client(Pubrel(7)), server(Pubcomp(7))),
            ),
            conversation(
                "an old subscription is made again",
                *_BEGINS,
                *_ASKS,
                _BREAKS,
                *on(1, *opened(), client(Subscribe(1, subscriptions=[Subscription("a", 2)])), server(_message())),
            ),
            conversation(
                "another user's client of the same name",
                *opened(clean_start=False, connect=_KEPT, user_name="alice"),
                *_ASKS,
                _BREAKS,
                *on(1, *opened(user_name="bob"), server(Publish(topic_name="a"))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a message of the server",
                *_BEGINS,
                *_ASKS,
                server(_message()),
                _BREAKS,
                *on(1, *opened(), server(_message(dup=True)).marked("dup"), client(Puback(7))),
            ),
            conversation(
                "a PUBREL of the server, in MQTT 3.1.1",
                *opened(V3_1_1, clean_start=False),
                *_ASKS,
                server(_message(2)),
                client(Pubrec(7)),
                _BREAKS,
                *on(1, *opened(V3_1_1), server(Pubrel(7)).marked("packet_identifier"), client(Pubcomp(7))),
            ),
            conversation(
                "a message of the client, in MQTT 3.1",
                *opened(V3_1, clean_start=False),
                client(_message()),
                _BREAKS,
                *on(1, *opened(V3_1), client(_message(dup=True)).marked("dup")),
            ),
            conversation(
                "an old subscription, once",
                *_BEGINS,
                *_ASKS,
                _BREAKS,
                *on(
                    1, *opened(), server(Publish(topic_name="a")).marked("topic_name"), server(Publish(topic_name="a"))
                ),
            ),
        ]
    )

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
            if one is None or one.phase is not SENT or not one.is_message(packet, at.topic):
                return None
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
