"""The package as a zip, and what is said about executors; on a real cluster: test_cluster.py, test_connect.py."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mqttscope.spark import distribute as module
from mqttscope.spark.distribute import NEEDED, archive, is_local, missing_modules, ship, write_archive
from tests.conftest import ROOT

FROM_ZIP = """if True:
    import sys, sysconfig
    from pathlib import Path
    before = set(sys.modules)
    sys.path.insert(0, sys.argv[1])
    import mqttscope.lake.kernel, mqttscope.spark.scan
    from mqttscope.lint.catalogue import all_rules
    from mqttscope.lint.profile import load, names
    from mqttscope.spark.distribute import write_archive
    print(mqttscope.__file__)
    print(*all_rules())
    print(*[load(name, Path()).name for name in names()])
    packages = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    files = [Path(sys.modules[name].__file__ or "") for name in set(sys.modules) - before
             if getattr(sys.modules[name], "__file__", None)]
    print(*sorted({one.relative_to(folder).parts[0] for one in files for folder in packages if folder in one.parents}))
    print(write_archive(Path(sys.argv[2])).name)
"""


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = (write_archive(tmp_path / name) for name in "ab")

    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    assert archive() == archive()
    assert archive().read_bytes() == first.read_bytes()
    with zipfile.ZipFile(first) as file:
        names = file.namelist()
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in ("mqttscope", "pyspark_mqttscope")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert set(names) == wanted
    assert names == sorted(names, key=lambda name: (name.startswith("pyspark"), name))


def test_everything_works_from_the_zip(tmp_path: Path) -> None:
    from mqttscope.lint.catalogue import all_rules
    from mqttscope.lint.profile import names

    done = subprocess.run(
        [sys.executable, "-c", FROM_ZIP, archive(), tmp_path],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.stderr == ""
    file, rules, profiles, packages, again = done.stdout.splitlines()
    assert file == f"{archive()}/mqttscope/__init__.py"
    assert rules.split() == list(all_rules())
    assert profiles.split() == names()
    # What executors need is what they are asked for; numpy comes with pyarrow, and msgspec uses typing_extensions.
    assert set(packages.split()) - {"numpy", "typing_extensions.py"} <= {name.partition(".")[0] for name in NEEDED}
    # A program that was sent somewhere itself can send itself on.
    assert again == archive().name


def test_what_is_missing_is_named_with_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_package.py").write_text("import another_package")
    (tmp_path / "failing_package.py").write_text("raise OSError('no such library')")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert missing_modules(" ".join(NEEDED), 0) == ""
    text = missing_modules("orjson no_package.part broken_package failing_package", 1)

    assert text.startswith(
        "no_package, broken_package (No module named 'another_package'), failing_package (no such library) on "
    )
    assert text.endswith(f", {sys.executable})")


@pytest.mark.parametrize(
    ("expected", "cause"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark",
            "they run Python 3.12, and this is Python 3.11: let PYSPARK_PYTHON name a Python of the same version",
        ),
        (
            'Caused by: java.io.IOException: Cannot run program "/nowhere/python": error=2, No such file',
            "they have no program /nowhere/python: let PYSPARK_PYTHON name",
        ),
        (
            "An error\n: org.apache.spark.SparkException: Job aborted\n\tat a.b\njava.io.EOFException: ends early",
            "ends early",
        ),
        ("something else\nand more", "something else"),
        ("", "Spark gives no reason"),
    ],
)
def test_what_keeps_executors_from_working_is_said_in_a_line(expected: str, cause: str) -> None:
    assert module._cause(expected).startswith(cause)


def test_a_local_master_needs_nothing(spark: SparkSession) -> None:
    assert is_local(spark)
    assert ship(spark) is False
