"""Writes the page that runs mqttscope in a browser, a static folder: `make browser-page`.

It holds the files of docs/browser, Pyodide from npm, and one archive with mqttscope and the packages that it needs,
compiled by Pyodide itself.  Nothing is loaded from elsewhere when the page runs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib.metadata import files
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYODIDE = "314.0.7"
"""Version of the package pyodide on npm."""
LOADED = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
PACKAGES = ("click", "rich", "dpkt")
LEFT_OUT = frozenset(("analysis", "broker_test", "browse", "lake", "mutate", "proxy", "replay", "spark"))
"""Packages of mqttscope that need brokers or packages that Pyodide lacks."""
COMPILE = """
import { loadPyodide } from "./package/pyodide.mjs";
const python = await loadPyodide();
python.FS.mkdir("/program");
python.FS.mount(python.FS.filesystems.NODEFS, { root: process.argv[2] }, "/program");
python.runPython(`
import compileall, py_compile
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
assert compileall.compile_dir("/program", quiet=1, legacy=True, optimize=1, invalidation_mode=mode)
`);
"""


def main(target: Path) -> None:
    """Write the page to a folder, which is replaced."""
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is not installed, which has Pyodide: apt install npm")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        done = subprocess.run(
            [npm, "pack", "--silent", "--json", f"pyodide@{PYODIDE}"], cwd=work, capture_output=True, check=False
        )
        if done.returncode:
            sys.exit(f"npm could not get pyodide {PYODIDE}: {done.stderr.decode().strip()}")
        with tarfile.open(work / json.loads(done.stdout)[0]["filename"]) as archive:
            archive.extractall(work, filter="data")
        program = work / "program"
        copy_program(program)
        (work / "compile.mjs").write_text(COMPILE)
        subprocess.run(["node", "compile.mjs", str(program)], cwd=work, check=True)
        shutil.rmtree(target, ignore_errors=True)
        (target / "pyodide").mkdir(parents=True)
        for name in LOADED:
            shutil.copy(work / "package" / name, target / "pyodide")
        for path in (ROOT / "docs" / "browser").iterdir():
            if path.suffix != ".py":
                shutil.copy(path, target)
        with zipfile.ZipFile(target / "mqttscope.zip", "w", zipfile.ZIP_DEFLATED) as packed:
            for path in sorted(program.rglob("*")):
                if path.is_file() and path.suffix != ".py":
                    packed.write(path, path.relative_to(program))


def copy_program(program: Path) -> None:
    """Copy mqttscope, and the Python of the packages that it needs."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyi", "*.[ch]", "*.so", "*.pyd")

    def left_out(folder: str, names: list[str]) -> set[str]:
        others = LEFT_OUT if Path(folder) == ROOT / "mqttscope" else frozenset()
        return {*ignored(folder, names), *others.intersection(names)}

    shutil.copytree(ROOT / "mqttscope", program / "mqttscope", ignore=left_out)
    shutil.copy(ROOT / "docs" / "browser" / "in_browser.py", program)
    # What the installed package says of itself, its version among it.
    for path in files("mqttscope") or ():
        if path.parts[0].endswith(".dist-info") and path.name == "METADATA":
            (program / path.parts[0]).mkdir()
            shutil.copy(path.locate(), program / path)
    for package in PACKAGES:
        for path in files(package) or ():
            if path.suffix == ".py" and not path.is_absolute() and ".." not in path.parts:
                (program / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path.locate(), program / path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
