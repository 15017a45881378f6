"""``mqttscope pipeline forget``: erase the rows of clients and users from a lake."""

from __future__ import annotations

import click

from mqttscope.cli.command import OTHER, SELECTION, group, make_command, option, options
from mqttscope.cli.main import EXIT_CLEAN, printable
from mqttscope.cli.output import warn
from mqttscope.cli.pipeline.common import StoredLakeOptions, key_option, run_erasure, show_erasure
from mqttscope.cli.spark_session import packages_needed
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted


@options
class ForgetOptions:
    """The options of ``pipeline forget``."""

    stored: StoredLakeOptions = group(StoredLakeOptions)
    clients: tuple[str, ...] = option(
        SELECTION, "--client", multiple=True, metavar="ID",
        help="Forget the client with this Client Identifier; may be repeated.",
    )  # fmt: skip
    users: tuple[str, ...] = option(
        SELECTION, "--user", multiple=True, metavar="NAME",
        help="Forget all connections with this user name; may be repeated.",
    )  # fmt: skip
    everywhere: bool = option(
        SELECTION, "--everywhere", is_flag=True,
        help="Also replace the names by asterisks in topics, payloads and all other texts of other clients.",
    )  # fmt: skip
    dry_run: bool = option(
        OTHER, "--dry-run", is_flag=True, help="Change nothing: count the rows, and list where else the names are.",
    )  # fmt: skip
    lift: bool = option(
        OTHER, "--lift", is_flag=True,
        help="Keep rows of these names in later ingests again; of all forgotten names without --client and --user.",
    )  # fmt: skip
    key_file: str | None = key_option()

    def __post_init__(self) -> None:
        if self.lift and (self.everywhere or self.dry_run):
            raise click.UsageError("--lift cannot be combined with --everywhere or --dry-run")
        if not self.lift and not (self.clients or self.users):
            raise click.UsageError("name what to forget: --client ID or --user NAME")
        if "" in (*self.clients, *self.users):
            raise click.UsageError("the name is empty")


@make_command(
    ForgetOptions,
    epilog="""\b
Examples:
  mqttscope pipeline forget --lake lake --client pump-17 --dry-run
  mqttscope pipeline forget --lake lake --client pump-17 --everywhere
  mqttscope pipeline forget --lake lake --user alice --key-file /etc/mqttscope/forget.key
  mqttscope pipeline forget --lake lake --client pump-17 --lift

Later ingests leave the rows of these names out: the lake keeps a keyed hash of each name, and the key is not in the
lake. The captures still have the names. Exit code 3 when the lake does not exist, is damaged, or cannot be written.
""",
)
def command(args: ForgetOptions) -> int:
    """Erase the connections of clients and users from a lake, with all of their rows.

    Tables, memories of rules, and earlier versions of the tables are changed in one commit. An interrupted run leaves
    the lake unchanged, or the next command completes it.
    """
    with packages_needed("tables need", "lake"):
        from mqttscope.lake.forget import forget, lift
    lake = args.stored.place
    if args.lift:
        count = run_erasure(lambda: lift(lake, args.clients, args.users, key_file=args.key_file))
        click.echo(f"{printable(args.stored.lake)}: {counted(count, 'tombstone')} removed")
        return EXIT_CLEAN
    result = run_erasure(
        lambda: forget(
            lake, args.clients, args.users, key_file=args.key_file, everywhere=args.everywhere, dry_run=args.dry_run
        )
    )
    for name in result.unknown:
        warn(f"{utf8(name)}: the lake has no connection with this name")
    show_erasure(args.stored.lake, result, "would be erased" if args.dry_run else "erased")
    if result.elsewhere:
        click.echo("values of other clients with these names; --everywhere replaces the names by asterisks:")
        for column, count in sorted(result.elsewhere.items()):
            click.echo(f"  {column:<32}{count:>10,}")
    return EXIT_CLEAN
