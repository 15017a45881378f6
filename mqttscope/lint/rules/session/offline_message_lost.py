"""SES411."""

from typing import Any

from mqttscope.lint.awaiting import AwaitingRule, Timers
from mqttscope.lint.broker_watch import SECOND_NS
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, closes, conversation, examples, make_connect, on, opened, server
from mqttscope.lint.finding import Confidence, Report, Severity
from mqttscope.lint.message_model import Expected, Messages
from mqttscope.lint.rule import ALL_VERSIONS, V3_1_1, V5, Findings, Needs
from mqttscope.lint.rules.delivery import message, publishes, subscriber
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Connack, Disconnect, Pingreq, Pingresp, Puback
from mqttscope.mqtt.properties import Properties

_LASTING = Properties(session_expiry_interval=3_600)
_WITNESS = on(3, *opened(client_identifier="c4"))
_LEAVES = on(1, client(Disconnect()), closes("client"))
_FIRST = (*publishes(message(b"first")), *on(1, server(message(b"first")), client(Puback(1))))
_PINGS = on(2, client(Pingreq(), after=20), server(Pingresp()))
_LATER = on(2, client(Pingreq(), after=15))
_OVERDUE = on(2, client(Pingreq(), after=15).marked("", at=None))


def _stays(*, connect: Properties = _LASTING) -> tuple[Step, ...]:
    """A subscriber that has got a message before it leaves, and whose session stays."""
    return (*_WITNESS, *subscriber(connect=connect), *opened(), *_FIRST, *_LEAVES)


def _returns(version: ProtocolVersion = V5, *, session_present: bool = True) -> tuple[Step, ...]:
    block = _LASTING if version is V5 else None
    request = make_connect(version, client_identifier="c2", clean_start=False, properties=block)
    return on(2, client(request, after=5), server(Connack(session_present=session_present)))


class OfflineMessageLost(AwaitingRule):
    """A message that was published while a client was away does not reach it when it has come back to its session.

    A session that outlives its connection is there for these messages.  A server may limit how many it keeps, so that
    only up to 64 of them are expected, and only while some connection that is open all the time proves that the server
    did not restart.  It is an error where the client has got messages of the same publisher and topic before.

    Instead, keep messages of QoS 1 and 2 for the subscriptions of sessions without a connection, and deliver them.
    """

    code = "SES411"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    versions = ALL_VERSIONS
    statements = {V3_1_1: {"MQTT-3.1.2-5": ""}}
    also = {V5: ("MQTT-4.5.0-1",), V3_1_1: ("MQTT-4.5.0-1",)}
    looks_at = (Connack,)
    needs = Needs.OPENING | Needs.WHOLE

    good = examples(
        lambda: [
            conversation(
                "it is delivered",
                *_stays(),
                *publishes(message()),
                *_returns(),
                *on(2, server(message()), client(Puback(1))),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "QoS 0",
                *_stays(),
                *publishes(message(qos=0)),
                *_returns(),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "the session is gone",
                *_stays(),
                *publishes(message()),
                *_returns(session_present=False),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "it has expired",
                *_stays(),
                *publishes(message(properties={"message_expiry_interval": 2})),
                *_returns(),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "nobody was there all the time: the server may have been restarted",
                *subscriber(connect=_LASTING),
                *opened(),
                *_FIRST,
                *_LEAVES,
                *publishes(message()),
                closes("client"),
                *_returns(),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "more than a server may keep",
                *_stays(),
                *(
                    step
                    for number in range(1, 70)
                    for step in publishes(message(b"%d" % number, packet_identifier=number), after=1.5)
                ),
                *_returns(),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "the session ends with the connection",
                *_stays(connect=Properties(session_expiry_interval=0)),
                *publishes(message()),
                *on(2, *opened(client_identifier="c2")),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "the client has left again",
                *_stays(),
                *publishes(message()),
                *_returns(),
                *on(2, client(Disconnect()), closes("client")),
                client(Pingreq(), after=40),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "nothing comes",
                *_stays(),
                *publishes(message()),
                *_returns(),
                *_PINGS,
                *_OVERDUE,
            ),
            conversation(
                "in 3.1.1, and one of two",
                *_WITNESS,
                *on(1, client(make_connect(V3_1_1, client_identifier="c2", clean_start=False)), server(Connack())),
                *subscriber(V3_1_1)[2:],
                *opened(V3_1_1),
                *_FIRST,
                *_LEAVES,
                *publishes(message(), message(b"other", packet_identifier=2)),
                *_returns(V3_1_1),
                *on(2, server(message(b"other")), client(Puback(1))),
                *_PINGS,
                *_OVERDUE,
            ),
            conversation(
                "nothing has come before: only a warning",
                *_WITNESS,
                *subscriber(connect=_LASTING),
                *_LEAVES,
                *opened(),
                *publishes(message()),
                *_returns(),
                *_PINGS,
                *_OVERDUE,
            ),
        ]
    )

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """A client is back: ask about what waits for it when time is up."""
        if not packet.reason_code and at.model(Messages).owed.get(at.client_name):
            timers: Timers = at.memory(self)
            timers.asked[at.key] = True
            at.ask(self, at.timestamp_ns + self.patience_ns)
        return None

    def waiting(self, model: Messages, at: RuleContext) -> dict[tuple[str, int], Expected] | None:
        """What was published while the client was away."""
        return model.owed_to.get(at.key)

    def judge(self, one: Expected, model: Messages, at: RuleContext) -> Report | None:
        """Say what has not come."""
        sent = one.sent
        if not model.witnessed(sent.timestamp_ns) or model.waits_behind_a_hole(at):
            return None
        doubt = self.doubt(one, model, at)
        if doubt is None:
            return None
        waited = (at.timestamp_ns - one.since_ns) / SECOND_NS
        return self.report(
            "",
            f"message on {sent.topic!r} of {sent.publisher!r} (QoS {sent.qos}), published while {at.client_name!r} "
            f"was away, did not reach it within {waited:,.0f} s after it came back",
            related=self.related(one),
            sender=self.sender,
            overdue=True,
            topic=sent.topic,
            **doubt,
        )
