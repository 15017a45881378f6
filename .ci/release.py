"""Builds what is published, and tries it: ``release.py DIRECTORY LISTS``.

A source archive and a wheel are built twice and have to be the same, byte for byte. Twine checks their metadata. The
wheel is installed into an empty environment of each Python that is on the path (python3.11 to python3.14), without any
extra, and reads captures of the project there; then the source archive is installed in the same way. Both go into
DIRECTORY, which holds nothing else, since everything in it is uploaded. Checksums and the list of dependencies
(CycloneDX) go into LISTS. Ends with an error if anything differs, fails, or has a licence that is not on the list, and
with MQTTSCOPE_REQUIRE_TOOLS=1 also if a Python is missing. Needs build, twine, cyclonedx-bom and pip-licenses, the
dependency group "release".
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
BIN = Path(sys.executable).parent
CAPTURE = PROJECT / "captures" / "planted-violations" / "capture.pcapng"
LICENCES = (
    "Apache Software License", "Apache-2.0", "BSD", "BSD License", "BSD-2-Clause", "BSD-3-Clause", "ISC License (ISCL)",
    "MIT", "MIT License", "MIT-0", "Mozilla Public License 2.0 (MPL 2.0)", "MPL-2.0", "PSF-2.0",
    "Python Software Foundation License",
)  # fmt: skip
"""What may be installed with a program under Apache-2.0 (copyleft for single files at most)."""


def run(*command: str | Path, **environment: str) -> str:
    """The output of a program; ends everything where it fails."""
    return measured(*command, **environment)[0]


def measured(*command: str | Path, **environment: str) -> tuple[str, float]:
    """The output of a program and the seconds of processor time that it took; ends everything where it fails."""
    words = [str(part) for part in command]
    with (
        tempfile.TemporaryFile("w+") as complaints,
        subprocess.Popen(
            words, cwd=PROJECT, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=complaints, text=True
        ) as running,
    ):
        output = running.stdout.read() if running.stdout else ""
        _, status, usage = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
        complaints.seek(0)
        if running.returncode:
            sys.exit(f"{' '.join(words)} ended with {running.returncode}\n{output}{complaints.read()}")
    return output, usage.ru_utime + usage.ru_stime


def say(line: str) -> None:
    """A line for whoever waits."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def pythons() -> dict[str, str]:
    """Programs by versions; what a version manager has on the path for a Python that it does not run is none."""
    found = {version: name for version in PYTHONS if (name := shutil.which(f"python{version}"))}
    asked = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    said = {
        version: subprocess.run([name, "-c", asked], capture_output=True, text=True, check=False).stdout.strip()
        for version, name in found.items()
    }
    return {version: found[version] for version in found if said[version] == version}


def built(directory: Path, moment: str) -> dict[str, str]:
    """Build into a directory; returns the files with their checksums."""
    # For every system, so without the kernel: an installation from the source archive has it.
    run(sys.executable, "-m", "build", "--outdir", directory, SOURCE_DATE_EPOCH=moment, MQTTSCOPE_KERNEL="0")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(directory.iterdir())}


def tried(python: str, package: Path, directory: Path) -> Path:
    """Install a package into an empty environment and use it; returns its Python."""
    run(python, "-m", "venv", directory)
    inside = directory / "bin" / "python"
    run(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package)
    program = directory / "bin" / "mqttscope"
    version = run(program, "--version").strip()
    lines = run(program, "inspect", CAPTURE, "--format", "jsonl").splitlines()
    if sum("type" in json.loads(line) for line in lines) < 10:
        sys.exit(f"{package.name} reads no packets with {python}")
    found = subprocess.run([program, "lint", CAPTURE, "--format", "json"], capture_output=True, text=True, check=False)
    if found.returncode != 1 or len(json.loads(found.stdout)["findings"]) < 10:
        sys.exit(f"{package.name} finds nothing with {python}\n{found.stderr}")
    if not (directory / "share" / "man" / "man1" / "mqttscope-lint.1").is_file():
        sys.exit(f"{package.name} has no manual pages")
    say(f"{package.name} works with {run(inside, '-VV').splitlines()[0]}: {version}")
    return inside


def main(target: Path, lists: Path) -> None:
    """Everything, into directories that are made from scratch."""
    available = pythons()
    missing = [version for version in PYTHONS if version not in available]
    if not available:
        sys.exit(f"none of Python {', '.join(PYTHONS)} is on the path")
    if missing and os.environ.get("MQTTSCOPE_REQUIRE_TOOLS") == "1":
        sys.exit(f"Python {', '.join(missing)} is not on the path, and MQTTSCOPE_REQUIRE_TOOLS asks for it")
    moment = run("git", "log", "-1", "--format=%ct").strip()
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
        folder = Path(scratch)
        first, second = built(folder / "first", moment), built(folder / "second", moment)
        if first != second:
            sys.exit(f"the second build differs: {sorted(set(first.items()) ^ set(second.items()))}")
        say(f"built twice, the same: {', '.join(first)}")
        packages = sorted((folder / "first").iterdir())
        run(BIN / "twine", "check", "--strict", *packages)
        archive, wheel = sorted(packages, key=lambda path: path.suffix)
        pythons_tried = list(
            pool.map(lambda python: tried(python, wheel, folder / Path(python).name), available.values())
        )
        tried(next(iter(available.values())), archive, folder / "from-source")
        for directory in (target, lists):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
        for path in packages:
            shutil.copy(path, target)
        bom = lists / "mqttscope.cdx.json"
        run(BIN / "cyclonedx-py", "environment", pythons_tried[0], "--output-reproducible", "--of", "JSON", "-o", bom)
        run(BIN / "pip-licenses", "--python", pythons_tried[0], "--allow-only", ";".join(LICENCES), "--partial-match")
    sums = [f"{digest}  {name}" for name, digest in sorted(first.items())]
    (lists / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    say(f"not tried: Python {', '.join(missing)}" if missing else "tried with every Python that is supported")


if __name__ == "__main__":
    main(*(Path(argument).resolve() for argument in sys.argv[1:3]))
