"""Declares the options of a command as the fields of one frozen class, which also refuses contradictions.

A field that `option` or `argument` makes is a parameter of the command line; one that `group` makes holds a class that
several commands share.  `make_command` makes the click command of such a class, whose ``--help`` has sections.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from typing import Any, TypeVar, dataclass_transform

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

T = TypeVar("T")

LAKE = "Lake"
LISTENING = "Listening"
LIVE = "Capturing"
BROKER = "Broker"
TLS = "TLS"
READING = "Reading"
SELECTION = "Selection"
CHANGES = "Changes to the recording"
PLAYING = "Playing"
COMPARING = "What counts"
CASES = "Cases"
VALUES = "What is replaced"
CHECKING = "Checking"
RULES = "Rules"
FAILING = "What fails, and what is shown"
SPARK = "Spark"
OUTPUT = "Output"
END = "End of the run"
OTHER = "Other"
SECTIONS = (
    LAKE, LISTENING, LIVE, BROKER, TLS, READING, SELECTION, CHANGES, PLAYING, COMPARING, CASES, VALUES, CHECKING, RULES,
    FAILING, SPARK, OUTPUT, END, OTHER,
)  # fmt: skip
"""Sections of ``--help``, in their order."""

_NAMED = {"FILE": "file", "DIR": "folder", "FOLDER": "folder"}
"""What options name, by what ``--help`` shows in the place of the value."""
_PARAMETER, _GROUP = "parameter", "group"
_COLUMN = 30
"""Width that click allows the column of options."""


class Option(click.Option):
    """An option that ``--help`` lists in a section."""

    def __init__(self, *declarations: Any, section: str, listed: tuple[str, ...] = (), **settings: Any) -> None:
        """``listed``: the words of which the value is a list with commas."""
        super().__init__(*declarations, **settings)
        self.section = section
        self.listed = listed

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """The value of its type; a usage error for an empty name of a file or a folder."""
        found = super().type_cast_value(ctx, value)
        what = _NAMED.get(str(self.metavar).rpartition("]")[2].rpartition("|")[2])
        if what is not None and any(one == "" for one in (found if self.multiple else (found,))):
            raise click.BadParameter(f"the name of the {what} is empty", ctx, self)
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """What could be the value: words that `completing` knows, or what click offers for the type."""
        from mqttscope.cli.completing import words, words_of_list

        found = words_of_list(ctx, self.listed, incomplete) if self.listed else words(ctx, self.opts, incomplete)
        return super().shell_complete(ctx, incomplete) if found is None else [CompletionItem(one) for one in found]


class Command(click.Command):
    """A command whose ``--help`` lists options by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections that have options."""
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in SECTIONS}
        for one in self.get_params(ctx):
            row = one.get_help_record(ctx) if isinstance(one, click.Option) else None
            if row is not None:
                sections[getattr(one, "section", OTHER)].append(row)
        # Columns line up across sections.
        width = min(_COLUMN, max(len(name) for rows in sections.values() for name, _ in rows))
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(width), text) for name, text in rows])


@dataclass_transform(kw_only_default=True, frozen_default=True)
def options(cls: type[T]) -> type[T]:
    """Make a class one of options: frozen, its fields by name alone."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


def option(section: str, *names: str, value: Any = MISSING, **settings: Any) -> Any:
    """A field that is an option of the command line.

    ``settings`` are those of `click.Option`.  ``value``: the field's value where the class is made without it, if it
    is not click's default.
    """
    if value is MISSING and not settings.get("required"):
        empty = () if settings.get("multiple") else False if settings.get("is_flag") else None
        value = settings.get("default", empty)
    declare = partial(_option, names, section=section, **settings)
    if isinstance(value, dict):
        return field(default_factory=value.copy, metadata={_PARAMETER: declare})
    return field(default=value, metadata={_PARAMETER: declare})


def _option(names: tuple[str, ...], name: str, **settings: Any) -> Option:
    return Option([name, *names], **settings)


def argument(metavar: str, **settings: Any) -> Any:
    """A field that is an argument of the command line; ``settings`` are those of `click.Argument`."""
    value: Any = () if settings.get("nargs") == -1 else MISSING
    declare = partial(_argument, metavar=metavar, **settings)
    return field(default=value, metadata={_PARAMETER: declare})


def _argument(name: str, **settings: Any) -> click.Argument:
    return click.Argument([name], **settings)


def group(cls: type[T], *, shown: Mapping[str, str] | None = None) -> T:
    """A field that holds the options of another class.

    ``shown``: the only ones that ``--help`` lists, with the texts that they have here.
    """
    made: Any = field(default_factory=cls, metadata={_GROUP: (cls, shown)})
    return made  # type: ignore[no-any-return]


def parameters(cls: type[Any]) -> Iterator[click.Parameter]:
    """The parameters that a class of options declares, those of its groups among them."""
    for one in fields(cls):
        if _GROUP not in one.metadata:
            yield one.metadata[_PARAMETER](one.name)
            continue
        inner, shown = one.metadata[_GROUP]
        for parameter in parameters(inner):
            if shown is not None and isinstance(parameter, click.Option):
                parameter.hidden = parameter.name not in shown
                parameter.help = shown.get(str(parameter.name), parameter.help)
            yield parameter


def collect(cls: type[T], values: Mapping[str, Any]) -> T:
    """Options of a class from the values of a command line, by the names of fields; usage errors from the class."""
    made = {}
    for one in fields(cls):  # type: ignore[arg-type]
        inner = one.metadata.get(_GROUP)
        made[one.name] = values[one.name] if inner is None else collect(inner[0], values)
    return cls(**made)


def on_command_line() -> Iterator[tuple[str, str]]:
    """What stands on the command line: the names of fields, and how they are spelled there."""
    context = click.get_current_context(silent=True)
    for one in () if context is None else context.command.params:
        name = one.name or ""
        if context is not None and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            yield name, one.opts[0] if isinstance(one, click.Option) else one.make_metavar(context).strip("[].")


def make_command(cls: type[T], **settings: Any) -> Callable[[Callable[[T], int]], Command]:
    """Make a command of a function that takes its options; ``settings`` are those of `click.Command`."""

    def decorate(run: Callable[[T], int]) -> Command:
        def callback(**values: Any) -> int:
            from mqttscope.cli.configuration import hide_configured

            hide_configured()
            return run(collect(cls, values))

        text = inspect.cleandoc(run.__doc__ or "")
        name = settings.pop("name", None)
        return Command(name, params=list(parameters(cls)), callback=callback, help=text, **settings)

    return decorate
