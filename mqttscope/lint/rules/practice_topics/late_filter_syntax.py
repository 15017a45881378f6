from collections.abc import Iterator
from itertools import islice

from mqttscope.lint.rules import Findings, Report, Rule, RuleContext, Severity, examples
from mqttscope.lint.topics import fold
from mqttscope.mqtt import Direction, Unsuback, Unsubscribe

MAX_COMPARED = 1_000
"""Subscriptions among which a filter of nearly the same spelling is looked for."""
NOT_SUBSCRIBED = 0x11
"""No subscription existed (5.0 table 3-9)."""


class LateFilterSyntax(Rule):
    """A client unsubscribes from a filter that it has not subscribed to.

    Filters are compared character by character, so the subscription that was meant stays, and its messages keep
    coming.  Before MQTT 5.0 the answer is the same as for success.  Where the session is older than the connection,
    only the server's answer counts (0x11, No subscription existed); a filter that the server refused may be
    unsubscribed.

    Instead, unsubscribe with exactly the filter of the SUBSCRIBE.
    """

    code = "TOP213"
    severity = Severity.INFO

    good = examples("""
        as it was subscribed
            opened; > subscribe 1 A/b:0; < suback 1 0; > unsubscribe 2 A/b; < unsuback 2 0
        subscribed on an earlier connection
            opened resume session_expiry_interval=60 < present; > unsubscribe 2 a/b; < unsuback 2 0
        perhaps in bytes that the capture lost
            opened 3.1.1; lost > subscribe 1 a/b:0; < suback 1 0; > unsubscribe 2 a/b; < unsuback 2
        the server had refused it
            opened 3.1.1; > subscribe 1 a/b:0; < suback 1 0x80; > unsubscribe 2 a/b; < unsuback 2
    """)
    bad = examples("""
        another spelling, reported once
            opened; > subscribe 1 A/b:0; < suback 1 0; > unsubscribe 2 a/b !topic_filters[0]; < unsuback 2 0x11
        twice, in MQTT 3.1.1
            opened 3.1.1; > subscribe 1 a:0; < suback 1 0; > unsubscribe 2 a; < unsuback 2
            > unsubscribe 3 a !topic_filters[0]; < unsuback 3
        the server knows that the session had no such subscription
            opened resume session_expiry_interval=60 < present; > unsubscribe 2 a b
            < unsuback 2 0 0x11 !reason_codes[1]
    """)

    def check(self, packet: Unsubscribe | Unsuback, at: RuleContext) -> Findings:
        """The request where all subscriptions are known, else the answer."""
        if isinstance(packet, Unsubscribe):
            return self._asked(packet, at) if at.from_client and _all_known(at) else None
        if at.from_client or not packet.reason_codes or NOT_SUBSCRIBED not in packet.reason_codes or _all_known(at):
            return None
        return self._answered(packet, at)

    def _asked(self, packet: Unsubscribe, at: RuleContext) -> Iterator[Report]:
        table = at.history.subscriptions
        spellings: dict[str, str] | None = None
        for index, name in enumerate(packet.topic_filters or ()):
            if name in table.live or name in table.refused:
                continue
            what = "which it never subscribed"
            if name in table.ended:
                what = "which it has unsubscribed before"
            else:
                if spellings is None:
                    spellings = {fold(one): one for one in islice(table.live, MAX_COMPARED)}
                near = spellings.get(fold(name))
                what += "" if near is None else f" (subscribed: {near!r})"
            yield self.report(f"topic_filters[{index}]", f"{at.client_name!r} unsubscribes {name!r}, {what}")

    def _answered(self, packet: Unsuback, at: RuleContext) -> Iterator[Report]:
        table = at.history.subscriptions
        request = table.request_for(packet.packet_identifier, "unsubscribe")
        codes = packet.reason_codes or ()
        if request is None or request.answers or len(request.topic_filters) != len(codes):
            return
        for index, (name, code) in enumerate(zip(request.topic_filters, codes, strict=True)):
            if code == NOT_SUBSCRIBED and name not in table.live and name not in table.refused:
                yield self.report(
                    f"reason_codes[{index}]",
                    f"{at.client_name!r} unsubscribed {name!r}, which it had not subscribed as the server says "
                    f"(0x{NOT_SUBSCRIBED:02x}, No subscription existed)",
                    sender=Direction.CLIENT_TO_SERVER,
                )


def _all_known(at: RuleContext) -> bool:
    """Whether the session has no subscription but those of this connection, all of them captured."""
    connection = at.connection
    fresh = connection.clean_start or connection.session_present is False
    seen = at.history.connect_sent is not None and not at.client.gapped and at.history.subscriptions.complete
    return seen and bool(fresh)
