"""WIL407."""

from mqttscope.lint.broker_watch import SECOND_NS, doubt
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, closes, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import ALL_VERSIONS, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.lint.rules.will import was_there, will_in
from mqttscope.lint.wills import DUE, Wills
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Puback, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription, Will

_WILL = Will("dead/c1", b"gone")
_GETS = server(Publish(topic_name="dead/c1", payload=b"gone"))
_GONE = closes("client", "reset")


def _asks(identifier: int = 1, name: str = "dead/#") -> tuple[Step, Step]:
    row = Subscription(name, 1)
    return client(Subscribe(identifier, subscriptions=[row])), server(Suback(identifier, reason_codes=[1]))


_READER = on(1, *opened(client_identifier="c2"), *_asks())


class WillPublishedTwice(Rule):
    """A subscriber gets the will of one client twice for one end of its connection.

    A will is dropped once it is published; a server that keeps it publishes it again when it notices the end of the
    connection in a second way.  A subscriber with one matching subscription gets one copy.  Messages that are sent
    again with DUP, clients that share a will, and publishers of the same content are left out.

    Instead, drop the will as it is published.
    """

    code = "WIL407"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    confidence = Confidence.HEURISTIC
    versions = ALL_VERSIONS
    statements = {V5: {"MQTT-3.1.2-10": ""}, V3_1_1: {"MQTT-3.1.2-10": ""}}
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS
    settings = {"window": 60}
    models = (Wills,)
    about = Wills, "topics"

    good = examples(
        lambda: [
            conversation("once", *_READER, *opened(will=_WILL), _GONE, *on(1, _GETS)),
            conversation(
                "two subscriptions",
                *_READER,
                *on(1, *_asks(2, "+/c1")),
                *opened(will=_WILL),
                _GONE,
                *on(1, _GETS, _GETS),
            ),
            conversation(
                "two clients with one will",
                *_READER,
                *opened(will=_WILL),
                *on(2, *opened(client_identifier="c3", will=_WILL)),
                _GONE,
                *on(2, _GONE),
                *on(1, _GETS, _GETS),
            ),
            conversation(
                "gone twice",
                *_READER,
                *opened(will=_WILL),
                _GONE,
                *on(1, _GETS),
                *on(2, *opened(will=_WILL), _GONE),
                *on(1, _GETS),
            ),
            conversation(
                "somebody says the same",
                *_READER,
                *opened(will=_WILL),
                _GONE,
                *on(1, _GETS, client(Publish(topic_name="dead/c1", payload=b"gone"), after=1), _GETS),
            ),
            conversation(
                "sent again",
                *on(1, *opened(V3_1_1, client_identifier="c2"), *_asks()),
                *opened(V3_1_1, will=Will("dead/c1", b"gone", 1)),
                _GONE,
                *on(1, server(Publish(False, 1, False, "dead/c1", 7, None, b"gone"))),
                *on(1, server(Publish(True, 1, False, "dead/c1", 7, None, b"gone"), after=20), client(Puback(7))),
            ),
            conversation(
                "asked for the stored one",
                *_READER,
                *opened(will=Will("dead/c1", b"gone", will_retain=True)),
                _GONE,
                *on(1, _GETS, *_asks(2), server(Publish(retain=True, topic_name="dead/c1", payload=b"gone"))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation("twice", *_READER, *opened(will=_WILL), _GONE, *on(1, _GETS, _GETS.marked("payload"))),
            conversation(
                "once when the client is gone and once a while later, in 3.1.1",
                *on(1, *opened(V3_1_1, client_identifier="c2"), *_asks()),
                *opened(V3_1_1, will=_WILL),
                _GONE,
                *on(1, _GETS, client(after=40), _GETS.marked("payload")),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Count the copies."""
        found = will_in(packet, at)
        if found is None:
            return None
        key, will, match = found
        copies = will.copies.get(at.key, 0)
        if not copies or packet.retain or len(match.subscriptions) > 1 or match.ended or match.replaces:
            return None
        phase, ended_ns = at.model(Wills).phase_of(key, will, at)
        since_ns = at.timestamp_ns - ended_ns
        if phase != DUE or since_ns > float(self.set["window"]) * SECOND_NS or not was_there(ended_ns, at):
            return None
        return self.report(
            "payload",
            f"will of {will.client!r} published to {at.client_name!r} {copies + 1} times for one closed connection",
            related=(will.connect,),
            **doubt(at, doubtful=at.model(Wills).is_torn(at)),
        )
