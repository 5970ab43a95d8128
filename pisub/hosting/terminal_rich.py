"""Dialogs drawn with prompt_toolkit, below what was printed before: nothing of the scrollback is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import AnyFormattedText, FormattedText, StyleAndTextTuples
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings
from prompt_toolkit.layout import BufferControl, Dimension, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import print_formatted_text
from prompt_toolkit.styles import Style

from pisub.hosting.dialogs import DialogContext
from pisub.hosting.terminal import Countdown, closing, opening, reason_of, terminal_gone
from pisub.hosting.text import visible
from pisub.protocol.limits import MAX_ANSWER_CHARS

_STYLE: Final = Style.from_dict(
    {
        "pisub.who": "bold ansicyan",
        "pisub.why": "italic",
        "pisub.question": "bold",
        "pisub.chosen": "reverse",
        "pisub.hint": "ansibrightblack",
        "pisub.end": "ansigreen",
    }
)
#: The lines that a list of options takes at most; more scroll.
_MAX_LIST_LINES: Final = 16
#: The countdown is drawn this often.
_REFRESH_S: Final = 1.0
#: After Esc, this long for the rest of an arrow key's sequence to come.
_ESCAPE_S: Final = 0.1

_SELECT_HELP: Final = "↑↓ or digits, Enter chooses, Esc dismisses"
_INPUT_HELP: Final = "Enter answers, Alt-Enter new line, Esc dismisses"
_EMPTY_HELP: Final = "an empty answer is none: write something, or Esc dismisses"


class RichDialogs:
    """One dialog at a time on one terminal. Made by ``TerminalDialogs``, which see."""

    def __init__(
        self,
        source: Input | None,
        target: Output | None,
        *,
        settle_s: float,
        interrupt: Callable[[], None],
        bell: bool = False,
    ) -> None:
        # Whichever of the standard streams is a terminal: a task may come on stdin, a result go to stdout.
        self._input = source or create_input(always_prefer_tty=True)
        self._output = target or create_output(always_prefer_tty=True)
        if isinstance(self._output, Vt100_Output):
            # A terminal that does not answer where its cursor is would hold every closing up for a second.
            self._output.enable_cpr = False
        self._settle_s = settle_s
        self._interrupt = interrupt
        self._bell = bell
        self._shown: _Dialog | None = None

    def show_waiting(self, waiting: int) -> None:
        """Show another number of those that wait, below the open dialog."""
        if self._shown is not None:
            self._shown.waiting = waiting

    async def select(self, title: str, options: Sequence[str], context: DialogContext) -> str | None:
        """Let the human choose."""
        return await self._ask(title, context, lambda dialog: _Choice(dialog, options))

    async def input(self, title: str, placeholder: str, context: DialogContext) -> str | None:
        """Let the human write."""
        return await self._ask(title, context, lambda dialog: _Field(dialog, placeholder))

    async def _ask(self, title: str, context: DialogContext, make: Callable[[_Dialog], _Choice | _Field]) -> str | None:
        try:
            return await self._drawn(title, context, make)
        except (EOFError, OSError):  # nothing can be read from a closed terminal, or nothing written to it
            await terminal_gone(self._interrupt)

    async def _drawn(
        self, title: str, context: DialogContext, make: Callable[[_Dialog], _Choice | _Field]
    ) -> str | None:
        if self._bell and context.number == 1:
            self._output.bell()
            self._output.flush()
        self._print(*opening(title, context))
        dialog = self._shown = _Dialog(context, settle_s=self._settle_s, interrupt=self._interrupt)
        part = make(dialog)
        application: Application[str | None] = Application(
            layout=Layout(HSplit([part.window, dialog.toolbar])),
            key_bindings=merge_key_bindings([*part.bindings, dialog.bindings]),
            style=_STYLE,
            input=self._input,
            output=self._output,
            erase_when_done=True,
            refresh_interval=_REFRESH_S,
        )
        application.ttimeoutlen = _ESCAPE_S
        application.timeoutlen = _ESCAPE_S
        dialog.redraw = application.invalidate
        try:
            answer = await application.run_async(handle_sigint=False, set_exception_handler=False)
        except asyncio.CancelledError as error:
            self._print(("class:pisub.hint", closing(None, reason_of(error))))
            raise
        finally:
            self._shown = None
        self._print(("class:pisub.end" if answer is not None else "class:pisub.hint", closing(answer, "")))
        return answer

    def _print(self, *lines: tuple[str, str]) -> None:
        for line in lines:
            print_formatted_text(FormattedText([line]), style=_STYLE, output=self._output)


class _Dialog:
    """What both kinds of dialogs have: the countdown, the settling, Esc and Ctrl-C."""

    def __init__(self, context: DialogContext, *, settle_s: float, interrupt: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._countdown = Countdown(context.remaining_s, self._loop.time())
        self._ready_at = self._loop.time() + settle_s

        def interrupted(_: KeyPressEvent) -> None:
            interrupt()

        self.is_ready = Condition(lambda: self._loop.time() >= self._ready_at)
        self.help = ""
        self.redraw: Callable[[], None] = lambda: None
        self._waiting = context.waiting
        self.bindings = KeyBindings()
        self.toolbar = Window(FormattedTextControl(self._toolbar), height=1, wrap_lines=False)
        self.bindings.add("escape", filter=self.is_ready)(_dismiss)
        # The terminal is in raw mode and sends no signal. The dialog stays: who is interrupted closes it, or does not.
        self.bindings.add("c-c")(interrupted)

    @property
    def waiting(self) -> int:
        """How many batches wait behind it."""
        return self._waiting

    @waiting.setter
    def waiting(self, waiting: int) -> None:
        self._waiting = waiting
        self.redraw()

    def _toolbar(self) -> AnyFormattedText:
        left = self._countdown.text(self._loop.time())
        behind = f"{self._waiting} more waiting" if self._waiting else ""
        return [("class:pisub.hint", " · ".join(part for part in (left, behind, self.help) if part))]


def _dismiss(event: KeyPressEvent) -> None:
    event.app.exit(result=None)


class _Choice:
    """A list of options. Digits move to an option; only Enter takes it, so a stray digit answers nothing."""

    def __init__(self, dialog: _Dialog, options: Sequence[str]) -> None:
        self._options = options
        self._at = 0
        self._typed = ""
        dialog.help = _SELECT_HELP
        keys = KeyBindings()
        for key, step in (("up", -1), ("c-p", -1), ("k", -1), ("down", 1), ("c-n", 1), ("j", 1)):
            keys.add(key, filter=dialog.is_ready)(self._mover(step))
        for digit in "0123456789":
            keys.add(digit, filter=dialog.is_ready)(self._digit)
        keys.add("enter", filter=dialog.is_ready)(self._take)
        self.bindings = [keys]
        self.window = Window(
            FormattedTextControl(self._draw, focusable=True, show_cursor=False),
            wrap_lines=True,
            dont_extend_height=True,
            height=Dimension(max=_MAX_LIST_LINES),
        )

    def _mover(self, step: int) -> Callable[[KeyPressEvent], None]:
        def move(_: KeyPressEvent) -> None:
            self._typed = ""
            self._at = (self._at + step) % len(self._options)

        return move

    def _digit(self, event: KeyPressEvent) -> None:
        # `1` then `2` is option 12 where there are so many, else option 2.
        for typed in (self._typed + event.data, event.data):
            if 1 <= int(typed) <= len(self._options):
                self._typed = typed
                self._at = int(typed) - 1
                return

    def _take(self, event: KeyPressEvent) -> None:
        event.app.exit(result=self._options[self._at])

    def _draw(self) -> StyleAndTextTuples:
        lines: StyleAndTextTuples = []
        for index, option in enumerate(self._options):
            is_chosen = index == self._at
            if is_chosen:
                lines.append(("[SetCursorPosition]", ""))
            mark = ">" if is_chosen else " "
            text = f"{mark} {index + 1:>2}. {visible(option, is_multiline=False)}"
            lines.append(("class:pisub.chosen" if is_chosen else "", text))
            lines.append(("", "\n" if index + 1 < len(self._options) else ""))
        return lines


class _Field:
    """A field for text."""

    def __init__(self, dialog: _Dialog, placeholder: str) -> None:
        self._dialog = dialog
        self._placeholder = visible(placeholder, is_multiline=False)
        dialog.help = _INPUT_HELP
        self._buffer = Buffer(multiline=True, read_only=~dialog.is_ready)
        keys = KeyBindings()
        keys.add("enter", filter=dialog.is_ready)(self._take)
        keys.add("escape", "enter", filter=dialog.is_ready)(self._break_line)
        self.bindings = [keys]
        self.window = Window(
            BufferControl(self._buffer, input_processors=[BeforeInput(self._prompt)]),
            wrap_lines=True,
            dont_extend_height=True,
            height=Dimension(max=_MAX_LIST_LINES),
        )

    def _prompt(self) -> StyleAndTextTuples:
        hint = f"({self._placeholder}) " if self._placeholder and not self._buffer.text else ""
        return [("", "> "), ("class:pisub.hint", hint)]

    def _take(self, event: KeyPressEvent) -> None:
        text = self._buffer.text
        if not text.strip():
            self._dialog.help = _EMPTY_HELP
        elif len(text) > MAX_ANSWER_CHARS:
            self._dialog.help = f"{len(text)} characters are more than {MAX_ANSWER_CHARS}: shorten it"
        else:
            event.app.exit(result=text)

    def _break_line(self, _: KeyPressEvent) -> None:
        self._buffer.insert_text("\n")
