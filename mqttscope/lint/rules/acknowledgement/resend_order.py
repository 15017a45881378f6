"""ACK312."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Needs, Rule
from mqttscope.lint.session_model import SessionModel, doubted
from mqttscope.mqtt.packets import Puback, Publish, Pubrec, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from mqttscope.session.inflight import SENT

_KEPT = Properties(session_expiry_interval=3_600)
_BEGINS = opened(clean_start=False, connect=_KEPT)
_RESUMES = opened(clean_start=False, connect=_KEPT, session_present=True)
_BREAKS = closes("client", "reset")
_ASKS = (client(Subscribe(1, subscriptions=[Subscription("#", 1)])), server(Suback(1, reason_codes=[1])))


def _message(identifier: int, *, dup: bool = False, topic: str = "a", qos: int = 1) -> Publish:
    payload = b"%d" % identifier
    return Publish(dup=dup, qos=qos, topic_name=topic, packet_identifier=identifier, payload=payload)


class ResendOrder(Rule):
    """Messages that are sent again after a reconnect come in another order than the first time.

    Order is what a receiver of unacknowledged messages has left: a switch that was turned on and off again ends up
    on.  Senders that sort by packet identifier get it wrong as soon as the identifiers begin again at 1.  Of a server
    only messages with the same topic and QoS are compared, since others have no order.

    Instead, keep unacknowledged messages in the order in which they were sent first, and send them again in it.
    """

    code = "ACK312"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-4.6.0-1": "client", "MQTT-4.6.0-5": "server"},
        V3_1_1: {"MQTT-4.6.0-1": "client", "MQTT-4.6.0-6": "server"},
    }
    looks_at = Publish
    when = "dup"
    signs = ("carries",)
    needs = Needs.OPENING | Needs.WHOLE_SENDER
    models = (SessionModel,)

    good = examples(
        lambda: [
            conversation(
                "in the old order, though their identifiers are not",
                *_BEGINS,
                client(_message(9), _message(1)),
                _BREAKS,
                *on(1, *_RESUMES, client(_message(9, dup=True), _message(1, dup=True)), server(Puback(9), Puback(1))),
            ),
            conversation(
                "in the order of the first connection, on the third",
                *_BEGINS,
                client(_message(1), _message(2)),
                _BREAKS,
                *on(1, *_RESUMES, client(_message(1, dup=True)), _BREAKS),
                *on(2, *_RESUMES, client(_message(1, dup=True), _message(2, dup=True)), server(Puback(1), Puback(2))),
            ),
            conversation(
                "other topics of a server",
                *_BEGINS,
                *_ASKS,
                server(_message(1), _message(2, topic="b")),
                _BREAKS,
                *on(1, *_RESUMES, server(_message(2, dup=True, topic="b"), _message(1, dup=True))),
            ),
            conversation(
                "QoS 2 that PUBREC had answered is over with its PUBLISH",
                *_BEGINS,
                client(_message(1), _message(2, qos=2)),
                server(Pubrec(2)),
                _BREAKS,
                *on(1, *_RESUMES, client(_message(1, dup=True)), server(Puback(1))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "the second message first",
                *_BEGINS,
                client(_message(1), _message(2)),
                _BREAKS,
                *on(
                    1,
                    *_RESUMES,
                    client(_message(2, dup=True), _message(1, dup=True)).marked("packet_identifier"),
                ),
            ),
            conversation(
                "sorted by identifier, by the server, in MQTT 3.1.1",
                *opened(V3_1_1, clean_start=False),
                *_ASKS,
                server(_message(65_535), _message(1)),
                _BREAKS,
                *on(
                    1,
                    *opened(V3_1_1, clean_start=False, session_present=True),
                    server(_message(1, dup=True)),
                    client(Puback(1)),
                    server(_message(65_535, dup=True)).marked("packet_identifier"),
                ),
            ),
            conversation(
                "in MQTT 3.1",
                *opened(V3_1, clean_start=False),
                client(_message(1), _message(2)),
                _BREAKS,
                *on(
                    1,
                    *opened(V3_1, clean_start=False),
                    client(_message(2, dup=True), _message(1, dup=True)).marked("packet_identifier"),
                ),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for a message that was sent later at first and has been sent again already."""
        identifier = packet.packet_identifier
        if not at.history.carries or identifier is None or at.party.has_sent(identifier):
            return None
        model = at.model(SessionModel)
        rows = model.carried(at.direction, at)
        one = rows.get(identifier)
        if one is None or not one.sure or not one.is_message(packet, at.topic):
            return None
        for later in rows.values():
            if later.order <= one.order or not later.sure or later.phase is not SENT:
                continue
            if not at.from_client and (later.topic, later.qos) != (one.topic, one.qos):
                continue
            if at.party.has_sent(later.packet_identifier):
                return self.report(
                    "packet_identifier",
                    f"PUBLISH id {later.packet_identifier} was sent again before id {identifier}, which had been sent "
                    "first",
                    related=(one.related, later.related),
                    **doubted(apart=model.apart),
                )
        return None
