from mqttscope.lint.broker_watch import doubt
from mqttscope.lint.rules import V3_1_1, V5, Findings, Report, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import DeliveryRule
from mqttscope.lint.rules.will import was_connected, will_of
from mqttscope.lint.wills import DUE, KEPT, StoredWill, Wills, summaries
from mqttscope.mqtt.packets import Publish
from mqttscope.session.matching import Match


class WillMessageAltered(DeliveryRule):
    """A will is published with other content or options than its CONNECT set.

    A will has a QoS, a RETAIN flag and properties like any other message, but its client can no longer notice changes.
    Three things are compared: the QoS (at most the subscription's), the RETAIN flag if all subscriptions have Retain As
    Published, and the properties with their order if both sides use 5.0.

    Instead, publish the will exactly as the client would have published it.
    """

    code = "WIL408"
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    statements = {
        V5: {"MQTT-3.1.2-14": "", "MQTT-3.1.2-15": "", "MQTT-3.1.3-10": ""},
        V3_1_1: {"MQTT-3.1.2-16": "", "MQTT-3.1.2-17": ""},
    }
    settings = {"window": 60}
    models = (Wills,)
    about = Wills, "topics"

    good = examples("""
        unchanged
            @1 opened client=c2; @1 > subscribe 1 dead/#:1,retain_as_published; @1 < suback 1 1
            opened will=dead/c1 will_payload=gone will_qos=1 will_retain will.user_property=k:1 will.user_property=k:2
            > reset; @1 < publish dead/c1 gone qos=1 retain id=1 user_property=k:1 user_property=k:2; @1 > puback 1
        with the QoS of the subscription, and without the flag
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will_qos=1 will_retain will.user_property=k:1 will.user_property=k:2
            > reset; @1 < publish dead/c1 gone user_property=k:1 user_property=k:2
        a subscriber before 5.0 receives no properties
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 dead/#:1,retain_as_published; @1 < suback 1 1
            opened 5.0 will=dead/c1 will_payload=gone will_qos=1 will_retain will.user_property=k:1
                will.user_property=k:2
            > reset; @1 < publish dead/c1 gone qos=1 id=1; @1 > puback 1
        a client before 5.0 has no properties
            @1 opened client=c2; @1 > subscribe 1 dead/#:1,retain_as_published; @1 < suback 1 1
            opened 3.1.1 will=dead/c1 will_payload=gone will_qos=1; > reset
            @1 < publish dead/c1 gone qos=1 id=1 payload_format_indicator=1; @1 > puback 1
        published by another client
            @1 opened client=c2; @1 > subscribe 1 dead/#:1,retain_as_published; @1 < suback 1 1
            opened will=dead/c1 will_payload=gone will_qos=1 will_retain will.user_property=k:1 will.user_property=k:2
            > reset; @2 opened client=c3; @2 > publish dead/c1 gone; @1 < publish dead/c1 gone
    """)
    bad = examples("""
        user properties in another order
            @1 opened client=c2; @1 > subscribe 1 dead/#:1,retain_as_published; @1 < suback 1 1
            opened will=dead/c1 will_payload=gone will_qos=1 will_retain will.user_property=k:1 will.user_property=k:2
            > reset
            @1 < publish dead/c1 gone qos=1 retain id=1 user_property=k:2 user_property=k:1 !properties.user_property
        without the RETAIN flag, and without the properties
            @1 opened client=c2; @1 > subscribe 1 dead/#:1,retain_as_published; @1 < suback 1 1
            opened will=dead/c1 will_payload=gone will_qos=1 will_retain will.user_property=k:1 will.user_property=k:2
            > reset; @1 < publish dead/c1 gone qos=1 id=1 !retain !properties
        with QoS 0
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 dead/#:1,retain_as_published; @1 < suback 1 1
            opened will=dead/c1 will_payload=gone will_qos=1; > reset; @1 < publish dead/c1 gone !qos
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare a message that must be a will with its CONNECT."""
        stored = will_of(packet, at)
        if stored is None:
            return None
        key, will, match = stored
        phase, ended_ns = at.model(Wills).phase_of(key, will, at)
        since_ns = at.timestamp_ns - max(ended_ns, will.due_ns)
        if phase != DUE or since_ns > self.nanoseconds("window") or not was_connected(ended_ns, at):
            return None
        if match.ended or match.replaces or any(subscription.granted is None for subscription in match.subscriptions):
            return None
        return self._differences(packet, will, match, at)

    def _differences(self, packet: Publish, will: StoredWill, match: Match, at: RuleContext) -> list[Report]:
        qos = {min(will.qos, subscription.qos) for subscription in match.subscriptions}
        reports = []
        if packet.qos < min(qos) or packet.qos > max(qos):
            wanted = " or ".join(map(str, sorted(qos)))
            reports.append(
                self._report("qos", f"with QoS {packet.qos}", f"but CONNECT and SUBACK require {wanted}", will, at)
            )
        if at.version is not V5:
            return reports
        if all(row.retain_as_published for row in match.subscriptions) and packet.retain != will.retain:
            reports.append(
                self._report("retain", f"with RETAIN {packet.retain:d}", f"but CONNECT has {will.retain:d}", will, at)
            )
        if will.properties is not None:
            summary = summaries(packet.properties)
            for name in KEPT:
                if summary.get(name) != will.properties.get(name):
                    how = "without " if name not in summary else "with other " if name in will.properties else "with "
                    field = f"properties.{name}" if name in summary else "properties"
                    reports.append(self._report(field, how + name.replace("_", " "), "unlike CONNECT", will, at))
        return reports

    def _report(self, field: str, got: str, wanted: str, will: StoredWill, at: RuleContext) -> Report:
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
