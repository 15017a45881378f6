"""Classes that others derive from can be derived from, whether they are compiled or not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mqttscope.lint.broker_watch import Watch
from mqttscope.lint.compiling import mypyc_attr
from mqttscope.lint.context import RuleContext
from mqttscope.lint.finding import Scope
from mqttscope.lint.model import Model, declare_model
from mqttscope.mqtt.packets import Publish


@dataclass(slots=True)
class Counting(Model):
    numbers: list[int] = field(default_factory=list)

    def follow(self, packet: Any, at: RuleContext) -> None:
        self.numbers.append(len(self.numbers))


@dataclass(slots=True)
class Watching(Watch):
    forgotten: int = 0

    def forget(self) -> None:
        self.forgotten += 1


declare_model(Counting, "counting", Scope.BROKER, (Publish,), {Publish: "qos"})


def test_models_made_elsewhere_have_what_the_engine_asks_for() -> None:
    assert (Counting.code, Counting.scope, Counting.looks_at, Counting.Memory) == (
        "counting", Scope.BROKER, (Publish,), Counting,
    )  # fmt: skip
    assert Counting.when == {Publish: "qos"} != Model.when
    assert Counting() == Counting([])


def test_what_a_watch_calls_may_be_of_a_class_made_elsewhere() -> None:
    watch = Watching(now_ns=10_000_000_000)
    watch.pass_time(1)

    assert (watch.forgotten, watch.now_ns) == (1, 1)


def test_a_class_stays_what_it_is() -> None:
    assert mypyc_attr(allow_interpreted_subclasses=True)(Counting) is Counting
