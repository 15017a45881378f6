"""The tables of one lake, at one generation, and which of their rows are meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mqttscope.spark.answers.selection import Selection
from mqttscope.spark.tables import read

if TYPE_CHECKING:
    import os

    from pyspark.sql import Column, DataFrame, SparkSession

    from mqttscope.lake.manifest import Manifest


def units_since_1970(unit_ns: int) -> Column:
    """How many whole units lie between 1970 and ``timestamp_ns``, which has more digits than a double."""
    from pyspark.sql import functions as f

    return f.expr(f"timestamp_ns div {unit_ns}L - if(timestamp_ns % {unit_ns}L < 0, 1L, 0L)")


@dataclass(slots=True)
class Frames:
    """Data frames of one lake."""

    spark: SparkSession
    lake: str | os.PathLike[str]
    manifest: Manifest
    selection: Selection

    def packets(self) -> DataFrame:
        """All packets."""
        return self._table("packets")

    def messages(self) -> DataFrame:
        """All messages."""
        return self._table("messages")

    def connections(self) -> DataFrame:
        """All connections."""
        return self._table("connections")

    def findings(self) -> DataFrame:
        """All findings."""
        return self._table("findings")

    def gaps(self) -> DataFrame:
        """All gaps and unparsed bytes."""
        return self._table("gaps")

    def ingest_errors(self) -> DataFrame:
        """All that is wrong with captures."""
        return self._table("ingest_errors")

    def _table(self, name: str) -> DataFrame:
        return read(self.spark, self.lake, self.manifest, name)
