"""Changes to recordings before they are played: topics, Client Identifiers, fields, many clients out of one.

Both directions are changed alike, so that a comparison with what a live broker says expects the new names.  The
scripts that are given are never touched; an entry that no change concerns keeps its packet and its bytes, the others
have the bytes that their new packet is encoded to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mqttscope.replay.rewrite.changes import Changes, RewriteError
from mqttscope.replay.rewrite.clients import ClientMapping, map_clients
from mqttscope.replay.rewrite.links import copy_scripts
from mqttscope.replay.rewrite.multiply import CLIENT_TEMPLATE, TOPIC_TEMPLATE, multiply
from mqttscope.replay.rewrite.settings import Setting, apply_settings
from mqttscope.replay.rewrite.topics import TopicMapping, map_topics
from mqttscope.replay.rewrite.values import ReadFile
from mqttscope.replay.script import Script


@dataclass(slots=True, frozen=True)
class Rewrites:
    """What is to be changed."""

    topics: Sequence[TopicMapping] = ()
    clients: Sequence[ClientMapping] = ()
    settings: Sequence[Setting] = ()

    @classmethod
    def parse(
        cls,
        topics: Sequence[str] = (),
        clients: Sequence[str] = (),
        settings: Sequence[str] = (),
        unset: Sequence[str] = (),
        *,
        password: bytes | None = None,
        read_file: ReadFile | None = None,
    ) -> Rewrites:
        """From the values of ``--map-topic``, ``--map-client``, ``--set`` and ``--unset``; raises RewriteError.

        The password is one that the caller has from the environment or a file; ``read_file`` reads ``@file``.
        """
        found = [_of("--unset", Setting.parse_unset, one) for one in unset]
        found += [_of("--set", lambda text: Setting.parse(text, read_file), one) for one in settings]
        if password is not None:
            found.append(Setting.password(password))
        return cls([TopicMapping.parse(one) for one in topics], [ClientMapping.parse(one) for one in clients], found)

    def __bool__(self) -> bool:
        return bool(self.topics or self.clients or self.settings)


def _of(option: str, parse: Callable[[str], Setting], text: str) -> Setting:
    try:
        return parse(text)
    except RewriteError as error:
        raise RewriteError(f"{option}: {error}") from None


def rewrite(scripts: Sequence[Script], rewrites: Rewrites) -> tuple[list[Script], Changes]:
    """Changed copies of scripts, and what was changed.

    Mappings come first and see what was recorded; fields that are set hold whatever a mapping made of them.
    """
    changes = Changes()
    copies = copy_scripts(scripts)
    if rewrites.topics:
        map_topics(copies, rewrites.topics, changes)
    if rewrites.clients:
        map_clients(copies, rewrites.clients, changes)
    if rewrites.settings:
        apply_settings(copies, rewrites.settings, changes)
    return copies, changes


__all__ = [
    "CLIENT_TEMPLATE",
    "TOPIC_TEMPLATE",
    "Changes",
    "ClientMapping",
    "RewriteError",
    "Rewrites",
    "Setting",
    "TopicMapping",
    "multiply",
    "rewrite",
]
