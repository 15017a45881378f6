"""The linter's word on a conversation that was held live.

Mutations and rules know the specification independently of each other.  A broker is accused only where both agree: the
violation was really on the wire where it had to be answered, or a client that keeps all rules was refused.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import cache
from typing import TypeVar

from mqttscope.broker_test.conversation import SERVER, Conversation, frames
from mqttscope.broker_test.verdict import NOT_OF_TABLE, OF_A_CLIENT, Ruling, Verdict, excused
from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.dissect.options import MQTT, Options
from mqttscope.events import Event, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding, Severity
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mutate import Case

C2S = Direction.CLIENT_TO_SERVER
AT_ONCE = 500
"""Events that are judged before signals and timers get their turn."""
MAX_FINDINGS = 1_000
"""A broker of which more is found is not looked at any further."""
T = TypeVar("T")
BY_ITSELF = (OF_A_CLIENT, *NOT_OF_TABLE.values())
"""Statements that a reason code breaks whatever it is the reason for."""
WRONG_REASON_RULES = ("ERR202", "CON220")
"""Rules about the reason that a server gives for closing: of 5.0 and of 3.1.1."""


@cache
def load_rules() -> tuple[type[Rule], ...]:
    """The rules that are asked, loaded when they are first needed."""
    return tuple(rule for rule in all_rules().values() if not rule.is_practice())


def finding(conversation: Conversation) -> Generator[None, None, tuple[list[Finding], list[Finding]]]:
    """What the linter finds of the client, from the mutation's first byte on, and of the server."""
    linter = Linter([usual_rule(rule) for rule in load_rules()])
    ranges = conversation.mutated_ranges()
    first = ranges[0][0] if ranges else 0
    options = Options(ports={SERVER.port: MQTT}, version=conversation.version)
    client: list[Finding] = []
    server: list[Finding] = []
    position = 0
    segments = (made.segment for made in frames(conversation))
    for number, event in enumerate(dissect_segments(segments, dissector=Dissector(options)), 1):
        position += _length(event)
        for found in linter.feed(event):
            if found.direction != C2S:
                server.append(found)
            elif position > first:
                client.append(found)
        if len(server) >= MAX_FINDINGS:
            break
        if not number % AT_ONCE:
            yield
    return client, server


def _of_the_client(conversation: Conversation) -> Generator[None, None, list[Finding]]:
    """What the linter finds of the client, wherever in the conversation."""
    whole = replace(conversation, said=[replace(one, mutated=False) for one in conversation.said])
    return (yield from finding(whole))[0]


def blaming(conversation: Conversation) -> Generator[None, None, set[str]]:
    """Codes of the rules that the client of a conversation breaks, wherever in it."""
    return {one.rule for one in (yield from _of_the_client(conversation))}


def breaking(conversation: Conversation) -> Generator[None, None, tuple[str, ...]]:
    """The statements that the client of a conversation breaks, wherever in it."""
    found = (one for one in (yield from _of_the_client(conversation)) if one.severity is Severity.ERROR)
    return tuple(sorted({text for one in found for text in one.statements}))


def _length(event: Event) -> int:
    """How far an event continues in the client's stream, in bytes."""
    if not isinstance(event, PacketEvent | MalformedEvent | UnparsedEvent) or event.direction is not C2S:
        return 0
    if isinstance(event, PacketEvent):
        return len(event.packet.raw)
    return len(event.malformed.raw) if isinstance(event, MalformedEvent) else event.unparsed.length


def confirming(ruling: Ruling, case: Case, conversation: Conversation) -> Generator[None, None, Ruling]:
    """The ruling if the linter agrees that there is something to accuse of; else the same without the accusation."""
    if ruling.verdict in (Verdict.TOLERATED, Verdict.NO_ANSWER, Verdict.REFUSED_LEGAL, Verdict.WRONG_REASON):
        client, server = yield from finding(conversation)
        if len(server) >= MAX_FINDINGS:
            return excused(ruling, "the broker breaks more rules than are looked at")
        broken = {text for one in client for text in one.statements}
        if case.statements:
            if broken.isdisjoint(case.statements):
                return excused(ruling, "the violation does not show in what was sent")
        elif any(one.severity is not Severity.INFO for one in client):
            return excused(ruling, "the flow may break a statement")
        if ruling.verdict is Verdict.WRONG_REASON and ruling.statements not in BY_ITSELF:
            judged = any(one.rule in WRONG_REASON_RULES for one in server)
            return ruling if judged else excused(ruling, "any of several codes will do")
        if ruling.verdict is Verdict.NO_ANSWER and not case.statements:
            # What came instead of the answer may break more than that there was none.
            told = {text for one in server if one.severity is Severity.ERROR for text in one.statements}
            return replace(ruling, statements=tuple(sorted(told)) or ruling.statements)
    return ruling
