import re

from mqttscope.lint.rules import V5, Confidence, Findings, Rule, RuleContext, Severity, examples, packet_name, shown
from mqttscope.mqtt import Auth, Connack, ControlPacket, Disconnect, Puback, Pubcomp, Pubrec, Pubrel, Suback, Unsuback
from mqttscope.secrets.forms import masked

_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "a stack trace",
        re.compile(
            r"Traceback \(most recent|\bat [\w$.]+\([\w$]+\.(?:java|kt|scala):\d+\)"
            r"|\b\w+(?:\.\w+)+(?:Exception|Error)\b"
            r"|\b\w+Exception\b|\bFile \"[^\"]+\", line \d+|\bgoroutine \d+|\bpanicked at\b"
            r"|\.(?:erl|ex|go|rs|c|cpp|cs|py):\d+"
        ),
    ),
    (
        "a path",
        re.compile(
            r"(?<![\w/])/(?:etc|var|usr|home|opt|tmp|root|srv|proc|lib|mnt|data|app|run|dev)/[\w.-]+"
            r"|(?<![\w/])(?:/[\w.-]+)+\.(?:conf|cfg|ini|ya?ml|json|db|log|pem|key|crt|so|jar|py|sock)\b"
            r"|\b[A-Za-z]:\\[\w.-]+"
        ),
    ),
    (
        "a software version",
        re.compile(r"(?<!MQTT )(?<!MQTT v)(?<![\d.])\b[vV]?\d+\.\d+\.\d+(?:-[\w.]+)?\b(?!\.\d)"),
    ),
)
"""Patterns in this order, since a stack trace contains paths and a path may contain a version."""


class ReasonStringLeaks(Rule):
    """A Reason String reveals internals of the program.

    It is meant for diagnosis and reaches everyone who provokes the error: paths, stack traces and versions help
    attackers.

    Instead, send the Reason Code with a short general text, and write the details to the server's own log.
    """

    code = "SEC206"
    severity = Severity.INFO
    confidence = Confidence.HEURISTIC
    versions = (V5,)
    looks_at = (Connack, Puback, Pubrec, Pubrel, Pubcomp, Suback, Unsuback, Disconnect, Auth)
    when = "properties"

    good = examples("""
        a general text
            opened < code=0x87 reason_string="not authorized"
        topics, addresses and the protocol version are not internals
            opened; > publish plant/line4 qos=1 id=1
            < puback 1 code=0x87 reason_string="no right for topic /plant/line4 of 10.0.0.4, MQTT 3.1.1 or 5.0"
    """)
    bad = examples("""
        a path
            opened < code=0x87 reason_string="user bob not in /etc/mosquitto/passwd" !properties.reason_string
        a version
            opened; > subscribe 1 a:0; < suback 1 0x87 reason_string="broker 2.0.18: no" !properties.reason_string
        a stack trace, from a client
            opened
            > disconnect code=0x80 reason_string="java.lang.NullPointerException at com.example.Main.run(Main.java:12)"
                !properties.reason_string
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Search the Reason String."""
        text = packet.properties.reason_string  # type: ignore[attr-defined]
        if not text:
            return None
        kinds = [name for name, pattern in _PATTERNS if pattern.search(text)]
        if not kinds:
            return None
        return self.report(
            "properties.reason_string", f"{packet_name(packet)} reason string reveals {kinds[0]}: {shown(masked(text))}"
        )
