"""What stands before the panes for a while: the prompt at the bottom, help, and the choice of an export."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static

from mqttscope import filter as filters
from mqttscope.browse.exporting import ENDINGS, FORMS
from mqttscope.filter.completion import Completion, complete
from mqttscope.report.escape import escape

MAX_WORDS: Final = 40
"""Maximum number of completions that are named at a time."""

KEYS: Final = (
    ("Moving", (
        ("↑ ↓ PgUp PgDn", "one line, one screen"),
        ("g G Home End", "first, last"),
        ("Tab Shift+Tab", "next pane, pane before; a click does the same"),
        (":", "go to the packet with a number"),
        ("p", "next packet of the same exchange: PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, and back to the first"),
        ("] [", "next and previous finding, with its explanation"),
        ("/ n N", "search in topics, payloads, Topic Filters and Client Identifiers; next, previous"),
    )),
    ("Selecting", (
        ("f", "filter (docs/filters.md); Tab completes, an error is shown at its character"),
        ("c", "only the connection of this packet; again: all"),
        ("Enter", "in the connections: only that one"),
        ("x", "only packets with findings; again: all"),
        ("u", "only marked packets; again: all"),
        ("d", "only this message, from its publisher to its subscribers; again: all"),
        ("Esc", "all packets again"),
    )),
    ("Showing", (
        ("1 2 3 4", "fields, payload, ladder, findings of the packet"),
        ("t", "times in UTC, local, since the first, since the line before, seconds since 1970"),
        ("v", "payload by content or topic, as text, hex, JSON, CBOR, MessagePack, protobuf, Sparkplug B"),
        ("z", "one pane alone; again: all panes"),
        ("o", "hide or show the connections"),
    )),
    ("Taking along", (
        ("m Space", "mark this packet"),
        ("M", "remove all marks"),
        ("w", "write marked packets, or this one: pcapng, JSON Lines, hex, mosquitto_pub, nc"),
    )),
    ("Live", (("P", "stop following new packets, which are still captured; again: follow"),)),
    ("Ending", (("q Ctrl+Q", "quit"),)),
)  # fmt: skip
"""All keys, by what they are for."""


HELP_COLUMNS: Final = 66


def help_text() -> str:
    """The keys as lines."""
    out = []
    for title, rows in KEYS:
        out.append(title)
        for keys, told in rows:
            indent = f"  {keys:<15} "
            out += textwrap.wrap(told, HELP_COLUMNS, initial_indent=indent, subsequent_indent=" " * len(indent))
        out.append("")
    out.append("Before a line: E an error, W a warning, i information was found; * marked.")
    return "\n".join(out)


class HelpScreen(ModalScreen[None]):
    """The keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "leave", "back")]

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(help_text(), markup=False)

    def on_mount(self) -> None:
        for frame in self.query("#help"):  # none where a key that was typed ahead has closed it
            frame.border_title = "keys; Esc leaves"
            frame.focus()

    def action_leave(self) -> None:
        self.dismiss(None)


class ExportScreen(ModalScreen[tuple[str, str] | None]):
    """Asks for the form and the file of an export."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back", priority=True)]

    def __init__(self, told: str, exists: Callable[[str], str], *, without_frames: str = "") -> None:
        """``told``: what is exported; ``exists`` says what is wrong with a file name, or nothing.

        ``without_frames``: why there are no frames to write, where there are none.
        """
        super().__init__()
        self._forms = tuple(one for one in FORMS if one != "pcapng" or not without_frames)
        self._without_frames = without_frames
        self._told = told
        self._exists = exists
        self._warned = ""

    def compose(self) -> ComposeResult:
        """Forms, and the name of the file."""
        with Vertical(id="export"):
            yield OptionList(*self._forms, id="forms")
            yield Static("file:", markup=False)
            yield Input(f"packets.{ENDINGS[self._forms[0]]}", id="file", compact=True, select_on_focus=False)
            yield Static(self._without_frames, id="said", markup=False)

    def on_mount(self) -> None:
        """Begin with the forms."""
        if not self.query("#forms"):
            return  # a key that was typed ahead has closed it
        frame = self.query_one("#export")
        frame.border_title = f"write {self._told}; Enter writes, Esc leaves"
        self.query_one("#forms", OptionList).highlighted = 0
        self.query_one("#forms").focus()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        name = self.query_one("#file", Input)
        stem = name.value.rpartition(".")[0] or name.value
        name.value = f"{stem}.{ENDINGS[self._forms[event.option_index]]}"

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.query_one("#file").focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Write, where nothing stands against it."""
        event.stop()
        form = self._forms[self.query_one("#forms", OptionList).highlighted or 0]
        said = self._exists(event.value)
        if said and not (said.startswith("exists") and self._warned == event.value):
            self._warned = event.value
            self.query_one("#said", Static).update(said)
            return
        self.dismiss((form, event.value))

    def action_leave(self) -> None:
        self.dismiss(None)


class PromptInput(Input):
    """A line of text that Tab completes."""

    class Completing(Message):
        """Tab was pressed."""

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "tab":
            event.stop()
            event.prevent_default()
            self.post_message(self.Completing())
            return
        await super()._on_key(event)


class Prompt(Vertical):
    """Asks for a filter, a text or a number at the bottom of the screen."""

    class Answered(Message):
        """A line was entered."""

        def __init__(self, asked: str, text: str) -> None:
            super().__init__()
            self.asked = asked
            self.text = text

    class Left(Message):
        """Nothing was entered."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back", priority=True)]

    def __init__(self) -> None:
        super().__init__(id="prompt")
        self.asked = ""
        self._completed: list[str] = []
        self._at = 0

    def compose(self) -> ComposeResult:
        """What is said of the line, and the line."""
        yield Static("", id="prompt-said", markup=False)
        with Horizontal(id="prompt-row"):
            yield Static("", id="prompt-label", markup=False)
            yield PromptInput(id="prompt-input", compact=True, select_on_focus=False)

    @property
    def input(self) -> PromptInput:
        return self.query_one("#prompt-input", PromptInput)

    def ask(self, asked: str, text: str = "") -> None:
        """Ask for something, beginning with a text."""
        self.asked = asked
        self.query_one("#prompt-label", Static).update(f"{asked}: ")
        self.display = True
        line = self.input
        line.value = text
        line.cursor_position = len(text)
        line.focus()
        self._say()

    def leave(self) -> None:
        self.display = False

    @property
    def said(self) -> str:
        return str(self.query_one("#prompt-said", Static).content)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Say what is wrong with the line, or what may come next."""
        event.stop()
        if event.value not in self._completed:
            self._completed = []
        self._say()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the line, where nothing is wrong with it."""
        event.stop()
        if self.asked == "filter" and event.value.strip():
            fault = fault_of(event.value)
            if fault is not None:
                self._tell(fault[0], fault[1])
                return
        self.leave()
        self.post_message(self.Answered(self.asked, event.value))

    def on_prompt_input_completing(self, event: PromptInput.Completing) -> None:
        """Put the next completion into the line."""
        event.stop()
        if self.asked != "filter":
            return
        line = self.input
        if not self._completed:
            text = line.value[: line.cursor_position]
            rest = line.value[line.cursor_position :]
            found = complete(text)
            self._completed = [f"{text[: found.start]}{word} {rest.lstrip()}".rstrip(" ") + " " for word in found.words]
            self._at = -1
        if self._completed:
            self._at = (self._at + 1) % len(self._completed)
            line.value = self._completed[self._at]
            line.cursor_position = len(line.value)

    def action_leave(self) -> None:
        self.leave()
        self.post_message(self.Left())

    def _say(self) -> None:
        text = self.input.value
        if self.asked != "filter":
            self._tell(0, "")
            return
        fault = fault_of(text) if text.strip() else None
        found = complete(text)
        words = found.words if fault is None or _leads_on(text, found, fault[0]) else []
        if words:
            # What is not complete yet is not wrong yet.
            self._tell(0, named(words), mark=False)
        elif fault is not None:
            self._tell(*fault)
        else:
            self._tell(0, "")

    def _tell(self, at: int, told: str, *, mark: bool = True) -> None:
        label = len(self.asked) + 2
        text = f"{' ' * (label + at)}^ {told}" if told and mark else told
        width = max(20, self.size.width)
        if len(text) > width and mark and told:
            # Where it does not fit after its place, it stands before it.
            text = f"{told[: max(0, width - 4)]}" if label + at < 8 else f"{told} ^".rjust(label + at + 1)[-width:]
        self.query_one("#prompt-said", Static).update(text)


def named(words: list[str]) -> str:
    """Completions in a line: all, or the first ones and how many there are."""
    count = f", {len(words):,} words" if len(words) > MAX_WORDS else ""
    return f"Tab{count}: {' '.join(words[:MAX_WORDS])}"


def _leads_on(text: str, found: Completion, at: int) -> bool:
    """Whether an expression that is wrong at a place is not any more with what may come next."""
    for word in found.words[:5]:
        fault = fault_of(f"{text[: found.start]}{word}")
        if fault is None or fault[0] > at or found.start <= at:
            return True
    return False


def fault_of(expression: str) -> tuple[int, str] | None:
    """The character at which an expression is wrong, and why; ``None`` where it is right."""
    try:
        filters.compile(expression)
    except filters.FilterError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return error.position, escape(f"{error.message}{hint}")
    return None
