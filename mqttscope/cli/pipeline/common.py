"""Shared by the commands of ``pipeline``: options of lakes and of Spark, times, errors of captures."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mqttscope.cli import options as shared
from mqttscope.cli.command import LAKE, READING, SPARK, group, option, options
from mqttscope.cli.errors import ErrorTranslation, printable_reason
from mqttscope.cli.main import printable
from mqttscope.cli.output import warn, warn_all
from mqttscope.cli.spark_session import PipelineFailedError
from mqttscope.mqtt.wire import counted

if TYPE_CHECKING:
    from mqttscope.lake.erasure import ErasureResult
    from mqttscope.lake.options import LakeOptions
    from mqttscope.lake.store import Place


_T = TypeVar("_T")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
TOLD = 10
"""Maximum number of capture errors that are reported one by one."""


def pairs(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    """Parse ``KEY=VALUE`` of an option that may be repeated."""
    settings = {}
    for pair in value:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            # The value may be a secret, so the message does not repeat it.
            raise click.BadParameter("the value is not of the form KEY=VALUE", context, parameter)
        settings[name.strip()] = text
    return settings


def spark_pairs(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    """Parse settings of Spark, and refuse unknown prefixes, which Spark ignores silently."""
    settings = pairs(context, parameter, value)
    for name in settings:
        if not name.startswith("spark."):
            raise click.BadParameter("Spark settings have names such as spark.driver.memory", context, parameter)
    return settings


def byte_count(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Parse a number of bytes: ``67108864`` or ``64m``."""
    if value is None:
        return None
    word = value.strip().lower().removesuffix("b")
    number, unit = (word[:-1], word[-1]) if word and word[-1] in "kmg" else (word, "")
    if not number.isascii() or not number.isdigit() or not int(number):
        raise click.BadParameter(f"{value!r} is not a number of bytes, such as 67108864 or 64m", context, parameter)
    return int(number) * _UNITS[unit]


def lake_folder(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Check the folder of a lake; a usage error for a name that Parquet or Spark cannot handle."""
    if _is_uri(value):
        raise click.BadParameter(f"{value} is a URI, and this command needs a lake in a folder", context)
    return _folder(context, value)


def lake_place(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Check the folder of a lake, or its URL in an object store."""
    if value is None:
        return None
    if not _is_uri(value):
        return _folder(context, value)
    from mqttscope.lake.store import is_store

    if not is_store(value):
        raise click.BadParameter(
            f"{value} cannot contain a lake, which is a folder, s3://BUCKET/PATH, gs://BUCKET/PATH or "
            "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
            context,
        )
    return value


def _is_uri(value: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", value) is not None


def _folder(context: click.Context, value: str) -> str:
    if not value.strip():
        raise click.BadParameter("the name of the folder is empty", context)
    try:
        os.path.abspath(value).encode()
    except UnicodeEncodeError:
        shown = value.encode("utf-8", "backslashreplace").decode()
        raise click.BadParameter(
            f"{shown} is not UTF-8, or the locale is not (LC_ALL, PYTHONUTF8): Parquet and Spark need such a path",
            context,
        ) from None
    return value


class _PathParameter(click.types.StringParamType):
    """A path with any characters; blanks do not separate paths in an environment variable."""

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        return [rv]


def lakes_option() -> Any:
    """``--lake`` of commands that query lakes, in folders or object stores."""

    def places(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(values)) < len(values):
            raise click.BadParameter("a lake is given twice", context)
        return tuple(place for value in values if (place := lake_place(context, parameter, value)) is not None)

    return option(
        LAKE, "--lake", required=True, multiple=True, type=_PathParameter(), metavar="DIR", envvar="MQTTSCOPE_LAKE",
        callback=places,
        help="Folder of the tables, or their URL in an object store, such as s3://bucket/lake; may be repeated.",
    )  # fmt: skip


def lake_option(*, stores: bool = False) -> Any:
    """``--lake`` of every command of the pipeline; ``stores``: it may be in an object store."""
    where = ", or their URL in an object store, such as s3://bucket/lake" if stores else ""
    return option(
        LAKE, "--lake", required=True, metavar="DIR", envvar="MQTTSCOPE_LAKE",
        callback=lake_place if stores else lake_folder, help=f"Folder of the tables{where}.",
    )  # fmt: skip


def single_writer_option() -> Any:
    """``--single-writer`` of every command that writes a lake in an object store."""
    return option(
        LAKE, "--single-writer", is_flag=True,
        help="Assert that no other process writes this lake; needed if the object store lacks conditional writes.",
    )  # fmt: skip


def store_option() -> Any:
    """``--fs`` of every command that reads captures into a lake."""
    return option(
        READING, "--fs", multiple=True, callback=pairs, value={}, metavar="KEY=VALUE",
        help="Setting of the object store of captures and lake, such as region=eu-central-1; may be repeated.",
    )  # fmt: skip


def lake_store_option() -> Any:
    """``--lake-fs`` of every command that reads captures into a lake."""
    return option(
        LAKE, "--lake-fs", multiple=True, callback=pairs, value={}, metavar="KEY=VALUE",
        help="Setting of the object store of the lake, instead of --fs, if the captures are in another store; may be "
        "repeated.",
    )  # fmt: skip


def key_option() -> Any:
    """``--key-file`` of every command that erases rows of forgotten names."""
    return option(
        LAKE, "--key-file", metavar="FILE", envvar="MQTTSCOPE_KEY_FILE",
        help="Key of the hashes of forgotten names. [default: mqttscope/forget.key in the folder of your settings]",
    )  # fmt: skip


@options
class StoredLakeOptions:
    """A lake in a folder or an object store, to be changed."""

    lake: str = lake_option(stores=True)
    single_writer: bool = single_writer_option()
    settings: dict[str, str] = option(
        LAKE, "--fs", multiple=True, callback=pairs, value={}, metavar="KEY=VALUE",
        help="Setting of the object store of the lake, such as region=eu-central-1; may be repeated.",
    )  # fmt: skip

    @property
    def place(self) -> Place:
        from mqttscope.lake.store import place

        return place(self.lake, self.settings, single_writer=self.single_writer)


@options
class RowOptions:
    """Contents of the rows of a lake."""

    protocol: shared.ProtocolOptions = group(shared.ProtocolOptions)
    site: str = option(
        LAKE, "--group", default="", metavar="NAME",
        help="Name of the site of the captures; a lake contains one group.",
    )  # fmt: skip
    payload_limit: int = option(
        LAKE, "--payload-limit", type=click.IntRange(0), default=0, metavar="BYTES",
        help="Keep this many bytes of each payload; 0 keeps only its length and digest. [default: 0]",
    )  # fmt: skip
    key_file: str | None = key_option()
    rules: shared.RuleOptions = group(shared.RuleOptions)
    profile: str | None = shared.profile_option()
    complete: tuple[str, ...] = shared.complete_option()
    timing: str | None = shared.timing_option()
    configuration: shared.ConfigurationOptions = group(shared.ConfigurationOptions)

    def lake(self, extra: str = "lake") -> LakeOptions:
        """Merge these options with the configuration; `PipelineFailedError` if packages of ``extra`` are missing."""
        from mqttscope.cli.linting_settings import resolve
        from mqttscope.cli.spark_session import packages_needed

        judging = shared.JudgingOptions(
            rules=self.rules, profile=self.profile, complete=self.complete, timing=self.timing,
            configuration=self.configuration,
        )  # fmt: skip
        settings = resolve(judging, protocol=self.protocol, may_be_none=True)
        with packages_needed("tables need", extra):
            from mqttscope.lake.options import LakeOptions, allow_rule_state

            allow_rule_state(settings.rules)
        return LakeOptions(
            dissect=settings.options, group=self.site, payload_limit=self.payload_limit, rules=tuple(settings.rules),
            complete=settings.complete, secret_length=settings.secret_length, key_file=self.key_file,
        )  # fmt: skip


@options
class SparkOptions:
    """Spark master and settings."""

    master: str | None = option(
        SPARK, "--master", metavar="URL", envvar="MQTTSCOPE_MASTER",
        help="Where Spark runs: local[*], spark://HOST:PORT, or sc://HOST of Spark Connect. [default: local[*]]",
    )  # fmt: skip
    configuration: dict[str, str] = option(
        SPARK, "--conf", multiple=True, callback=spark_pairs, value={}, metavar="KEY=VALUE",
        help="Setting of Spark, such as spark.driver.memory=4g; may be repeated.",
    )  # fmt: skip


def warn_errors(lines: Sequence[str]) -> None:
    """Report errors of captures, at most `TOLD` of them."""
    warn_all(lines[:TOLD])
    if len(lines) > TOLD:
        warn(f"{len(lines) - TOLD:,} more errors are in the table ingest_errors")


def run_erasure(work: Callable[[], _T]) -> _T:
    """Run a change of a lake; `PipelineFailedError` if it is not possible."""
    from mqttscope.lake.manifest import LakeError

    with ErrorTranslation(PipelineFailedError, LakeError, text=printable_reason):
        return work()


def show_erasure(lake: str, result: ErasureResult, done: str) -> None:
    """Print the number of erased rows."""
    click.echo(f"{printable(lake)}: {counted(sum(result.rows.values()), 'row')} {done}")
    for table, count in result.rows.items():
        click.echo(f"  {table:<16}{count:>14,}")


UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SECOND_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_time(text: str, last_ns: int | None) -> int:
    """Nanoseconds since 1970 of ``2026-01-31``, ``2026-01-31T12:00:00Z`` or ``24h``; `ValueError` with a reason.

    Times without a time zone are UTC.  A duration counts back from ``last_ns``, the end of the captures, and not from
    the present.
    """
    length = re.fullmatch(r"(\d{1,9})([smhdw])", text.strip())
    if length is not None:
        if last_ns is None:
            raise ValueError("the lake contains no captures: a duration has no end to count back from")
        return max(0, last_ns - int(length[1]) * UNITS[length[2]] * _SECOND_NS)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is not a time: 2026-01-31, 2026-01-31T12:00:00Z, or 24h before the end") from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * _SECOND_NS + since.microseconds * 1_000
