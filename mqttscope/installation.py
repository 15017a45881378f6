"""Shell commands that install missing packages for this copy of mqttscope.

An extra has to come from the origin of the copy: an index has no version that fits a checkout, or no version at all.
``direct_url.json`` (PEP 610) records the origin: a folder, possibly editable, a wheel, or a repository. Without that
file the copy came from an index. A copy without an installer is a source tree on the module path. If a local origin
no longer exists, the command names the packages of the extra instead.

The command uses the pip of the running interpreter, because ``pip`` on the path may belong to another one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mqttscope.system import quote

TYPE_CHECKING = False  # as in mqttscope/__init__.py
if TYPE_CHECKING:
    from importlib.metadata import Distribution
    from typing import Any

NAME = "mqttscope"
PACKAGE = Path(__file__).resolve().parent


def extra_command(extra: str) -> str:
    """Command that adds an extra (``lake``) to the running copy."""
    distribution = _distribution()
    if distribution is None:
        return _command(*_from_tree(PACKAGE.parent, extra))
    return _command(*_from_origin(distribution, extra), uv=distribution.read_text("INSTALLER") == "uv")


def package_command(*words: str) -> str:
    """Command that installs packages outside the extras; ``words``: packages and options of pip."""
    return _command(*words)


def _command(*words: str, uv: bool = False) -> str:
    from importlib.util import find_spec

    python = _python()
    pip = [python, "-m", "pip", "install"]
    if uv and find_spec("pip") is None:  # uv environments have no pip
        pip = ["uv", "pip", "install", "--python", python]
    return " ".join(map(quote, (*pip, *words)))


def _python() -> str:
    """Running interpreter: its name if it is on the path, else its full path."""
    from shutil import which

    if not sys.executable:
        return "python"
    path = _normal(sys.executable)
    return next((name for name in ("python", "python3") if _normal(which(name) or "") == path), sys.executable)


def _normal(path: str) -> str:
    # Do not follow links: the interpreter of a virtual environment is a link.
    return os.path.normcase(os.path.abspath(path)) if path else ""


def _distribution() -> Distribution | None:
    """Installed distribution of this module."""
    from importlib.metadata import distributions

    for distribution in distributions(name=NAME):
        origin = _origin(distribution)
        editable = _is_editable(origin)
        package = Path(_folder(origin), NAME) if editable else Path(str(distribution.locate_file(NAME)))
        if package.resolve() == PACKAGE:
            return distribution
    return None


def _origin(distribution: Distribution) -> dict[str, Any]:
    """Content of ``direct_url.json``; empty if the distribution came from an index."""
    import json

    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        return {}
    return origin if isinstance(origin, dict) else {}


def _is_editable(origin: dict[str, Any]) -> bool:
    return bool(origin.get("dir_info", {}).get("editable"))


def _folder(origin: dict[str, Any]) -> str:
    """Path of an origin on this machine."""
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    url = urlsplit(str(origin.get("url", "")))
    host = "" if url.netloc in ("", "localhost") else f"//{url.netloc}"
    return url2pathname(host + url.path)


def _from_origin(distribution: Distribution, extra: str) -> list[str]:
    """Words after ``install`` for an installed copy."""
    origin = _origin(distribution)
    url, repository = str(origin.get("url", "")), origin.get("vcs_info")
    folder = f"#subdirectory={origin['subdirectory']}" if "subdirectory" in origin else ""
    if repository:
        # pip records the path of a repository verbatim, but rejects requirements with blanks or without a host.
        url = url.replace(" ", "%20").replace("file:///", "file://localhost/")
        return [f"{NAME}[{extra}] @ {repository['vcs']}+{url}@{repository['commit_id']}{folder}"]
    if not url:
        return [f"{NAME}[{extra}]"]
    if not url.startswith("file:"):
        return [f"{NAME}[{extra}] @ {url}{folder}"]
    path = _folder(origin)
    if not os.path.exists(path):
        return _packages(distribution, extra)
    return [*(["-e"] if _is_editable(origin) else []), f"{path}[{extra}]"]


def _packages(distribution: Distribution, extra: str) -> list[str]:
    """Requirements of an extra; the project uses no other conditions in requirements."""
    wanted = f"extra == '{extra}'"
    parts = [line.replace('"', "'").partition(";") for line in distribution.requires or ()]
    return [requirement.strip() for requirement, _, condition in parts if condition.strip() == wanted]


def _from_tree(tree: Path, extra: str) -> list[str]:
    """Words after ``install`` for a source tree on the module path."""
    import tomllib

    try:
        project = tomllib.loads((tree / "pyproject.toml").read_text("utf-8")).get("project", {})
    except (OSError, ValueError):
        project = {}
    # A folder of another project may contain a copy of the package.
    return ["-e", f"{tree}[{extra}]"] if project.get("name") == NAME else [f"{NAME}[{extra}]"]
