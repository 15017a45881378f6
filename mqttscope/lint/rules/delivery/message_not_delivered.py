"""DLV410."""

from mqttscope.lint.awaiting import AwaitingRule
from mqttscope.lint.broker_watch import SECOND_NS
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, closes, conversation, examples, lost, on, opened, server
from mqttscope.lint.finding import Confidence, Report, Severity
from mqttscope.lint.message_model import Expected, Messages
from mqttscope.lint.rule import ALL_VERSIONS, V3_1_1, V5, Needs
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import (
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties


def _subscriber(
    version: ProtocolVersion = V5,
    *,
    name: str = "a",
    granted: int = 1,
    no_local: bool = False,
    connect: Properties | None = None,
    identifier: str = "c2",
) -> tuple[Step, ...]:
    return on(
        1,
        *opened(version, client_identifier=identifier, connect=connect),
        client(Subscribe(1, subscriptions=[Subscription(name, 2, no_local=no_local)])),
        server(Suback(1, reason_codes=[granted])),
    )


def _publish(payload: bytes, block: Properties | None = None, *, after: float = 2) -> tuple[Step, Step]:
    return client(Publish(False, 1, False, "a", 1, block, payload), after=after), server(Puback(1))


def _gets(payload: bytes) -> tuple[Step, ...]:
    return on(1, server(Publish(qos=1, topic_name="a", packet_identifier=1, payload=payload)), client(Puback(1)))


_FIRST = (*_publish(b"first"), *_gets(b"first"))
_PINGS = (*on(1, client(Pingreq(), after=20), server(Pingresp())),)
_OVERDUE = on(1, client(Pingreq(), after=15).marked("", at=None))
_LATER = on(1, client(Pingreq(), after=15))


class MessageNotDelivered(AwaitingRule):
    """A message that a server has accepted does not reach a subscriber that is connected.

    With QoS 1 and 2 the acknowledgment says that the message is safe, so nobody sends it again.  It is an error where
    the client has got messages of the same publisher and topic, reads what it gets, and has never had so many messages
    in flight that the server may have had to drop some; elsewhere access control or a queue that is full may explain
    it, which is a warning.  Losing messages of QoS 0 is no mistake.

    Instead, deliver what was acknowledged to every matching subscription, or refuse it with a Reason Code.
    """

    code = "DLV410"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    versions = ALL_VERSIONS
    statements = {
        V5: {"MQTT-4.5.0-1": ""},
        V3_1_1: {"MQTT-3.8.3-2": "", "MQTT-4.1.0-2": "", "MQTT-4.5.0-1": ""},
    }
    also = {
        V5: ("MQTT-3.1.2-5", "MQTT-3.8.4-4", "MQTT-4.1.0-1", "MQTT-4.3.2-5", "MQTT-4.3.3-12", "MQTT-4.7.3-4"),
        V3_1_1: ("MQTT-3.3.1-10", "MQTT-3.8.4-3", "MQTT-4.1.0-1", "MQTT-4.7.3-4"),
    }
    needs = Needs.OPENING | Needs.WHOLE

    good = examples(
        lambda: [
            conversation(
                "it is delivered",
                *_subscriber(),
                *opened(),
                *_FIRST,
                *_publish(b"second"),
                *_gets(b"second"),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "QoS 0 as published, and as granted",
                *_subscriber(),
                *opened(),
                *_FIRST,
                client(Publish(topic_name="a", payload=b"second")),
                *on(2, *opened(client_identifier="c3")),
                *on(2, client(Subscribe(1, subscriptions=[Subscription("a", 0)])), server(Suback(1, reason_codes=[0]))),
                *_publish(b"third"),
                *_gets(b"third"),
                *_PINGS,
                *_LATER,
                *on(2, client(Pingreq())),
            ),
            conversation(
                "its own message, and No Local",
                *_subscriber(no_local=True, identifier="c1"),
                *on(1, *_publish(b"second")),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "the server refuses it",
                *_subscriber(),
                *opened(),
                *_FIRST,
                _publish(b"second")[0],
                server(Puback(1, reason_code=0x97)),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "it has not been acknowledged",
                *_subscriber(),
                *opened(),
                *_FIRST,
                _publish(b"second")[0],
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "it expires",
                *_subscriber(),
                *opened(),
                *_FIRST,
                *_publish(b"second", Properties(message_expiry_interval=10)),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "too long for the client",
                *_subscriber(connect=Properties(maximum_packet_size=90)),
                *opened(),
                *_FIRST,
                *_publish(b"second" * 10),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "it has unsubscribed meanwhile",
                *_subscriber(),
                *opened(),
                *_FIRST,
                *_publish(b"second"),
                *on(1, client(Unsubscribe(2, topic_filters=["a"])), server(Unsuback(2, reason_codes=[0]))),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "while an UNSUBSCRIBE is under way",
                *_subscriber(),
                *opened(),
                *_FIRST,
                *on(1, client(Unsubscribe(2, topic_filters=["a"]))),
                *_publish(b"second"),
                *on(1, server(Unsuback(2, reason_codes=[0]))),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "it had only just subscribed",
                *opened(),
                *_subscriber(),
                *_publish(b"second", after=0.1),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "a wildcard of a client that may not be allowed to read everything",
                *_subscriber(name="#"),
                *opened(),
                *_publish(b"second"),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "Receive Maximum: the client has not answered",
                *_subscriber(connect=Properties(receive_maximum=1)),
                *opened(),
                *_publish(b"first"),
                _gets(b"first")[0],
                *_publish(b"second"),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "a share, which is one of many",
                *_subscriber(name="$share/g/a"),
                *opened(),
                *_FIRST,
                *_publish(b"second"),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "in bytes that the capture does not have",
                *_subscriber(),
                *opened(),
                *_FIRST,
                *_publish(b"second"),
                lost(_gets(b"second")[0]),
                *on(1, client(Puback(1))),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "the connection ends too early",
                *_subscriber(),
                *opened(),
                *_FIRST,
                *_publish(b"second"),
                *_PINGS,
                *on(1, closes("client")),
                client(Pingreq(), after=30),
            ),
            conversation(
                "shown at the subscriber before it is shown at the publisher",
                *_subscriber(),
                *opened(),
                *_FIRST,
                *on(1, _gets(b"second")[0], client(Puback(1))),
                *_publish(b"second", after=0.01),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "a topic that the publisher may not write to, before 5.0",
                *_subscriber(V3_1_1),
                *opened(V3_1_1),
                *_publish(b"second"),
                *_PINGS,
                *_LATER,
            ),
            conversation(
                "with a payload that came since: nobody can tell them apart",
                *_subscriber(),
                *opened(),
                *_FIRST,
                *_publish(b"second"),
                *_publish(b"second"),
                *_gets(b"second"),
                *_PINGS,
                *_LATER,
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "the second message of a publisher",
                *_subscriber(),
                *opened(),
                *_FIRST,
                *_publish(b"second"),
                *_PINGS,
                *_OVERDUE,
            ),
            conversation(
                "QoS 2, in 3.1.1",
                *_subscriber(V3_1_1),
                *opened(V3_1_1),
                *_FIRST,
                client(Publish(qos=2, topic_name="a", packet_identifier=2, payload=b"second"), after=2),
                server(Pubrec(2)),
                client(Pubrel(2)),
                server(Pubcomp(2)),
                *_PINGS,
                *_OVERDUE,
            ),
            conversation(
                "two of them, judged one after the other",
                *_subscriber(name="+"),
                *opened(),
                *_FIRST,
                *_publish(b"second"),
                *_PINGS,
                *_publish(b"third", after=1),
                *_OVERDUE,
                *on(1, server(Pingresp()), client(Pingreq(), after=30).marked("", at=None)),
            ),
            conversation(
                "a client that has got nothing of the topic yet: only a warning",
                *_subscriber(),
                *opened(),
                *_publish(b"second"),
                *_PINGS,
                *_OVERDUE,
            ),
            conversation(
                "after one that is too long for the client, and not the only one since",
                *_subscriber(name="#", connect=Properties(maximum_packet_size=90)),
                *opened(),
                *_FIRST,
                *_publish(b"second" * 20),
                *_publish(b"third"),
                client(Publish(topic_name="b", payload=b"other")),
                *on(1, server(Publish(topic_name="b", payload=b"other"))),
                *_PINGS,
                *_OVERDUE,
            ),
            conversation(
                "a shorter time-out",
                *_subscriber(),
                *opened(),
                *_FIRST,
                *_publish(b"second"),
                *on(1, client(Pingreq(), after=6).marked("", at=None)),
                settings={"timeout": 5},
            ),
        ]
    )

    def judge(self, one: Expected, model: Messages, at: RuleContext) -> Report | None:
        """Say what did not come, unless the client may have got nothing more after one that was too long for it."""
        too_long = model.oversized.get(at.key)
        if too_long is not None and too_long.number < one.sent.number:
            recent = at.history.server.recent
            if not recent or recent[-1].timestamp_ns <= too_long.timestamp_ns:
                return None  # FLW404
        doubt = self.doubt(one, model, at)
        if doubt is None:
            return None
        sent, held = one.sent, one.held
        waited = (at.timestamp_ns - one.since_ns) / SECOND_NS
        return self.report(
            "",
            f"message on {sent.topic!r} of {sent.publisher!r} (QoS {sent.qos}) did not reach {at.client_name!r} within "
            f"{waited:,.0f} s, which has subscribed to {held.topic_filter!r} with QoS {held.qos}",
            related=self.related(one),
            sender=self.sender,
            overdue=True,
            topic=sent.topic,
            **doubt,
        )
