"""FLW404."""

from mqttscope.lint.awaiting import AwaitingRule
from mqttscope.lint.broker_watch import SECOND_NS
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Related, Report, Severity
from mqttscope.lint.message_model import Expected, Messages
from mqttscope.lint.rule import V5, Needs
from mqttscope.lint.rules.delivery import message, publishes, subscriber
from mqttscope.mqtt.packets import Pingreq, Pingresp, Puback
from mqttscope.mqtt.properties import Properties

_SMALL = subscriber(connect=Properties(maximum_packet_size=100))
_GETS = on(1, server(message()), client(Puback(1)))
_LONG, _SHORT = message(b"long" * 50, packet_identifier=2), message(b"short", packet_identifier=3)
_PINGS = on(1, client(Pingreq(), after=20), server(Pingresp()))


class OversizeMessageStallsDelivery(AwaitingRule):
    """After a message that is too long for a client, the server delivers nothing more to it.

    A message that does not fit counts as sent (5.0 3.1.2.11.4).  A server that keeps its place in the window, or tries
    it again and again, blocks all that comes after it, and the client does not notice.

    Instead, drop the message for this client, and continue with the next one.
    """

    code = "FLW404"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.HEURISTIC
    versions = (V5,)
    statements = {V5: {"MQTT-3.1.2-25": ""}}
    needs = Needs.OPENING | Needs.WHOLE

    good = examples(
        lambda: [
            conversation(
                "the next one is delivered",
                *_SMALL,
                *opened(),
                *publishes(message()),
                *_GETS,
                *publishes(_LONG, _SHORT),
                *on(1, server(_SHORT), client(Puback(3))),
                *_PINGS,
                *on(1, client(Pingreq(), after=15)),
            ),
            conversation(
                "nothing came after it",
                *_SMALL,
                *opened(),
                *publishes(message()),
                *_GETS,
                *publishes(_LONG),
                *_PINGS,
                *on(1, client(Pingreq(), after=15)),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "nothing comes any more",
                *_SMALL,
                *opened(),
                *publishes(message()),
                *_GETS,
                *publishes(_LONG, _SHORT),
                *_PINGS,
                *on(1, client(Pingreq(), after=15).marked("", at=None)),
            ),
            conversation(
                "nothing has come before: only a warning",
                *_SMALL,
                *opened(),
                *publishes(_LONG, _SHORT),
                *_PINGS,
                *on(1, client(Pingreq(), after=15).marked("", at=None)),
            ),
        ]
    )

    def concerns(self, model: Messages) -> bool:
        """Whether there was a message that was too long for somebody."""
        return bool(model.oversized)

    def judge(self, one: Expected, model: Messages, at: RuleContext) -> Report | None:
        """Say what the client has not got since, where it has got nothing at all."""
        too_long = model.oversized.get(at.key)
        if too_long is None or too_long.number >= one.sent.number or at.client.maximum_packet_size is None:
            return None
        recent = at.history.server.recent
        if recent and recent[-1].timestamp_ns > too_long.timestamp_ns:
            return None
        doubt = self.doubt(one, model, at)
        if doubt is None:
            return None
        waited = (at.timestamp_ns - one.since_ns) / SECOND_NS
        return self.report(
            "",
            f"{at.client_name!r} takes {at.client.maximum_packet_size:,} bytes and has got nothing since a message of "
            f"{too_long.size:,} bytes on {too_long.topic!r}: not the next one on {one.sent.topic!r} within "
            f"{waited:,.0f} s",
            related=(
                Related("the message that is too long", too_long.packet, too_long.frame, too_long.timestamp_ns),
                *self.related(one),
            ),
            sender=self.sender,
            overdue=True,
            topic=one.sent.topic,
            **doubt,
        )
