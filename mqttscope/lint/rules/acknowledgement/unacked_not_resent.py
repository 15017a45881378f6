"""ACK311."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, closes, conversation, examples, lost, on, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5
from mqttscope.lint.session_model import Carried, ResumptionRule
from mqttscope.lint.strings import shown
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties

_KEPT = Properties(session_expiry_interval=3_600)
_EXPIRES = Properties(message_expiry_interval=5)
_MESSAGE = Publish(qos=1, topic_name="a", packet_identifier=7, payload=b"x")
_AGAIN = Publish(dup=True, qos=1, topic_name="a", packet_identifier=7, payload=b"x")
_EXACTLY_ONCE = Publish(qos=2, topic_name="a", packet_identifier=7, payload=b"x")
_PING = (client(Pingreq()), server(Pingresp()))
_LATER = (client(Pingreq(), after=31), server(Pingresp()))
_BEGINS = opened(clean_start=False, connect=_KEPT)
_RESUMES = opened(clean_start=False, connect=_KEPT, session_present=True)
_BREAKS = closes("client", "reset")


def _asks(name: str, qos: int) -> tuple[Step, Step]:
    return client(Subscribe(1, subscriptions=[Subscription(name, qos)])), server(Suback(1, reason_codes=[qos]))


class UnackedNotResent(ResumptionRule):
    """A message without acknowledgment when the connection broke is not sent again although the session continues.

    Until its acknowledgment the sender keeps a message of QoS 1 or 2, and the server and the client rely on that:
    what is not sent again is lost, and in QoS 2 its packet identifier stays taken.  The same holds for PUBREL.  Judged
    ``timeout`` seconds after the CONNACK, where the sender still speaks and has nothing else under way.  A message of
    QoS 1 whose Message Expiry Interval has run out may be dropped, and a server may give one of QoS 1 to another
    member of a Shared Subscription.

    Instead, send every unacknowledged PUBLISH and PUBREL again, in their old order and with their old packet
    identifiers, before anything new.
    """

    code = "ACK311"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    statements = {
        V5: {"MQTT-4.4.0-1": "", "MQTT-4.8.2-4": "server"},
        V3_1_1: {"MQTT-4.4.0-1": ""},
        V3_1: {"V31-RETRY-reconnect": ""},
    }
    also = {
        V5: ("MQTT-3.1.2-5", "MQTT-3.1.2-23", "MQTT-3.10.4-3", "MQTT-4.3.2-3", "MQTT-4.3.3-3", "MQTT-4.3.3-5"),
        V3_1_1: ("MQTT-3.1.2-4", "MQTT-3.10.4-3", "MQTT-4.1.0-1", "MQTT-4.3.2-1", "MQTT-4.3.3-1"),
    }

    good = examples(
        lambda: [
            conversation(
                "sent again",
                *_BEGINS,
                client(_MESSAGE),
                _BREAKS,
                *on(1, *_RESUMES, client(_AGAIN), server(Puback(7)), *_LATER, *_PING),
            ),
            conversation(
                "PUBREL sent again",
                *_BEGINS,
                client(_EXACTLY_ONCE),
                server(Pubrec(7)),
                _BREAKS,
                *on(1, *_RESUMES, client(Pubrel(7)), server(Pubcomp(7)), *_LATER, *_PING),
            ),
            conversation(
                "acknowledged on the old connection after all",
                *_BEGINS,
                client(_MESSAGE),
                *on(1, *_RESUMES),
                server(Puback(7)),
                closes("server"),
                *on(1, *_LATER, *_PING),
            ),
            conversation(
                "the session is gone",
                *_BEGINS,
                client(_MESSAGE),
                _BREAKS,
                *on(1, *opened(clean_start=False, connect=_KEPT), *_LATER, *_PING),
            ),
            conversation(
                "a session that was not kept",
                *opened(V3_1_1),
                client(_MESSAGE),
                _BREAKS,
                *on(1, *opened(V3_1_1, clean_start=True), *_LATER, *_PING),
            ),
            conversation(
                "the answer may have been lost by the capture",
                *_BEGINS,
                client(_MESSAGE),
                lost(server(Puback(7))),
                client(Pingreq()),
                _BREAKS,
                *on(1, *_RESUMES, *_LATER, *_PING),
            ),
            conversation(
                "the client has said nothing since",
                *_BEGINS,
                client(_MESSAGE),
                _BREAKS,
                *on(1, *_RESUMES, server(Publish(topic_name="b"), after=31), server(Publish(topic_name="b"))),
            ),
            conversation(
                "something else of the server waits for its acknowledgment",
                *_BEGINS,
                *_asks("#", 1),
                server(_MESSAGE, Publish(qos=1, topic_name="a", packet_identifier=8, payload=b"y")),
                _BREAKS,
                *on(1, *_RESUMES, server(_AGAIN), *_LATER, *_PING),
            ),
            conversation(
                "a Shared Subscription has other members",
                *_BEGINS,
                *_asks("$share/g/a", 1),
                server(_MESSAGE),
                _BREAKS,
                *on(1, *_RESUMES, *_LATER, *_PING),
            ),
            conversation(
                "it has expired",
                *_BEGINS,
                client(
                    Publish(
                        qos=1, topic_name="a", packet_identifier=7, properties=Properties(message_expiry_interval=5)
                    )
                ),
                _BREAKS,
                *on(1, *_RESUMES, *_LATER, *_PING),
            ),
            conversation(
                "too long for the client by now",
                *_BEGINS,
                *_asks("a", 1),
                server(_MESSAGE),
                _BREAKS,
                *on(
                    1,
                    *opened(
                        clean_start=False,
                        session_present=True,
                        connect=Properties(session_expiry_interval=3_600, maximum_packet_size=8),
                    ),
                    *_LATER,
                    *_PING,
                ),
            ),
            conversation(
                "another user's client of the same name",
                *opened(clean_start=False, connect=_KEPT, user_name="alice"),
                client(_MESSAGE),
                _BREAKS,
                *on(
                    1,
                    *opened(clean_start=False, connect=_KEPT, user_name="bob", session_present=True),
                    *_LATER,
                    *_PING,
                ),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "PUBLISH of the client",
                *_BEGINS,
                client(_MESSAGE),
                _BREAKS,
                *on(1, *_RESUMES, client(Pingreq(), after=31), server(Pingresp()).marked("", at=None)),
            ),
            conversation(
                "PUBLISH of the server, in MQTT 3.1.1",
                *opened(V3_1_1, clean_start=False),
                *_asks("a", 1),
                server(_MESSAGE),
                _BREAKS,
                *on(
                    1,
                    *opened(V3_1_1, clean_start=False, session_present=True),
                    *_LATER,
                    client(Pingreq()).marked("", at=None),
                    server(Pingresp()),
                ),
            ),
            conversation(
                "PUBREL of the client",
                *_BEGINS,
                client(_EXACTLY_ONCE),
                server(Pubrec(7)),
                _BREAKS,
                *on(1, *_RESUMES, client(Pingreq(), after=31), server(Pingresp()).marked("", at=None)),
            ),
            conversation(
                "in MQTT 3.1, where CONNACK does not say whether the session continues",
                *opened(V3_1, clean_start=False),
                client(_MESSAGE),
                _BREAKS,
                *on(
                    1,
                    *opened(V3_1, clean_start=False),
                    client(Pingreq(), after=31),
                    server(Pingresp()).marked("", at=None),
                ),
            ),
            conversation(
                "QoS 2 on a Shared Subscription, of two messages",
                *_BEGINS,
                *_asks("$share/g/a", 2),
                server(_EXACTLY_ONCE, Publish(qos=2, topic_name="a", packet_identifier=8)),
                _BREAKS,
                *on(1, *_RESUMES, *_LATER, client(Pingreq()).marked("", at=None)),
            ),
            conversation(
                "taken over, while the old connection was still open",
                *_BEGINS,
                client(_MESSAGE),
                *on(1, *_RESUMES),
                closes("server"),
                *on(1, client(Pingreq(), after=31), server(Pingresp()).marked("", at=None)),
            ),
        ]
    )

    def blames(self, one: Carried, direction: Direction, at: RuleContext) -> bool:
        """What has not expired; of a server's QoS 1 what cannot have gone to somebody else."""
        if one.expires_ns <= at.timestamp_ns:
            return False  # ACK314, where it is one of QoS 2
        if direction is Direction.CLIENT_TO_SERVER or one.qos == 2:
            return True
        model = at.model(self.models[0])
        return model.filters_known and not any(name.startswith("$share/") for name in model.filters)

    def tell(self, one: Carried) -> str:
        """The packet, its identifier and its topic."""
        topic = "" if one.topic is None else f" ({shown(one.topic)})"
        return (
            f"{one.step} id {one.packet_identifier}{topic} was unacknowledged when the connection broke and was not "
            "sent again when the session continued"
        )
