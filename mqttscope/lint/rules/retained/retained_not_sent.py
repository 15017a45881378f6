"""RET406."""

from mqttscope.lint.broker_watch import doubt
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, closes, conversation, examples, lost, make_connect, on, opened, server
from mqttscope.lint.finding import Confidence, Report, Severity
from mqttscope.lint.retained_store import Judged, RetainedStore, Vain, WaitingRule, waited_s
from mqttscope.lint.rule import ALL_VERSIONS, V3_1_1, V5, Findings, Needs
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connack, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties

_SETS = (client(Publish(qos=1, topic_name="a", retain=True, payload=b"21", packet_identifier=1)), server(Puback(1)))
_GETS = server(Publish(topic_name="a", retain=True, payload=b"21"))
_PINGS = (client(Pingreq()), server(Pingresp()))


def _asks(identifier: int = 1, name: str = "a", **options: int | bool) -> tuple[Step, Step]:
    row = Subscription(name, 0, **options)  # type: ignore[arg-type]
    return client(Subscribe(identifier, subscriptions=[row])), server(Suback(identifier, reason_codes=[0]))


_WAITS = client(Pingreq(), after=31)
_OVERDUE = _WAITS.marked("", at=None)


class RetainedNotSent(WaitingRule):
    """A subscriber does not get a retained message that matches its new subscription.

    New subscribers learn the state of a topic from its retained message; without it they know nothing until the next
    change.  Only messages of QoS 1 and 2 are expected, since a server may drop others at any time; and only while a
    connection that is open all the time proves that the server did not restart.  A server may filter silently what a
    client is not allowed to read or to write, so it is an error only where the same client has got messages of the
    topic, and where the server has accepted the message in so many words or has sent it to others; else a warning.

    Instead, send the retained messages that match with every SUBSCRIBE that asks for them.
    """

    code = "RET406"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    versions = ALL_VERSIONS
    statements = {V5: {"MQTT-3.3.1-9": "", "MQTT-3.8.4-4": ""}, V3_1_1: {"MQTT-3.3.1-6": ""}}
    also = {
        V5: ("MQTT-3.1.2-15", "MQTT-3.3.1-8", "MQTT-3.3.1-10"),
        V3_1_1: ("MQTT-3.1.2-17", "MQTT-3.3.1-12", "MQTT-3.8.4-3"),
    }
    looks_at = Subscribe
    needs = Needs.OPENING | Needs.WHOLE
    settings = {"timeout": 30}
    models = (RetainedStore,)
    Memory = Judged

    good = examples(
        lambda: [
            conversation(
                "it is sent", *opened(), *_SETS, *on(1, *opened(client_identifier="c2"), *_asks(), _GETS, _WAITS)
            ),
            conversation(
                "it is sent before the SUBACK",
                *opened(),
                *_SETS,
                *on(1, *opened(client_identifier="c2"), _asks()[0], _GETS, _asks()[1], _WAITS),
            ),
            conversation(
                "Retain Handling 2, a subscription that existed, and a shared one",
                *opened(),
                *_SETS,
                *on(1, *opened(client_identifier="c2"), *_asks(), _GETS, *_asks(2, retain_handling=1)),
                *on(2, *opened(client_identifier="c3"), *_asks(1, retain_handling=2), *_asks(2, "$share/g/a")),
                *on(2, _WAITS),
                *on(1, _WAITS),
            ),
            conversation(
                "QoS 0, which a server may drop",
                *opened(),
                client(Publish(topic_name="a", retain=True, payload=b"21")),
                *on(1, *opened(client_identifier="c2"), *_asks(), _WAITS),
            ),
            conversation(
                "cleared before",
                *opened(),
                *_SETS,
                client(Publish(topic_name="a", retain=True)),
                *on(1, *opened(client_identifier="c2"), *_asks(), _WAITS),
            ),
            conversation(
                "cleared meanwhile",
                *opened(),
                *_SETS,
                *on(1, *opened(client_identifier="c2"), *_asks()),
                client(Publish(topic_name="a", retain=True)),
                *on(1, _WAITS),
            ),
            conversation(
                "expired",
                *opened(),
                client(
                    Publish(False, 1, True, "a", 1, Properties(message_expiry_interval=20), b"21"),
                ),
                server(Puback(1)),
                client(Pingreq(), after=15),
                server(Pingresp()),
                *on(1, *opened(client_identifier="c2"), *_asks(), _WAITS),
            ),
            conversation(
                "refused by the server",
                *opened(),
                _SETS[0],
                server(Puback(1, reason_code=0x97)),
                *on(1, *opened(client_identifier="c2"), *_asks(), _WAITS),
            ),
            conversation(
                "the subscription is refused",
                *opened(),
                *_SETS,
                *on(1, *opened(client_identifier="c2"), _asks()[0], server(Suback(1, reason_codes=[0x87])), _WAITS),
            ),
            conversation(
                "nobody was there all the time: the server may have been restarted",
                *opened(),
                *_SETS,
                closes("client"),
                *on(1, *opened(client_identifier="c2"), *_asks(), _WAITS),
            ),
            conversation(
                "a wildcard of a client that may not be allowed to read everything",
                *opened(),
                *_SETS,
                *on(1, *opened(client_identifier="c2"), *_asks(1, "#"), _WAITS),
            ),
            conversation(
                "an empty will may have removed it",
                *on(2, *opened(client_identifier="c3")),
                *opened(will=Will("a", b"", 1, will_retain=True)),
                *_SETS,
                closes("client", "reset"),
                *on(1, *opened(client_identifier="c2"), *_asks(), _WAITS),
            ),
            conversation(
                "the server has not acknowledged it",
                *opened(),
                _SETS[0],
                *on(1, *opened(client_identifier="c2"), *_asks(), _WAITS),
            ),
            conversation(
                "a message of a client whose bytes are lost",
                *opened(),
                *_SETS,
                lost(client(Publish(topic_name="a", retain=True))),
                *_PINGS,
                client(Pingreq(), after=3),
                server(Pingresp()),
                *on(1, *opened(client_identifier="c2"), *_asks(), _WAITS),
            ),
            conversation(
                "larger than the client takes",
                *opened(),
                *_SETS,
                *on(1, *opened(client_identifier="c2", connect=Properties(maximum_packet_size=20)), *_asks(), _WAITS),
            ),
            conversation(
                "the connection ends too early",
                *opened(),
                *_SETS,
                *on(1, *opened(client_identifier="c2"), *_asks(), closes("client")),
                _WAITS,
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "asked for again in vain",
                *opened(),
                *_SETS,
                *on(1, *opened(client_identifier="c2"), *_asks(), _GETS, *_asks(2), _OVERDUE),
            ),
            conversation(
                "in vain after a reconnect, of a wildcard",
                *opened(V3_1_1),
                *_SETS,
                *on(1, *opened(V3_1_1, client_identifier="c2"), *_asks(1, "+"), _GETS, closes("client")),
                *on(
                    2, client(make_connect(V3_1_1, client_identifier="c2")), server(Connack()), *_asks(1, "+"), _OVERDUE
                ),
            ),
            conversation(
                "judged at the end of the connection",
                *opened(),
                *_SETS,
                *on(1, *opened(client_identifier="c2"), *_asks(), _GETS, *_asks(2)),
                *on(1, closes("client", after=40).marked("")),
            ),
            conversation(
                "by a client that has got nothing of the topic yet: only a warning",
                *opened(),
                *_SETS,
                *on(1, *opened(client_identifier="c2"), *_asks(), _OVERDUE),
            ),
            conversation(
                "a shorter time-out",
                *opened(),
                *_SETS,
                *on(1, *opened(client_identifier="c2"), *_asks(), client(Pingreq(), after=6).marked("", at=None)),
                settings={"timeout": 5},
            ),
        ]
    )

    def check(self, packet: Subscribe, at: RuleContext) -> Findings:
        """Look again when what it asks for should have come."""
        self.await_answer(at)
        return None

    def judge(self, vain: Vain, store: RetainedStore, at: RuleContext) -> Report | None:
        """Say how sure it is that the server should have sent it."""
        topic, one, kept = vain.topic, vain.expected, vain.kept
        before = "MQTT-3.8.4-4" if vain.subscribed.existed else "MQTT-3.3.1-9"
        if vain.subscribed.retain_handling == 1:
            before = "MQTT-3.3.1-10"
        return self.report(
            "",
            f"SUBSCRIBE {one.topic_filter!r} of {at.client_name!r}: retained message on {topic!r} was not sent within "
            f"{waited_s(one, at):,.0f} s",
            statements=(before,) if at.version is V5 else None,
            related=vain.related,
            sender=Direction.SERVER_TO_CLIENT,
            overdue=True,
            topic=topic,
            **doubt(at, doubtful=not (vain.reader and (kept.proven or kept.granted))),
        )
