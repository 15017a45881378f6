"""Declares the options of a command as the fields of a frozen class, which also refuses contradictions.

`option` and `argument` declare a field that is a parameter of the command line; `group` declares a field with a class
that several commands share.  `make_command` turns such a class into a click command with sections in ``--help``.
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
COMPARING = "Comparison"
CASES = "Cases"
VALUES = "Replacement"
CHECKING = "Checking"
RULES = "Rules"
FAILING = "Exit code and shown findings"
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
"""Kind of path that an option names, by its metavar in ``--help``."""
_PARAMETER, _GROUP = "parameter", "group"
_COLUMN = 30
"""Width that click allows the column of options."""


class Option(click.Option):
    """An option in a section of ``--help``."""

    def __init__(self, *declarations: Any, section: str, listed: tuple[str, ...] = (), **settings: Any) -> None:
        """``listed``: allowed words of a comma-separated value."""
        super().__init__(*declarations, **settings)
        self.section = section
        self.listed = listed

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert the value; a usage error for an empty file or folder name."""
        converted = super().type_cast_value(ctx, value)
        what = _NAMED.get(str(self.metavar).rpartition("]")[2].rpartition("|")[2])
        if what is not None and any(name == "" for name in (converted if self.multiple else (converted,))):
            raise click.BadParameter(f"the name of the {what} is empty", ctx, self)
        return converted

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completions of the value: words from `completing`, or click's completions of the type."""
        from mqttscope.cli.completing import words, words_of_list

        known = words_of_list(ctx, self.listed, incomplete) if self.listed else words(ctx, self.opts, incomplete)
        return super().shell_complete(ctx, incomplete) if known is None else [CompletionItem(word) for word in known]


class Command(click.Command):
    """A command with options listed by section in ``--help``."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every section that has options."""
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in SECTIONS}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if row is not None:
                sections[getattr(parameter, "section", OTHER)].append(row)
        # Columns line up across sections.
        width = min(_COLUMN, max(len(name) for rows in sections.values() for name, _ in rows))
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(width), text) for name, text in rows])


@dataclass_transform(kw_only_default=True, frozen_default=True)
def options(cls: type[T]) -> type[T]:
    """Turn a class into a frozen dataclass of options with keyword-only fields."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


def option(section: str, *names: str, value: Any = MISSING, **settings: Any) -> Any:
    """A field that is an option of the command line.

    ``settings`` go to `click.Option`.  ``value``: default of the field in code, if it differs from click's default.
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
    """A field that is an argument of the command line; ``settings`` go to `click.Argument`."""
    value: Any = () if settings.get("nargs") == -1 else MISSING
    declare = partial(_argument, metavar=metavar, **settings)
    return field(default=value, metadata={_PARAMETER: declare})


def _argument(name: str, **settings: Any) -> click.Argument:
    return click.Argument([name], **settings)


def group(cls: type[T], *, shown: Mapping[str, str] | None = None) -> T:
    """A field that contains the options of another class.

    ``shown``: help texts of the options that ``--help`` lists; the other options are hidden.
    """
    declared: Any = field(default_factory=cls, metadata={_GROUP: (cls, shown)})
    return declared  # type: ignore[no-any-return]


def parameters(cls: type[Any]) -> Iterator[click.Parameter]:
    """Parameters that a class of options and its groups declare."""
    for declared in fields(cls):
        if _GROUP not in declared.metadata:
            yield declared.metadata[_PARAMETER](declared.name)
            continue
        inner, shown = declared.metadata[_GROUP]
        for parameter in parameters(inner):
            if shown is not None and isinstance(parameter, click.Option):
                parameter.hidden = parameter.name not in shown
                parameter.help = shown.get(str(parameter.name), parameter.help)
            yield parameter


def collect(cls: type[T], values: Mapping[str, Any]) -> T:
    """Make a class of options from the values of a command line, by field name; the class may raise usage errors."""
    arguments = {}
    for declared in fields(cls):  # type: ignore[arg-type]
        inner = declared.metadata.get(_GROUP)
        arguments[declared.name] = values[declared.name] if inner is None else collect(inner[0], values)
    return cls(**arguments)


def on_command_line() -> Iterator[tuple[str, str]]:
    """Options present on the command line: field name and spelling."""
    context = click.get_current_context(silent=True)
    for parameter in () if context is None else context.command.params:
        name = parameter.name or ""
        if context is not None and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            is_option = isinstance(parameter, click.Option)
            yield name, parameter.opts[0] if is_option else parameter.make_metavar(context).strip("[].")


def make_command(cls: type[T], **settings: Any) -> Callable[[Callable[[T], int]], Command]:
    """Make a command from a function of its options; ``settings`` go to `click.Command`."""

    def decorate(run: Callable[[T], int]) -> Command:
        def callback(**values: Any) -> int:
            from mqttscope.cli.configuration import hide_configured

            hide_configured()
            return run(collect(cls, values))

        text = inspect.cleandoc(run.__doc__ or "")
        name = settings.pop("name", None)
        return Command(name, params=list(parameters(cls)), callback=callback, help=text, **settings)

    return decorate
