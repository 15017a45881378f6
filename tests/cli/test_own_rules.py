"""Rules of one's own: files that the configuration names, packages, and what is wrong with them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from mqttscope.cli import own_rules
from mqttscope.lint.catalogue import all_rules, use_rules
from tests import tools
from tests.cli.made import Publish, client, opened, write_capture
from tests.cli.running import invoke
from tests.conftest import ROOT
from tests.dev.schemas import fits, unnoticed

TEMPLATE = next(
    text
    for text in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "adding-a-rule.md").read_text("utf-8"), re.DOTALL)
    if "ACME201" in text
)
WRONG_TEMPLATES = [
    ("ACME201", "ACME901", "'ACME901' is not a rule code"),
    ("ACME201", "acme", "'acme' is not a rule code"),
    ("    bad = examples", "    worse = examples", "ACME201 (TooManyAlarms): it has no bad examples"),
    ("Instead, publish", "Publish", 'a last paragraph that begins with "Instead, "'),
    ("    severity = Severity.WARNING\n", "", "it has no severity"),
    ("    def check(", "    def chek(", "it has no check"),
    ("ACME201", "PUB297", "PUB297 has the letters of mqttscope's own area"),
    ("ACME201", "PUB103", "PUB103 has the letters of mqttscope's own area: PUB103 wildcard-in"),
    ("class TooManyAlarms", "class WildcardInTopicName", "which PUB103 of mqttscope has too"),
]
"""What is replaced in the template, and what is said of it then."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    use_rules(())
    for name in [module for module in sys.modules if module.startswith(own_rules.MODULE)]:
        del sys.modules[name]


def file(text: str = TEMPLATE, name: str = "ours.py") -> str:
    """Write a file of rules."""
    Path(name).write_text(text, "utf-8")
    return name


def configured(text: str = TEMPLATE, more: str = "") -> None:
    """Write a file of rules and the configuration that names it."""
    configure(file(text), more=more)


def refused(*words: str) -> str:
    """The words of a usage error."""
    done = invoke(*words)
    assert done.code == 2
    assert "Traceback" not in done.err
    return " ".join(done.err.split())


def configure(*files: str, more: str = "") -> None:
    Path("mqttscope.toml").write_text(f"[lint]\nrules = {json.dumps(files)}\n{more}")


def install(folder: Path, value: str) -> None:
    """Write what pip writes of a package with an entry point."""
    about = folder / "acme-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: acme\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        f"[console_scripts]\nacme = acme:run\n\n[{own_rules.GROUP}]\nacme = {value}\n"
    )


def alarms(count: int = 5) -> str:
    talk = [client(Publish(topic_name="acme/alarm", payload=b"hot"))] * count
    return str(write_capture(Path("a.pcapng"), *opened(), *talk))


def found(*words: str) -> list[str]:
    done = invoke("lint", alarms(), "--format", "jsonl", *words)
    return [line["rule"] for line in done.lines if line["rule"].startswith("ACME")]


def test_rules_of_a_file_are_selected_configured_suppressed_and_explained() -> None:
    configured()
    assert found() == ["ACME201"] * 2
    assert found("--select", "too-many-alarms") == found("--select", "ACME") == ["ACME201"] * 2
    assert found("--ignore", "ACME") == found("--select", "PUB") == found("--no-config") == []
    assert "ACME201 too-many-alarms (warning, certain) most=3" in invoke("lint", "--show-settings").text
    explained = invoke("rules", "ACME201")
    assert explained.code == 0
    assert "^ ACME201 warning: alarm 4 of this connection, at most 3" in explained.text
    assert "── own rules" in invoke("rules", "ACME").text
    assert invoke("rules", "ACME201", "--no-config").code == 2

    configure("ours.py", more="[rules.ACME201]\nmost = 4\n")
    assert found() == ["ACME201"]
    configure("ours.py", more='[[lint.suppress]]\nrules = ["ACME"]\nreason = "known"\n')
    assert found() == []


@pytest.mark.parametrize("form", ["full", "concise", "json", "sarif", "junit", "github", "gitlab", "markdown"])
def test_every_format_takes_them(form: str) -> None:
    configured()
    done = invoke("lint", alarms(), "--format", form, "--fail-on", "warning")

    assert (done.code, done.err) == (1, "")
    assert "ACME201" in done.text


def test_paths_are_relative_to_the_configuration() -> None:
    Path("inner/rules").mkdir(parents=True)
    file(name="inner/rules/ours.py")
    Path("inner/mqttscope.toml").write_text('[lint]\nrules = ["rules/ours.py"]\n')

    assert found("--config", "inner/mqttscope.toml") == ["ACME201"] * 2


def test_what_a_rule_remembers_is_in_the_state_of_a_lake() -> None:
    configured()
    tools.package("pyarrow")
    for number in range(2):
        assert invoke("pipeline", "ingest", alarms(3 + 2 * number), "--lake", "lake", "--engine", "local").code == 0
    from mqttscope.lake.writer import read_table

    rows = [row for row in read_table(Path("lake"), "findings").to_pylist() if row["rule"] == "ACME201"]
    assert [row["message"][:7] for row in rows] == ["alarm 4", "alarm 5"]


def test_spark_refuses_them() -> None:
    tools.package("pyarrow")
    tools.package("pyspark")
    configured()
    spark = ("--engine", "spark")
    for words in (("lint", alarms(), *spark), ("pipeline", "ingest", "a.pcapng", "--lake", "lake", *spark)):
        assert "workers do not have ACME201" in refused(*words)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def", "ours.py: line 1: invalid syntax"),
        ("x = 1\nimport nothing_of_that_name", "ours.py: line 2: ModuleNotFoundError: No module named"),
        ("x = 1\n1 / 0", "ours.py: line 2: ZeroDivisionError: division by zero"),
        ("x = 1", "ours.py contains no rule"),
        (
            TEMPLATE.replace("    looks_at = Publish\n", "").replace(": Publish", ""),
            "it does not declare which packets it looks at",
        ),
        ("import sys\nsys.exit(7)", "ours.py: line 2: loading it ends the program (SystemExit: 7)"),
        ("x = 1\0", "source code string cannot contain null bytes"),  # no SyntaxError before Python 3.11.4
        *((TEMPLATE.replace(old, new), why) for old, new, why in WRONG_TEMPLATES),
    ],
)
def test_what_is_wrong_with_a_file_is_a_sentence(text: str, why: str) -> None:
    assert text != TEMPLATE
    configured(text)
    for words in (("lint", alarms()), ("rules",), ("rules", "--test", "ours.py")):
        shown_text = refused(*words)
        assert why in shown_text
        assert "bug in mqttscope" not in shown_text
    assert all(rule.is_ours() for rule in all_rules().values())


def test_a_clash_names_both() -> None:
    Path("inner").mkdir()
    for name in ("ours.py", "theirs.py", "inner/ours.py"):
        file(name=name)
    configure("ours.py", "theirs.py")
    text = refused("rules")
    assert "theirs.py: ACME201 is also the code of another rule in " in text
    assert "ours.py" in text

    configure("ours.py", "inner/ours.py")
    assert "have the same name" in refused("rules")
    configure("none.py")
    assert "none.py: no such rule file" in refused("rules")
    Path("mqttscope.toml").write_text('[lint]\nrules = "ours.py"\n')
    assert "lint.rules is not a list of strings" in refused("rules")


IN_PYTHON = re.sub(
    r"    good = .*?(?=    def check)",
    """    good = [conversation("one", *opened(), client(Publish(topic_name="acme/alarm")))]
    bad = examples(
        lambda: [
            conversation(
                "four in one step",
                *opened(),
                client(*[Publish(topic_name="acme/alarm")] * 4).marked("topic_name"),
            )
        ],
        '''
        four steps
            opened; for_steps > publish acme/alarm !topic_name
        '''.replace("for_steps", "> publish acme/alarm; " * 3),
    )

""",
    TEMPLATE,
    flags=re.DOTALL,
).replace("import examples", "import client, conversation, examples, opened")


@pytest.mark.parametrize(
    ("text", "examples"),
    [(TEMPLATE, "1 bad example, 2 good examples"), (IN_PYTHON, "2 bad examples, 1 good example")],
    ids=["the template", "made in Python and beside texts"],
)
def test_a_rule_passes_its_own_test(text: str, examples: str) -> None:
    done = invoke("rules", "--test", file(text))

    assert (done.code, done.err) == (0, "")
    assert done.text == f"ACME201 too-many-alarms: {examples}\n1 rule, 0 failed\n"


BAD_WORD = "+0.5 > publish acme/alarm hot"
BAD_LINE = TEMPLATE[: TEMPLATE.index(BAD_WORD)].count("\n") + 1


def test_a_text_that_cannot_be_read_is_an_error_with_file_and_line() -> None:
    configured(TEMPLATE.replace(BAD_WORD, "+0.5 > publsh acme/alarm hot"))
    place = str(Path("ours.py").resolve()) + f":{BAD_LINE}: 'publsh' is not one of connect, connack,"

    done = invoke("rules", "--test", "ours.py")
    assert done.code == 1
    assert "ACME201 too-many-alarms: an example cannot be read: failed\n" in done.text
    assert place in done.text
    assert "1 rule, 1 failed" in done.text
    for more in ((), ("--format", "json")):
        assert place in refused("rules", "ACME201", *more)
    # Linting reads no examples.
    assert found() == ["ACME201"] * 2


def test_a_text_that_the_file_does_not_have_as_it_is_is_named_by_its_own_line() -> None:
    wrong = IN_PYTHON.replace('for_steps", "> publish', 'for_steps", "> publsh').replace('"> publish', '"> publsh')
    done = invoke("rules", "--test", file(wrong))

    assert done.code == 1
    assert "ours.py: line 3 of an example text: 'publsh' is not one of" in done.text


@pytest.mark.parametrize(("kind", "other"), [("bad", "good"), ("good", "bad")])
def test_a_rule_with_an_empty_text_has_no_examples(kind: str, other: str) -> None:
    after = r"    bad =" if kind == "good" else r"    def check"
    file(re.sub(rf"    {kind} = .*?(?={after})", f'    {kind} = examples("")\n', TEMPLATE, flags=re.DOTALL))

    done = invoke("rules", "--test", "ours.py")
    assert done.code == 1
    assert f"it has no {kind} examples" in done.text
    assert f"it has no {other} examples" not in done.text


MORE, LESS = (TEMPLATE.replace('"most": 3', f'"most": {most}') for most in (4, 2))
RAISES = TEMPLATE.replace("memory.alarms += 1", "memory.alarm += 1")
CHECK = '        if at.topic != "acme/alarm":\n'
LINE = TEMPLATE[: TEMPLATE.index(CHECK)].count("\n") + 1
LEAVES = TEMPLATE.replace(CHECK, "        raise SystemExit(0)\n" + CHECK)
WRONG = TEMPLATE.replace("return self.report(", "return (")
ALSO = TEMPLATE.replace("opened; > publish acme/alarm hot;", "opened; > publish a/#; > publish acme/alarm hot;", 1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (MORE, "bad example 'one too many': marked and not found: topic_name of packet 5"),
        (LESS, "bad example 'one too many': found and not marked: topic_name of packet 4"),
        (LESS, "good example 'as many as there is room for': ACME201 finds: alarm 3"),
        (TEMPLATE.replace(" !topic_name", ""), "bad example 'one too many' has no mark"),
        (RAISES, "AttributeError: 'AlarmCount' object has no attribute"),
        (WRONG, "a check of ACME201 returned a tuple with a str in it; it has to return a report"),
        (LEAVES, f"ours.py, line {LINE})"),
        (ALSO, "good example 'as many as there is room for': PUB103 finds: PUBLISH topic name 'a/#'"),
    ],
)
def test_examples_that_fail_are_told(text: str, why: str) -> None:
    assert text != TEMPLATE
    done = invoke("rules", "--test", file(text))

    assert done.code == 1
    assert why in done.text
    assert done.text.endswith("\n1 rule, 1 failed\n")


def test_a_rule_that_raises_is_an_internal_error() -> None:
    configured(RAISES)
    done = invoke("lint", alarms())

    assert done.code == 3
    assert "internal error in ACME201: a.pcapng, frame " in done.err
    assert re.search(r"has no attribute .*\(.*ours\.py, line \d+\)", done.err)
    assert "ACME201 failed 5 times: the findings are not complete" in done.err
    assert "bug in mqttscope" not in done.err


def test_a_rule_that_ends_the_program_ends_neither_the_run_nor_other_rules() -> None:
    configured(LEAVES)
    write_capture(Path("b.pcapng"), *opened(), client(Publish(topic_name="a/#")))
    done = invoke("lint", "b.pcapng")

    assert done.code == 3
    assert "PUB103" in done.text
    assert "SystemExit: 0 (" in done.err
    assert f"ours.py, line {LINE})" in done.err


def test_test_takes_nothing_else() -> None:
    for more in (("PUB101",), ("--coverage",), ("--format", "json")):
        assert "--test FILE cannot be combined with" in refused("rules", "--test", file(), *more)


@pytest.mark.parametrize("value", ["acme_rules", "acme_rules:load"])
def test_packages_bring_rules(value: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    Path("acme_rules.py").write_text(TEMPLATE + "\n\ndef load():\n    pass\n")
    install(folder, value)
    monkeypatch.delitem(sys.modules, "acme_rules", raising=False)

    assert found() == ["ACME201"] * 2
    assert found("--no-config") == []
    configured()
    assert "ACME201 is also the code of another rule in" in invoke("rules").err


def test_packages_in_archives_are_looked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(own_rules.entry_points()) == []
    with ZipFile("acme.zip", "w") as archive:
        archive.writestr("acme-1.dist-info/METADATA", "Name: acme\nVersion: 1\n")
        archive.writestr("acme-1.dist-info/entry_points.txt", f"[{own_rules.GROUP}]\nacme = acme_rules\n")
    monkeypatch.syspath_prepend(str(folder / "acme.zip"))

    assert [entry_point.value for entry_point in own_rules.entry_points()] == ["acme_rules"]


def test_a_package_that_cannot_be_loaded_is_a_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    install(folder, "nothing_of_that_name")

    assert "entry point acme = nothing_of_that_name: ModuleNotFoundError" in refused("rules")


def test_an_ingest_says_which_rules_failed() -> None:
    tools.package("pyarrow", "deltalake")
    broken = re.sub(
        r"( def check\(.*?\n)", r"\1        raise ZeroDivisionError('of the rule')\n", TEMPLATE, count=1, flags=re.S
    )
    assert broken != TEMPLATE
    configure(file(broken), more='extend-select = ["ACME"]\n')

    done = invoke("pipeline", "ingest", alarms(), "--lake", "lake", "--format", "json")

    assert done.code == 3
    assert "internal error in ACME201: a.pcap" in done.err
    assert "ZeroDivisionError: of the rule" in done.err
    assert "ACME201 failed 5 times: the findings are not complete" in done.err
    document = done.document
    assert fits("ingest", [document]) == 1
    assert not any(text.startswith("internal_errors") for text in unnoticed("ingest", document))
    errors = document["internal_errors"]
    assert len(errors) == 5
    assert {error["rule"] for error in errors} == {"ACME201"}
