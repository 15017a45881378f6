"""SUB520."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, lost, opened, server
from mqttscope.lint.finding import Confidence, Report, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Needs, Rule
from mqttscope.lint.shared_checks import unanswered
from mqttscope.mqtt.packets import Disconnect, Pingreq, Pingresp, Unsuback, Unsubscribe
from mqttscope.session.connection import Connection

_ASKS = client(Unsubscribe(10, topic_filters=["a"]))


class UnsubscribeUnanswered(Rule):
    """A server does not answer an UNSUBSCRIBE.

    An UNSUBACK is due even where no subscription was there to be deleted; without it the packet identifier stays in
    use.  The finding comes at the end of the connection, when the answer has been missing for longer than ``timeout``
    seconds.  It is likely where TCP shows that the server had received the UNSUBSCRIBE, else a guess.

    Instead, answer each UNSUBSCRIBE with an UNSUBACK.
    """

    code = "SUB520"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-3.10.4-4": ""},
        V3_1_1: {"MQTT-3.10.4-4": "", "MQTT-3.10.4-5": ""},
        V3_1: {"V31-UNSUBACK-answer": ""},
    }
    also = {V5: ("MQTT-2.2.1-6", "MQTT-3.10.4-5")}
    needs = Needs.BOTH_DIRECTIONS | Needs.WHOLE
    settings = {"timeout": 30}

    good = examples(
        lambda: [
            conversation(
                "answered", *opened(), _ASKS, server(Unsuback(10, reason_codes=[0x11])), closes("client", after=60)
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
                server(Unsuback(10), after=35),
                closes("client"),
            ),
            conversation(
                "the capture lost bytes of the server",
                *opened(),
                _ASKS,
                lost(server(Unsuback(10, reason_codes=[0x11]))),
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
        return unanswered(self, at, "unsubscribe", "UNSUBACK")
