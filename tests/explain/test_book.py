"""What connections have to do with each other."""

from __future__ import annotations

from mqttscope.explain import Cause
from mqttscope.explain.book import host
from tests.each import each
from tests.explain.running import explained
from tests.lint.lint_help import steps_of

WILL = "opened will=status/c1 will_payload=gone; @1 opened client=watch; @1 > subscribe 1 status/#; @1 < suback 1 0"


def test_a_published_will_is_told_with_the_connection_that_received_it() -> None:
    for goodbye, wills in (("", 1), ("> disconnect", 0)):
        one = explained(*steps_of(WILL, f"{goodbye}; > fin; +0.5 @1 < publish status/c1 gone"))[0]

        beginning = "the will was published: status/c1, as connection #1 received it"
        assert [told.text.startswith(beginning) for told in one.afterwards] == [True] * wills


def test_the_return_of_a_client_is_told_if_it_is_a_consequence() -> None:
    soon, late = (explained(*steps_of("opened; > fin", f"+{after} @1 > connect"))[0] for after in (7, 500))

    assert [told.text[:24] for told in soon.afterwards] == ["the client came back 7.0"]
    assert late.afterwards == ()


def test_a_takeover_is_told_though_many_connections_of_the_client_follow() -> None:
    fight = (f"+1 @{number} opened client=c; @{number - 1} < fin" for number in range(1, 40))
    assert explained(*steps_of("opened client=c", *fight))[0].cause is Cause.TAKEN_OVER


def test_the_host_of_an_endpoint() -> None:
    assert (host("10.0.0.1:1883"), host("[fd00::1]:1883")) == ("10.0.0.1", "[fd00::1]")


@each("frame", ["lost > pingreq", "lost < pingresp", ""])
def test_a_will_that_is_published_in_the_moment_of_the_end(frame: str) -> None:
    """With a frame missing the end is noticed after the delivery."""
    reader = "@1 opened 3.1.1 client=sub; @1 > subscribe 1 w:0; @1 < suback 1 0"
    lines = [reader, "opened 3.1.1 client=c2 will=w", frame, "> fin; @1 < publish w bye"]
    found = explained(*steps_of("; ".join(line for line in lines if line)))

    assert any("the will was published" in one.text for end in found for one in end.afterwards)
