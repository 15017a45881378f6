"""The user's own rules: Python files that the configuration names, and packages that are installed.

A package has an entry point in the group ``mqttscope.rules``: a module, or a function that imports what holds the
rules.  Files and packages run as parts of this program, so that nothing is loaded where no configuration is wanted.
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
"""What the names of modules begin with that are made of files."""


def use_own_rules(files: Iterable[Path], *, packages: bool) -> list[type[Rule]]:
    """Let the rules of these files be selected, and of ``packages`` that are installed, and no others' any more."""
    found: list[tuple[type[Rule], str]] = []
    names: dict[str, Path] = {}
    for path in files:
        other = names.setdefault(_module_name(path), path)
        if other != path:
            raise click.UsageError(f"{path} and {other} have one name: rename one of these files of rules")
        found += ((rule, str(path)) for rule in load_file(path))
    if packages:
        found += load_packages()
    with ErrorTranslation(click.UsageError, RuleClashError):
        use_rules(found)
    return [rule for rule, _ in found]


def load_file(path: Path) -> list[type[Rule]]:
    """The rules of a file; a usage error for what is wrong with it."""
    name = _module_name(path)
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise click.UsageError(f"{path}: not a file of Python" if path.exists() else f"{path}: no such file of rules")
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a file of rules does not end the program
        raise click.UsageError(_told(str(path), error, spec.origin)) from None
    finally:
        sys.dont_write_bytecode = before
    return _checked(str(path), _rules_of(module))


def load_packages() -> Iterator[tuple[type[Rule], str]]:
    """The rules of packages that are installed, each with the name of its entry point."""
    for point in sorted(entry_points(), key=lambda one: (one.name, one.value)):
        where = f"entry point {point.name} = {point.value}"
        try:
            loaded = point.load()
            if inspect.isfunction(loaded):
                loaded()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: a file of rules does not end the program
            raise click.UsageError(_told(where, error)) from None
        package = point.module.partition(".")[0]
        for rule in _checked(where, [one for one in _defined(Rule) if one.__module__.partition(".")[0] == package]):
            yield rule, where


def entry_points() -> Iterable[EntryPoint]:
    """The entry points of packages that are installed."""
    if not _may_be_installed():
        return ()
    from importlib import metadata

    return metadata.entry_points(group=GROUP)


def _may_be_installed() -> bool:
    """Whether a package may bring rules: a quick look, since to import `importlib.metadata` takes ten times as long."""
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
    """A usage error where rules are not on the machines of a cluster."""
    own = [rule.code for rule in rules if not type(rule).is_ours()]
    if own:
        raise click.UsageError(
            f"Spark runs the rules of mqttscope alone, and its workers do not have {', '.join(own)}: let this process"
            " judge (--engine local), or --ignore them"
        )


def _module_name(path: Path) -> str:
    return MODULE + re.sub(r"\W", "_", path.stem)


def _rules_of(module: ModuleType) -> list[type[Rule]]:
    return [
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Rule) and one.__module__ == module.__name__ and _is_whole(one)
    ]


def _is_whole(rule: type[Rule]) -> bool:
    """Whether it is a rule, and not a base of rules."""
    return "code" in vars(rule)


def _defined(base: type[Rule]) -> Iterator[type[Rule]]:
    for one in base.__subclasses__():
        if _is_whole(one) and getattr(sys.modules.get(one.__module__), one.__name__, None) is one:
            yield one
        yield from _defined(one)


def _checked(where: str, rules: list[type[Rule]]) -> list[type[Rule]]:
    if not rules:
        raise click.UsageError(f"{where}: there is no rule in it: a class of mqttscope.lint.rule.Rule with a code")
    for rule in rules:
        faults = faults_of_form(rule)
        if faults:
            raise click.UsageError(f"{where}: {rule.code} ({rule.__name__}): {'; '.join(faults)}")
    return rules


def _told(where: str, error: BaseException, file: str | None = None) -> str:
    """What went wrong when a ``file`` was loaded, and in which line of it."""
    if isinstance(error, SyntaxError):
        place = "" if error.filename in (None, file) else f" of {error.filename}"
        line = f"line {error.lineno}{place}: " if error.lineno else place and f"{place.strip()}: "
        return f"{where}: {line}{error.msg}"
    frames: list[Any] = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == file]
    line = f"line {frames[-1].lineno}: " if frames else ""
    if isinstance(error, SystemExit):
        return f"{where}: {line}it ends the program while it is loaded (SystemExit: {error})"
    return f"{where}: {line}{type(error).__name__}: {error}"
