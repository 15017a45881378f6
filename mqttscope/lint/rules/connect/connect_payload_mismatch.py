from mqttscope.events import MalformedEvent
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, RuleContext, examples
from mqttscope.lint.shared_checks import MalformedRule
from mqttscope.mqtt import Connect, MalformedReason, ProtocolVersion
from mqttscope.mqtt.declare import FaultReport

_USER_NAME, _PASSWORD = 0x80, 0x40
_MISSING = {"will": "Will", "user_name": "User Name", "password": "Password"}
_WITHOUT_FLAG: dict[ProtocolVersion, tuple[tuple[int, str], ...]] = {
    V5: ((_USER_NAME, "MQTT-3.1.2-16"), (_PASSWORD, "MQTT-3.1.2-18")),
    V3_1_1: ((_USER_NAME, "MQTT-3.1.2-18"), (_PASSWORD, "MQTT-3.1.2-20")),
    V3_1: (),
}
"""Statements that forbid a field while its flag is 0."""


class ConnectPayloadMismatch(MalformedRule):
    """The payload of a CONNECT does not match its connect flags.

    The fields have a fixed order, and only the flags show which fields are present.  A field without its flag, or a
    flag without its field, shifts everything after it, and the server closes the connection.  In MQTT 3.1 the packet
    length takes precedence over the flags for user name and password: there both may be missing.

    Instead, set the flag of a field exactly when you write the field, and keep the order: Client Identifier, Will
    Properties, Will Topic, Will Payload, User Name, Password.
    """

    code = "CON104"
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

    good = examples("""
        user name with its flag
            opened user_name=u
        password without user name in 5.0
            opened password=p
        all fields
            opened 3.1.1 resume user_name=u password=p will=dead/c1 will_payload=x
        an empty user name is present
            opened 3.1.1 user_name=-
        user name and password may be missing in 3.1
            version 3.1; > raw 10 10 0006 "MQIsdp" 03c2003c 0002 "c1"; < connack
    """)
    bad = examples("""
        User Name Flag without a user name
            > raw 10 0f 0004 "MQTT" 0582003c00 0002 "c1" !user_name
        Password Flag without a password
            > raw 10 11 0004 "MQTT" 04c2003c 0002 "c1" 0001 "u" !password
        Will Flag without a will
            > raw 10 0f 0004 "MQTT" 0506003c00 0002 "c1" !will
        Will Flag without a will in 3.1
            > raw 10 10 0006 "MQIsdp" 0306003c 0002 "c1" !will
        a user name without User Name Flag
            > connect user_name=u connect_flags=0x02 !
        a password without Password Flag in 3.1.1
            > connect 3.1.1 user_name=u password=p connect_flags=0x82 !
        bytes after all fields
            > raw 10 17 0004 "MQTT" 04c2003c 0002 "c1" 0001 "u" 0001 "p" 0001 "q" !
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Name the flag and the field, and cite the statements about them."""
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
    """The statement that requires the user name (0) or the password (1) if its flag is 1."""
    return (("MQTT-3.1.2-17", "MQTT-3.1.2-19") if at.version is V5 else ("MQTT-3.1.2-19", "MQTT-3.1.2-21"))[index:][:1]


def _flags(at: RuleContext) -> int:
    packet = at.event.malformed.packet if isinstance(at.event, MalformedEvent) else None
    if not isinstance(packet, Connect):
        return 0
    return packet.derived_flags() if packet.connect_flags is None else packet.connect_flags
