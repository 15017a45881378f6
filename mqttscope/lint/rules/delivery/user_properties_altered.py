from collections import Counter

from mqttscope.lint.properties_passed_on import doubt_of, property_difference
from mqttscope.lint.rules import V5, Findings, Needs, Related, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import MessageRule
from mqttscope.mqtt import Publish


class UserPropertiesAltered(MessageRule):
    """A server changes the User Properties of a message: it removes some, or reorders them.

    The application defines their meaning, including order and repeated names.  Some servers add User Properties of
    their own, such as the time or the Client Identifier of the publisher: that is info.  mqttscope identifies the
    message by topic and payload; if several messages are alike, the finding is a warning.

    Instead, forward all User Properties in their original order.
    """

    code = "DLV414"
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    versions = (V5,)
    statements = {V5: {"MQTT-3.3.2-17": "", "MQTT-3.3.2-18": ""}}
    also = {V5: ("MQTT-3.1.3-10",)}
    needs = Needs.OPENING | Needs.WHOLE_SENDER

    good = examples("""
        all in order, including a repeated one
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 user_property=k:1 user_property=k:2 user_property=k:1; < puback 1
            @1 < publish a 21.5 qos=1 id=1 user_property=k:1 user_property=k:2 user_property=k:1; @1 > puback 1
        a subscriber of 3.1.1 receives no properties
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened 5.0
            +2 > publish a 21.5 qos=1 id=1 user_property=k:1; < puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
        the same payload with other User Properties
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 user_property=k:1; < puback 1; > publish a 21.5 qos=1 id=2 user_property=k:2
            < puback 2; @1 < publish a 21.5 qos=1 id=1 user_property=k:2; @1 > puback 1
        perhaps the message of another publisher
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 user_property=k:1; < puback 1
            @1 < publish a 21.5 qos=1 id=1 user_property=k:1; @1 > puback 1; @1 < publish a 21.5 qos=1 id=1
            @1 > puback 1
    """)
    bad = examples("""
        another order
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 user_property=k:1 user_property=k:2; < puback 1
            @1 < publish a 21.5 qos=1 id=1 user_property=k:2 user_property=k:1 !properties.user_property; @1 > puback 1
        one of two equal properties is lost
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 user_property=k:1 user_property=k:1; < puback 1
            @1 < publish a 21.5 qos=1 id=1 user_property=k:1 !properties.user_property; @1 > puback 1
        one added by the server: only info
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 user_property=k:1; < puback 1
            @1 < publish a 21.5 qos=1 id=1 user_property=k:1 user_property=timestamp:1 !properties.user_property
            @1 > puback 1
        a retained copy: only a warning
            opened; +2 > publish a 21.5 qos=1 retain id=1 user_property=k:1; < puback 1; @1 opened client=c2
            @1 > subscribe 1 a:1; @1 < suback 1 1; @1 < publish a 21.5 qos=1 retain id=1 !properties.user_property
            @1 > puback 1
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Report missing, reordered and added User Properties."""
        difference = property_difference(packet, at)
        if difference is None:
            return None
        before, after = difference.user_properties()
        if before == after or "user_property" in difference.unmarked():
            return None
        lost = (Counter(before) - Counter(after)).total()
        added = (Counter(after) - Counter(before)).total()
        sent = difference.sent
        doubt = doubt_of(difference, added=False)
        broken = ("MQTT-3.3.2-17",)
        if lost:
            change = f"{lost} of {len(before)} are lost or changed"
        elif _keeps_order(before, after):
            change = f"the server has added {added} to {len(before)}"
            doubt = {"severity": Severity.INFO}
        else:
            change = f"{len(before)} are in another order"
            broken = ("MQTT-3.3.2-18",)
        return self.report(
            "properties.user_property",
            f"User Properties of a message on {sent.topic!r} of {sent.publisher!r}: {change}",
            statements=broken,
            related=(Related.to("the message as published", sent),),
            **doubt,
        )


def _keeps_order(before: list[tuple[str, str]], after: list[tuple[str, str]]) -> bool:
    """Whether all of one list are in the other one, in the same order."""
    rest = iter(after)
    return all(pair in rest for pair in before)
