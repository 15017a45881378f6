"""The commands of the pipeline by their own names: the lake and the session that they ask."""

from __future__ import annotations

from tests import tools

tools.package("pyarrow")

from tests.analysis.conftest import lake as lake
from tests.spark.conftest import spark as spark
