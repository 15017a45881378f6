"""The page that says on which recorded traffic the rules about sessions, servers and reactions were seen to fire.

It is made of the table ``fires`` in the ``about.toml`` of captures (captures/README.md), so that it cannot say more than
the tests hold true.
"""

from __future__ import annotations

import tomllib
from pathlib import Path, PurePosixPath

from mqttscope.lint.rule import Rule
from mqttscope.report.explain import markdown

EVIDENCE = PurePosixPath("docs/evidence.md")
BEYOND = "345"
"""The digits of codes (docs/adding-a-rule.md) of rules about sessions, servers and reactions."""
_TEXT = """\
# Evidence

Rules about sessions, servers and reactions put many packets together, often of several connections. Their
examples are constructed; this page says on which recorded traffic each was seen to fire, whom it blamed
there, and what provoked it. A test lints each of these captures and holds it equal to its row: the rule fires, blames that
side, with its own severity, and no rule that is not named in the capture's `about.toml` reports an error.

Real clients and a real mosquitto were recorded on loopback. mosquitto breaks few of these rules by itself; for the others
a proxy stands between it and the clients, and drops, delays, doubles, swaps or changes what passes
([how captures are made](../captures/README.md)). To the clients, and in the capture, the server is then what misbehaves.
Where a row says `constructed`, nothing could be made to misbehave like that, and the examples of the rule are all there is.

Generated from the captures with `make generate`.
"""


def is_concerned(code: str) -> bool:
    """Whether it takes so much to see what a rule finds that its examples prove little about real traffic."""
    return code[3] in BEYOND


def seen(captures: Path) -> dict[str, list[tuple[str, str, str]]]:
    """By rule: the capture, whom the rule blames in it, and what provokes it."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for path in sorted(captures.glob("*/about.toml")):
        for code, row in tomllib.loads(path.read_text("utf-8")).get("fires", {}).items():
            found.setdefault(code, []).append((path.parent.name, row["blames"], row["how"]))
    return found


def evidence(rules: dict[str, type[Rule]], captures: Path) -> str:
    """The page."""
    recorded = seen(captures)
    concerned = [rule for rule in rules.values() if is_concerned(rule.code)]
    count = sum(rule.code in recorded for rule in concerned)
    out = [_TEXT, f"{len(concerned)} rules, {count} of them seen on recorded traffic.", ""]
    out += ["| rule | name | severity | blames | seen in |", "|---|---|---|---|---|"]
    for rule in concerned:
        rows = recorded.get(rule.code, [])
        blamed = " or ".join(dict.fromkeys(side for _, side, _ in rows))
        where = "; ".join(f"[{name}](../captures/{name}/about.toml): {markdown(how)}" for name, _, how in rows)
        out.append(
            f"| [{rule.code}](rules/{rule.code}.md) | {rule.slug} | {rule.severity} | {blamed or '–'} "
            f"| {where or 'constructed'} |"
        )
    return "\n".join(out) + "\n"
