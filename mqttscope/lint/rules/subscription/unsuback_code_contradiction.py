from collections.abc import Iterator

from mqttscope.lint.finding import Scope
from mqttscope.lint.rules import V5, Confidence, Needs, Related, Report, Rule, RuleContext, Severity, examples
from mqttscope.lint.rules.subscription import request_of
from mqttscope.lint.session_model import SessionModel
from mqttscope.mqtt import Direction, Unsuback
from mqttscope.session.subscriptions import SubscriptionRequest, Subscriptions


class UnsubackCodeContradiction(Rule):
    """An UNSUBACK contradicts the known state of a subscription.

    Reason code 0x11 means that there was no such subscription, 0x00 that it was deleted.  The wrong code makes a client
    assume subscriptions that do not exist, or hides that it has unsubscribed with the wrong filter.

    Instead, answer 0x00 for subscribed filters, compared character by character, and 0x11 for all others.
    """

    code = "SUB217"
    scope = Scope.SESSION
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    versions = (V5,)
    statements = {V5: {"MQTT-3.10.4-1": "", "MQTT-3.11.3-1": ""}}
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.SESSION_BIRTH | Needs.WHOLE
    models = (SessionModel,)

    good = examples("""
        deleted, and never subscribed
            opened; > subscribe 10 a/+:1 b:1; < suback 10 1 0x87; > unsubscribe 11 a/+ c b; < unsuback 11 0 0x11 0x11
        twice in one request
            opened; > subscribe 10 a/+:1 b:1; < suback 10 1 0x87; > unsubscribe 11 a/+ & unsubscribe 12 a/+
            < unsuback 11 0 & unsuback 12 0x11
        subscribed again before the answer
            opened; > subscribe 10 a/+:1 b:1; < suback 10 1 0x87; > unsubscribe 11 a/+ & subscribe 12 a/+:1
            < unsuback 11 0 & suback 12 1
        an older session may have any subscription
            opened resume < present; > unsubscribe 11 c; < unsuback 11 0
        a subscription from an earlier connection of the session
            opened resume session_expiry_interval=3600; > subscribe 1 a:0; < suback 1 0; > disconnect; > fin
            @1 opened resume session_expiry_interval=3600 < present; @1 > unsubscribe 2 a; @1 < unsuback 2 0
    """)
    bad = examples("""
        0x11 for a subscription that exists
            opened; > subscribe 10 a/+:1 b:1; < suback 10 1 0x87; > unsubscribe 11 a/+
            < unsuback 11 0x11 !reason_codes[0]
        0x00 for a filter never subscribed, and for a refused one
            opened; > subscribe 10 a/+:1 b:1; < suback 10 1 0x87; > unsubscribe 11 c b
            < unsuback 11 0 0 !reason_codes[0] !reason_codes[1]
        0x00 for a subscription that had already ended
            opened; > subscribe 10 a/+:1 b:1; < suback 10 1 0x87; > unsubscribe 11 a/+; < unsuback 11 0
            > unsubscribe 12 a/+; < unsuback 12 0 !reason_codes[0]
        a continued session without such a subscription
            opened resume session_expiry_interval=3600; > subscribe 1 a:0; < suback 1 0; > disconnect; > fin
            @1 opened resume session_expiry_interval=3600 < present; @1 > unsubscribe 2 b
            @1 < unsuback 2 0 !reason_codes[0]
    """)

    def check(self, packet: Unsuback, at: RuleContext) -> Iterator[Report]:
        """Check the state of each filter at the time of the UNSUBSCRIBE."""
        table = at.history.subscriptions
        request = request_of(packet, at)
        codes = packet.reason_codes or ()
        if request is None or request.answers or len(codes) != len(request.topic_filters) or not table.complete:
            return
        judged: set[str] = set()
        for index, code in enumerate(codes):
            name = request.topic_filters[index]
            if name in judged:
                continue
            judged.add(name)
            if at.connection.session_present and request.existing[index] < 0 and self._is_inherited(name, at):
                continue  # SES304 reports a missing subscription of the session
            contradiction = ""
            if code == 0x11:
                contradiction = _exists(table, request, name, request.existing[index])
            elif code == 0:
                contradiction = _is_missing(table, name, request.existing[index])
            if contradiction:
                meaning = "0x11 (No subscription existed)" if code else "0x00 (Success)"
                yield self.report(
                    f"reason_codes[{index}]",
                    f"UNSUBACK with packet identifier {packet.packet_identifier} has {meaning} for {name!r}, but the "
                    f"subscription {contradiction}",
                    confidence=Confidence.LIKELY,
                    related=(Related.to("the UNSUBSCRIBE", request),),
                )

    def _is_inherited(self, name: str, at: RuleContext) -> bool:
        """Whether the session had such a subscription on an earlier connection."""
        model = at.model(SessionModel)
        return name in model.filters or name in model.ended_filters


def _exists(table: Subscriptions, request: SubscriptionRequest, name: str, number: int) -> str:
    row = table.find(name, number)
    if row is None or row.ended_ns is not None or row.doubtful or row.granted is None or row.granted >= 0x80:
        return ""
    if row.ending_ns is not None and row.ending_ns < request.timestamp_ns:
        return ""  # an earlier UNSUBSCRIBE may have ended it
    return f"was granted with QoS {row.granted}"


def _is_missing(table: Subscriptions, name: str, number: int) -> str:
    refused = table.refused.get(name, -1)
    if number < 0:
        if name in table.ended:
            return "had already ended"
        return "was never granted" if refused < 0 else "was refused"
    subscription = table.find(name, number)
    if subscription is not None and subscription.ended_ns is not None:
        return "had already ended"
    return "was refused" if refused == number else ""
