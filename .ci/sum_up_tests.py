"""Sum up test runs that went on beside each other: sum_up_tests.py FOLDER NAME...

Reads FOLDER/NAME.xml, the report of pytest for each run (`--junit-xml`).  The last line says how many tests passed,
failed and were skipped; the lines before it say which failed, and why tests were skipped.  A run without a whole report
died, and counts as one failed test.  Exit code 1 means that something failed.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

MODULE_SKIPPED = "collection skipped"
"""What a report says of a module that skips itself; the reason is in the text, in the form of a Python tuple."""


def reason(skipped: ElementTree.Element) -> str:
    """Why a test was skipped."""
    message = skipped.get("message", "")
    if message == MODULE_SKIPPED:
        in_text = re.search(r"""Skipped: (.*)["']\)$""", skipped.text or "", re.DOTALL)
        return in_text[1] if in_text else message
    return message


def sum_up(folder: Path, names: list[str]) -> tuple[list[str], int]:
    """Return the lines of the summary, and the exit code."""
    passed, failed, reasons = 0, list[str](), Counter[str]()
    for name in names:
        try:
            cases = list(ElementTree.parse(folder / f"{name}.xml").getroot().iter("testcase"))
        except (OSError, ElementTree.ParseError):
            failed.append(f"{name}: ended without a report")
            continue
        for case in cases:
            skipped = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                # A module that cannot be imported has no class.
                where = ".".join(filter(None, (case.get("classname"), case.get("name"))))
                failed.append(f"{name}: {where}")
            elif skipped is not None:
                reasons[reason(skipped)] += 1
            else:
                passed += 1
    lines = [f"failed in {line}" for line in failed]
    if reasons:
        lines.append(f"skipped {reasons.total()}:")
        lines += [f"{count:6} {why}" for why, count in sorted(reasons.items(), key=lambda row: (-row[1], row[0]))]
    lines.append(f"{passed} passed, {len(failed)} failed, {reasons.total()} skipped")
    return lines, int(bool(failed))


if __name__ == "__main__":
    lines, code = sum_up(Path(sys.argv[1]), sys.argv[2:])
    sys.stdout.write("\n".join(lines) + "\n")
    sys.exit(code)
