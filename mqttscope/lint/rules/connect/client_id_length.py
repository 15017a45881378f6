"""CON108."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, make_connect, opened
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connect
from mqttscope.mqtt.topics import utf8_length

MAX_LENGTH = 23


class ClientIdLength(Rule):
    """A Client Identifier is one that not every server has to take.

    MQTT 3.1 limits it to 1 to 23 characters and refuses others with 0x02, which makes it an error there.  Later
    versions promise only 1 to 23 bytes of the letters and digits of ASCII; nearly all servers take more, so there it
    is a note for those who have to work with every server: one for all clients of a run of the linter.

    Instead, use at most 23 of the characters 0-9, a-z and A-Z.
    """

    code = "CON108"
    severity = Severity.WARNING
    severities = (Severity.ERROR, Severity.INFO)
    once = Severity.INFO
    statements = {V3_1: {"V31-CONNECT-client-id-length": ""}}
    looks_at = Connect
    sender = Direction.CLIENT_TO_SERVER

    good = examples(
        lambda: [
            conversation("23 characters in 3.1", *opened(V3_1, client_identifier="a" * 23)),
            conversation("one character in 3.1", *opened(V3_1, client_identifier="a")),
            conversation("any characters in 3.1", *opened(V3_1, client_identifier="gate-7/ü")),
            conversation("23 letters and digits in 5.0", *opened(client_identifier="sensor42" + "X" * 15)),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "32 characters in 3.1",
                client(
                    hexadecimal(
                        "10 2f 00 06 4d 51 49 73 64 70 03 02 00 3c 00 21 61 2d 63 6c 69 65 6e 74 2d 69 64 65"
                        "6e 74 69 66 69 65 72 2d 6f 66 2d 33 32 2d 62 79 74 65 73 21 21"
                    )
                ).marked("client_identifier"),
            ),
            conversation(
                "24 characters in 3.1",
                client(make_connect(V3_1, client_identifier="a" * 24)).marked("client_identifier"),
            ),
            conversation("empty in 3.1", client(make_connect(V3_1, client_identifier="")).marked("client_identifier")),
            conversation(
                "24 bytes in 5.0", client(make_connect(client_identifier="a" * 24)).marked("client_identifier")
            ),
            conversation(
                "a dash in 5.0", client(make_connect(client_identifier="sensor-42")).marked("client_identifier")
            ),
        ]
    )

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Length, and characters from 3.1.1 on."""
        identifier = packet.client_identifier
        if at.version is V3_1:
            if 1 <= len(identifier) <= MAX_LENGTH:
                return None
            count = f"{len(identifier)} characters; MQTT 3.1 allows 1 to {MAX_LENGTH}"
            message = f"CONNECT: Client Identifier {identifier!r} has {count}"
            return self.report("client_identifier", message, severity=Severity.ERROR)
        length = utf8_length(identifier)
        if length > MAX_LENGTH:
            why = f"has {length} bytes; a server need not take more than {MAX_LENGTH}"
        elif not is_plain(identifier):
            why = "has other characters than 0-9, a-z and A-Z; a server need not take them"
        else:
            return None
        return self.report(
            "client_identifier", f"CONNECT: Client Identifier {identifier!r} {why}", severity=Severity.INFO
        )

    def sum_up(self, clients: str, names: str) -> str:
        """One note for all of them."""
        return (
            f"CONNECT: {clients} clients have Client Identifiers that a server need not take (more than {MAX_LENGTH}"
            f" bytes, or other characters than 0-9, a-z and A-Z): {names}"
        )


def is_plain(identifier: str) -> bool:
    """Whether all characters are ASCII letters and digits; also when there are none."""
    return not identifier or (identifier.isascii() and identifier.isalnum())
