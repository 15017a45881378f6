from mqttscope.lint.rules import Findings, Rule, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import count, is_loopback, is_plain
from mqttscope.mqtt import Connect, Direction


class PasswordInClear(Rule):
    """A client sends its password without TLS.

    Everyone on the network path, and everyone with this capture, can read and use it.  On the loopback interface it
    does not leave the host, and the finding is only info.

    Instead, connect with TLS, and change a password that has crossed the network in the clear.
    """

    code = "SEC101"
    severities = (Severity.WARNING, Severity.INFO)
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        no password
            opened
        an empty password
            opened user_name=u password=-
        a user name only
            opened 3.1.1 user_name=u
    """)
    bad = examples("""
        MQTT 5.0
            opened user_name=u password=secret !password
        a token without a user name
            opened password=token !password
        MQTT 3.1.1 on the loopback interface
            server 127.0.0.1:1883; opened 3.1.1 user_name=u password=secret !password
        MQTT 3.1
            opened 3.1 user_name=u password=secret !password
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Report the length of the password, but never the password itself."""
        if not packet.password or not is_plain(at.connection):
            return None
        local = is_loopback(at.connection.server)
        where = ", on the loopback interface" if local else ""
        return self.report(
            "password",
            f"CONNECT of {at.client_name!r}: password of {count(len(packet.password), 'byte')} sent without TLS{where}",
            severity=Severity.INFO if local else None,
        )
