"""The configuration: what it may say, and what is said about slips."""

from __future__ import annotations

import tomllib
from datetime import date

import pytest

from mqttscope.lint import config
from mqttscope.lint.config import Config, ConfigError, parse
from tests.each import each


def test_everything_that_the_documentation_shows() -> None:
    text = (config.__doc__ or "").partition("says, and")[0]
    text = "\n".join(line[4:] for line in text.splitlines() if line.startswith("    "))
    read = parse(tomllib.loads(text))

    assert read.extend_select == ("OPS", "SEC101")
    assert read.fail_on == "warning"
    assert read.settings == {"TOP104": {"levels": 10}}
    ignored, suppressed = read.patterns
    assert ignored.client == "legacy-*"
    assert "PUB102" in ignored.codes
    assert suppressed.expires == date(2027, 3, 31)


def test_what_is_shown_and_how_much_there_must_be() -> None:
    read = parse(tomllib.loads('[lint]\nmin-severity = "warning"\nrequire-packets = 7'))

    assert (read.min_severity, read.require_packets) == ("warning", 7)


def test_an_empty_file_says_nothing() -> None:
    assert parse({}) == Config()


@each(
    "text, why",
    [
        ("[lnt]", "lnt is an unknown key; did you mean lint"),
        ("[lint]\nselct = []", "lint.selct is an unknown key; did you mean select"),
        ('[lint]\nselect = "PUB"', "lint.select is not a list of strings"),
        ('[lint]\nignore = ["PUB999"]', "lint.ignore: 'PUB999' is not a rule"),
        ('[lint]\nfail-on = "bad"', "not one of error, warning, info"),
        ("[lint]\nexit-zero = 1", "exit-zero is not true or false"),
        ("[lint]\nrequire-packets = -1", "lint.require-packets is -1, not a number of packets"),
        ("[lint]\nrequire-packets = true", "not a number of packets"),
        ("[lint]\nrequire-packets = 1.5", "not a number of packets"),
        ('[lint]\nmin-severity = "bad"', "lint.min-severity is 'bad', not one of error, warning, info"),
        ('[lint]\ntiming = "fast"', "lint.timing is 'fast', not one of normal, test"),
        ("[lint]\nsuppress = 1", r"\[\[lint.suppress\]\]"),
        ('[[lint.suppress]]\nreason = "x"', "entry 1 names no rules"),
        ('[[lint.suppress]]\nrules = ["PUB209"]', "entry 1 has no reason"),
        ('[[lint.suppress]]\nrules = ["PUB209"]\nreason = "x"\nexpires = "soon"', "not a date"),
        ('[[lint.suppress]]\nrules = ["PUB209"]\nreason = "x"\nclients = "y"', "clients is an unknown key; did you"),
        ('[lint.per-topic-ignores]\n"a/#/b" = ["PUB209"]', "not an MQTT topic filter"),
        ("[rules.PUB998]\nx = 1", "PUB998 is no rule"),
        ("[rules.PRF101]\nmaximum = 1", "maximum is an unknown key; did you mean maximum_qos"),
        ("[rules.PRF101]\nmaximum_qos = true", "must be like its default"),
        ("[rules.PRF101]\nmaximum_qos = -1", "must be like its default"),
        ("[rules.KAL201]\ntolerance_percent = inf", "must be like its default 10, not inf"),
        ("[rules.KAL201]\ntolerance_percent = 1e400", "not inf"),
        ("[rules.KAL201]\ntolerance_percent = 1e300", "must be like its default"),
        ("[rules.KAL201]\ntolerance_percent = nan", "not nan"),
        ("[rules.KAL201]\ntolerance_percent = 0x" + "f" * 5000, "not a number of more than 15 digits"),
        ('[rules.KAL201]\ntolerance_percent = "' + "x" * 500 + '"', r"not 'x+\.\.\."),
        ('[[lint.suppress]]\nrules = []\nreason = "x"', "entry 1 names no rules"),
        ('[[lint.suppress]]\nrules = ["PUB209"]\nreason = "x"\nexpires = 0x' + "f" * 5000, "not a date"),
        ("rules = 1", "rules is not a table"),
    ],
)
def test_a_slip_is_named_with_its_key(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse(tomllib.loads(text))
