"""A lake of all captures of the project."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.events import ConnectionOpened
from mqttscope.lake.writer import write_lake
from tests.lake.reading import CAPTURES, options


def of_their_own() -> list[Path]:
    """Captures without those made from the same conversation: their connections have the keys of others."""
    found, known = [], set[tuple[str, str, int]]()
    for path in CAPTURES:
        opened = [event.connection for event in dissect(open_capture([path])) if isinstance(event, ConnectionOpened)]
        keys = {(one.client, one.server, one.opened_ns) for one in opened}
        if not keys & known:
            found.append(path)
            known |= keys
    return found


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet") / "lake"
    write_lake(of_their_own(), folder, options())
    return folder
