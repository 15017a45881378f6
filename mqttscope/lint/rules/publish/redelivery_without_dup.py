"""PUB311."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, lost, on, opened, server
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Needs, Rule
from mqttscope.lint.session_model import SessionModel, doubted
from mqttscope.lint.strings import shown
from mqttscope.mqtt.packets import Puback, Publish, Pubrec, Pubrel
from mqttscope.mqtt.properties import Properties
from mqttscope.session.inflight import SENT

_KEPT = Properties(session_expiry_interval=3_600)
_BEGINS = opened(clean_start=False, connect=_KEPT)
_RESUMES = opened(clean_start=False, connect=_KEPT, session_present=True)
_BREAKS = closes("client", "reset")
_ALIAS = Properties(topic_alias=1)
_TAKES_ALIASES = Properties(topic_alias_maximum=5)


def _message(payload: bytes = b"A", *, dup: bool = False, qos: int = 1) -> Publish:
    return Publish(dup=dup, qos=qos, topic_name="a", packet_identifier=7, payload=payload)


class RedeliveryWithoutDup(Rule):
    """A PUBLISH that has not been acknowledged is sent again with DUP 0.

    DUP tells the receiver that it may have the message already.  Without it the receiver of QoS 1 hands the message on
    twice without a sign, and the packet identifier is taken a second time while it is in use.  The same identifier
    with another topic or another payload is a new message: ACK202.

    Instead, set DUP to 1 whenever a PUBLISH is sent again, on the same connection or on a later one of the session.
    """

    code = "PUB311"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-3.3.1-1": ""},
        V3_1_1: {"MQTT-3.3.1-1": ""},
        V3_1: {"V31-HEADER-dup-scope": "", "V31-PUBLISH-dup-on-resend": ""},
    }
    looks_at = Publish
    when = "qos"
    signs = ("taken", "carries")
    needs = Needs.WHOLE
    models = (SessionModel,)

    good = examples(
        lambda: [
            conversation(
                "with DUP 1, after a reconnect",
                *_BEGINS,
                client(_message()),
                _BREAKS,
                *on(1, *_RESUMES, client(_message(dup=True)), server(Puback(7))),
            ),
            conversation(
                "the server has lost the session",
                *_BEGINS,
                client(_message()),
                _BREAKS,
                *on(1, *opened(clean_start=False, connect=_KEPT), client(_message()), server(Puback(7))),
            ),
            conversation(
                "the same again after the PUBACK",
                *_BEGINS,
                client(_message()),
                server(Puback(7)),
                client(_message()),
                server(Puback(7)),
                _BREAKS,
                *on(1, *_RESUMES, client(_message()), server(Puback(7))),
            ),
            conversation(
                "the PUBACK may be among what the capture lost",
                *_BEGINS,
                client(_message()),
                lost(server(Puback(7))),
                _BREAKS,
                *on(1, *_RESUMES, client(_message()), server(Puback(7))),
            ),
            conversation(
                "another user's client of the same name",
                *opened(clean_start=False, connect=_KEPT, user_name="alice"),
                client(_message()),
                _BREAKS,
                *on(
                    1,
                    *opened(clean_start=False, connect=_KEPT, user_name="bob", session_present=True),
                    client(_message()),
                    server(Puback(7)),
                ),
            ),
            conversation(
                "PUBREL after a reconnect",
                *_BEGINS,
                client(_message(qos=2)),
                server(Pubrec(7)),
                _BREAKS,
                *on(1, *_RESUMES, client(Pubrel(7))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "after a reconnect",
                *_BEGINS,
                client(_message()),
                _BREAKS,
                *on(1, *_RESUMES, client(_message()).marked("dup"), server(Puback(7))),
            ),
            conversation(
                "by the server, in MQTT 3.1.1",
                *opened(V3_1_1, clean_start=False),
                server(_message(qos=2)),
                _BREAKS,
                *on(1, *opened(V3_1_1, clean_start=False, session_present=True), server(_message(qos=2)).marked("dup")),
            ),
            conversation(
                "on the same connection, in MQTT 3.1.1",
                *opened(V3_1_1),
                client(_message()),
                client(_message(), after=5).marked("dup"),
            ),
            conversation(
                "its topic was an alias at first",
                *opened(connack=_TAKES_ALIASES, clean_start=False, connect=_KEPT),
                client(Publish(topic_name="a", properties=_ALIAS)),
                client(Publish(qos=1, packet_identifier=7, payload=b"A", properties=_ALIAS)),
                _BREAKS,
                *on(1, *_RESUMES, client(_message()).marked("dup")),
            ),
            conversation(
                "in MQTT 3.1",
                *opened(V3_1, clean_start=False),
                client(_message()),
                _BREAKS,
                *on(1, *opened(V3_1, clean_start=False), client(_message()).marked("dup")),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for the message among what its sender waits for, on this connection and on those before."""
        identifier, party = packet.packet_identifier, at.party
        if packet.dup or identifier is None:
            return None
        running = at.sender.running(identifier, "publish")
        if running is not None:
            if not party.in_step() or party.settled.get(identifier) == running.packet:
                return None
            if running.qos != packet.qos or not party.repeats(packet, at.topic, running):
                return None  # ACK202
            seconds = (at.timestamp_ns - running.timestamp_ns) / 1e9
            first = Related(f"PUBLISH {identifier}", running.packet, running.frame, running.timestamp_ns)
            return self._told(at, identifier, f"{seconds:.3g} s after it was sent first", first)
        if not at.history.carries or party.has_sent(identifier):
            return None
        model = at.model(SessionModel)
        one = model.carried(at.direction, at).get(identifier)
        if one is None or not one.sure or one.answered or one.phase is not SENT:
            return None
        if not one.is_message(packet, at.topic):
            return None
        doubt = doubted(apart=model.apart)
        if model.resumed is None:
            if not at.from_client:
                return None  # a server that has lost the session begins with the same identifiers
            doubt.setdefault("confidence", Confidence.HEURISTIC)
        return self._told(at, identifier, "after the reconnect", one.related, **doubt)

    def _told(self, at: RuleContext, identifier: int, when: str, first: Related, **doubt: object) -> Findings:
        topic = "" if at.topic is None else f" {shown(at.topic)}"
        return self.report(
            "dup",
            f"PUBLISH{topic} with identifier {identifier} is sent again with DUP 0, {when}",
            related=(first,),
            **doubt,  # type: ignore[arg-type]
        )
