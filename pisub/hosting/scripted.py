"""A human that follows a script: for tests, for CI, and for ``--answers FILE``.

An item is a text, or an object. Each item serves one question. A question gets the first unused item whose ``match``
occurs in it; else the first unused one without ``match``; else nobody answers: it is dismissed, and kept in
``unmatched``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec
import yaml

from pisub import arguments
from pisub.errors import InvalidArgumentError
from pisub.hosting.dialogs import DialogContext

_MAX_SCRIPT_BYTES = 1024 * 1024


class ScriptedAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One item of a script.

    Attributes:
        answer: The text to give. For a choice it must be one of the options.
        match: Only for a question whose text contains this.
        option: Instead of ``answer``: which option, counted from 1.
        delay_ms: How long the human thinks first.
        dismiss: Whether the human dismisses the question instead of answering.
        absent: Whether nobody reacts: the dialog stays open until its time is over or it is closed.
    """

    answer: str | None = None
    match: str = ""
    option: int | None = None
    delay_ms: int = 0
    dismiss: bool = False
    absent: bool = False


ScriptItem: TypeAlias = "str | ScriptedAnswer"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question that the scripted human saw, and what it said; None is a dismissal."""

    title: str
    options: tuple[str, ...]
    context: DialogContext
    answer: str | None


class ScriptedHuman:
    """Answers dialogs from a script. An implementation of ``pisub.hosting.dialogs.Dialogs``.

    Attributes:
        asked: Every question that was answered or dismissed, in order.
        unmatched: The texts of the questions that no item was left for.
    """

    def __init__(self, answers: Iterable[ScriptItem] = ()) -> None:
        given = list(answers) if isinstance(answers, Iterable) and not isinstance(answers, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]  # what a test passes
        if given is None:
            raise InvalidArgumentError(
                f"answers must be a list of items, not {type(answers).__name__}.", field="answers"
            )
        for each in given:
            if not isinstance(each, str | ScriptedAnswer):  # pyright: ignore[reportUnnecessaryIsInstance]  # as above
                raise InvalidArgumentError(
                    f"An item is a text or a ScriptedAnswer, not {type(each).__name__}.", field="answers"
                )
        self._items = [ScriptedAnswer(answer=each) if isinstance(each, str) else each for each in given]
        self.asked: list[Asked] = []
        self.unmatched: list[str] = []

    async def select(self, title: str, options: Sequence[str], context: DialogContext) -> str | None:
        """Choose by the script.

        Raises:
            InvalidArgumentError: The script's answer is none of the options.
        """
        item = self._take(title)
        value = None if item is None else _choice(item, options)
        return await self._say(item, value, title, tuple(options), context)

    async def input(self, title: str, placeholder: str, context: DialogContext) -> str | None:  # noqa: ARG002  # the protocol's shape
        """Write by the script."""
        item = self._take(title)
        return await self._say(item, None if item is None else item.answer, title, (), context)

    def _take(self, title: str) -> ScriptedAnswer | None:
        fits = [each for each in self._items if each.match and each.match in title]
        fits += [each for each in self._items if not each.match]
        if not fits:
            self.unmatched.append(title)
            return None
        # By identity: two items may be equal, and each serves one question.
        index = next(index for index, each in enumerate(self._items) if each is fits[0])
        return self._items.pop(index)

    async def _say(
        self,
        item: ScriptedAnswer | None,
        value: str | None,
        title: str,
        options: tuple[str, ...],
        context: DialogContext,
    ) -> str | None:
        if item is not None and item.delay_ms:
            await asyncio.sleep(item.delay_ms / 1000)
        answer = None if item is None or item.dismiss or item.absent else value
        self.asked.append(Asked(title=title, options=options, context=context, answer=answer))
        if item is not None and item.absent:
            await asyncio.get_running_loop().create_future()  # until the dialog is closed
        return answer


def load_answers(path: Path | str) -> list[ScriptItem]:
    """Read a script from a file: a list, in YAML or JSON.

    Raises:
        InvalidArgumentError: It cannot be read, or is not such a list; the message names file and item.
    """
    place = arguments.path(path, "path")
    try:
        with place.open("rb") as file:  # a pipe is as good as a file, and a device without an end is not read to it
            data = file.read(_MAX_SCRIPT_BYTES + 1)
        if len(data) > _MAX_SCRIPT_BYTES:
            raise InvalidArgumentError(f"{place} has more than {_MAX_SCRIPT_BYTES} bytes.", field="answers")
        found: object = yaml.safe_load(data.decode())
    except OSError as error:
        raise InvalidArgumentError(f"{place} cannot be read: {error.strerror}.", field="answers") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{place} is neither YAML nor JSON: {error}", field="answers") from error
    if not isinstance(found, list):
        raise InvalidArgumentError(f"{place}: a list of answers is expected.", field="answers")
    items: list[object] = found  # pyright: ignore[reportUnknownVariableType]  # YAML is data of any kind
    return [_item(each, place, number) for number, each in enumerate(items, start=1)]


def _item(value: object, place: Path, number: int) -> ScriptItem:
    if isinstance(value, dict):
        try:
            return msgspec.convert(value, ScriptedAnswer)
        except msgspec.ValidationError as error:
            keys = ", ".join(each.encode_name for each in msgspec.structs.fields(ScriptedAnswer))
            raise InvalidArgumentError(
                f"{place}, item {number}: {error}. An item has the keys {keys}.", field="answers"
            ) from error
    if isinstance(value, str):
        return value
    # `- 2025` or `- yes` in YAML is no text; guessing which spelling was meant would invent an answer.
    raise InvalidArgumentError(f"{place}, item {number}: put {value!r} in quotes, or use an object.", field="answers")


def _choice(item: ScriptedAnswer, options: Sequence[str]) -> str | None:
    if item.dismiss or item.absent:
        return None
    if item.option is not None and 1 <= item.option <= len(options):
        return options[item.option - 1]
    if item.answer in options:
        return item.answer
    said = repr(item.answer) if item.option is None else f"option {item.option}"
    raise InvalidArgumentError(f"The script says {said}; the options are {', '.join(options)}.", field="answers")
