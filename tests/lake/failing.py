"""Rules that fail: of a connection, of a server, and where a connection ends.  Needs nothing of the other tests."""

from __future__ import annotations

from mqttscope.lint.context import RuleContext
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Findings, Rule
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Publish
from mqttscope.session.connection import Connection


class FailsWithConnection(Rule):
    """Fails on each PUBLISH, with text that is not UTF-8."""

    code = "TST291"
    severity = Severity.INFO
    looks_at = Publish

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        raise ZeroDivisionError("of the connection\udcff")


class FailsWithServer(Rule):
    """Fails on each PUBLISH."""

    code = "TST491"
    severity = Severity.INFO
    looks_at = Publish

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        raise ZeroDivisionError("of the server")


class FailsAtEnd(Rule):
    """Fails where a connection ends."""

    code = "TST292"
    severity = Severity.INFO

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        raise ZeroDivisionError("at the end")


FAILING: tuple[Rule, ...] = (FailsWithConnection(), FailsWithServer(), FailsAtEnd())
