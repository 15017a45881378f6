"""Errors of commands: what they say, and that errors of the parts below become them."""

from __future__ import annotations

import errno

import click
import pytest

from mqttscope.cli.errors import CommandFailedError, ErrorTranslation, printable_reason, reason
from mqttscope.errors import ArgumentError


def test_the_reason_of_an_error_of_the_system_is_without_its_number_and_its_file() -> None:
    assert reason(OSError(errno.ENOENT, "No such file or directory", "a.pcap")) == "No such file or directory"
    assert reason(OSError("it is closed")) == "it is closed"
    assert reason(ValueError("embedded null byte")) == "embedded null byte"


def test_what_a_terminal_would_obey_is_escaped() -> None:
    assert printable_reason(ValueError("a\x1b[2Jb\n")) == r"a\x1b[2Jb\n"


def test_named_errors_become_those_of_commands() -> None:
    with (
        pytest.raises(click.UsageError, match=r"^--broker: not an address$") as raised,
        ErrorTranslation(click.UsageError, ArgumentError, before="--broker: "),
    ):
        raise ArgumentError("not an address")
    assert raised.value.__suppress_context__


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(KeyError), ErrorTranslation(CommandFailedError, ArgumentError):
        raise KeyError("another")


def test_a_failed_command_has_exit_code_3() -> None:
    assert CommandFailedError("no broker").exit_code == 3
