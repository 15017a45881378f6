"""ACK202."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, lost, opened, server
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Needs, Rule, packet_name
from mqttscope.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe, Unsubscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.session.inflight import SENT, Exchange


class PacketIdInUse(Rule):
    """A new packet takes a packet identifier that an unanswered packet of the same side still has.

    The next acknowledgement with that number then ends the wrong exchange: a message is taken for delivered that was
    not, or the receiver drops the new one as a repeat.  PUBLISH, SUBSCRIBE and UNSUBSCRIBE of a client share one set of
    identifiers; the server has its own, so the same number in both directions at once is fine.

    Instead, take an identifier whose exchange has ended: after PUBACK, PUBCOMP, SUBACK, UNSUBACK, or a PUBREC that
    refuses the message.
    """

    code = "ACK202"
    severity = Severity.ERROR
    reason_code = 0x91
    statements = {
        V5: {
            "MQTT-2.2.1-3": "client",
            "MQTT-2.2.1-4": "server",
            "MQTT-4.3.2-1": "publish",
            "MQTT-4.3.2-3": "",
            "MQTT-4.3.3-1": "publish",
            "MQTT-4.3.3-3": "",
            "MQTT-4.3.3-5": "",
            "V5-ID-reuse-set": "",
        },
        V3_1_1: {"MQTT-2.3.1-2": "client", "MQTT-4.3.2-1": "publish"},
        V3_1: {"V31-MSGID-in-flight": ""},
    }
    also = {V3_1_1: ("MQTT-2.3.1-3", "MQTT-2.3.1-4", "MQTT-4.3.3-1")}
    looks_at = (Publish, Subscribe, Unsubscribe)
    when = "qos"
    always = (Subscribe, Unsubscribe)
    signs = ("taken",)
    needs = Needs.WHOLE

    good = examples(
        lambda: [
            conversation(
                "used again after the PUBACK",
                *opened(),
                client(Publish(qos=1, topic_name="a", packet_identifier=7, payload=b"A")),
                server(Puback(packet_identifier=7)),
                client(Publish(qos=1, topic_name="a", packet_identifier=7, payload=b"B")),
                server(Puback(packet_identifier=7)),
            ),
            conversation(
                "used again after a refusal",
                *opened(),
                client(Publish(qos=2, topic_name="a", packet_identifier=7, payload=b"A")),
                server(Pubrec(packet_identifier=7, reason_code=0x97)),
                client(Publish(qos=1, topic_name="a", packet_identifier=7, payload=b"B")),
                server(Puback(packet_identifier=7)),
            ),
            conversation(
                "the same number in both directions",
                *opened(V3_1_1),
                client(Publish(qos=2, topic_name="a", packet_identifier=7)),
                server(Publish(qos=2, topic_name="b", packet_identifier=7)),
                client(Pubrec(packet_identifier=7)),
                server(Pubrec(packet_identifier=7)),
                client(Pubrel(packet_identifier=7)),
                server(Pubrel(packet_identifier=7)),
                client(Pubcomp(packet_identifier=7)),
                server(Pubcomp(packet_identifier=7)),
            ),
            conversation(
                "the same message again",
                *opened(V3_1_1),
                client(Publish(qos=1, topic_name="a", packet_identifier=7, payload=b"A")),
                client(Publish(dup=True, qos=1, topic_name="a", packet_identifier=7, payload=b"A"), after=20),
                server(Puback(packet_identifier=7)),
            ),
            conversation(
                "the same SUBSCRIBE again",
                *opened(V3_1),
                client(Subscribe(packet_identifier=7, subscriptions=[Subscription("a")])),
                client(Subscribe(packet_identifier=7, subscriptions=[Subscription("a")], header_flags=10), after=20),
                server(Suback(packet_identifier=7, reason_codes=[0])),
            ),
            conversation(
                "the acknowledgement is not in the capture",
                *opened(),
                client(Publish(qos=1, topic_name="a", packet_identifier=7, payload=b"A")),
                lost(server(Puback(packet_identifier=7))),
                client(Publish(qos=1, topic_name="a", packet_identifier=7, payload=b"B")),
                server(Puback(packet_identifier=7)),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "another message before the PUBACK",
                *opened(),
                client(Publish(qos=1, topic_name="a", packet_identifier=7, payload=b"A")),
                client(Publish(qos=1, topic_name="a", packet_identifier=7, payload=b"B")).marked("packet_identifier"),
            ),
            conversation(
                "from the server, before the PUBCOMP",
                *opened(V3_1_1),
                server(Publish(qos=2, topic_name="a", packet_identifier=7)),
                client(Pubrec(packet_identifier=7)),
                server(Pubrel(packet_identifier=7)),
                server(Publish(qos=1, topic_name="b", packet_identifier=7)).marked("packet_identifier"),
            ),
            conversation(
                "a message with the identifier of a SUBSCRIBE",
                *opened(V3_1),
                client(
                    Subscribe(packet_identifier=7, subscriptions=[Subscription("a")]),
                    Publish(qos=1, topic_name="a", packet_identifier=7),
                ).marked("packet_identifier"),
            ),
            conversation(
                "UNSUBSCRIBE with the identifier of a message",
                *opened(),
                client(Publish(qos=2, topic_name="a", packet_identifier=7)),
                server(Pubrec(packet_identifier=7)),
                client(Unsubscribe(packet_identifier=7, topic_filters=["a"])).marked("packet_identifier"),
            ),
            conversation(
                "another SUBSCRIBE before the SUBACK",
                *opened(V3_1_1),
                client(Subscribe(packet_identifier=7, subscriptions=[Subscription("a")])),
                client(Subscribe(packet_identifier=7, subscriptions=[Subscription("b")])).marked("packet_identifier"),
            ),
            conversation(
                "marked as a repeat, but another message",
                *opened(V3_1_1),
                client(Publish(qos=1, topic_name="a", packet_identifier=7)),
                client(Publish(dup=True, qos=1, topic_name="b", packet_identifier=7)).marked("packet_identifier"),
            ),
            conversation(
                "alike, but with another QoS",
                *opened(V3_1_1),
                client(Publish(qos=1, topic_name="a", packet_identifier=7)),
                client(Publish(qos=2, topic_name="a", packet_identifier=7), after=5).marked("packet_identifier"),
            ),
        ]
    )

    def check(self, packet: Publish | Subscribe | Unsubscribe, at: RuleContext) -> Findings:
        """Look the identifier up among what is not answered."""
        running = at.sender.exchanges.get(packet.packet_identifier)  # type: ignore[arg-type]
        if running is None or not at.party.in_step():
            return None  # free, or the sender has had packets that the capture has not shown yet
        if at.party.settled.get(running.packet_identifier) == running.packet:
            return None
        identifier, unsure = running.packet_identifier, False
        if isinstance(packet, Publish):
            if running.kind == "publish" and at.party.repeats(packet, at.topic, running):
                if packet.dup or packet.qos == running.qos:
                    return None  # sent again; without DUP that is PUB311
                unsure = True
        elif _same_request(packet, at, running):
            return None
        other = running.kind.upper()
        name = f"{packet_name(packet)} {at.topic!r}" if isinstance(packet, Publish) else packet_name(packet)
        seconds = (at.timestamp_ns - running.timestamp_ns) / 1e9
        earlier = Related(f"{other} {identifier}", running.packet, running.frame, running.timestamp_ns)
        return self.report(
            "packet_identifier",
            f"{name} takes packet identifier {identifier}, still in use by the {other} sent {seconds:.3g} s before"
            + (", before its PUBCOMP" if running.phase is not SENT else ""),
            confidence=Confidence.LIKELY if unsure else None,
            related=(earlier,),
            statements=self._cited(packet, at, running),
        )

    def _cited(self, packet: Publish | Subscribe | Unsubscribe, at: RuleContext, running: Exchange) -> tuple[str, ...]:
        """Statements for the QoS of both packets."""
        side = "client" if at.from_client else "server"
        rows = self.statements_for(at.version, side, packet_name(packet).lower(), "packet_identifier")
        if at.version is V3_1:
            return tuple(rows)
        qos = packet.qos if isinstance(packet, Publish) else 0
        left_out = {f"MQTT-4.3.{1 + other}-1" for other in (1, 2) if other != qos}
        if at.version is V5:
            waits = {1: "MQTT-4.3.2-3", 2: "MQTT-4.3.3-3" if running.phase is SENT else "MQTT-4.3.3-5"}.get(running.qos)
            left_out |= {"MQTT-4.3.2-3", "MQTT-4.3.3-3", "MQTT-4.3.3-5"} - {waits}
        cited = [row for row in rows if row not in left_out]
        if at.version is V3_1_1 and not at.from_client:
            cited.insert(0, "MQTT-2.3.1-4")
        return tuple(cited)


def _same_request(packet: Subscribe | Unsubscribe, at: RuleContext, running: Exchange) -> bool:
    """Whether a SUBSCRIBE or UNSUBSCRIBE is the one that waits for its answer, sent again."""
    if running.kind != packet_name(packet).lower():
        return False
    request = at.history.subscriptions.request_for(running.packet_identifier, running.kind)
    if isinstance(packet, Subscribe):
        filters = [row.topic_filter for row in packet.subscriptions or ()]
    else:
        filters = list(packet.topic_filters or ())
    return request is None or list(request.topic_filters) == filters
