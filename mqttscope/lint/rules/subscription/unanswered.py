"""SUB519, SUB520: requests that the server does not answer."""

from collections.abc import Iterator
from typing import ClassVar

from mqttscope.lint.finding import Confidence, Related, Report, Severity
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Connection, Needs, Rule, RuleContext, examples
from mqttscope.lint.waiting import is_busy
from mqttscope.mqtt.constants import Direction


class UnansweredRequestRule(Rule):
    """A rule about a request without an answer until the end of the connection or a DISCONNECT."""

    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    needs = Needs.BOTH_DIRECTIONS | Needs.WHOLE
    settings = {"timeout": 30}
    request: ClassVar[str]
    answer: ClassVar[str]

    def awaits(self, at: RuleContext) -> bool:
        return any(exchange.kind == self.request for exchange in at.client.exchanges.values())

    def check_close(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """Report the unanswered requests."""
        if at.history.subscriptions.unread_answers or is_busy(at, Direction.SERVER_TO_CLIENT):
            return
        end = at.timestamp_ns
        for party in (at.history.client, at.history.server):
            if party.disconnect is not None:
                end = min(end, party.disconnect.timestamp_ns)
        name, limit = self.request.upper(), float(self.set["timeout"])
        for exchange in at.client.exchanges.values():
            waited = (end - exchange.timestamp_ns) / 1e9
            if exchange.kind != self.request or waited < limit:
                continue
            if exchange.packet_identifier in at.history.client.shared:
                continue  # the answer to another packet with this identifier may belong to this request
            request = at.history.subscriptions.request_for(exchange.packet_identifier, self.request)
            is_received = request is not None and at.history.server.acknowledged >= request.position > 0
            message = f"{name} with packet identifier {exchange.packet_identifier} got no {self.answer}"
            yield self.report(
                "",
                f"{message} within {waited:.0f} s",
                confidence=None if is_received else Confidence.HEURISTIC,
                related=(Related.to(f"the {name}", exchange),),
                sender=Direction.SERVER_TO_CLIENT,
            )


class SubscribeUnanswered(UnansweredRequestRule):
    """A server does not answer a SUBSCRIBE.

    Without SUBACK the client cannot find out whether it is subscribed, and its packet identifier stays in use.
    Reported at the end of the connection if the answer has been missing for longer than ``timeout`` seconds.  Likely if
    TCP shows that the server received the SUBSCRIBE, otherwise heuristic.

    Instead, answer each SUBSCRIBE with a SUBACK, with failure codes for filters that you do not grant.
    """

    code = "SUB519"
    request, answer = "subscribe", "SUBACK"
    statements = {V5: {"MQTT-3.8.4-1": ""}, V3_1_1: {"MQTT-3.8.4-1": ""}, V3_1: {"V31-SUBACK-answer": ""}}
    also = {V5: ("MQTT-2.2.1-6",)}

    good = examples("""
        answered
            opened; > subscribe 10 a:1; < suback 10 1; +60 > fin
        the connection ends before the timeout
            opened; > subscribe 10 a:1; +29 > fin
        the client gives up before the timeout
            opened; > subscribe 10 a:1; +5 > disconnect; +40 > fin
        answered late
            opened 3.1.1; > subscribe 10 a:1; +35 < suback 10 1; > fin
        the capture lost bytes of the server
            opened; > subscribe 10 a:1; lost < suback 10 1; +35 > pingreq; < pingresp; > fin
        the server is busy sending a message
            opened; > subscribe 1 a:0; < raw 30 64 0001 "a" 00*37; +20 < raw 00*20; +20 < raw 00*20; > reset
    """)
    bad = examples("""
        only pings are answered
            opened; > subscribe 10 a:1; +30 > pingreq; < pingresp; > fin !
        no answer in 3.1.1
            opened 3.1.1; > subscribe 10 a:1; +31 > fin !
        no answer in 3.1
            opened 3.1; > subscribe 10 a:1; +31 < fin !
        a shorter timeout
            settings timeout=10; opened; > subscribe 10 a:1; +11 > fin !
    """)


class UnsubscribeUnanswered(UnansweredRequestRule):
    """A server does not answer an UNSUBSCRIBE.

    An UNSUBACK is required even without a subscription to delete; without it the packet identifier stays in use.
    Reported at the end of the connection if the answer has been missing for longer than ``timeout`` seconds.  Likely if
    TCP shows that the server received the UNSUBSCRIBE, otherwise heuristic.

    Instead, answer each UNSUBSCRIBE with an UNSUBACK.
    """

    code = "SUB520"
    request, answer = "unsubscribe", "UNSUBACK"
    statements = {
        V5: {"MQTT-3.10.4-4": ""},
        V3_1_1: {"MQTT-3.10.4-4": "", "MQTT-3.10.4-5": ""},
        V3_1: {"V31-UNSUBACK-answer": ""},
    }
    also = {V5: ("MQTT-2.2.1-6", "MQTT-3.10.4-5")}

    good = examples("""
        answered
            opened; > unsubscribe 10 a; < unsuback 10 0x11; +60 > fin
        the connection ends before the timeout
            opened; > unsubscribe 10 a; +29 > fin
        the client gives up before the timeout
            opened; > unsubscribe 10 a; +5 > disconnect; +40 > fin
        answered late
            opened 3.1.1; > unsubscribe 10 a; +35 < unsuback 10; > fin
        the capture lost bytes of the server
            opened; > unsubscribe 10 a; lost < unsuback 10 0x11; +35 > pingreq; < pingresp; > fin
    """)
    bad = examples("""
        only pings are answered
            opened; > unsubscribe 10 a; +30 > pingreq; < pingresp; > fin !
        no answer in 3.1.1
            opened 3.1.1; > unsubscribe 10 a; +31 > fin !
        no answer in 3.1
            opened 3.1; > unsubscribe 10 a; +31 < fin !
        a shorter timeout
            settings timeout=10; opened; > unsubscribe 10 a; +11 > fin !
    """)
