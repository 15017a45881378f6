from collections.abc import Iterator

from mqttscope.lint.rules import S2C, SPARKPLUG, Findings, Report, RuleContext, Severity
from mqttscope.lint.rules.sparkplug import SparkplugRule, host_of_will, node_of_will, sparkplug_examples
from mqttscope.mqtt import Connack, Suback
from mqttscope.payloads.sparkplug_topics import NAMESPACE

_QOS = "tck-id-conformance-mqtt-qos1"
_WILL = "tck-id-conformance-mqtt-will-messages"
_RETAINED = "tck-id-conformance-mqtt-retained"
REFUSALS = {0x9A: (_WILL, _RETAINED), 0x9B: (_WILL, _QOS)}
"""Statements for the Reason Codes Retain not supported and QoS not supported."""


class ServerLacksFeature(SparkplugRule):
    """A server lacks a feature of MQTT that clients of Sparkplug need.

    Deaths have QoS 1, and STATE is retained.  Without both, Host Applications and edge nodes do not learn which clients
    are online.  The feature may be switched off for this client only, and not every server claims to conform.

    Instead, use a server with QoS 0 and 1, wills and retained messages for Sparkplug.
    """

    code = "SPB230"
    severity = Severity.WARNING
    sender = S2C
    signs = ()
    version_matters = True
    also = {SPARKPLUG: (_QOS, _WILL, _RETAINED)}

    good = sparkplug_examples("""
        everything
            NODE
        a client without Sparkplug
            opened will=a will_payload=x < maximum_qos=0 retain_available=0
        a subscription that access control refuses
            opened; > subscribe 1 spBv1.0/#:1; < suback 1 0x87
    """)
    bad = sparkplug_examples("""
        no QoS 1, and no RETAIN
            opened will=spBv1.0/g/NDEATH/n will_payload=x < maximum_qos=0 retain_available=0 !properties.maximum_qos
                !properties.retain_available
        a refused will
            > connect will=spBv1.0/STATE/h will_payload=x will_retain; < connack code=0x9a !reason_code; < fin
        a lower QoS for a subscription, in MQTT 3.1.1
            opened 3.1.1; > subscribe 1 a:1 spBv1.0/g/NCMD/n:1; < suback 1 0 0 !reason_codes[1]
    """)

    def check(self, packet: Connack | Suback, at: RuleContext) -> Findings:
        """Compare what a client of Sparkplug needs with what the server grants."""
        if isinstance(packet, Suback):
            return self._granted(packet, at) if 0 in (packet.reason_codes or ()) else None
        connect = at.history.connect
        is_known = at.history.connack is None and (node_of_will(connect) or host_of_will(connect))
        return self._offered(packet) if is_known else None

    def _offered(self, packet: Connack) -> Iterator[Report]:
        block = packet.properties
        if packet.reason_code in REFUSALS:
            text = f"CONNACK refuses the will of a Sparkplug client (0x{packet.reason_code:02x})"
            yield self.report("reason_code", text, statements=REFUSALS[packet.reason_code])
        if block is not None and block.maximum_qos == 0:
            text = "CONNACK has Maximum QoS 0 for a Sparkplug client"
            yield self.report("properties.maximum_qos", text, statements=(_QOS,))
        if block is not None and block.retain_available == 0:
            text = "CONNACK has Retain Available 0 for a Sparkplug client"
            yield self.report("properties.retain_available", text, statements=(_RETAINED,))

    def _granted(self, packet: Suback, at: RuleContext) -> Iterator[Report]:
        request = at.history.subscriptions.request_for(packet.packet_identifier or 0, "subscribe")
        if request is None or request.answers:
            return
        rows = zip(request.topic_filters, request.maximum_qos, packet.reason_codes or (), strict=False)
        for index, (name, qos, code) in enumerate(rows):
            if qos and code == 0 and name.startswith(f"{NAMESPACE}/"):
                text = f"SUBACK grants QoS 0 for {name!r}, requested with QoS {qos}"
                yield self.report(f"reason_codes[{index}]", text, statements=(_QOS,))
