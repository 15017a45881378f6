"""DLV415."""

from typing import Any

from mqttscope.lint.broker_watch import SECOND_NS
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, closes, conversation, examples, lost, make_connect, on, opened, server
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.message_model import Messages
from mqttscope.lint.rule import V5, Findings, Needs, Rule
from mqttscope.lint.rules.delivery import message, paired, publishes, subscriber, waited_until_ns
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connack, Disconnect, Pingreq, Pingresp, Puback, Publish
from mqttscope.mqtt.properties import Properties

_LASTING = Properties(session_expiry_interval=3_600)
_AWAY = (*subscriber(connect=_LASTING), *on(1, client(Disconnect()), closes("client")))
_EXPIRES: dict[str, Any] = {"properties": {"message_expiry_interval": 10}}


def _returns(after: float = 60) -> tuple[Step, ...]:
    request = make_connect(client_identifier="c2", clean_start=False, properties=_LASTING)
    return on(2, client(request, after=after), server(Connack(session_present=True)))


class ExpiredMessageDelivered(Rule):
    """A server delivers a message whose Message Expiry Interval has passed.

    The interval says for how long a message is of use; a command that comes after it may do harm.  Time counts until
    the subscriber connected, or subscribed where the message is retained: what comes later may have waited in the
    network.  It is an error where the delivery still has the interval; without one it may be of another message with
    the same payload, which is a warning.

    Instead, drop the copies of a message for subscribers to whom it has not been sent when its interval is over.
    """

    code = "DLV415"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    versions = (V5,)
    statements = {V5: {"MQTT-3.3.2-5": ""}}
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE_SENDER
    settings = {"tolerance": 2}
    models = (Messages,)
    about = (Messages, "topics")

    good = examples(
        lambda: [
            conversation(
                "in time",
                *_AWAY,
                *opened(),
                *publishes(message(properties={"message_expiry_interval": 100})),
                *_returns(),
                *on(2, server(message(properties={"message_expiry_interval": 40})), client(Puback(1))),
            ),
            conversation(
                "it may have waited in the network",
                *subscriber(),
                *opened(),
                *publishes(message(**_EXPIRES)),
                *on(1, server(message(**_EXPIRES), after=30), client(Puback(1))),
            ),
            conversation(
                "published again since",
                *_AWAY,
                *opened(),
                *publishes(message(**_EXPIRES)),
                *publishes(message(), after=40),
                *_returns(),
                *on(2, server(message()), client(Puback(1))),
            ),
            conversation(
                "first sent in time",
                *subscriber(connect=_LASTING),
                *opened(),
                *publishes(message(**_EXPIRES)),
                *on(1, server(message(**_EXPIRES)), closes("client")),
                *_returns(),
                *on(2, server(message(dup=True, **_EXPIRES)), client(Puback(1))),
            ),
            conversation(
                "published again in bytes that were lost",
                *_AWAY,
                *opened(),
                *publishes(message(**_EXPIRES)),
                client(Pingreq(), after=40),
                server(Pingresp()),
                lost(client(message())),
                client(Pingreq()),
                server(Pingresp()),
                *_returns(),
                *on(2, server(message(**_EXPIRES)), client(Puback(1))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "to a client that was away",
                *_AWAY,
                *opened(),
                *publishes(message(**_EXPIRES)),
                *_returns(),
                *on(2, server(message(properties={"message_expiry_interval": 0})).marked(""), client(Puback(1))),
            ),
            conversation(
                "a retained message, as if it were new",
                *opened(),
                *publishes(message(retain=True, **_EXPIRES)),
                client(Pingreq(), after=40),
                server(Pingresp()),
                *subscriber(),
                *on(1, server(message(retain=True, **_EXPIRES)).marked(""), client(Puback(1))),
            ),
            conversation(
                "without an interval: only a warning",
                *_AWAY,
                *opened(),
                *publishes(message(**_EXPIRES)),
                *_returns(),
                *on(2, server(message()).marked(""), client(Puback(1))),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare the time that the message has waited with its interval."""
        found = paired(packet, at)
        if found is None or found.candidates[-1].expiry is None or found.candidates[0].again:
            return None
        sent = found.candidates[-1]
        since_ns = waited_until_ns(packet, sent.topic, at)
        if since_ns is None or found.owner in sent.copies:
            return None
        tolerance = float(self.set["tolerance"])
        over_ns = 0
        for one in found.candidates:
            if one.expiry is None or one.crowded or one.resent or at.is_apart(one.capture):
                return None
            over_ns = max(over_ns, one.timestamp_ns + round((one.expiry + tolerance) * SECOND_NS))
            if one.qos == 2:
                return None  # it may wait for the PUBREL of its publisher
        if since_ns <= over_ns:
            return None
        model = at.model(Messages)
        if model.hides(sent.topic) or model.waits_behind_a_hole(at):
            return None
        block = packet.properties
        left = None if block is None else block.message_expiry_interval
        sure = left is not None and left <= (sent.expiry or 0)
        waited = (since_ns - sent.timestamp_ns) / SECOND_NS
        return self.report(
            "",
            f"message on {sent.topic!r} sent to {found.owner!r} {waited:,.0f} s after {sent.publisher!r} published it "
            f"with a Message Expiry Interval of {sent.expiry:,} s",
            related=(Related("the message as published", sent.packet, sent.frame, sent.timestamp_ns),),
            severity=None if sure else Severity.WARNING,
            confidence=None if sure else Confidence.HEURISTIC,
        )
