"""What the commands of ``pipeline`` share: options of lakes and of Spark, errors of captures."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mqttscope.cli import options as shared
from mqttscope.cli.command import LAKE, SPARK, group, option, options
from mqttscope.cli.output import warn, warn_all

if TYPE_CHECKING:
    from mqttscope.lake.options import LakeOptions


_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
TOLD = 10
"""Errors of captures that are reported one by one."""


def pairs(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    """``KEY=VALUE``, the option given once or more."""
    found = {}
    for one in value:
        name, equals, text = one.partition("=")
        if not equals or not name.strip():
            # What it is instead may be a secret.
            raise click.BadParameter("it is not of the form KEY=VALUE", context, parameter)
        found[name.strip()] = text
    return found


def spark_pairs(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    """The same for settings of Spark, which takes other names without a word."""
    found = pairs(context, parameter, value)
    for name in found:
        if not name.startswith("spark."):
            raise click.BadParameter("a setting of Spark is called such as spark.driver.memory", context, parameter)
    return found


def size(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Bytes: ``67108864`` or ``64m``."""
    if value is None:
        return None
    word = value.strip().lower().removesuffix("b")
    number, unit = (word[:-1], word[-1]) if word and word[-1] in "kmg" else (word, "")
    if not number.isascii() or not number.isdigit() or not int(number):
        raise click.BadParameter(f"{value!r} is not a number of bytes, such as 67108864 or 64m", context, parameter)
    return int(number) * _UNITS[unit]


def lake_folder(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """The folder of a lake; usage where Parquet or Spark could not take its name, before anything is made."""
    if _is_uri(value):
        raise click.BadParameter(f"{value} is a URI, and this command works with a lake in a folder", context)
    return _folder(context, value)


def lake_place(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The folder of a lake, or its place in a store."""
    if value is None:
        return None
    if not _is_uri(value):
        return _folder(context, value)
    from mqttscope.lake.store import is_store

    if not is_store(value):
        raise click.BadParameter(
            f"{value} is no place for a lake, which is a folder, s3://BUCKET/PATH, gs://BUCKET/PATH or "
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


def lake_option(*, stores: bool = False) -> Any:
    """``--lake`` of every command of the pipeline; ``stores``: it may be in a store."""
    where = ", or their place in a store, such as s3://bucket/lake" if stores else ""
    return option(
        LAKE, "--lake", required=True, metavar="DIR", envvar="MQTTSCOPE_LAKE",
        callback=lake_place if stores else lake_folder, help=f"Folder of the tables{where}.",
    )  # fmt: skip


@options
class RowOptions:
    """What the rows of a lake hold."""

    protocol: shared.ProtocolOptions = group(shared.ProtocolOptions)
    site: str = option(
        LAKE, "--group", default="", metavar="NAME",
        help="Name of the site that the captures come from; a lake holds one group.",
    )  # fmt: skip
    payload_limit: int = option(
        LAKE, "--payload-limit", type=click.IntRange(0), default=0, metavar="BYTES",
        help="Keep this many bytes of each payload; 0 keeps only its length and SHA-256. [default: 0]",
    )  # fmt: skip
    rules: shared.RuleOptions = group(shared.RuleOptions)
    profile: str | None = shared.profile_option()
    complete: tuple[str, ...] = shared.complete_option()
    timing: str | None = shared.timing_option()
    configuration: shared.ConfigurationOptions = group(shared.ConfigurationOptions)

    def lake(self, extra: str = "lake") -> LakeOptions:
        """The same with the configuration; `PipelineFailedError` if packages of ``extra`` are missing."""
        from mqttscope.cli.linting_settings import resolve
        from mqttscope.cli.spark_session import packages_needed

        judging = shared.JudgingOptions(
            rules=self.rules, profile=self.profile, complete=self.complete, timing=self.timing,
            configuration=self.configuration,
        )  # fmt: skip
        found = resolve(judging, protocol=self.protocol, may_be_none=True)
        with packages_needed("tables need", extra):
            from mqttscope.lake.options import LakeOptions, let_be_remembered

            let_be_remembered(found.rules)
        return LakeOptions(
            dissect=found.options,
            group=self.site,
            payload_limit=self.payload_limit,
            rules=tuple(found.rules),
            complete=found.complete,
            secret_length=found.secret_length,
        )


@options
class SparkOptions:
    """Which Spark is used, and how."""

    master: str | None = option(
        SPARK, "--master", metavar="URL", envvar="MQTTSCOPE_MASTER",
        help="Where Spark runs: local[*], spark://HOST:PORT, or sc://HOST of Spark Connect. [default: local[*]]",
    )  # fmt: skip
    configuration: dict[str, str] = option(
        SPARK, "--conf", multiple=True, callback=spark_pairs, value={}, metavar="KEY=VALUE",
        help="Setting of Spark, such as spark.driver.memory=4g; may be repeated.",
    )  # fmt: skip


def warn_errors(lines: Sequence[str]) -> None:
    """Report errors of captures, `TOLD` of them at most."""
    warn_all(lines[:TOLD])
    if len(lines) > TOLD:
        warn(f"{len(lines) - TOLD:,} more errors are in the table ingest_errors")
