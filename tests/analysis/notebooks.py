"""The notebooks in docs: run as a reader runs them, and written again with ``python -m tests.analysis.notebooks``.

Their outputs are committed, so that they can be read without running; what they show has to be what comes out.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
COMPARED = ("text/plain", "image/svg+xml")
"""Forms of outputs that are compared; the others show the same."""


def execute(path: Path) -> Any:
    """Run all cells in a kernel of their own; the notebook with what came out.  Raises what nbclient raises."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "IPYTHONDIR": folder, "JUPYTER_CONFIG_DIR": folder, "TMPDIR": folder,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }  # fmt: skip
        client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(path.parent)}})
        client.execute(env=environment)
    return notebook


def outputs(notebook: Any) -> list[tuple[str, list[str]]]:
    """Of each cell of code what it is and what it shows."""
    return [(cell.source, list(map(_shown, cell.outputs))) for cell in notebook.cells if cell.cell_type == "code"]


def _shown(output: Any) -> str:
    if output.output_type == "stream":
        return f"{output.name}: {output.text}"
    return "\n".join(str(output.data[kind]) for kind in COMPARED if kind in output.data)


def main() -> None:
    """Run each notebook and write it with its outputs."""
    import nbformat

    for path in NOTEBOOKS:
        notebook = execute(path)
        for number, cell in enumerate(notebook.cells):
            # Nothing that differs from run to run.
            cell.id = f"cell-{number}"
            cell.metadata = {}
            if cell.cell_type == "code":
                cell.execution_count = None
                for output in cell.outputs:
                    if output.output_type == "execute_result":
                        output.execution_count = None
        notebook.metadata = {"language_info": {"name": "python"}}
        nbformat.write(notebook, path)
        sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
