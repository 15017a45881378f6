"""WIL408."""

from mqttscope.lint.broker_watch import SECOND_NS, doubt
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, closes, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Report, Severity
from mqttscope.lint.rule import ALL_VERSIONS, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.lint.rules.will import was_there, will_in
from mqttscope.lint.wills import DUE, KEPT, StoredWill, Wills, summaries
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Puback, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties
from mqttscope.session.matching import Match

_PAIRS = [("k", "1"), ("k", "2")]
_WILL = Will("dead/c1", b"gone", 1, will_retain=True, properties=Properties(user_property=_PAIRS))
_PLAIN = Will("dead/c1", b"gone", 1)
_GONE = closes("client", "reset")


def _asks(qos: int = 1, *, as_published: bool = True) -> tuple[Step, Step]:
    row = Subscription("dead/#", qos, retain_as_published=as_published)
    return client(Subscribe(1, subscriptions=[row])), server(Suback(1, reason_codes=[qos]))


def _gets(qos: int = 1, *, retain: bool = True, properties: Properties | None = None) -> Step:
    return server(Publish(False, qos, retain, "dead/c1", 1 if qos else None, properties, b"gone"))


_READER = on(1, *opened(client_identifier="c2"), *_asks())


class WillMessageAltered(Rule):
    """A will is not published as its CONNECT says.

    A will has a QoS, a RETAIN flag and properties like any other message, and its client is not there any more to
    notice what became of them.  Compared are the QoS (at most that of the subscription), the RETAIN flag where all
    subscriptions have Retain As Published, and the properties with their order where both sides speak 5.0.

    Instead, publish the will as the client would have published it.
    """

    code = "WIL408"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    confidence = Confidence.LIKELY
    versions = ALL_VERSIONS
    statements = {
        V5: {"MQTT-3.1.2-14": "", "MQTT-3.1.2-15": "", "MQTT-3.1.3-10": ""},
        V3_1_1: {"MQTT-3.1.2-16": "", "MQTT-3.1.2-17": ""},
    }
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS
    settings = {"window": 60}
    models = (Wills,)
    about = Wills, "topics"

    good = examples(
        lambda: [
            conversation(
                "as it was given",
                *_READER,
                *opened(will=_WILL),
                _GONE,
                *on(1, _gets(properties=Properties(user_property=_PAIRS)), client(Puback(1))),
            ),
            conversation(
                "with the QoS of the subscription, and without the flag",
                *on(1, *opened(client_identifier="c2"), *_asks(0, as_published=False)),
                *opened(will=_WILL),
                _GONE,
                *on(1, _gets(0, retain=False, properties=Properties(user_property=_PAIRS))),
            ),
            conversation(
                "a subscriber before 5.0 gets no properties",
                *on(1, *opened(V3_1_1, client_identifier="c2"), *_asks()),
                *opened(will=_WILL),
                _GONE,
                *on(1, _gets(retain=False), client(Puback(1))),
            ),
            conversation(
                "a client before 5.0 has no properties",
                *_READER,
                *opened(V3_1_1, will=_PLAIN),
                _GONE,
                *on(1, _gets(retain=False, properties=Properties(payload_format_indicator=1)), client(Puback(1))),
            ),
            conversation(
                "published by somebody else",
                *_READER,
                *opened(will=_WILL),
                _GONE,
                *on(2, *opened(client_identifier="c3"), client(Publish(topic_name="dead/c1", payload=b"gone"))),
                *on(1, _gets(0, retain=False)),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "user properties in another order",
                *_READER,
                *opened(will=_WILL),
                _GONE,
                *on(1, _gets(properties=Properties(user_property=_PAIRS[::-1])).marked("properties.user_property")),
            ),
            conversation(
                "without the RETAIN flag, and without the properties",
                *_READER,
                *opened(will=_WILL),
                _GONE,
                *on(1, _gets(retain=False).marked("retain", "properties")),
            ),
            conversation(
                "with QoS 0",
                *on(1, *opened(V3_1_1, client_identifier="c2"), *_asks()),
                *opened(V3_1_1, will=_PLAIN),
                _GONE,
                *on(1, _gets(0, retain=False).marked("qos")),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare a message that can be nothing else than a will with its CONNECT."""
        found = will_in(packet, at)
        if found is None:
            return None
        key, will, match = found
        phase, ended_ns = at.model(Wills).phase_of(key, will, at)
        since_ns = at.timestamp_ns - max(ended_ns, will.due_ns)
        if phase != DUE or since_ns > float(self.set["window"]) * SECOND_NS or not was_there(ended_ns, at):
            return None
        if match.ended or match.replaces or any(one.granted is None for one in match.subscriptions):
            return None
        return self._differences(packet, will, match, at)

    def _differences(self, packet: Publish, will: StoredWill, match: Match, at: RuleContext) -> list[Report]:
        qos = {min(will.qos, one.qos) for one in match.subscriptions}
        told = []
        if packet.qos < min(qos) or packet.qos > max(qos):
            wanted = " or ".join(map(str, sorted(qos)))
            told.append(
                self._told("qos", f"with QoS {packet.qos}", f"{wanted} follows from CONNECT and SUBACK", will, at)
            )
        if at.version is not V5:
            return told
        if all(one.retain_as_published for one in match.subscriptions) and packet.retain != will.retain:
            told.append(
                self._told("retain", f"with RETAIN {packet.retain:d}", f"CONNECT said {will.retain:d}", will, at)
            )
        if will.properties is not None:
            given = summaries(packet.properties)
            for name in KEPT:
                if given.get(name) != will.properties.get(name):
                    how = "without " if name not in given else "with other " if name in will.properties else "with "
                    field = f"properties.{name}" if name in given else "properties"
                    told.append(self._told(field, how + name.replace("_", " "), "CONNECT said otherwise", will, at))
        return told

    def _told(self, field: str, got: str, wanted: str, will: StoredWill, at: RuleContext) -> Report:
        identifiers: tuple[str, ...] | None = None
        if at.version is V5:
            identifiers = ("MQTT-3.1.3-10",) if field.startswith("properties") else ("MQTT-3.1.2-8",)
            if field == "retain":
                identifiers = ("MQTT-3.1.2-15",) if will.retain else ("MQTT-3.1.2-14",)
        elif at.version is V3_1_1:
            identifiers = ("MQTT-3.1.2-8",)
        return self.report(
            field,
            f"will of {will.client!r} published to {at.client_name!r} {got}, {wanted}",
            related=(will.connect,),
            statements=identifiers,
            **doubt(at, doubtful=at.model(Wills).is_torn(at)),
        )
