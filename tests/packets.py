"""Packets in the words of `mqttscope.lint.conversation_text`, such as ``publish a/b hot qos=1 id=3``."""

from __future__ import annotations

from mqttscope.lint.conversation_text import parse_conversations
from mqttscope.lint.examples import Step
from mqttscope.mqtt import ControlPacket, ProtocolVersion


def told(text: str, version: ProtocolVersion = ProtocolVersion.V5) -> tuple[Step, ...]:
    """The steps of a conversation, such as ``> connect; < connack``; a CONNECT is of this version unless it says so."""
    (conversation,) = parse_conversations(f"a conversation\n    version {version.text}; {text}")
    return conversation.steps


def packet(text: str) -> ControlPacket:
    """One packet."""
    ((made,),) = (step.packets for step in told(f"> {text}"))
    assert isinstance(made, ControlPacket)
    return made
