from collections.abc import Sequence
from dataclasses import dataclass, field

from mqttscope.lint.examples import examples
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Confidence, Findings, Needs, Related, Rule, RuleContext, Severity
from mqttscope.lint.rules.subscription import request_of
from mqttscope.mqtt import Direction, Publish, Suback

MAX_TOLD = 256
"""Maximum number of suspect SUBSCRIBE packets kept."""


@dataclass(slots=True)
class SuspectSubscribes:
    """SUBSCRIBE packets that have already been reported."""

    packets: dict[int, bool] = field(default_factory=dict)


class SubackOrderSuspect(Rule):
    """The codes of a SUBACK fit the Topic Filters of the SUBSCRIBE only in another order.

    Codes belong to filters by position.  A server that collects codes in a map, or as its workers finish, mixes them
    up.  The sign is a code that grants more than was requested in its position, or messages with a QoS that was granted
    in another position only.

    Instead, keep the order of the SUBSCRIBE.
    """

    code = "SUB218"
    severity = Severity.ERROR
    confidence = Confidence.HEURISTIC
    statements = {V5: {"MQTT-3.9.3-1": ""}, V3_1_1: {"MQTT-3.9.3-1": ""}}
    also = {V3_1: ("V31-SUBACK-answer",)}
    signs = {Publish: ("above_granted",), Suback: ("above_requested",)}
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.WHOLE_RECEIVER
    Memory = SuspectSubscribes

    good = examples("""
        in the order of the filters
            opened; > subscribe 10 a:0 b:2; < suback 10 0 2
        both granted a lower QoS
            opened; > subscribe 10 a:2 b:2; < suback 10 0 1; < publish b qos=1 id=1; > puback 1
    """)
    bad = examples("""
        above the request, but right in reverse order
            opened; > subscribe 10 a:0 b:2; < suback 10 2 0 !reason_codes
        a message with the QoS of another filter
            opened 3.1.1; > subscribe 10 a:1 b:1; < suback 10 0 1; < publish a qos=1 id=1 !qos; > puback 1
            < publish a qos=1 id=2; > puback 2
        in 3.1
            opened 3.1; > subscribe 10 a:2 b:1; < suback 10 1 2 !reason_codes
    """)

    def check(self, packet: Suback | Publish, at: RuleContext) -> Findings:
        """Compare sorted codes with sorted requests, and the QoS of messages with the grants for other filters."""
        if isinstance(packet, Publish):
            return self._delivered(packet, at) if packet.qos else None
        request = request_of(packet, at)
        codes = packet.reason_codes or ()
        if request is None or request.answers or len(codes) != len(request.maximum_qos):
            return None
        if _fits(request.maximum_qos, codes) or not _fits(sorted(request.maximum_qos), _sorted(codes)):
            return None
        return self.report(
            "reason_codes",
            f"codes {list(codes)} of SUBACK with packet identifier {packet.packet_identifier} fit the requested QoS "
            f"{list(request.maximum_qos)} only in another order",
            related=(Related.to("the SUBSCRIBE", request),),
        )

    def _delivered(self, packet: Publish, at: RuleContext) -> Findings:
        table = at.history.subscriptions
        connection = at.connection
        if at.topic is None or packet.dup or not (connection.clean_start or connection.session_present is False):
            return None
        match = table.match(at.topic)
        if packet.qos <= match.highest_qos or len(match.subscriptions) != 1:
            return None
        held = match.subscriptions[0]
        request = table.requests.get(held.packet_identifier)
        if held.granted is None or held.maximum_qos < packet.qos or request is None or request.packet != held.packet:
            return None
        swaps = any(
            code <= 2 and packet.qos <= code and request.maximum_qos[index] >= held.granted
            for index, code in enumerate(request.codes)
        )
        reported = at.memory(self).packets
        if not swaps or held.packet in reported or len(reported) >= MAX_TOLD:
            return None
        reported[held.packet] = True
        return self.report(
            "qos",
            f"PUBLISH {at.topic!r} has QoS {packet.qos}, but QoS {held.granted} was granted; codes "
            f"{list(request.codes)} of the SUBACK fit only in another order",
            related=(Related.to("the SUBSCRIBE", request),),
        )


def _fits(asked: Sequence[int], codes: Sequence[int]) -> bool:
    return all(code > 2 or code <= qos for qos, code in zip(asked, codes, strict=True))


def _sorted(codes: Sequence[int]) -> list[int]:
    """The codes by granted QoS, failures first, since failures fit every request."""
    return sorted(codes, key=lambda code: -1 if code > 2 else code)
