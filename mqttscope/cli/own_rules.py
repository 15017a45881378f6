"""The user's own rules: Python files in the configuration, and installed packages.

A package has an entry point in the group ``mqttscope.rules``: a module, or a function that imports the rules.  Files
and packages run as parts of this program, so nothing is loaded with ``--no-config``.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from mqttscope.cli.errors import ErrorTranslation
from mqttscope.lint.catalogue import RuleClashError, use_rules
from mqttscope.lint.rule import Rule
from mqttscope.lint.rule_check import faults_of_form

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "mqttscope.rules"
MODULE = "mqttscope_own_rules_"
"""Prefix of module names for files of rules."""


def use_own_rules(files: Iterable[Path], *, packages: bool) -> list[type[Rule]]:
    """Replace the set of own rules by the rules of files and, with ``packages``, of installed packages."""
    own: list[tuple[type[Rule], str]] = []
    names: dict[str, Path] = {}
    for path in files:
        other = names.setdefault(_module_name(path), path)
        if other != path:
            raise click.UsageError(f"{path} and {other} have the same name: rename one of these rule files")
        own += ((rule, str(path)) for rule in load_file(path))
    if packages:
        own += load_packages()
    with ErrorTranslation(click.UsageError, RuleClashError):
        use_rules(own)
    return [rule for rule, _ in own]


def load_file(path: Path) -> list[type[Rule]]:
    """Load the rules of a file; a usage error for an invalid file."""
    name = _module_name(path)
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise click.UsageError(f"{path}: not a Python file" if path.exists() else f"{path}: no such rule file")
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # including SystemExit: a rule file must not end the program
        raise click.UsageError(_error_text(str(path), error, spec.origin)) from None
    finally:
        sys.dont_write_bytecode = before
    return _checked(str(path), _rules_of(module))


def load_packages() -> Iterator[tuple[type[Rule], str]]:
    """Rules of installed packages, each with the name of its entry point."""
    for point in sorted(entry_points(), key=lambda entry: (entry.name, entry.value)):
        where = f"entry point {point.name} = {point.value}"
        try:
            loaded = point.load()
            if inspect.isfunction(loaded):
                loaded()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # including SystemExit: a rule file must not end the program
            raise click.UsageError(_error_text(where, error)) from None
        package = point.module.partition(".")[0]
        for rule in _checked(where, [rule for rule in _defined(Rule) if rule.__module__.partition(".")[0] == package]):
            yield rule, where


def entry_points() -> Iterable[EntryPoint]:
    """Entry points of installed packages."""
    if not _may_be_installed():
        return ()
    from importlib import metadata

    return metadata.entry_points(group=GROUP)


def _may_be_installed() -> bool:
    """Whether a package may have rules: a check ten times faster than importing `importlib.metadata`."""
    if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if finder is not PathFinder):
        return True
    for folder in dict.fromkeys(sys.path):
        try:
            names = os.listdir(folder or ".")
        except FileNotFoundError:
            continue
        except OSError:
            return True  # an archive
        for name in names:
            if name.lower().endswith(".egg"):
                return True
            if name.lower().endswith((".dist-info", ".egg-info")):
                with suppress(FileNotFoundError, NotADirectoryError):
                    if GROUP.encode() in Path(folder, name, "entry_points.txt").read_bytes():
                        return True
    return False


def refuse_on_spark(rules: Iterable[Rule]) -> None:
    """Raise a usage error for own rules, which the machines of a cluster do not have."""
    own = [rule.code for rule in rules if not type(rule).is_ours()]
    if own:
        raise click.UsageError(
            f"Spark only runs rules of mqttscope, and its workers do not have {', '.join(own)}: use --engine local, or"
            " --ignore them"
        )


def _module_name(path: Path) -> str:
    return MODULE + re.sub(r"\W", "_", path.stem)


def _rules_of(module: ModuleType) -> list[type[Rule]]:
    return [
        member
        for member in vars(module).values()
        if isinstance(member, type)
        and issubclass(member, Rule)
        and member.__module__ == module.__name__
        and _is_whole(member)
    ]


def _is_whole(rule: type[Rule]) -> bool:
    """Whether a class is a rule, not a base class of rules."""
    return "code" in vars(rule)


def _defined(base: type[Rule]) -> Iterator[type[Rule]]:
    for rule in base.__subclasses__():
        if _is_whole(rule) and getattr(sys.modules.get(rule.__module__), rule.__name__, None) is rule:
            yield rule
        yield from _defined(rule)


def _checked(where: str, rules: list[type[Rule]]) -> list[type[Rule]]:
    if not rules:
        raise click.UsageError(f"{where} contains no rule: a subclass of mqttscope.lint.rule.Rule with a code")
    for rule in rules:
        faults = faults_of_form(rule)
        if faults:
            raise click.UsageError(f"{where}: {rule.code} ({rule.__name__}): {'; '.join(faults)}")
    return rules


def _error_text(where: str, error: BaseException, file: str | None = None) -> str:
    """Error while loading a ``file``, with its line."""
    if isinstance(error, SyntaxError):
        place = "" if error.filename in (None, file) else f" of {error.filename}"
        line = f"line {error.lineno}{place}: " if error.lineno else place and f"{place.strip()}: "
        return f"{where}: {line}{error.msg}"
    frames: list[Any] = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    line = f"line {frames[-1].lineno}: " if frames else ""
    if isinstance(error, SystemExit):
        return f"{where}: {line}loading it ends the program (SystemExit: {error})"
    return f"{where}: {line}{type(error).__name__}: {error}"
