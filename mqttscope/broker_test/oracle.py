"""Confirms rulings with the linter's findings on the live conversation.

Mutations and rules are independent implementations of the specification.  A broker is accused only if both agree: the
violation was really on the wire, or the refused client broke no rule.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import cache
from typing import TypeVar

from mqttscope.broker_test.conversation import SERVER, Conversation, frames
from mqttscope.broker_test.verdict import BROKER_WIDE, NOT_OF_TABLE, OF_A_CLIENT, BrokerVerdict, Ruling, excuse
from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.dissect.options import MQTT, Options
from mqttscope.events import Event, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding, Severity
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mutate import MutationCase

C2S = Direction.CLIENT_TO_SERVER
AT_ONCE = 500
"""Number of events that are judged between two turns for signals and timers."""
MAX_FINDINGS = 1_000
"""Maximum number of findings about a broker; linting stops there."""
T = TypeVar("T")
BY_ITSELF = (OF_A_CLIENT, *NOT_OF_TABLE.values())
"""Statements that a reason code breaks regardless of its cause."""
WRONG_REASON_RULES = ("ERR202", "CON220")
"""Rules about the reason code of a closing server, for 5.0 and 3.1.1."""


@cache
def load_rules() -> tuple[type[Rule], ...]:
    """All rules except good practices, loaded on first use."""
    return tuple(rule for rule in all_rules().values() if not rule.is_practice())


def finding(conversation: Conversation) -> Generator[None, None, tuple[list[Finding], list[Finding]]]:
    """Findings about the client, from the first byte of the mutation on, and about the server."""
    linter = Linter([usual_rule(rule) for rule in load_rules()])
    ranges = conversation.mutated_ranges()
    first = ranges[0][0] if ranges else 0
    options = Options(ports={SERVER.port: MQTT}, version=conversation.version)
    client: list[Finding] = []
    server: list[Finding] = []
    position = 0
    segments = (frame.segment for frame in frames(conversation))
    for number, event in enumerate(dissect_segments(segments, dissector=Dissector(options)), 1):
        position += _length(event)
        for finding in linter.feed(event):
            if finding.direction != C2S:
                server.append(finding)
            elif position > first:
                client.append(finding)
        if len(server) >= MAX_FINDINGS:
            break
        if not number % AT_ONCE:
            yield
    return client, server


def _client_findings(conversation: Conversation) -> Generator[None, None, list[Finding]]:
    whole = replace(conversation, chunks=[replace(chunk, mutated=False) for chunk in conversation.chunks])
    return (yield from finding(whole))[0]


def blaming(conversation: Conversation) -> Generator[None, None, set[str]]:
    """Codes of the rules that the client breaks in the whole conversation."""
    return {finding.rule for finding in (yield from _client_findings(conversation))}


def breaking(conversation: Conversation) -> Generator[None, None, tuple[str, ...]]:
    """The statements that the client breaks in the whole conversation."""
    findings = yield from _client_findings(conversation)
    errors = (finding for finding in findings if finding.severity is Severity.ERROR)
    return tuple(sorted({text for finding in errors for text in finding.statements}))


def _length(event: Event) -> int:
    """Size of an event in the client's stream, in bytes."""
    if not isinstance(event, PacketEvent | MalformedEvent | UnparsedEvent) or event.direction is not C2S:
        return 0
    if isinstance(event, PacketEvent):
        return len(event.packet.raw)
    return len(event.malformed.raw) if isinstance(event, MalformedEvent) else event.unparsed.length


def confirm_ruling(ruling: Ruling, case: MutationCase, conversation: Conversation) -> Generator[None, None, Ruling]:
    """The ruling if the linter confirms the accusation, else an excused ruling."""
    if ruling.deviates and ruling.verdict not in BROKER_WIDE:
        client, server = yield from finding(conversation)
        if len(server) >= MAX_FINDINGS:
            return excuse(ruling, "the broker breaks too many rules to be judged")
        broken = {text for finding in client for text in finding.statements}
        if case.statements:
            if broken.isdisjoint(case.statements):
                return excuse(ruling, "the violation is not visible in the bytes that were sent")
        elif any(finding.severity is not Severity.INFO for finding in client):
            return excuse(ruling, "the flow may break a statement")
        if ruling.verdict is BrokerVerdict.WRONG_REASON and ruling.statements not in BY_ITSELF:
            judged = any(finding.rule in WRONG_REASON_RULES for finding in server)
            return ruling if judged else excuse(ruling, "several reason codes are allowed")
        if ruling.verdict is BrokerVerdict.NO_ANSWER and not case.statements:
            # Packets sent instead of the answer may break further statements.
            errors = (finding for finding in server if finding.severity is Severity.ERROR)
            statements = sorted({text for finding in errors for text in finding.statements})
            return replace(ruling, statements=tuple(statements) or ruling.statements)
    return ruling
