"""``mqttscope browse``: look through captures, an interface or a lake in an interactive screen."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from mqttscope.cli import options as shared
from mqttscope.cli.command import LAKE, LIVE, OUTPUT, RULES, group, make_command, option, options
from mqttscope.cli.errors import CommandFailedError, ErrorTranslation, printable_reason
from mqttscope.cli.main import EXIT_CLEAN, EXIT_UNREADABLE
from mqttscope.cli.pipeline.common import lake_place, pairs
from mqttscope.installation import extra_command

if TYPE_CHECKING:
    from mqttscope.cli.browsing import Looking
    from mqttscope.cli.linting_settings import Settings

OF_RULES = {"--no-lint": "no_lint", "--select": "select", "--ignore": "ignore", "--profile": "profile"}
"""Options that say how to lint, and their parameters."""


@options
class BrowseOptions:
    """The options of ``browse``."""

    captures: tuple[str, ...] = shared.captures_argument(required=False)
    interfaces: tuple[str, ...] = option(
        LIVE, "--interface", "-i", multiple=True, metavar="NAME",
        help="Capture from this interface instead of reading captures; may be repeated.",
    )  # fmt: skip
    bpf: str = option(
        LIVE, "--bpf", metavar="FILTER", default="",
        help="Capture only this (pcap-filter syntax), in addition to --port.",
    )  # fmt: skip
    target: str | None = option(
        LIVE, "--write", "-w", metavar="FILE", help="With -i: write all captured frames to this pcapng file."
    )
    lake: str | None = option(
        LAKE, "--lake", metavar="DIR", callback=lake_place,
        help="Show a lake instead of captures: its folder, or its place in a store.",
    )  # fmt: skip
    settings_of_store: dict[str, str] = option(
        LAKE, "--fs", multiple=True, callback=pairs, value={}, metavar="KEY=VALUE",
        help="Setting of the store of the lake, such as region=eu-central-1; may be repeated.",
    )  # fmt: skip
    protocol: shared.ProtocolOptions = group(shared.ProtocolOptions)
    files: shared.FileOptions = group(shared.FileOptions)
    selection: shared.SelectionOptions = group(shared.SelectionOptions)
    no_lint: bool = option(RULES, "--no-lint", is_flag=True, help="Look for no findings, which reads faster.")
    rules: shared.RuleOptions = group(shared.RuleOptions)
    profile: str | None = shared.profile_option(envvar="MQTTSCOPE_PROFILE")
    configuration: shared.ConfigurationOptions = group(shared.ConfigurationOptions)
    show_secrets: bool = option(OUTPUT, "--show-secrets", is_flag=True, help="Show passwords and tokens.")
    colour: bool | None = shared.colour_option()

    def __post_init__(self) -> None:
        if not self.captures and not self.interfaces and self.lake is None:
            raise click.UsageError("name captures, an interface with -i, or a lake with --lake")
        if self.captures and self.interfaces:
            raise click.UsageError("captures and -i exclude each other")
        if "-" in self.captures:
            raise click.UsageError("standard input is the keyboard here; write the capture to a file first")
        for name, value in (("--bpf", self.bpf), ("--write", self.target is not None)):
            if value and not self.interfaces:
                raise click.UsageError(f"{name} needs -i")
        if self.target is not None:
            from mqttscope.cli.output import CAPTURE, refuse_name

            refuse_name(self.target, "--write", CAPTURE)
        if len(self.selection.connection) > 1:
            raise click.UsageError("--connection names one connection here; --filter 'connection in {1, 2}' names more")
        if self.interfaces and (self.files.via is not None or self.files.keylog is not None):
            raise click.UsageError("-i takes neither --keylog nor --via")
        if self.files.deduplicate and not self.captures:
            raise click.UsageError("--deduplicate is for captures")
        if self.lake is not None:
            self._check_lake()
        elif self.settings_of_store:
            raise click.UsageError("--fs needs --lake")

    def _check_lake(self) -> None:
        if self.captures or self.interfaces:
            raise click.UsageError(f"{'captures' if self.captures else '-i'} and --lake exclude each other")
        if self.show_secrets:
            raise click.UsageError("a lake holds no secrets, so that --show-secrets has none to show")
        source = click.get_current_context().get_parameter_source
        for name, parameter in OF_RULES.items():
            if source(parameter) is click.core.ParameterSource.COMMANDLINE:
                raise click.UsageError(f"{name} and --lake exclude each other: a lake has the findings of its ingest")

    def settings(self) -> Settings:
        """How to lint."""
        from mqttscope.cli.linting_settings import resolve

        judging = shared.JudgingOptions(rules=self.rules, profile=self.profile, configuration=self.configuration)
        return resolve(judging, protocol=self.protocol, may_be_none=True)


@make_command(
    BrowseOptions,
    epilog="""\b
Examples:
  mqttscope browse site.pcapng
  mqttscope browse site.pcapng --filter 'topic matches "plant/#"'
  mqttscope browse -i eth0 --port 1883
  mqttscope browse --lake lake --connection 3

Press ? for the keys, q to quit. docs/browse.md shows the screens.
""",
)
def command(given: BrowseOptions) -> int:
    """Look through captures in an interactive screen.

    CAPTURE is a file, a glob or a directory. Connections, packets with findings, fields with their bytes, payloads and
    ladders are shown while a large capture is still being read.
    """
    from mqttscope.capture.files import MISSING, find_captures
    from mqttscope.cli.configuration import configured_payloads
    from mqttscope.cli.output import describe, make_view
    from mqttscope.net.frame import CaptureError

    shared.compile_filter(given.selection.expression)
    settings = None if given.no_lint or given.lake is not None else given.settings()
    found = list(find_captures([one for one in given.captures if one != "-"]))
    missing = [
        path if isinstance(path, CaptureError) else CaptureError(path, MISSING)
        for path in found
        if isinstance(path, CaptureError) or not os.path.exists(path)
    ]
    in_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    # Where others are there, the screen says which one is not.
    if missing and not (in_terminal and len(missing) < len(given.captures)):
        raise CommandFailedError("; ".join(map(describe, missing)))
    if not in_terminal:
        # The screens are written to standard error, and keys are read from standard input.
        raise CommandFailedError(
            "browse needs a terminal, for its output and its keys; inspect writes to files and pipes"
        )
    try:
        import textual  # noqa: F401 - to see whether it is there
    except ImportError:
        raise CommandFailedError(f"browse needs textual, which is not installed: {extra_command('browse')}") from None
    from mqttscope.cli.browsing import Looking, run_captures, run_live

    connection = given.selection.connection[0] if given.selection.connection else None
    view = make_view(colour=given.colour, show_secrets=given.show_secrets)
    view.payloads = configured_payloads()
    looking = Looking(given.protocol, view, settings, given.selection.expression or "", connection)
    if given.lake is not None:
        failed = _lake(given, looking)
    elif given.interfaces:
        failed = run_live(given.interfaces, given.bpf, given.target, looking)
    else:
        failed = run_captures(given.captures, given.files, looking)
    return EXIT_UNREADABLE if failed else EXIT_CLEAN


def _lake(given: BrowseOptions, looking: Looking) -> int:
    from mqttscope.lake.store import place

    for name in ("duckdb", "pyarrow"):
        if find_spec(name) is None:
            raise CommandFailedError(f"a lake needs {name}, which is not installed: {extra_command('lake')}")
    from mqttscope.cli.browsing import run_lake
    from mqttscope.lake.manifest import LakeError

    with ErrorTranslation(CommandFailedError, LakeError, text=printable_reason):
        return run_lake(place(given.lake or "", given.settings_of_store), given.files, looking)
