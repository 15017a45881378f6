"""What could complete a word of the command line, beyond files and fixed choices.

Rules, mutations and fields of filters come from their catalogues, interfaces from dumpcap, topics and Client
Identifiers from the beginnings of the captures that are named before the word.  What fails gives no words: nobody
reads messages there.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import click
from click import shell_completion

from mqttscope.errors import MqttscopeError

LOOKED_AT_S = 0.7
"""How long captures are read."""
MOST_PACKETS = 50_000
MOST_BYTES = 4_000_000
"""What is read of packets."""
MOST_WORDS = 500
MOST_CHARACTERS = 200
"""Longer words are not offered: a topic may have 65,535 bytes, and a list of such topics shows nothing else."""
_SAFE = re.compile(r"[\w./:=,+@%-]+")
"""A word that no shell needs quotes for; others are offered inside of quotes alone."""
_QUOTED = {"'": re.compile(r"[^'\\*?\[\x00-\x1f\x7f]+"), '"': re.compile(r"[^\"$`!\\*?\[\x00-\x1f\x7f]+")}
"""Words that mean themselves inside of quotes, also where the script of the shell looks for files of their names."""

Words = Callable[[click.Context, str], Iterable[str]]


class BashComplete(shell_completion.BashComplete):
    """Completion for bash that offers files beside words; click's own drops the words where there are files."""

    source_template = shell_completion.BashComplete.source_template.replace(
        """\
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
""",
        """\
        elif [[ $type == 'file' && ${#COMPREPLY[@]} == 0 ]]; then
            compopt -o default
        elif [[ $type == 'file' ]]; then
            compopt -o filenames
            mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")
""",
    )


def words(context: click.Context, options: Iterable[str], incomplete: str) -> list[str] | None:
    """Words for the value of an option by one of its names; ``None`` for an option that has none."""
    for name in options:
        found = _BY_OPTION.get(name)
        if found is not None:
            return _guarded(found, context, incomplete)
    return None


def words_of_list(context: click.Context, listed: tuple[str, ...], incomplete: str) -> list[str]:
    """Words for the last entry of a value that is a list of these, with commas."""
    return _guarded(lambda _, word: _last(word, listed), context, incomplete)


def rule_codes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Rules by their codes, or by slugs where a word begins in lower case."""
    return _guarded(_rules, context, incomplete)


def interface_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return _guarded(_interfaces, context, incomplete)


def _guarded(found: Words, context: click.Context, incomplete: str) -> list[str]:
    listed: list[str] = []
    safe = _QUOTED.get(_quote(), _SAFE)
    with suppress(MqttscopeError, OSError, ValueError):
        for word in found(context, incomplete):
            if len(word) - len(incomplete) > MOST_CHARACTERS:
                continue
            if word.startswith(incomplete) and safe.fullmatch(word) is not None and word not in listed:
                listed.append(word)
                if len(listed) >= MOST_WORDS:
                    break
    return listed


def _quote() -> str:
    """The quote that the word stands in, as the shell says what is on the line; empty where it stands in none."""
    lexer = shlex.shlex(os.environ.get("COMP_WORDS", ""), posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        for _ in lexer:
            pass
    except ValueError:
        # What it was in when the line ended; its type declares no attribute for that.
        return str(vars(lexer)["state"])
    return ""


def _last(incomplete: str, those: Iterable[str]) -> Iterator[str]:
    """Words for the last entry of a list with commas."""
    before, comma, _ = incomplete.rpartition(",")
    return (f"{before}{comma}{one}" for one in those)


def _rules(context: click.Context, incomplete: str) -> Iterator[str]:
    from mqttscope.lint.catalogue import all_rules

    rules = all_rules()
    areas = dict.fromkeys(code[:3] for code in rules)
    slugs = (rule.slug for rule in rules.values())
    return _last(incomplete, [*areas, *rules, *slugs] if incomplete else areas)


def _mutations(context: click.Context, incomplete: str) -> Iterator[str]:
    from mqttscope.mutate.catalogue import catalogue

    entry = incomplete.rpartition(",")[2]
    names = (one.name for one in catalogue())
    # Thousands: first the packet types and fields, which are patterns by themselves.
    shown = names if ":" in entry or "." in entry else dict.fromkeys(name.partition(":")[0] for name in names)
    return _last(incomplete, shown)


def _filter_words(context: click.Context, incomplete: str) -> Iterator[str]:
    from mqttscope.filter.completion import complete

    found = complete(incomplete)
    return (incomplete[: found.start] + word for word in found.words)


def _interfaces(context: click.Context, incomplete: str) -> Iterator[str]:
    from mqttscope.capture.live import interfaces

    return (one.name for one in interfaces())


def _clients(context: click.Context, incomplete: str) -> Iterator[str]:
    return (client for client, _ in _names(context) if client)


def _topics(context: click.Context, incomplete: str) -> Iterator[str]:
    return (topic for _, topic in _names(context) if topic)


def _names(context: click.Context) -> Iterator[tuple[str | None, str | None]]:
    """Client Identifiers and topics of packets at the beginning of the captures on the line."""
    import mqttscope

    named = _captures(context)
    if not named:
        return
    until, size = 0.0, 0
    with mqttscope.open(*named) as captures:
        for count, packet in enumerate(captures, 1):
            # From the first packet on: loading modules takes what it takes.
            until = until or time.monotonic() + LOOKED_AT_S
            yield packet.client_identifier, packet.topic
            size += len(packet.raw)
            if count >= MOST_PACKETS or size > MOST_BYTES or time.monotonic() > until:
                return


def _captures(context: click.Context) -> list[str]:
    """Files that are named before the word; standard input is the terminal's."""
    # An option without its value ends click's parsing, which leaves the words before it as they are.
    named = list(context.args)
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "") if isinstance(parameter, click.Argument) else None
        named += [str(one) for one in (value if isinstance(value, tuple) else (value,)) if one is not None]
    return [one for one in dict.fromkeys(named) if os.path.isfile(one)]


_BY_OPTION: dict[str, Words] = {
    "--select": _rules,
    "--extend-select": _rules,
    "--ignore": _rules,
    "--rule": _rules,
    "--mutation": _mutations,
    "--filter": _filter_words,
    "--interface": _interfaces,
    "--client": _clients,
    "--message": _topics,
    "--ignore-topic": _topics,
}
"""Name of an option -> what could be its value."""
