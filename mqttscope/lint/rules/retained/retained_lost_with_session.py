"""RET410."""

from mqttscope.lint.broker_watch import doubt
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, closes, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Report, Severity
from mqttscope.lint.retained_store import Judged, RetainedStore, Vain, WaitingRule, waited_s
from mqttscope.lint.rule import ALL_VERSIONS, V3_1_1, Findings, Needs
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Disconnect, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties

_SETS = (client(Publish(qos=1, topic_name="a", retain=True, payload=b"21", packet_identifier=1)), server(Puback(1)))
_GETS = server(Publish(topic_name="a", retain=True, payload=b"21"))
_LEAVES = (client(Disconnect()), closes("client"))
_WAITS = client(Pingreq(), after=31)


def _asks(identifier: int = 1) -> tuple[Step, Step]:
    row = Subscription("a", 0)
    return client(Subscribe(identifier, subscriptions=[row])), server(Suback(identifier, reason_codes=[0]))


class RetainedLostWithSession(WaitingRule):
    """A retained message that was there is not sent any more once the session of its publisher has ended.

    Retained messages belong to their topic and not to a session: they are there for those who come when the publisher
    is gone.  Reported where a client gets the message while the publisher is connected, and asks for it in vain after
    that one has left with a session that ends with the connection, nothing else having happened to the topic.

    Instead, keep retained messages when sessions end.
    """

    code = "RET410"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    confidence = Confidence.HEURISTIC
    versions = ALL_VERSIONS
    statements = {V3_1_1: {"MQTT-3.1.2-7": ""}}
    looks_at = Subscribe
    needs = Needs.OPENING | Needs.WHOLE
    settings = {"timeout": 30}
    models = (RetainedStore,)
    Memory = Judged

    good = examples(
        lambda: [
            conversation(
                "it is still there",
                *on(1, *opened(V3_1_1, client_identifier="c2")),
                *opened(V3_1_1),
                *_SETS,
                *on(1, *_asks(), _GETS),
                *_LEAVES,
                *on(1, *_asks(2), _GETS, _WAITS),
            ),
            conversation(
                "the session is kept, so that it did not end",
                *on(1, *opened(client_identifier="c2")),
                *opened(connect=Properties(session_expiry_interval=3_600)),
                *_SETS,
                *on(1, *_asks(), _GETS),
                *_LEAVES,
                *on(1, *_asks(2), client(Pingreq(), after=25), server(Pingresp())),
            ),
            conversation(
                "cleared before the publisher left",
                *on(1, *opened(V3_1_1, client_identifier="c2")),
                *opened(V3_1_1),
                *_SETS,
                *on(1, *_asks(), _GETS),
                client(Publish(topic_name="a", retain=True)),
                *_LEAVES,
                *on(1, *_asks(2), _WAITS),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "gone with its publisher",
                *on(1, *opened(V3_1_1, client_identifier="c2")),
                *opened(V3_1_1),
                *_SETS,
                *on(1, *_asks(), _GETS),
                *_LEAVES,
                *on(1, *_asks(2), _WAITS.marked("", at=None)),
            ),
            conversation(
                "in 5.0, with Session Expiry Interval 0",
                *on(1, *opened(client_identifier="c2")),
                *opened(),
                *_SETS,
                *on(1, *_asks(), _GETS),
                *_LEAVES,
                *on(1, *_asks(2), _WAITS.marked("", at=None)),
            ),
        ]
    )

    def check(self, packet: Subscribe, at: RuleContext) -> Findings:
        """Look again when what it asks for should have come."""
        self.await_answer(at)
        return None

    def judge(self, vain: Vain, store: RetainedStore, at: RuleContext) -> Report | None:
        """Look whether the end of the publisher's session is all that has happened."""
        kept = vain.kept
        if not (vain.reader and kept.proven and kept.volatile) or kept.outlived:
            return None
        if kept.key in store.witnesses or kept.client == at.client_name:
            return None
        return self.report(
            "",
            f"retained message on {vain.topic!r} is not sent to {at.client_name!r} within "
            f"{waited_s(vain.expected, at):,.0f} s after the session of its publisher {kept.client!r} has ended",
            related=vain.related,
            sender=Direction.SERVER_TO_CLIENT,
            overdue=True,
            topic=vain.topic,
            **doubt(at, doubtful=store.is_torn(at)),
        )
