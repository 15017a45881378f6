"""Indexes of captures of the project, complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mqttscope.browse.building import Builder, CaptureFiles, Item, PassFrames, TemporarySpool
from mqttscope.browse.index import Index
from mqttscope.capture import open_capture
from mqttscope.dissect import Dissector, FastPath, segments
from mqttscope.dissect.acknowledgments import Acknowledgments
from mqttscope.explain import Explainer
from mqttscope.explain.edge_nodes import NodeWatch
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from tests.conftest import ROOT

CAPTURES = sorted((ROOT / "captures").glob("*/capture.pcapng"))
SECONDS = 60


opened: list[tuple[TemporarySpool, CaptureFiles]] = []
"""Files of the test that runs."""


def close() -> None:
    """Close the files of a test."""
    while opened:
        spool, files = opened.pop()
        spool.close()
        files.close()


class Source:
    """Segments of captures."""

    def __init__(self, *paths: Path) -> None:
        self.paths = paths

    def segments(
        self, skipped: Counter[str], fast_path: FastPath | None, frames: PassFrames | None = None
    ) -> Iterator[Item]:
        read = open_capture(self.paths, direct=fast_path)
        return segments(read if frames is None else frames(read), skipped)

    def stop(self) -> None:
        pass


def capture(name: str) -> Path:
    return ROOT / "captures" / name / "capture.pcapng"


def builder(
    *paths: Path,
    lint: bool = False,
    kept_blocks: int | None = None,
    acknowledgments: Acknowledgments | None = None,
) -> Builder:
    """What would build an index."""
    spool, files = TemporarySpool(), CaptureFiles()
    opened.append((spool, files))
    index = Index(spool, files, kept_blocks=kept_blocks)
    nodes = NodeWatch() if lint else None
    linter = None if nodes is None else Linter([*map(usual_rule, select().values()), nodes.observer])
    return Builder(
        index, files, Source(*paths), Dissector(), linter=linter, acknowledgments=acknowledgments,
        explainer=Explainer() if lint else None, nodes=nodes,
    )  # fmt: skip


def built(*paths: Path, lint: bool = False, kept_blocks: int | None = None) -> Index:
    """An index of all that captures hold."""
    new_builder = builder(*paths, lint=lint, kept_blocks=kept_blocks)
    new_builder.start()
    assert new_builder.wait(SECONDS)
    assert new_builder.failure == ""
    return new_builder.index
