"""Temporary dialogs over the panes: the prompt at the bottom, help, and export."""

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
"""Maximum number of completions shown at a time."""

KEYS: Final = (
    ("Moving", (
        ("↑ ↓ PgUp PgDn", "one line, one screen"),
        ("g G Home End", "first, last"),
        ("Tab Shift+Tab", "next, previous pane; or click a pane"),
        (":", "go to the packet with a number"),
        ("p", "next packet of the same exchange: PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, and back to the first"),
        ("] [", "next and previous finding, with its explanation"),
        ("/ n N", "search in topics, payloads, Topic Filters and Client Identifiers; next, previous"),
    )),
    ("Selecting", (
        ("f", "filter (docs/filters.md); Tab completes, an error is shown at its character"),
        ("f", "in the connections pane: only connections with these words in their lines"),
        ("c", "only the connection of this packet; again: all connections"),
        ("Enter", "in the connections pane: only that connection"),
        ("x", "only packets with findings; again: all packets"),
        ("u", "only marked packets; again: all packets"),
        ("d", "only this message, from publisher to subscribers; again: all packets"),
        ("Esc", "all packets again"),
    )),
    ("Showing", (
        ("0", "overview: rates, clients in trouble, findings, busiest clients and topics; 0 or Esc: packets"),
        ("1 2 3 4", "fields, payload, ladder, findings of the packet"),
        ("e", "why the connection ended; Enter on a line goes to its packet"),
        ("s", "connections by number, end, findings, packets, last packet"),
        ("t", "times in UTC, local, since the first line, since the previous line, seconds since 1970"),
        ("v", "payload by content or topic, as text, hex, JSON, CBOR, MessagePack, protobuf, Sparkplug B"),
        ("z", "one pane alone; again: all panes"),
        ("o", "hide or show the connections"),
    )),
    ("Marking and exporting", (
        ("m Space", "mark this packet"),
        ("M", "remove all marks"),
        ("w", "write marked packets, or this one: pcapng, JSON Lines, hex, mosquitto_pub, nc"),
    )),
    ("Live", (("P", "pause the display while the capture continues; again: resume"),)),
    ("Quitting", (("q Ctrl+Q", "quit"),)),
)  # fmt: skip
"""All keys by purpose."""


HELP_COLUMNS: Final = 66


def help_text() -> str:
    """The keys as lines."""
    out = []
    for title, rows in KEYS:
        out.append(title)
        for keys, meaning in rows:
            indent = f"  {keys:<15} "
            out += textwrap.wrap(meaning, HELP_COLUMNS, initial_indent=indent, subsequent_indent=" " * len(indent))
        out.append("")
    out.append("Signs before a line: E error, W warning, i information; * marked.")
    return "\n".join(out)


class HelpScreen(ModalScreen[None]):
    """The keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "leave", "back")]

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(help_text(), markup=False)

    def on_mount(self) -> None:
        for frame in self.query("#help"):  # gone if typeahead has closed the screen
            frame.border_title = "keys; Esc closes"
            frame.focus()

    def action_leave(self) -> None:
        self.dismiss(None)


class ExportScreen(ModalScreen[tuple[str, str] | None]):
    """Asks for format and file of an export."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back", priority=True)]

    def __init__(self, subject: str, exists: Callable[[str], str], *, without_frames: str = "") -> None:
        """``subject``: description of the packets; ``exists``: returns the problem of a file name, or empty.

        ``without_frames``: reason if no frames can be written.
        """
        super().__init__()
        self._forms = tuple(form for form in FORMS if form != "pcapng" or not without_frames)
        self._without_frames = without_frames
        self._subject = subject
        self._exists = exists
        self._warned = ""

    def compose(self) -> ComposeResult:
        """Formats, and the file name."""
        with Vertical(id="export"):
            yield OptionList(*self._forms, id="forms")
            yield Static("file:", markup=False)
            yield Input(f"packets.{ENDINGS[self._forms[0]]}", id="file", compact=True, select_on_focus=False)
            yield Static(self._without_frames, id="note", markup=False)

    def on_mount(self) -> None:
        """Focus the formats."""
        if not self.query("#forms"):
            return  # typeahead has closed the screen
        frame = self.query_one("#export")
        frame.border_title = f"write {self._subject}; Enter writes, Esc cancels"
        self.query_one("#forms", OptionList).highlighted = 0
        self.query_one("#forms").focus()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        name = self.query_one("#file", Input)
        stem = name.value.rpartition(".")[0] or name.value
        name.value = f"{stem}.{ENDINGS[self._forms[event.option_index]]}"

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.query_one("#file").focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Write, unless the file name has a problem."""
        event.stop()
        form = self._forms[self.query_one("#forms", OptionList).highlighted or 0]
        problem = self._exists(event.value)
        if problem and not (problem.startswith("exists") and self._warned == event.value):
            self._warned = event.value
            self.query_one("#note", Static).update(problem)
            return
        self.dismiss((form, event.value))

    def action_leave(self) -> None:
        self.dismiss(None)


class PromptInput(Input):
    """A line of text with completion by Tab."""

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
        """A message, and the line of input."""
        yield Static("", id="prompt-note", markup=False)
        with Horizontal(id="prompt-row"):
            yield Static("", id="prompt-label", markup=False)
            yield PromptInput(id="prompt-input", compact=True, select_on_focus=False)

    @property
    def input(self) -> PromptInput:
        return self.query_one("#prompt-input", PromptInput)

    def ask(self, asked: str, text: str = "") -> None:
        """Ask for input, with an initial text."""
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
    def note(self) -> str:
        return str(self.query_one("#prompt-note", Static).content)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the error of the line, or completions."""
        event.stop()
        if event.value not in self._completed:
            self._completed = []
        self._say()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Accept the line, unless it has an error."""
        event.stop()
        if self.asked == "filter" and event.value.strip():
            fault = fault_of(event.value)
            if fault is not None:
                self._show_note(fault[0], fault[1])
                return
        self.leave()
        self.post_message(self.Answered(self.asked, event.value))

    def on_prompt_input_completing(self, event: PromptInput.Completing) -> None:
        """Insert the next completion."""
        event.stop()
        if self.asked != "filter":
            return
        line = self.input
        if not self._completed:
            text = line.value[: line.cursor_position]
            rest = line.value[line.cursor_position :]
            completion = complete(text)
            self._completed = [
                f"{text[: completion.start]}{word} {rest.lstrip()}".rstrip(" ") + " " for word in completion.words
            ]
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
            self._show_note(0, "")
            return
        fault = fault_of(text) if text.strip() else None
        completion = complete(text)
        words = completion.words if fault is None or _leads_on(text, completion, fault[0]) else []
        if words:
            # An incomplete expression is not an error yet.
            self._show_note(0, completion_text(words), mark=False)
        elif fault is not None:
            self._show_note(*fault)
        else:
            self._show_note(0, "")

    def _show_note(self, at: int, message: str, *, mark: bool = True) -> None:
        label = len(self.asked) + 2
        text = f"{' ' * (label + at)}^ {message}" if message and mark else message
        width = max(20, self.size.width)
        if len(text) > width and mark and message:
            # If the message does not fit after the error position, it goes before it.
            text = (
                f"{message[: max(0, width - 4)]}" if label + at < 8 else f"{message} ^".rjust(label + at + 1)[-width:]
            )
        self.query_one("#prompt-note", Static).update(text)


def completion_text(words: list[str]) -> str:
    """Completions in a line: all, or the first ones and their number."""
    count = f", {len(words):,} words" if len(words) > MAX_WORDS else ""
    return f"Tab{count}: {' '.join(words[:MAX_WORDS])}"


def _leads_on(text: str, completion: Completion, at: int) -> bool:
    """Whether a completion would repair the error at a position."""
    for word in completion.words[:5]:
        fault = fault_of(f"{text[: completion.start]}{word}")
        if fault is None or fault[0] > at or completion.start <= at:
            return True
    return False


def fault_of(expression: str) -> tuple[int, str] | None:
    """Position and message of the error in an expression, or ``None``."""
    try:
        filters.compile(expression)
    except filters.FilterError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return error.position, escape(f"{error.message}{hint}")
    return None
