import re
from itertools import pairwise

from mqttscope.lint.rules import V5, Confidence, Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connect, Direction

_NEVER = 0xFFFFFFFF
_LIBRARY = re.compile(r"(?:mosq-|auto-|paho|mqttjs_|mqtt-explorer-|MQTT_FX_Client|mosqpub\||mosqsub\||clientId-)\S*\d")
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|[0-9a-fA-F]{32}")


class SessionNeverExpires(Rule):
    """A client asks for a session that never expires.

    Where its Client Identifier is made up again for each start, nobody ever comes back for the session: the server
    keeps it, with its subscriptions and all messages that match them, until somebody cleans up by hand.  Before MQTT
    5.0 every session without CleanSession is such a one; it is reported where the identifier looks random.

    Instead, ask for an expiry of hours or days, and keep one Client Identifier for each device.
    """

    code = "OPS105"
    severity = Severity.WARNING
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        a day
            opened resume session_expiry_interval=86400
        136 years less a second
            opened resume session_expiry_interval=4294967294
        MQTT 3.1.1 with a name of its own
            opened 3.1.1 resume
        a random identifier and CleanSession
            opened 3.1.1 client=mqttjs_8c3a91f0
        a serial number
            opened 3.1.1 client=meter-490154203237518 resume
        the address of a network card
            opened 3.1.1 client=ESP_A4CF12F03B2C resume
    """)
    bad = examples("""
        MQTT 5.0
            opened resume session_expiry_interval=4294967295 !properties.session_expiry_interval
        MQTT 3.1.1 with an identifier that a library makes up
            opened 3.1.1 client=mqttjs_8c3a91f0 resume !clean_start
        MQTT 3.1 with random characters
            opened 3.1 client=t7Gk2Lq9ZbW4xR8mC1vD5n resume !clean_start
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """By the number in 5.0, by the identifier before."""
        if at.version is V5:
            block = packet.properties
            if block is None or block.session_expiry_interval != _NEVER:
                return None
            return self.report(
                "properties.session_expiry_interval",
                f"CONNECT of {at.client_name!r}: session never expires (Session Expiry Interval 0xffffffff)",
            )
        if packet.clean_start is not False or not _looks_random(packet.client_identifier or ""):
            return None
        return self.report(
            "clean_start",
            f"CONNECT of {at.client_name!r}: session never expires (CleanSession 0), and the Client Identifier looks "
            "random",
            confidence=Confidence.HEURISTIC,
        )


def _looks_random(client_identifier: str) -> bool:
    """Made up by a library, a UUID, or many letters and digits mixed; MAC addresses and serial numbers are neither."""
    if _LIBRARY.match(client_identifier) or _UUID.search(client_identifier):
        return True
    for word in re.findall(r"[0-9A-Za-z]{20,}", client_identifier):
        kinds = [0 if one.isdigit() else 1 if one.isupper() else 2 for one in word]
        if len(set(kinds)) == 3 and sum(one != other for one, other in pairwise(kinds)) * 3 >= len(word):
            return True
    return False
