from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, Needs, Rule, RuleContext, examples, packet_name
from mqttscope.mqtt.packets import Publish, Subscribe, Unsubscribe
from mqttscope.session.inflight import SENT, Exchange


class PacketIdInUse(Rule):
    """A new packet uses a packet identifier that still belongs to an unanswered packet from the same side.

    The next acknowledgement with this identifier ends the wrong exchange: an undelivered message counts as delivered,
    or the receiver drops the new message as a repeat.  PUBLISH, SUBSCRIBE and UNSUBSCRIBE of a client share one set of
    identifiers.  The server has its own set, so both sides may use the same number at once.

    Instead, use an identifier whose exchange has ended: after PUBACK, PUBCOMP, SUBACK, UNSUBACK, or a PUBREC that
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
    when = "qos"
    always = (Subscribe, Unsubscribe)
    signs = ("taken",)
    needs = Needs.WHOLE

    good = examples("""
        used again after the PUBACK
            opened; > publish a A qos=1 id=7; < puback 7; > publish a B qos=1 id=7; < puback 7
        used again after a refusal
            opened; > publish a A qos=2 id=7; < pubrec 7 code=0x97; > publish a B qos=1 id=7; < puback 7
        the same number in both directions
            opened 3.1.1; > publish a qos=2 id=7; < publish b qos=2 id=7; > pubrec 7; < pubrec 7; > pubrel 7; < pubrel 7
            > pubcomp 7; < pubcomp 7
        the same message resent
            opened 3.1.1; > publish a A qos=1 id=7; +20 > publish a A dup qos=1 id=7; < puback 7
        the same SUBSCRIBE resent
            opened 3.1; > subscribe 7 a:0; +20 > subscribe 7 a:0 header_flags=0x0a; < suback 7 0
        the acknowledgement is not in the capture
            opened; > publish a A qos=1 id=7; lost < puback 7; > publish a B qos=1 id=7; < puback 7
    """)
    bad = examples("""
        another message before the PUBACK
            opened; > publish a A qos=1 id=7; > publish a B qos=1 id=7 !packet_identifier
        from the server, before the PUBCOMP
            opened 3.1.1; < publish a qos=2 id=7; > pubrec 7; < pubrel 7; < publish b qos=1 id=7 !packet_identifier
        a message with the identifier of a SUBSCRIBE
            opened 3.1; > subscribe 7 a:0 & publish a qos=1 id=7 !packet_identifier
        UNSUBSCRIBE with the identifier of a message
            opened; > publish a qos=2 id=7; < pubrec 7; > unsubscribe 7 a !packet_identifier
        another SUBSCRIBE before the SUBACK
            opened 3.1.1; > subscribe 7 a:0; > subscribe 7 b:0 !packet_identifier
        DUP is set, but it is another message
            opened 3.1.1; > publish a qos=1 id=7; > publish b dup qos=1 id=7 !packet_identifier
        the same message, but with another QoS
            opened 3.1.1; > publish a qos=1 id=7; +5 > publish a qos=2 id=7 !packet_identifier
    """)

    def check(self, packet: Publish | Subscribe | Unsubscribe, at: RuleContext) -> Findings:
        """Look for an unanswered packet with this identifier."""
        running = at.sender.exchanges.get(packet.packet_identifier)  # type: ignore[arg-type]
        if running is None or not at.party.in_step():
            return None  # free, or the sender received packets that the capture has not shown yet
        if at.party.settled.get(running.packet_identifier) == running.packet:
            return None
        identifier, unsure = running.packet_identifier, False
        if isinstance(packet, Publish):
            if running.kind == "publish" and at.party.repeats(packet, at.topic, running):
                if packet.dup or packet.qos == running.qos:
                    return None  # resent; a missing DUP flag is PUB311
                unsure = True
        elif _same_request(packet, at, running):
            return None
        other = running.kind.upper()
        name = f"{packet_name(packet)} {at.topic!r}" if isinstance(packet, Publish) else packet_name(packet)
        seconds = (at.timestamp_ns - running.timestamp_ns) / 1e9
        return self.report(
            "packet_identifier",
            f"{name} uses packet identifier {identifier}, still in use by the {other} sent {seconds:.3g} s before"
            + (", before its PUBCOMP" if running.phase is not SENT else ""),
            confidence=Confidence.LIKELY if unsure else None,
            related=(Related.to(f"{other} {identifier}", running),),
            statements=self._cited(packet, at, running),
        )

    def _cited(self, packet: Publish | Subscribe | Unsubscribe, at: RuleContext, running: Exchange) -> tuple[str, ...]:
        """Statements about the QoS of both packets."""
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
    """Whether a SUBSCRIBE or UNSUBSCRIBE repeats the request that still waits for its answer."""
    if running.kind != packet_name(packet).lower():
        return False
    request = at.history.subscriptions.request_for(running.packet_identifier, running.kind)
    if isinstance(packet, Subscribe):
        filters = [row.topic_filter for row in packet.subscriptions or ()]
    else:
        filters = list(packet.topic_filters or ())
    return request is None or list(request.topic_filters) == filters
