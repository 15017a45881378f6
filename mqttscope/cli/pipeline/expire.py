"""``mqttscope pipeline expire``: erase old rows from a lake."""

from __future__ import annotations

import time

import click

from mqttscope.cli.command import SELECTION, group, make_command, option, options
from mqttscope.cli.main import EXIT_CLEAN
from mqttscope.cli.pipeline.common import StoredLakeOptions, read_time, run_erasure, show_erasure
from mqttscope.cli.spark_session import packages_needed


@options
class ExpireOptions:
    """The options of ``pipeline expire``."""

    stored: StoredLakeOptions = group(StoredLakeOptions)
    before: str | None = option(
        SELECTION, "--before", metavar="DATE", help="Erase rows from before this time: 2026-01-31, or with T12:00:00Z.",
    )  # fmt: skip
    keep: str | None = option(
        SELECTION, "--keep", metavar="LENGTH", help="Keep the rows of this time up to now, such as 90d, 12h or 4w.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if (self.before is None) == (self.keep is None):
            raise click.UsageError("name a time with either --before DATE or --keep LENGTH")

    def limit_ns(self) -> int:
        """Time of the first row to keep."""
        name, text = ("--before", self.before) if self.before is not None else ("--keep", self.keep)
        assert text is not None
        if text[-1:].isalpha() != (name == "--keep") and not text.endswith("Z"):
            raise click.UsageError(f"{name}: {text!r} is not a {'length such as 90d' if self.keep else 'date'}")
        try:
            return read_time(text, time.time_ns())
        except ValueError as error:
            raise click.UsageError(f"{name}: {error}") from None


@make_command(
    ExpireOptions,
    epilog="""\b
Examples:
  mqttscope pipeline expire --lake lake --keep 90d
  mqttscope pipeline expire --lake lake --before 2026-01-31

Connections that ended before that time are erased, open ones stay. Later ingests add no rows from before that time.
Exit code 3 when the lake does not exist, is damaged, or cannot be written.
""",
)
def command(args: ExpireOptions) -> int:
    """Erase old rows from a lake.

    All tables and their earlier versions are changed in one commit. An interrupted run leaves the lake unchanged, or
    the next command completes it.
    """
    limit_ns = args.limit_ns()
    with packages_needed("tables need", "lake"):
        from mqttscope.lake.forget import expire
    show_erasure(args.stored.lake, run_erasure(lambda: expire(args.stored.place, limit_ns)), "erased")
    return EXIT_CLEAN
