from collections.abc import Iterator
from itertools import islice

from mqttscope.lint.rules import Findings, Report, Rule, RuleContext, Severity, examples
from mqttscope.lint.topics import fold
from mqttscope.mqtt import Direction, Unsuback, Unsubscribe

MAX_COMPARED = 1_000
"""Maximum number of subscriptions searched for a similar spelling."""
NOT_SUBSCRIBED = 0x11
"""No subscription existed (5.0 table 3-9)."""


class LateFilterSyntax(Rule):
    """A client unsubscribes from a filter that it has not subscribed to.

    Filters are compared character by character, so the intended subscription remains active, and its messages keep
    arriving.  Before MQTT 5.0 the answer looks like success.  If the session is older than the connection, only the
    server's answer 0x11 (No subscription existed) is reported.  Filters that the server refused may be unsubscribed.

    Instead, unsubscribe with exactly the filter of the SUBSCRIBE.
    """

    code = "TOP213"
    severity = Severity.INFO

    good = examples("""
        the same spelling
            opened; > subscribe 1 A/b:0; < suback 1 0; > unsubscribe 2 A/b; < unsuback 2 0
        subscribed on an earlier connection
            opened resume session_expiry_interval=60 < present; > unsubscribe 2 a/b; < unsuback 2 0
        perhaps subscribed in lost bytes
            opened 3.1.1; lost > subscribe 1 a/b:0; < suback 1 0; > unsubscribe 2 a/b; < unsuback 2
        refused by the server
            opened 3.1.1; > subscribe 1 a/b:0; < suback 1 0x80; > unsubscribe 2 a/b; < unsuback 2
    """)
    bad = examples("""
        another spelling, reported once
            opened; > subscribe 1 A/b:0; < suback 1 0; > unsubscribe 2 a/b !topic_filters[0]; < unsuback 2 0x11
        twice, in MQTT 3.1.1
            opened 3.1.1; > subscribe 1 a:0; < suback 1 0; > unsubscribe 2 a; < unsuback 2
            > unsubscribe 3 a !topic_filters[0]; < unsuback 3
        the server answers that the session has no such subscription
            opened resume session_expiry_interval=60 < present; > unsubscribe 2 a b
            < unsuback 2 0 0x11 !reason_codes[1]
    """)

    def check(self, packet: Unsubscribe | Unsuback, at: RuleContext) -> Findings:
        """Check the request if all subscriptions are known, otherwise the answer."""
        if isinstance(packet, Unsubscribe):
            return self._requested(packet, at) if at.from_client and _all_known(at) else None
        if at.from_client or not packet.reason_codes or NOT_SUBSCRIBED not in packet.reason_codes or _all_known(at):
            return None
        return self._answered(packet, at)

    def _requested(self, packet: Unsubscribe, at: RuleContext) -> Iterator[Report]:
        table = at.history.subscriptions
        spellings: dict[str, str] | None = None
        for index, name in enumerate(packet.topic_filters or ()):
            if name in table.live or name in table.refused:
                continue
            reason = "which it never subscribed"
            if name in table.ended:
                reason = "which it has already unsubscribed"
            else:
                if spellings is None:
                    spellings = {fold(subscribed): subscribed for subscribed in islice(table.live, MAX_COMPARED)}
                near = spellings.get(fold(name))
                reason += "" if near is None else f" (subscribed: {near!r})"
            yield self.report(f"topic_filters[{index}]", f"{at.client_name!r} unsubscribes {name!r}, {reason}")

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
                    f"{at.client_name!r} unsubscribed {name!r}, but according to the server it had not subscribed it "
                    f"(0x{NOT_SUBSCRIBED:02x}, No subscription existed)",
                    sender=Direction.CLIENT_TO_SERVER,
                )


def _all_known(at: RuleContext) -> bool:
    """Whether all subscriptions of the session were made on this connection and captured."""
    connection = at.connection
    fresh = connection.clean_start or connection.session_present is False
    seen = at.history.connect_sent is not None and not at.client.gapped and at.history.subscriptions.complete
    return seen and bool(fresh)
