"""Write the files that repeat what the code says: shell completions, the command reference, the pages of the rules.

``python -m mqttscope.dev.generate`` writes them and removes the pages of rules that are gone; ``--check`` fails when
one of them is not fresh.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import BashComplete as _BashComplete
from click.shell_completion import FishComplete, ZshComplete

from mqttscope.cli.main import LazyGroup, group
from mqttscope.dev.rule_pages import FOLDER, pages

ROOT = Path(__file__).resolve().parent.parent.parent
_WIDTH = 100


class BashComplete(_BashComplete):
    """click's completion for bash, without asking the bash of this machine for its version."""

    @staticmethod
    def _check_version() -> None:
        return


def completions() -> dict[Path, str]:
    """Completion scripts by path."""
    shells = {"mqttscope.bash": BashComplete, "_mqttscope": ZshComplete, "mqttscope.fish": FishComplete}
    return {
        ROOT / "completions" / name: shell(group, {}, "mqttscope", "_MQTTSCOPE_COMPLETE").source().strip() + "\n"
        for name, shell in shells.items()
    }


def help_text(*names: str) -> str:
    """``--help`` of a command by the names that lead to it, or of the program."""
    context = click.Context(group, info_name="mqttscope", terminal_width=_WIDTH, **group.context_settings)
    for count, name in enumerate(names, 1):
        context = click.Context(find_command(*names[:count]), info_name=name, parent=context, terminal_width=_WIDTH)
    return context.command.get_help(context)


def find_command(*names: str) -> click.Command:
    """The command that names lead to, or the program."""
    command: click.Command = group
    for name in names:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    return command


def command_names(inside: LazyGroup = group, *before: str) -> Iterator[tuple[str, ...]]:
    """The names that lead to each command, those of groups before those in them."""
    for name in inside.table:
        yield (*before, name)
        found = find_command(*before, name)
        if isinstance(found, LazyGroup):
            yield from command_names(found, *before, name)


def reference() -> str:
    """The command reference, docs/cli.md."""
    parts = [
        "# Commands",
        "",
        "Generated from the commands with `make generate`.",
        "",
        "```text",
        help_text(),
        "```",
        "",
    ]
    for names in command_names():
        parts += [f"## {' '.join(names)}", "", "```text", help_text(*names), "```", ""]
    return "\n".join(line.rstrip() for line in "\n".join(parts).splitlines()) + "\n"


def generated() -> dict[Path, str]:
    """All generated files by path."""
    rules = {ROOT / path: text for path, text in pages().items()}
    return {**completions(), ROOT / "docs" / "cli.md": reference(), **rules}


def orphans(files: dict[Path, str]) -> list[Path]:
    """Pages of rules that are gone."""
    return sorted(path for path in (ROOT / FOLDER).glob("*") if path not in files)


def main(arguments: list[str]) -> int:
    """Write or check; returns 1 when something is not fresh."""
    files = generated()
    stale = [path for path, text in files.items() if not path.is_file() or path.read_text("utf-8") != text]
    gone = orphans(files)
    if arguments == ["--check"]:
        for path in stale:
            sys.stderr.write(f"{path.relative_to(ROOT)} is not fresh: run make generate\n")
        for path in gone:
            sys.stderr.write(f"{path.relative_to(ROOT)} is of no rule: run make generate\n")
        return 1 if stale or gone else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], "utf-8")
        sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
    for path in gone:
        path.unlink()
        sys.stdout.write(f"removed {path.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
