"""Completions of a word of the command line, beyond files and fixed choices.

Rules, mutations and filter fields come from their catalogues, interfaces from dumpcap, topics and Client Identifiers
from the start of the captures earlier on the line.  Errors yield no words, because a shell shows no messages during
completion.
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
"""Maximum time for reading captures."""
MOST_PACKETS = 50_000
MOST_BYTES = 4_000_000
"""Maximum number of packets and bytes to read."""
MOST_WORDS = 500
MOST_CHARACTERS = 200
"""Maximum length of a word: a topic may have 65,535 bytes, which would fill the screen."""
_SAFE = re.compile(r"[\w./:=,+@%-]+")
"""A word that needs no quotes in a shell; other words are offered only inside quotes."""
_QUOTED = {"'": re.compile(r"[^'\\*?\[\x00-\x1f\x7f]+"), '"': re.compile(r"[^\"$`!\\*?\[\x00-\x1f\x7f]+")}
"""Words without special characters inside quotes, even when the completion script searches for files."""

Words = Callable[[click.Context, str], Iterable[str]]


class BashCompletion(shell_completion.BashComplete):
    """Completion for bash that offers words and files; click's own drops the words if there are files."""

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
    """Words for the value of an option with one of these names; ``None`` for an option without words."""
    for name in options:
        complete = _BY_OPTION.get(name)
        if complete is not None:
            return _guarded(complete, context, incomplete)
    return None


def words_of_list(context: click.Context, listed: tuple[str, ...], incomplete: str) -> list[str]:
    """Words for the last item of a comma-separated value."""
    return _guarded(lambda _, word: _last(word, listed), context, incomplete)


def rule_codes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Rules by code, or by slug for a word in lower case."""
    return _guarded(_rules, context, incomplete)


def interface_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return _guarded(_interfaces, context, incomplete)


def _guarded(complete: Words, context: click.Context, incomplete: str) -> list[str]:
    listed: list[str] = []
    safe = _QUOTED.get(_quote(), _SAFE)
    with suppress(MqttscopeError, OSError, ValueError):
        for word in complete(context, incomplete):
            if len(word) - len(incomplete) > MOST_CHARACTERS:
                continue
            if word.startswith(incomplete) and safe.fullmatch(word) is not None and word not in listed:
                listed.append(word)
                if len(listed) >= MOST_WORDS:
                    break
    return listed


def _quote() -> str:
    """Open quote before the word on the command line, or empty."""
    lexer = shlex.shlex(os.environ.get("COMP_WORDS", ""), posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        for _ in lexer:
            pass
    except ValueError:
        # State at the end of the line; the type declares no attribute for it.
        return str(vars(lexer)["state"])
    return ""


def _last(incomplete: str, those: Iterable[str]) -> Iterator[str]:
    """Words for the last item of a comma-separated list."""
    before, comma, _ = incomplete.rpartition(",")
    return (f"{before}{comma}{choice}" for choice in those)


def _rules(context: click.Context, incomplete: str) -> Iterator[str]:
    from mqttscope.lint.catalogue import all_rules

    rules = all_rules()
    areas = dict.fromkeys(code[:3] for code in rules)
    slugs = (rule.slug for rule in rules.values())
    return _last(incomplete, [*areas, *rules, *slugs] if incomplete else areas)


def _mutations(context: click.Context, incomplete: str) -> Iterator[str]:
    from mqttscope.mutate.catalogue import catalogue

    entry = incomplete.rpartition(",")[2]
    names = (mutation.name for mutation in catalogue())
    # Thousands of names: offer packet types and fields first, which are valid patterns.
    shown = names if ":" in entry or "." in entry else dict.fromkeys(name.partition(":")[0] for name in names)
    return _last(incomplete, shown)


def _filter_words(context: click.Context, incomplete: str) -> Iterator[str]:
    from mqttscope.filter.completion import complete

    completion = complete(incomplete)
    return (incomplete[: completion.start] + word for word in completion.words)


def _interfaces(context: click.Context, incomplete: str) -> Iterator[str]:
    from mqttscope.capture.live import interfaces

    return (interface.name for interface in interfaces())


def _clients(context: click.Context, incomplete: str) -> Iterator[str]:
    return (client for client, _ in _names(context) if client)


def _topics(context: click.Context, incomplete: str) -> Iterator[str]:
    return (topic for _, topic in _names(context) if topic)


def _names(context: click.Context) -> Iterator[tuple[str | None, str | None]]:
    """Client Identifiers and topics of packets at the start of the captures on the line."""
    import mqttscope

    named = _captures(context)
    if not named:
        return
    until, size = 0.0, 0
    with mqttscope.open(*named) as captures:
        for count, packet in enumerate(captures, 1):
            # Start at the first packet, so that imports do not use up the time.
            until = until or time.monotonic() + LOOKED_AT_S
            yield packet.client_identifier, packet.topic
            size += len(packet.raw)
            if count >= MOST_PACKETS or size > MOST_BYTES or time.monotonic() > until:
                return


def _captures(context: click.Context) -> list[str]:
    """Captures earlier on the line; standard input belongs to the terminal."""
    # An option without its value ends click's parsing and leaves the words before it unparsed.
    named = list(context.args)
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "") if isinstance(parameter, click.Argument) else None
        named += [str(name) for name in (value if isinstance(value, tuple) else (value,)) if name is not None]
    return [path for path in dict.fromkeys(named) if os.path.isfile(path)]


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
"""Name of an option -> completions of its value."""
