"""The jobs of docs/ci.md from their first command to their last, with a real wheel, broker and recording.

What a machine of continuous integration has and this one need not have is replaced: the commands that install Debian's
packages, and tcpdump, in whose place dumpcap records. The port is another one, since tests run beside each other.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from tests.building import build_wheel, link_dependencies, make_environment, write_program
from tests.conftest import ROOT
from tests.live import need_capture
from tests.proxy.rig import free_port
from tests.tools import program

pytestmark = [pytest.mark.slow, pytest.mark.broker]

PAGE = (ROOT / "docs" / "ci.md").read_text("utf-8")
FAILING = ROOT / "captures" / "failing-device" / "capture.pcapng"
DEVICE = """
import socket, sys
# CONNECT of MQTT 5.0, then a PUBLISH to "a/+", which no topic name may be.
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as device:
    device.sendall(bytes.fromhex("1012 0004 4d515454 05 02 003c 00 0005 7075 6d70 37".replace(" ", "")))
    assert device.recv(100)[0] == 0x20
    device.sendall(bytes.fromhex("3007 0003 612f2b 00 31".replace(" ", "")))
    # The broker closes.
    while device.recv(100):
        pass
"""


def block(kind: str, heading: str) -> str:
    """The first code block below a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2]
    (code,) = re.findall(rf"^```{kind}\n(.*?)^```$", section, re.M | re.S)[:1]
    return str(code)


@pytest.fixture(scope="module")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dependencies")
    link_dependencies(folder)
    return folder


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    assert build_wheel(ROOT, folder) is not None
    return folder


class Job:
    """A folder with what the repository of a user has, and the programs of the machine."""

    def __init__(self, folder: Path, wheels: Path, dependencies: Path) -> None:
        self.port = free_port()
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        (self.workspace / "wheels").symlink_to(wheels)
        self.programs = folder / "programs"
        self.programs.mkdir()
        self.summary = folder / "summary.md"
        self.dependencies = dependencies
        self.python = make_environment(folder / "environment", dependencies)
        self._write_programs(folder)

    def _write_programs(self, folder: Path) -> None:
        recording, broker = folder / "recording", folder / "broker"
        for name in ("apt-get", "systemctl"):
            write_program(self.programs / name, f'echo "{name} $*" >> "{folder}/installed"')
        write_program(self.programs / "sudo", 'exec "$@"')
        write_program(
            self.programs / "tcpdump",
            f'[ "$*" = "-i lo -U -w device.pcap port {self.port}" ] || exit 2\n'
            f'echo $$ > "{recording}.pid"\n'
            f'exec "{program("dumpcap")}" -q -P -i lo -f "port {self.port}" -w device.pcap 2> "{recording}.log"',
        )
        # The pause after the start of a recording is long enough once it records.
        write_program(
            self.programs / "sleep",
            f'while ! grep -qs File: "{recording}.log"; do /bin/sleep 0.05; done\nexec /bin/sleep "$1"',
        )
        write_program(
            self.programs / "pkill",
            f'[ "$*" = tcpdump ] || exit 2\npid=$(cat "{recording}.pid")\nkill "$pid"\n'
            'while kill -0 "$pid" 2>/dev/null; do /bin/sleep 0.05; done',
        )
        # In the foreground of a process that the test ends, in place of a daemon.
        write_program(
            self.programs / "mosquitto",
            f'[ "$*" = "-d -p {self.port}" ] || exit 2\n'
            f'"{program("mosquitto")}" -p {self.port} > "{broker}.log" 2>&1 < /dev/null &\necho $! > "{broker}.pid"\n'
            f"until (: < /dev/tcp/127.0.0.1/{self.port}) 2>/dev/null; do /bin/sleep 0.05; done",
            "/bin/bash",
        )
        device = folder / "device.py"
        device.write_text(DEVICE, "utf-8")
        write_program(self.workspace / "run-device-tests.sh", f'exec "{sys.executable}" "{device}" {self.port}')
        write_program(self.workspace / "record-the-device.sh", f'exec cp "{FAILING}" "$1"')
        self._processes = [Path(f"{recording}.pid"), Path(f"{broker}.pid")]

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script as a step does, with bash that ends at the first command that fails."""
        path = f"{self.programs}:{self.python.parent}:{os.environ['PATH']}"
        environment = {
            "PATH": path, "LANG": "C.UTF-8", "HOME": str(self.workspace), "GITHUB_STEP_SUMMARY": str(self.summary),
            "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONPATH": str(self.dependencies),
        }  # fmt: skip
        log = self.workspace.parent / "output"
        # Into a file: the broker keeps the output open.
        with log.open("w+") as output:
            done = subprocess.run(
                ["bash", "-eo", "pipefail", "-c", script.replace("1883", str(self.port))],
                cwd=self.workspace, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                timeout=180, check=False,
            )  # fmt: skip
        return subprocess.CompletedProcess(done.args, done.returncode, log.read_text("utf-8"))

    def close(self) -> None:
        for path in self._processes:
            if path.exists():
                subprocess.run(["kill", path.read_text().strip()], stderr=subprocess.DEVNULL, check=False)


@pytest.fixture
def job(tmp_path: Path, wheels: Path, dependencies: Path) -> Iterator[Job]:
    need_capture()
    new_job = Job(tmp_path, wheels, dependencies)
    yield new_job
    new_job.close()


def test_the_job_of_github(job: Job) -> None:
    steps = yaml.safe_load(block("yaml", "GitHub Actions"))["jobs"]["conformance"]["steps"]
    scripts = [(step["name"], step["run"], step.get("if")) for step in steps if "run" in step]
    codes: dict[str, int] = {}
    for name, script, condition in scripts:
        if condition == "always()" or not any(codes.values()):
            done = job.run(script)
            codes[name] = done.returncode
            assert done.returncode == (name == "Lint"), done.stdout

    assert list(codes) == ["Install", "Record the device under test", "Lint", "Add the findings to the summary"]
    assert "PUB103" in job.summary.read_text("utf-8")
    (uploaded,) = (step["with"]["sarif_file"] for step in steps if "upload-sarif" in step.get("uses", ""))
    results = json.loads((job.workspace / uploaded).read_text("utf-8"))["runs"][0]["results"]
    assert "PUB103" in {result["ruleId"] for result in results}


@pytest.mark.long
def test_the_job_of_gitlab(job: Job) -> None:
    definition = yaml.safe_load(block("yaml", "GitLab"))["mqtt-conformance"]
    done = job.run("\n".join(definition["script"]))

    assert done.returncode == 1, done.stdout
    assert "PUB103" in done.stdout
    reports = definition["artifacts"]["reports"]
    rows = json.loads((job.workspace / reports["codequality"]).read_text("utf-8"))
    assert "PUB103" in {row["check_name"].partition(" ")[0] for row in rows}
    assert ElementTree.fromstring((job.workspace / reports["junit"]).read_bytes()).tag == "testsuites"


@pytest.mark.long
def test_the_job_of_jenkins(job: Job) -> None:
    pipeline = block("groovy", "Jenkins")
    scripts = re.findall(r"sh '''\n(.*?)'''|sh '([^'\n]+)'", pipeline, re.S)
    codes = [job.run(long or short).returncode for long, short in scripts]

    assert codes == [0, 0, 1]
    assert ElementTree.fromstring((job.workspace / "lint.xml").read_bytes()).tag == "testsuites"
    (pattern,) = re.findall(r"sarif\(pattern: '([^']+)'\)", pipeline)
    assert json.loads((job.workspace / pattern).read_text("utf-8"))["runs"][0]["results"]
    assert re.findall(r"junit '([^']+)'", pipeline) == ["lint.xml"]
