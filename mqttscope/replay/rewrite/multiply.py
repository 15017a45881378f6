"""Many clients out of one recording: copies of its scripts with Client Identifiers and topics of their own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from mqttscope.mqtt.declare import Malformed
from mqttscope.mqtt.topics import MAX_TOPIC_BYTES, utf8_length
from mqttscope.replay.rewrite.links import (
    Change,
    Changes,
    RewriteError,
    copy_scripts,
    rename,
    say,
    shared_too,
    with_client,
    with_topics,
)
from mqttscope.replay.rewrite.topics import judge_identifier
from mqttscope.replay.script import Script

CLIENT_TEMPLATE = "{client}-{n}"
TOPIC_TEMPLATE = "{topic}"
_PLACEHOLDER = re.compile(r"\{([a-z]*)(?::0?([0-9]{1,2}))?\}")


def multiply(
    scripts: Sequence[Script],
    count: int,
    client_template: str = CLIENT_TEMPLATE,
    topic_template: str = TOPIC_TEMPLATE,
) -> tuple[list[Script], Changes]:
    """``count`` copies of every script, at the same times, with places that interleave.

    In the templates ``{n}`` is the number of the copy from 1 (``{n:04}`` with leading zeros), ``{client}`` the recorded
    Client Identifier and ``{topic}`` the recorded topic.  A topic template ends with ``{topic}`` as levels of its own,
    so that it turns Topic Filters into Topic Filters; topics that begin with ``$`` are left as they are.  Packets that
    stay the same are shared between the copies.
    """
    if count < 1:
        raise RewriteError(f"{count} copies cannot be made")
    _judge_client_template(client_template, count)
    _judge_topic_template(topic_template)
    changes = Changes()
    step = 1 + max((script.connection.number for script in scripts), default=0)
    made: list[Script] = []
    for number in range(1, count + 1):
        copies = copy_scripts(scripts)
        for script in copies:
            connection = replace(script.connection, number=script.connection.number + (number - 1) * step)
            script.connection = connection
            script.opened_place *= count
            script.ended_place *= count
            for entry in script.entries:
                entry.place = entry.place * count + number - 1
            _personalise(script, _client(client_template, number), _topic(topic_template, number), changes)
        made += copies
    # As with one recording: in the order in which connections were opened.
    made.sort(key=lambda script: (script.opened_place, script.opened_ns))
    changes.count("connection", f"made of {len(scripts)} recorded", len(made))
    return made, changes


def _personalise(script: Script, client: Change, topic: Change | None, changes: Changes) -> None:
    asked = shared_too(topic) if topic is not None else None
    for entry in script.entries:
        packet = entry.packet
        if isinstance(packet, Malformed):
            continue
        made = with_client(packet, client)
        if topic is not None and asked is not None:
            made = with_topics(made, topic, asked, lambda thing: None)
            if entry.topic is not None:
                entry.topic = topic(entry.topic)
        if made is not packet:
            say(entry, made, script.version)
    name = script.connection.client_identifier
    if name:
        judge_identifier(client(name), script.version, changes)
        rename(script, client(name))
    else:
        changes.count("connection", "without a Client Identifier of its own")


def _fill(template: str, values: dict[str, str | int]) -> str:
    def value(found: re.Match[str]) -> str:
        one = values[found[1]]
        return str(one).zfill(int(found[2])) if found[2] else str(one)

    return _PLACEHOLDER.sub(value, template)


def _client(template: str, number: int) -> Change:
    return lambda client: _fill(template, {"client": client, "n": number})


def _topic(template: str, number: int) -> Change | None:
    if template == TOPIC_TEMPLATE:
        return None
    front = _fill(template.removesuffix(TOPIC_TEMPLATE), {"n": number})

    def topic(text: str) -> str:
        if text[:1] == "$":
            return text
        if utf8_length(front) + utf8_length(text) > MAX_TOPIC_BYTES:
            raise RewriteError(f"the topic template makes a topic too long: {text[:60]!r}…")
        return front + text

    return topic


def _placeholders(template: str, allowed: tuple[str, ...], what: str) -> list[str]:
    found = [one[1] for one in _PLACEHOLDER.finditer(template)]
    rest = _PLACEHOLDER.sub("", template)
    if any(one not in allowed for one in found) or "{" in rest or "}" in rest:
        known = " and ".join(f"{{{one}}}" for one in allowed)
        raise RewriteError(f"{what} {template!r}: it may hold {known} and nothing else in braces")
    return found


def _judge_client_template(template: str, count: int) -> None:
    what = "client template"
    found = _placeholders(template, ("client", "n"), what)
    if "client" not in found:
        raise RewriteError(f"{what} {template!r} has no {{client}}: clients would take each other's sessions over")
    if count > 1 and "n" not in found:
        raise RewriteError(f"{what} {template!r} has no {{n}}: copies would take each other's sessions over")


def _judge_topic_template(template: str) -> None:
    what = "topic template"
    found = _placeholders(template, ("topic", "n"), what)
    front = template.removesuffix(TOPIC_TEMPLATE)
    if found.count("topic") != 1 or front == template or (front and not front.endswith("/")):
        raise RewriteError(f"{what} {template!r}: it ends with {{topic}}, after a slash where something is before it")
    if "+" in front or "#" in front or "\0" in front or front[:1] == "$":
        raise RewriteError(f"{what} {template!r}: no wildcards, and no $ at its beginning")
