from typing import Any

from mqttscope.lint.rules import V5, Findings, Report, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.lint.signs import NOT_ZERO, YES_OR_NO
from mqttscope.mqtt.packets import Connack, Connect, Publish, Subscribe
from mqttscope.mqtt.properties import Properties, property_name


class PropertyValueInvalid(Rule):
    """A property has a value that the standard excludes.

    Boolean properties must be 0 or 1, though they have a whole byte.  A Receive Maximum or a Maximum Packet Size of 0
    would make the connection useless, and Subscription Identifiers start at 1.  The receiver treats the packet as a
    protocol error and closes the connection.

    Instead, omit a property if you mean its default.
    """

    code = "PRP106"
    severity = Severity.ERROR
    reason_code = 0x82
    versions = (V5,)
    statements = {
        V5: {
            "V5-VALUE-receive-maximum-0": "any.properties.receive_maximum",
            "V5-VALUE-max-packet-size-0": "any.properties.maximum_packet_size",
            "V5-VALUE-request-info": (
                "connect.properties.request_problem_information,connect.properties.request_response_information"
            ),
            "V5-VALUE-connack-flags": (
                "connack.properties.maximum_qos,connack.properties.retain_available,"
                "connack.properties.wildcard_subscription_available,"
                "connack.properties.subscription_identifier_available,"
                "connack.properties.shared_subscription_available"
            ),
            "V5-VALUE-payload-format": (
                "publish.properties.payload_format_indicator,connect.will.properties.payload_format_indicator"
            ),
            "V5-VALUE-subscription-id-0": "any.properties.subscription_identifier",
        }
    }
    looks_at = (Connect, Connack, Publish, Subscribe)
    when = "properties"
    always = (Connect,)
    signs = ("odd_value",)

    good = examples("""
        minimum and maximum values
            opened will=a will_payload=gone will.payload_format_indicator=1 receive_maximum=1
                maximum_packet_size=4294967295 request_problem_information=0 request_response_information=1 <
                receive_maximum=65535 maximum_packet_size=1000 maximum_qos=1 retain_available=0
            > publish a payload_format_indicator=0
        Subscription Identifiers 1 and 268,435,455
            opened; > subscribe 1 a:0 subscription_identifier=1; < suback 1 0
            > subscribe 2 b:0 subscription_identifier=268435455; < suback 2 0
    """)
    bad = examples("""
        zeros in a CONNECT
            > connect receive_maximum=0 maximum_packet_size=0 !properties.receive_maximum
                !properties.maximum_packet_size
        boolean properties of a CONNECT
            > connect request_problem_information=2 request_response_information=255
                !properties.request_problem_information !properties.request_response_information
        boolean properties of a CONNACK
            opened < maximum_qos=2 retain_available=2 wildcard_subscription_available=2
                subscription_identifier_available=2 shared_subscription_available=2 receive_maximum=0
                !properties.maximum_qos !properties.retain_available !properties.wildcard_subscription_available
                !properties.subscription_identifier_available !properties.shared_subscription_available
                !properties.receive_maximum
        Payload Format Indicator 2
            opened; > publish a payload_format_indicator=2 !properties.payload_format_indicator
        Payload Format Indicator 2 in the Will
            > connect will=a will_payload=gone will.payload_format_indicator=2 !will.properties.payload_format_indicator
        Subscription Identifier 0
            opened; > subscribe 1 a:0 subscription_identifier=0 !properties.subscription_identifier
    """)

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """Check each value of the packet and its Will."""
        if isinstance(packet, Connect):
            will = None if packet.will is None else packet.will.properties
            return self._block(packet.properties, "", "CONNECT") + self._block(will, "will.", "Will")
        for number, value in packet.properties.items:
            if (value == 0 and number in NOT_ZERO) or (number in YES_OR_NO and value > 1):
                return self._block(packet.properties, "", packet_name(packet))
        return None

    def _block(self, block: Properties | None, prefix: str, kind: str) -> list[Report]:
        reports: dict[str, Report] = {}
        for number, value in () if block is None else block.items:
            if number in YES_OR_NO and value > 1:
                allowed = "0 or 1"
            elif value == 0 and number in NOT_ZERO:
                allowed = NOT_ZERO[number]
            else:
                continue
            field = f"{prefix}properties.{property_name(number)}"
            reports[field] = self.report(field, f"{kind}: {property_name(number)} is {value}, allowed: {allowed}")
        return list(reports.values())
