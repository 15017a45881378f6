from mqttscope.lint.rules import V3_1, Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connect, Direction
from mqttscope.mqtt.topics import utf8_length

MAX_LENGTH = 23


class ClientIdLength(Rule):
    """A server may refuse this Client Identifier.

    MQTT 3.1 allows 1 to 23 characters and refuses others with 0x02, which makes it an error there.  Later versions
    guarantee only 1 to 23 bytes of ASCII letters and digits; nearly all servers accept more.  There the finding is
    info, one for all clients of a run, and matters to clients that have to work with every server.

    Instead, use at most 23 of the characters 0-9, a-z and A-Z.
    """

    code = "CON108"
    severity = Severity.WARNING
    severities = (Severity.ERROR, Severity.INFO)
    once = Severity.INFO
    statements = {V3_1: {"V31-CONNECT-client-id-length": ""}}
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        23 characters in 3.1
            opened 3.1 client=aaaaaaaaaaaaaaaaaaaaaaa
        one character in 3.1
            opened 3.1 client=a
        any characters in 3.1
            opened 3.1 client=gate-7/ü
        23 letters and digits in 5.0
            opened client=sensor42XXXXXXXXXXXXXXX
    """)
    bad = examples("""
        32 characters in 3.1
            > raw 10 2f 0006 "MQIsdp" 0302003c 0021 "a-client-identifier-of-32-bytes!!" !client_identifier
        24 characters in 3.1
            > connect 3.1 client=aaaaaaaaaaaaaaaaaaaaaaaa !client_identifier
        empty in 3.1
            > connect 3.1 client=- !client_identifier
        24 bytes in 5.0
            > connect client=aaaaaaaaaaaaaaaaaaaaaaaa !client_identifier
        a dash in 5.0
            > connect client=sensor-42 !client_identifier
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Check the length and, from 3.1.1 on, the characters."""
        identifier = packet.client_identifier
        if at.version is V3_1:
            if 1 <= len(identifier) <= MAX_LENGTH:
                return None
            count = f"{len(identifier)} characters; MQTT 3.1 allows 1 to {MAX_LENGTH}"
            message = f"CONNECT: Client Identifier {identifier!r} has {count}"
            return self.report("client_identifier", message, severity=Severity.ERROR)
        length = utf8_length(identifier)
        if length > MAX_LENGTH:
            why = f"has {length} bytes; a server may refuse more than {MAX_LENGTH}"
        elif not is_plain(identifier):
            why = "has other characters than 0-9, a-z and A-Z; a server may refuse them"
        else:
            return None
        return self.report(
            "client_identifier", f"CONNECT: Client Identifier {identifier!r} {why}", severity=Severity.INFO
        )

    def sum_up(self, clients: str, names: str) -> str:
        """One note for all clients."""
        return (
            f"CONNECT: {clients} clients have Client Identifiers that a server may refuse (more than {MAX_LENGTH}"
            f" bytes, or other characters than 0-9, a-z and A-Z): {names}"
        )


def is_plain(identifier: str) -> bool:
    """Whether all characters are ASCII letters and digits; true for the empty identifier."""
    return not identifier or (identifier.isascii() and identifier.isalnum())
