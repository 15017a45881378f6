"""ACK313."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import V3_1_1, V5, Findings, Needs, Rule
from mqttscope.lint.session_model import SessionModel, doubted
from mqttscope.lint.strings import shown
from mqttscope.mqtt.packets import Puback, Publish
from mqttscope.mqtt.properties import Properties
from mqttscope.session.inflight import SENT

_KEPT = Properties(session_expiry_interval=3_600)
_BEGINS = opened(clean_start=False, connect=_KEPT)
_RESUMES = opened(clean_start=False, connect=_KEPT, session_present=True)
_BREAKS = closes("client", "reset")


def _message(identifier: int, payload: bytes = b"A", *, dup: bool = False) -> Publish:
    return Publish(dup=dup, qos=1, topic_name="a", packet_identifier=identifier, payload=payload)


class ResendPacketIdChanged(Rule):
    """A message is sent again after a reconnect with another packet identifier than before.

    The identifier is all that the two sides know a message by.  Under a new one the receiver takes it for another
    message, QoS 2 delivers it twice, and the old identifier waits forever.  Without DUP it could be a new message of
    equal content, and that is not reported; nor is it where the session is older than the capture.

    Instead, store the packet identifier with the message and use it again.
    """

    code = "ACK313"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.HEURISTIC
    statements = {V3_1_1: {"MQTT-2.3.1-3": "client", "MQTT-2.3.1-4": "server"}}
    also = {V5: ("MQTT-4.4.0-1",), V3_1_1: ("MQTT-4.4.0-1",)}
    looks_at = Publish
    when = "dup"
    signs = ("carries",)
    needs = Needs.OPENING | Needs.WHOLE
    models = (SessionModel,)

    good = examples(
        lambda: [
            conversation(
                "the same identifier",
                *_BEGINS,
                client(_message(7)),
                _BREAKS,
                *on(1, *_RESUMES, client(_message(7, dup=True)), server(Puback(7))),
            ),
            conversation(
                "equal content twice",
                *_BEGINS,
                client(_message(7), _message(8)),
                _BREAKS,
                *on(1, *_RESUMES, client(_message(7, dup=True), _message(8, dup=True)), server(Puback(7), Puback(8))),
            ),
            conversation(
                "an unfinished message of before the capture may be alike",
                *_RESUMES,
                client(_message(7)),
                _BREAKS,
                *on(1, *_RESUMES, client(_message(3, dup=True)), server(Puback(3))),
            ),
            conversation(
                "a new message of equal content",
                *_BEGINS,
                client(_message(7)),
                _BREAKS,
                *on(1, *_RESUMES, client(_message(8)), server(Puback(8))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "the next identifier",
                *_BEGINS,
                client(_message(7)),
                _BREAKS,
                *on(1, *_RESUMES, client(_message(8, dup=True)).marked("packet_identifier"), server(Puback(8))),
            ),
            conversation(
                "by the server, in MQTT 3.1.1",
                *opened(V3_1_1, clean_start=False),
                server(_message(7, b"B"), _message(8)),
                _BREAKS,
                *on(
                    1,
                    *opened(V3_1_1, clean_start=False, session_present=True),
                    server(_message(1, b"B", dup=True)).marked("packet_identifier"),
                ),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for the message under another identifier."""
        identifier = packet.packet_identifier
        if not at.history.carries or identifier is None or at.party.has_sent(identifier):
            return None
        model = at.model(SessionModel)
        rows = model.carried(at.direction, at)
        if not (model.born and model.whole and model.resumed) or identifier in rows:
            return None
        for one in rows.values():
            if not one.sure or one.answered or one.phase is not SENT or at.party.has_sent(one.packet_identifier):
                continue
            if one.is_message(packet, at.topic):
                return self.report(
                    "packet_identifier",
                    f"message on {shown(at.topic or '')} is sent again with packet identifier {identifier}, which was "
                    f"{one.packet_identifier} before",
                    related=(one.related,),
                    **doubted(apart=model.apart),
                )
        return None
