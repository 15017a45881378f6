"""What the tests of the browser share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browse.made import close


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close()
