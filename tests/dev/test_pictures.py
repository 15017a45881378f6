"""Pictures are of pages that the program writes; a browser draws them where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqttscope.dev import pictures
from mqttscope.dev.pictures import FOLDER, PICTURES, WIDTH, Picture, draw, write_page
from tests.conftest import ROOT
from tests.report.browser import program, read_png


def test_each_picture_is_of_a_committed_capture() -> None:
    assert {picture.name for picture in PICTURES} == {path.stem for path in FOLDER.iterdir()}
    for picture in PICTURES:
        (capture,) = [word for word in picture.words if word.startswith("captures/")]
        assert (ROOT / capture).is_file()


def test_what_is_shown_alone_is_in_the_page(tmp_path: Path) -> None:
    path = write_page(Picture("ladder", ["inspect", "captures/v5-qos/capture.pcapng"], 100, shows="#ladder"), tmp_path)
    page = path.read_text("utf-8")

    assert "document.querySelector('#ladder')" in page
    assert "Content-Security-Policy" not in page
    with pytest.raises(SystemExit, match="ended with exit code 3"):
        write_page(Picture("none", ["inspect", "captures/none.pcapng"], 100), tmp_path)


@pytest.mark.long
def test_a_browser_draws_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "FOLDER", tmp_path)
    draw(program(), Picture("stats", ["stats", "captures/v5-qos/capture.pcapng"], 300, dark=True), tmp_path)

    drawn = read_png((tmp_path / "stats.png").read_bytes())
    assert (drawn.width, drawn.height) == (WIDTH, 300)
    assert drawn.rows[0][:3] == bytes.fromhex("15191e")
