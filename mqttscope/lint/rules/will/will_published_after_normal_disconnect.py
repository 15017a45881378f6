"""WIL405."""

from mqttscope.lint.broker_watch import SECOND_NS, doubt
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, closes, conversation, examples, lost, on, opened, server
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import ALL_VERSIONS, V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.lint.rules.will import was_there, will_in
from mqttscope.lint.wills import DROPPED, Wills
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Disconnect, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription, Will

_WILL = Will("dead/c1", b"gone")
_GETS = server(Publish(topic_name="dead/c1", payload=b"gone"))
_LEAVES = (client(Disconnect()), closes("client"))


def _asks() -> tuple[Step, Step]:
    return client(Subscribe(1, subscriptions=[Subscription("dead/#", 0)])), server(Suback(1, reason_codes=[0]))


_READER = on(1, *opened(client_identifier="c2"), *_asks())


class WillPublishedAfterNormalDisconnect(Rule):
    """A server publishes the will of a client that has left with a normal DISCONNECT.

    With DISCONNECT a client says that all is well and that its will is not wanted.  A server that publishes it all the
    same reports a death that was none.  Clients that say goodbye in the words of their will publish that themselves;
    so nobody may have published the same, and no other will may have the same content.  DISCONNECT 0x04 asks for the
    will, and after a reset, also one after FIN, nobody knows whether the server has read the DISCONNECT.

    Instead, drop the will when a normal DISCONNECT comes.
    """

    code = "WIL405"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    confidence = Confidence.LIKELY
    versions = ALL_VERSIONS
    statements = {V5: {"MQTT-3.14.4-3": ""}, V3_1_1: {"MQTT-3.14.4-3": ""}}
    also = {
        V5: ("MQTT-3.1.2-8", "MQTT-3.1.2-10"),
        V3_1_1: ("MQTT-3.1.2-10",),
        V3_1: ("V31-CONNECT-will-published",),
    }
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS
    settings = {"window": 60}
    models = (Wills,)
    about = Wills, "topics"

    good = examples(
        lambda: [
            conversation("nothing is published", *_READER, *opened(will=_WILL), *_LEAVES),
            conversation(
                "DISCONNECT 0x04",
                *_READER,
                *opened(will=_WILL),
                client(Disconnect(reason_code=4)),
                closes("client"),
                *on(1, _GETS),
            ),
            conversation(
                "the client itself says the same before it leaves",
                *_READER,
                *opened(will=_WILL),
                client(Publish(topic_name="dead/c1", payload=b"gone")),
                *_LEAVES,
                *on(1, _GETS),
            ),
            conversation(
                "a message in bytes that were lost",
                *_READER,
                *opened(will=_WILL),
                lost(client(Publish(topic_name="dead/c1", payload=b"gone"))),
                client(Disconnect()),
                closes("client"),
                *on(1, _GETS),
            ),
            conversation(
                "a reset: the server may not have read the DISCONNECT",
                *_READER,
                *opened(will=_WILL),
                client(Disconnect()),
                closes("client", "reset"),
                *on(1, _GETS),
            ),
            conversation(
                "FIN, and a reset when the server still sends: it may not have read the DISCONNECT either",
                *_READER,
                *opened(will=_WILL),
                client(Disconnect()),
                closes("client", "fin-reset"),
                *on(1, _GETS),
            ),
            conversation(
                "another client has the same will",
                *_READER,
                *opened(will=_WILL),
                *on(2, *opened(client_identifier="c3", will=_WILL)),
                *_LEAVES,
                *on(1, _GETS),
            ),
            conversation(
                "the will of the connection before",
                *_READER,
                *opened(will=_WILL),
                closes("client", "reset"),
                *on(2, *opened(will=_WILL), *_LEAVES),
                *on(1, _GETS),
            ),
            conversation(
                "the subscriber came later: it may be an old message of its session",
                *opened(will=_WILL),
                *_LEAVES,
                *_READER,
                *on(1, _GETS),
            ),
            conversation(
                "another content",
                *_READER,
                *opened(will=_WILL),
                *_LEAVES,
                *on(1, server(Publish(topic_name="dead/c1", payload=b"bye"))),
            ),
            conversation(
                "a stored message",
                *_READER,
                *opened(will=_WILL),
                *_LEAVES,
                *on(1, server(Publish(retain=True, topic_name="dead/c1", payload=b"gone"))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "published after DISCONNECT", *_READER, *opened(will=_WILL), *_LEAVES, *on(1, _GETS.marked("payload"))
            ),
            conversation(
                "in 3.1.1, before the connection is closed",
                *on(1, *opened(V3_1_1, client_identifier="c2"), *_asks()),
                *opened(V3_1_1, will=_WILL),
                client(Disconnect()),
                *on(1, _GETS.marked("payload")),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look whether the message can be nothing else than a will that was dropped."""
        found = will_in(packet, at)
        if found is None:
            return None
        key, will, _ = found
        phase, left_ns = at.model(Wills).phase_of(key, will, at)
        since_ns = at.timestamp_ns - left_ns
        if phase != DROPPED or not 0 <= since_ns <= float(self.set["window"]) * SECOND_NS or not was_there(left_ns, at):
            return None
        return self.report(
            "payload",
            f"will of {will.client!r} published to {at.client_name!r} although it left with DISCONNECT "
            f"{since_ns / SECOND_NS:,.3f} s before",
            related=(will.connect,),
            **doubt(at, doubtful=at.model(Wills).is_torn(at)),
        )
