"""A lake of all captures of the project."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

from mqttscope.lake.writer import write_lake
from tests.lake.reading import CAPTURES, options


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet") / "lake"
    write_lake(CAPTURES, folder, options())
    return folder
