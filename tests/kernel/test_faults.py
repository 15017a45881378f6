"""A fault in the native code shows: each of some planted faults makes a comparison with Python fail."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from itertools import chain
from pathlib import Path
from random import Random
from types import ModuleType

import pytest

import hatch_build
from mqttscope import kernel
from mqttscope.dissect import kernel_path
from mqttscope.report import kernel_lines
from mqttscope.stats import kernel_counts
from tests import building
from tests.conftest import ROOT
from tests.each import some
from tests.kernel import mutation, payloads
from tests.kernel.comparison import difference

pytestmark = pytest.mark.skipif(
    kernel.native() is None or hatch_build.compiler() is None, reason="the kernel is not built"
)
FAULTS = {
    "a copy of a segment counts as sent again": ("tcp.c", "#define TAP_NS 1000000LL", "#define TAP_NS 0LL"),
    "a repeated byte is not compared": ("tcp.c", "if (!is_known(half, start, bytes, repeated))", "if (0)"),
    "bytes with a wrong checksum are read": ("tcp.c", "if (segment->wrong)", "if (0)"),
    "malformed text is text": ("packet.c", "return !memchr(text, 0", "return 1 || !memchr(text, 0"),
    "a quotation mark is not escaped": ("lines.c", "if (byte == '\"' || byte == '\\\\'", "if (byte == '\\\\'"),
    "a credential is shown": ("suspicion.c", "{'p', \"pass\"},", ""),
    "an escape is not resolved": ("suspicion.c", "is_suspect || (size != length &&", "is_suspect || (0 &&"),
    "an answer counts without its request": ("tally.c", "if (exchange->qos == ANSWERS[kind].qos &&", "if ("),
    "a packet has the number of the one before": ("stream.c", "kernel->packets++;", "(void)0;"),
}  # fmt: skip


@pytest.mark.parametrize("name", some([*FAULTS], 9))
def test_a_planted_fault_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, before, after = FAULTS[name]
    building.copy_path("mqttscope/kernel", tmp_path / "mqttscope" / "kernel")
    path = tmp_path / "mqttscope" / "kernel" / file
    source = path.read_text("utf-8")
    assert source.count(before) == 1
    path.write_text(source.replace(before, after), "utf-8")
    built = hatch_build.build(tmp_path, tmp_path)
    assert built is not None
    module = load(built)
    for user in (kernel_lines, kernel_path, kernel_counts):
        monkeypatch.setattr(user, "native", lambda: module)

    captures = [file.read_bytes() for file in sorted((ROOT / "captures").glob("*/capture.pcap*"))]
    texts = [*mutation.with_texts(mutation.TEXTS[:1]), payloads.capture(payloads.drawn(Random(7), 400))]
    assert any(shows(data) for data in chain(captures, texts, mutation.mutated(200, 3), mutation.mutated(1500, 1)))


def shows(data: bytes) -> bool:
    try:
        return difference(data) is not None or difference(data, counted=True) is not None
    except (kernel_path.KernelDoubtError, UnicodeDecodeError):
        return True


def load(path: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader("_native", str(path))
    specification = importlib.util.spec_from_file_location("_native", path, loader=loader)
    assert specification is not None
    module = importlib.util.module_from_spec(specification)
    loader.exec_module(module)
    return module
