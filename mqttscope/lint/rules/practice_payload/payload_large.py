from mqttscope.lint.rules import Findings, Rule, RuleContext, Severity, examples, properties_lost, shown
from mqttscope.mqtt.packets import Publish


class PayloadLarge(Rule):
    """A PUBLISH carries a very large payload.

    Brokers keep it for every slow or offline subscriber, and everything else on the connection, including
    acknowledgements and pings, waits until it is transferred.  Managed brokers refuse it.

    Instead, send large data another way and publish its address, or publish it in parts.
    """

    code = "PAY102"
    severity = Severity.INFO
    settings = {
        # Bytes: largest payload that is not reported; AWS IoT Core accepts 128 KiB.
        "bytes": 131_072,
    }

    good = examples("""
        a few bytes
            opened; > publish a/b xxxx
        exactly the limit
            settings bytes=32; opened; > publish a/b xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
    """)
    bad = examples("""
        one byte too large
            settings bytes=32; opened; > publish a/b xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx !payload
        with the server's Maximum Packet Size
            settings bytes=32; opened < maximum_packet_size=100
            > publish a/b xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx !payload
        from the server, in MQTT 3.1.1
            settings bytes=32; opened 3.1.1; < publish a/b xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx !payload
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Include payload bytes that the capture lost."""
        length = len(packet.payload) + packet.missing
        if length <= self.set["bytes"] or properties_lost(packet, at):
            return None
        text = f"PUBLISH {shown(at.topic or '')}: payload of {length:,} bytes"
        maximum = at.receiver.maximum_packet_size
        if maximum:
            share = 100 * (len(packet.raw) + packet.missing) // maximum
            text += f", the packet is {share} % of the receiver's Maximum Packet Size of {maximum:,} bytes"
        return self.report("payload", text)
