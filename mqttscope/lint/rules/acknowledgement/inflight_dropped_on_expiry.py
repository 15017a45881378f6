"""ACK314."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import V5
from mqttscope.lint.session_model import Carried, ResumptionRule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Pingreq, Pingresp, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties

_KEPT = Properties(session_expiry_interval=3_600)
_EXPIRES = Properties(message_expiry_interval=10)
_ASKS = (client(Subscribe(1, subscriptions=[Subscription("a", 2)])), server(Suback(1, reason_codes=[2])))
_LATER = (client(Pingreq(), after=31), server(Pingresp()))
_BEGINS = opened(clean_start=False, connect=_KEPT)
_RESUMES = opened(clean_start=False, connect=_KEPT, session_present=True)
_BREAKS = closes("client", "reset")


def _message(qos: int, *, dup: bool = False) -> Publish:
    return Publish(dup=dup, qos=qos, topic_name="a", packet_identifier=7, properties=_EXPIRES)


class InflightDroppedOnExpiry(ResumptionRule):
    """A QoS 2 message that was under way is not sent again after its Message Expiry Interval has run out.

    Expiry is for messages that wait.  Once the PUBLISH has gone out the receiver may have it and hold its packet
    identifier, which only the rest of the exchange sets free.  Messages without an interval are ACK311.

    Instead, let the interval delete messages before their first PUBLISH only, and finish what was begun.
    """

    code = "ACK314"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.HEURISTIC
    versions = (V5,)
    statements = {V5: {"MQTT-4.3.3-7": ""}}

    good = examples(
        lambda: [
            conversation(
                "sent again, though it has expired",
                *_BEGINS,
                *_ASKS,
                server(_message(2)),
                _BREAKS,
                client(after=20),
                *on(
                    1,
                    *_RESUMES,
                    server(_message(2, dup=True)),
                    client(Pubrec(7)),
                    server(Pubrel(7)),
                    client(Pubcomp(7)),
                ),
                *on(1, *_LATER, *_LATER),
            ),
            conversation(
                "QoS 1, which only ACK311 looks at while it has not expired",
                *_BEGINS,
                *_ASKS,
                server(_message(1)),
                _BREAKS,
                *on(1, *_RESUMES, *_LATER, *_LATER),
            ),
            conversation(
                "too early to tell",
                *_BEGINS,
                *_ASKS,
                server(_message(2)),
                _BREAKS,
                client(after=20),
                *on(1, *_RESUMES, client(Pingreq()), server(Pingresp())),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "PUBLISH",
                *_BEGINS,
                *_ASKS,
                server(_message(2)),
                _BREAKS,
                client(after=20),
                *on(1, *_RESUMES, *_LATER, client(Pingreq()).marked("", at=None)),
            ),
            conversation(
                "PUBREL",
                *_BEGINS,
                *_ASKS,
                server(_message(2)),
                client(Pubrec(7)),
                _BREAKS,
                client(after=20),
                *on(1, *_RESUMES, *_LATER, client(Pingreq()).marked("", at=None)),
            ),
        ]
    )

    def blames(self, one: Carried, direction: Direction, at: RuleContext) -> bool:
        """QoS 2 whose time was over."""
        return one.qos == 2 and one.expires_ns <= at.timestamp_ns

    def tell(self, one: Carried) -> str:
        """The message and where it stopped."""
        return (
            f"QoS 2 message id {one.packet_identifier} vanished after its Message Expiry Interval although it had been "
            f"sent: no {one.step} came when the session continued"
        )
