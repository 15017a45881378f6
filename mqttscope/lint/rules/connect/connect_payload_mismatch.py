"""CON104."""

from mqttscope.events import MalformedEvent
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, make_connect, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.mqtt.constants import MalformedReason, ProtocolVersion
from mqttscope.mqtt.declare import FaultReport
from mqttscope.mqtt.packets import Connack, Connect
from mqttscope.mqtt.parts import Will

_USER_NAME, _PASSWORD = 0x80, 0x40
_MISSING = {"will": "Will", "user_name": "User Name", "password": "Password"}
_WITHOUT_FLAG: dict[ProtocolVersion, tuple[tuple[int, str], ...]] = {
    V5: ((_USER_NAME, "MQTT-3.1.2-16"), (_PASSWORD, "MQTT-3.1.2-18")),
    V3_1_1: ((_USER_NAME, "MQTT-3.1.2-18"), (_PASSWORD, "MQTT-3.1.2-20")),
    V3_1: (),
}
"""Statements that forbid a field while its flag is 0."""


class ConnectPayloadMismatch(Rule):
    """The payload of a CONNECT does not hold the fields that its connect flags announce.

    Fields stand in a fixed order and only the flags say which of them are there.  A field without its flag, or a flag
    without its field, moves everything after it, and the server closes the connection.  In MQTT 3.1 the length of the
    packet wins over the flags of user name and password: there they may be missing.

    Instead, set the flag of a field exactly when the field is written, and keep the order: Client Identifier, Will
    Properties, Will Topic, Will Payload, User Name, Password.
    """

    code = "CON104"
    severity = Severity.ERROR
    reason_code = 0x81
    statements = {
        V5: {
            "MQTT-3.1.2-9": "connect.will",
            "MQTT-3.1.2-16": "connect.user_name",
            "MQTT-3.1.2-17": "connect.user_name",
            "MQTT-3.1.2-18": "connect.password",
            "MQTT-3.1.2-19": "connect.password",
            "MQTT-3.1.3-1": "connect",
        },
        V3_1_1: {
            "MQTT-3.1.2-9": "connect.will",
            "MQTT-3.1.2-18": "connect.user_name",
            "MQTT-3.1.2-19": "connect.user_name",
            "MQTT-3.1.2-20": "connect.password",
            "MQTT-3.1.2-21": "connect.password",
            "MQTT-3.1.3-1": "connect",
        },
    }
    also = {V3_1_1: ("MQTT-3.1.2-11",), V3_1: ("V31-CONNECT-username-missing",)}
    malformed = (MalformedReason.CONNECT_PAYLOAD_MISMATCH,)

    good = examples(
        lambda: [
            conversation("user name with its flag", *opened(user_name="u")),
            conversation("password without user name in 5.0", *opened(password=b"p")),
            conversation(
                "all fields",
                *opened(V3_1_1, will=Will("dead/c1", b"x"), user_name="u", password=b"p", clean_start=False),
            ),
            conversation("an empty user name is there", *opened(V3_1_1, user_name="")),
            conversation(
                "3.1: user name and password may be missing",
                client(hexadecimal("10 10 00 06 4d 51 49 73 64 70 03 c2 00 3c 00 02 63 31")),
                server(Connack()),
                version=V3_1,
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "no user name after its flag",
                client(hexadecimal("10 0f 00 04 4d 51 54 54 05 82 00 3c 00 00 02 63 31")).marked("user_name"),
            ),
            conversation(
                "no password after its flag",
                client(hexadecimal("10 11 00 04 4d 51 54 54 04 c2 00 3c 00 02 63 31 00 01 75")).marked("password"),
            ),
            conversation(
                "no will after its flag",
                client(hexadecimal("10 0f 00 04 4d 51 54 54 05 06 00 3c 00 00 02 63 31")).marked("will"),
            ),
            conversation(
                "no will after its flag in 3.1",
                client(hexadecimal("10 10 00 06 4d 51 49 73 64 70 03 06 00 3c 00 02 63 31")).marked("will"),
            ),
            conversation(
                "a user name without its flag",
                client(make_connect(connect_flags=0x02, user_name="u")).marked(""),
            ),
            conversation(
                "a password without its flag in 3.1.1",
                client(make_connect(V3_1_1, connect_flags=0x82, user_name="u", password=b"p")).marked(""),
            ),
            conversation(
                "bytes after all fields",
                client(
                    hexadecimal("10 17 00 04 4d 51 54 54 04 c2 00 3c 00 02 63 31 00 01 75 00 01 70 00 01 71")
                ).marked(""),
            ),
        ]
    )

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Say which flag and which field, and cite the statements about just these."""
        rows = _WITHOUT_FLAG[at.version]
        name = fault.field.partition(".")[0]
        if name in _MISSING:
            cited = {"will": ("MQTT-3.1.2-9",), "user_name": _with_flag(at, 0), "password": _with_flag(at, 1)}[name]
            return self.report(
                fault.field,
                f"CONNECT: {_MISSING[name]} Flag is 1 but the payload ends before its field",
                statements=cited if rows else (),
            )
        flags = _flags(at)
        clear = [row for row in rows if not flags & row[0]]
        cited = tuple(identifier for _, identifier in clear) if clear else ("MQTT-3.1.3-1",)
        detail = fault.detail.partition(":")[0]
        return self.report(
            fault.field,
            f"CONNECT: {detail} that the connect flags 0x{flags:02x} announce",
            statements=cited if rows else (),
        )


def _with_flag(at: RuleContext, index: int) -> tuple[str, ...]:
    """The statement that demands the user name (0) or the password (1) when its flag is 1."""
    return (("MQTT-3.1.2-17", "MQTT-3.1.2-19") if at.version is V5 else ("MQTT-3.1.2-19", "MQTT-3.1.2-21"))[index:][:1]


def _flags(at: RuleContext) -> int:
    packet = at.event.malformed.packet if isinstance(at.event, MalformedEvent) else None
    if not isinstance(packet, Connect):
        return 0
    return packet.derived_flags() if packet.connect_flags is None else packet.connect_flags
