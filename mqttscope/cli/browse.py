"""``mqttscope browse``: look through captures, an interface or a lake in an interactive screen."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from mqttscope.cli import options as shared
from mqttscope.cli.command import LAKE, LIVE, OUTPUT, RULES, group, make_command, option, options
from mqttscope.cli.errors import CommandFailedError, ErrorTranslation, printable_reason
from mqttscope.cli.main import EXIT_CLEAN, EXIT_UNREADABLE
from mqttscope.cli.metrics import MetricsOptions
from mqttscope.cli.pipeline.common import lake_place, pairs
from mqttscope.installation import extra_command

if TYPE_CHECKING:
    from mqttscope.cli.browsing import ViewingOptions
    from mqttscope.cli.linting_settings import LintSettings

OF_RULES = {"--no-lint": "no_lint", "--select": "select", "--ignore": "ignore", "--profile": "profile"}
"""Options for linting, and their parameters."""


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
        help="Capture only frames that match (pcap-filter syntax), in addition to --port.",
    )  # fmt: skip
    target: str | None = option(
        LIVE, "--write", "-w", metavar="FILE", help="With -i: write all captured frames to this pcapng file."
    )
    lake: str | None = option(
        LAKE, "--lake", metavar="DIR", callback=lake_place,
        help="Show a lake instead of captures: its folder, or its URL in an object store.",
    )  # fmt: skip
    settings_of_store: dict[str, str] = option(
        LAKE, "--fs", multiple=True, callback=pairs, value={}, metavar="KEY=VALUE",
        help="Setting of the object store, such as region=eu-central-1; may be repeated.",
    )  # fmt: skip
    metrics: MetricsOptions = group(MetricsOptions)
    protocol: shared.ProtocolOptions = group(shared.ProtocolOptions)
    files: shared.FileOptions = group(shared.FileOptions)
    selection: shared.SelectionOptions = group(shared.SelectionOptions)
    no_lint: bool = option(RULES, "--no-lint", is_flag=True, help="Skip linting; reads faster.")
    rules: shared.RuleOptions = group(shared.RuleOptions)
    profile: str | None = shared.profile_option(envvar="MQTTSCOPE_PROFILE")
    configuration: shared.ConfigurationOptions = group(shared.ConfigurationOptions)
    show_secrets: bool = option(OUTPUT, "--show-secrets", is_flag=True, help="Show passwords and tokens.")
    colour: bool | None = shared.colour_option()

    def __post_init__(self) -> None:
        if not self.captures and not self.interfaces and self.lake is None:
            raise click.UsageError("give captures, an interface with -i, or a lake with --lake")
        if self.captures and self.interfaces:
            raise click.UsageError("captures and -i exclude each other")
        if "-" in self.captures:
            raise click.UsageError("standard input is used for the keyboard; write the capture to a file first")
        needing = (
            ("--bpf", self.bpf),
            ("--write", self.target is not None),
            ("--serve", self.metrics.serve is not None),
        )
        for name, value in needing:
            if value and not self.interfaces:
                raise click.UsageError(f"{name} needs -i")
        if self.target is not None:
            from mqttscope.cli.output import CAPTURE, refuse_name

            refuse_name(self.target, "--write", CAPTURE)
        if len(self.selection.connection) > 1:
            raise click.UsageError("--connection takes one connection; for more use --filter 'connection in {1, 2}'")
        if self.interfaces and (self.files.via is not None or self.files.keylog is not None):
            raise click.UsageError("-i cannot be combined with --keylog or --via")
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
            raise click.UsageError("--show-secrets has no effect: a lake contains no secrets")
        source = click.get_current_context().get_parameter_source
        for name, parameter in OF_RULES.items():
            if source(parameter) is click.core.ParameterSource.COMMANDLINE:
                raise click.UsageError(f"{name} and --lake exclude each other: a lake has the findings of its ingest")

    def settings(self) -> LintSettings:
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
def command(args: BrowseOptions) -> int:
    """Look through captures in an interactive screen.

    CAPTURE is a file, a glob or a directory. Connections, packets with findings, fields with their bytes, payloads and
    ladders are shown while a large capture is still being read.
    """
    from mqttscope.capture.files import MISSING, find_captures
    from mqttscope.cli.configuration import configured_payloads
    from mqttscope.cli.output import describe, in_terminal, make_view, require_screens
    from mqttscope.net.frame import CaptureError

    shared.compile_filter(args.selection.expression)
    settings = None if args.no_lint or args.lake is not None else args.settings()
    paths = list(find_captures([capture for capture in args.captures if capture != "-"]))
    missing = [
        path if isinstance(path, CaptureError) else CaptureError(path, MISSING)
        for path in paths
        if isinstance(path, CaptureError) or not os.path.exists(path)
    ]
    # If other captures exist, the screen reports the missing ones.
    if missing and not (in_terminal() and len(missing) < len(args.captures)):
        raise CommandFailedError("; ".join(map(describe, missing)))
    require_screens("browse")
    from mqttscope.cli.browsing import FrameFiles, ViewingOptions, run_captures, run_live

    connection = args.selection.connection[0] if args.selection.connection else None
    view = make_view(colour=args.colour, time_format="relative", show_secrets=args.show_secrets)
    view.payloads = configured_payloads()
    looking = ViewingOptions(args.protocol, view, settings, args.selection.expression or "", connection)
    if args.lake is not None:
        failed = _lake(args, looking)
    elif args.interfaces:
        failed = run_live(args.interfaces, args.bpf, FrameFiles(args.target), looking, args.metrics)
    else:
        failed = run_captures(args.captures, args.files, looking)
    return EXIT_UNREADABLE if failed else EXIT_CLEAN


def _lake(args: BrowseOptions, looking: ViewingOptions) -> int:
    from mqttscope.lake.store import place

    for name in ("duckdb", "pyarrow"):
        if find_spec(name) is None:
            raise CommandFailedError(f"a lake needs {name}, which is not installed: {extra_command('lake')}")
    from mqttscope.cli.browsing import run_lake
    from mqttscope.lake.manifest import LakeError

    with ErrorTranslation(CommandFailedError, LakeError, text=printable_reason):
        return run_lake(place(args.lake or "", args.settings_of_store), args.files, looking)
