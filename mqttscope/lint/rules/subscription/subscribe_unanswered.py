"""SUB519."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, lost, opened, server
from mqttscope.lint.finding import Confidence, Report, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Needs, Rule
from mqttscope.lint.shared_checks import unanswered
from mqttscope.mqtt.packets import Disconnect, Pingreq, Pingresp, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.session.connection import Connection

_ASKS = client(Subscribe(10, subscriptions=[Subscription("a", 1)]))


class SubscribeUnanswered(Rule):
    """A server does not answer a SUBSCRIBE.

    Without SUBACK the client does not know whether it is subscribed, and its packet identifier stays in use.  The
    finding comes at the end of the connection, when the answer has been missing for longer than ``timeout`` seconds.
    It is likely where TCP shows that the server had received the SUBSCRIBE, else a guess.

    Instead, answer each SUBSCRIBE with a SUBACK, with failure codes where nothing is granted.
    """

    code = "SUB519"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    statements = {V5: {"MQTT-3.8.4-1": ""}, V3_1_1: {"MQTT-3.8.4-1": ""}, V3_1: {"V31-SUBACK-answer": ""}}
    also = {V5: ("MQTT-2.2.1-6",)}
    needs = Needs.BOTH_DIRECTIONS | Needs.WHOLE
    settings = {"timeout": 30}

    good = examples(
        lambda: [
            conversation(
                "answered", *opened(), _ASKS, server(Suback(10, reason_codes=[1])), closes("client", after=60)
            ),
            conversation("the connection ends before long", *opened(), _ASKS, closes("client", after=29)),
            conversation(
                "the client gives up before long",
                *opened(),
                _ASKS,
                client(Disconnect(), after=5),
                closes("client", after=40),
            ),
            conversation(
                "answered late",
                *opened(V3_1_1),
                _ASKS,
                server(Suback(10, reason_codes=[1]), after=35),
                closes("client"),
            ),
            conversation(
                "the capture lost bytes of the server",
                *opened(),
                _ASKS,
                lost(server(Suback(10, reason_codes=[1]))),
                client(Pingreq(), after=35),
                server(Pingresp()),
                closes("client"),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "only pings are answered",
                *opened(),
                _ASKS,
                client(Pingreq(), after=30),
                server(Pingresp()),
                closes("client").marked(""),
            ),
            conversation("nothing comes in 3.1.1", *opened(V3_1_1), _ASKS, closes("client", after=31).marked("")),
            conversation("nothing comes in 3.1", *opened(V3_1), _ASKS, closes("server", after=31).marked("")),
            conversation(
                "another limit",
                *opened(),
                _ASKS,
                closes("client", after=11).marked(""),
                settings={"timeout": 10},
            ),
        ]
    )

    def check_close(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """What is still open, until the connection ended or a side said that it would."""
        return unanswered(self, at, "subscribe", "SUBACK")
