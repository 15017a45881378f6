from collections.abc import Iterator
from hashlib import blake2b

from mqttscope.lint.rules import Confidence, Findings, Report, Rule, RuleContext, Severity, examples, shown
from mqttscope.lint.strings import strings_of
from mqttscope.lint.topics import ReportedTexts
from mqttscope.mqtt import ControlPacket, Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel
from mqttscope.secrets.forms import DetectedSecret, find_secret
from mqttscope.secrets.names import is_secret_name

_ACKNOWLEDGEMENTS = frozenset({Puback, Pubrec, Pubrel, Pubcomp})
_FIELDS = (
    "client_identifier",
    "topic_name",
    "topic_filter",
    "will_topic",
    "response_topic",
    "assigned_client_identifier",
    "response_information",
)


class SecretInTopicOrId(Rule):
    """A Client Identifier, a topic or a User Property looks like a secret or like personal data.

    Brokers write these names to logs, show them in dashboards and forward topics to all wildcard subscribers.  Each
    text is reported once per connection, with the secret masked.

    Instead, send secrets as password or authentication data, and personal data in an encrypted payload.
    """

    code = "SEC104"
    severity = Severity.WARNING
    confidence = Confidence.HEURISTIC
    settings = {
        # Minimum number of characters: random hexadecimal or base64 runs of this length count as secrets.
        "length": 40,
    }
    Memory = ReportedTexts

    good = examples("""
        ordinary names
            opened client=sensor42; > publish a/b
        UUIDs and serial numbers
            opened client=550e8400-e29b-41d4-a716-446655440000
            > publish dev/490154203237518/5d41402abc4b2a76b9719d911017c592
                user_property=trace:0af7651916cd43dd8448eb211c80319c
        user name and password in their own fields
            opened user_name=jane@example.org password=AKIAIOSFODNN7EXAMPLE
        random text, one character too short
            opened client=0123456789abcdef0123456789abcdef0123456
    """)
    bad = examples("""
        an access key as Client Identifier
            opened client=AKIAIOSFODNN7EXAMPLE !client_identifier
        an e-mail address in a topic and in a filter, reported once each
            opened; > publish home/jane.doe@example.org/lamp !topic_name; > publish home/jane.doe@example.org/lamp
            > subscribe 1 a:0 home/jane.doe@example.org/+:0 !subscriptions[1].topic_filter; < suback 1 0 0
        in User Properties, by value and by name
            opened user_property=phone:"+49 170 1234567" !properties.user_property
            > publish a user_property=API-Key:hunter2-hunter2 !properties.user_property
        random digits of the configured length
            opened client=0123456789abcdef0123456789abcdef01234567 !client_identifier
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Check a packet unless its topic was already checked."""
        if isinstance(packet, Pingreq | Pingresp):
            return None
        if not packet.properties:  # type: ignore[attr-defined]
            if type(packet) is Publish and (not packet.topic_name or packet.topic_name in at.memory(self).texts):
                return None
            if type(packet) in _ACKNOWLEDGEMENTS:
                return None
        return self._secrets(packet, at)

    def _secrets(self, packet: ControlPacket, at: RuleContext) -> Iterator[Report]:
        seen: ReportedTexts = at.memory(self)
        name = None
        for field, text in strings_of(packet):
            if field.endswith("user_property"):
                # Names and values alternate.
                if name is None:
                    name = text
                    continue
                secret, name = self._pair(name, text), None
                # Store a digest only: this memory is written to lakes too.
                text = blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest() if text else ""
            elif field.rpartition(".")[2] in _FIELDS or field.startswith("topic_filters["):
                secret = find_secret(text, length=self.set["length"]) if text else None
            else:
                continue
            if text and seen.first(text) and secret is not None:
                name_of_field = field.rpartition(".")[2]
                yield self.report(
                    field,
                    f"{name_of_field} {shown(secret.masked)} looks like a secret or personal data ({secret.what})",
                )

    def _pair(self, name: str, value: str) -> DetectedSecret | None:
        if value and is_secret_name(name):
            return DetectedSecret(f"a value called {name!r}", f"{name}=***({len(value)} characters)")
        return find_secret(value, length=self.set["length"]) or find_secret(name, length=self.set["length"])
