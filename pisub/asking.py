"""What may be asked: the bounds of a batch of questions, checked where they are asked and where they arrive."""

from __future__ import annotations

from collections.abc import Sequence

from pisub.errors import InvalidArgumentError
from pisub.protocol.checkpoint import Question
from pisub.protocol.limits import MAX_ANSWER_CHARS, MAX_OPTION_CHARS, MAX_OPTIONS, MAX_QUESTION_CHARS, MAX_QUESTIONS
from pisub.utf8 import is_utf8


def check_questions(questions: Question | str | Sequence[Question | str]) -> tuple[Question, ...]:
    """Return the batch as a tuple of questions; a text alone is a question for free text.

    Raises:
        InvalidArgumentError: A bound is broken; ``field`` names the question, counted from 0.
    """
    batch: Sequence[Question | str] = (questions,) if isinstance(questions, Question | str) else questions
    if not isinstance(batch, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]  # an agent passes anything
        raise InvalidArgumentError(
            f"Ask a question, a text, or a list of them, not {type(batch).__name__}.", field="questions"
        )
    if not 1 <= len(batch) <= MAX_QUESTIONS:
        raise InvalidArgumentError(f"Ask 1 to {MAX_QUESTIONS} questions at once, not {len(batch)}.", field="questions")
    return tuple(_check(each, f"questions[{index}]") for index, each in enumerate(batch))


def chosen_value(question: Question, text: str) -> str:
    """Return the answer that a text means: an option by its text or its number, or the text where any will do.

    Raises:
        InvalidArgumentError: It is no option, empty, or too long.
    """
    if not text.strip():
        raise InvalidArgumentError("An empty text is no answer: use `pisub decline` to give none.", field="value")
    if not question.options:
        if len(text) > MAX_ANSWER_CHARS:
            raise InvalidArgumentError(f"An answer has at most {MAX_ANSWER_CHARS} characters.", field="value")
        return text
    if text in question.options:
        return text
    if text.isascii() and text.isdigit() and 1 <= int(text) <= len(question.options):
        return question.options[int(text) - 1]
    alike = [option for option in question.options if option.casefold() == text.strip().casefold()]
    if len(alike) == 1:
        return alike[0]
    known = ", ".join(f"{at}) {_shown(option)}" for at, option in enumerate(question.options, start=1))
    raise InvalidArgumentError(f"{text[:80]!r} is no option of this question. There are: {known}.", field="value")


def _shown(option: str) -> str:
    """Return an option for a message: it must not drive the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in option)


def _check(question: Question | str, field: str) -> Question:
    checked = Question(question) if isinstance(question, str) else question
    if not isinstance(checked, Question):  # pyright: ignore[reportUnnecessaryIsInstance]  # as above
        raise InvalidArgumentError(f"A question is a Question or a text, not {type(checked).__name__}.", field=field)
    given = (("text", checked.text), ("placeholder", checked.placeholder))
    for part, value in (*given, *(("options", each) for each in checked.options)):
        if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # as above
            raise InvalidArgumentError(f"{part} must be text, not {type(value).__name__}.", field=f"{field}.{part}")
    if not checked.text.strip():
        raise InvalidArgumentError("A question needs a text.", field=f"{field}.text")
    if len(checked.text) > MAX_QUESTION_CHARS:
        raise InvalidArgumentError(
            f"A question has at most {MAX_QUESTION_CHARS} characters, not {len(checked.text)}.", field=f"{field}.text"
        )
    options = tuple(checked.options)
    if isinstance(checked.options, str):
        raise InvalidArgumentError("Options are a list of texts, not one text.", field=f"{field}.options")
    if options and not 2 <= len(options) <= MAX_OPTIONS:
        raise InvalidArgumentError(
            f"A choice has 2 to {MAX_OPTIONS} options, not {len(options)}; without options it is a free text.",
            field=f"{field}.options",
        )
    if len(set(options)) != len(options):
        raise InvalidArgumentError("Two options are the same.", field=f"{field}.options")
    for option in options:
        if not option.strip() or len(option) > MAX_OPTION_CHARS:
            raise InvalidArgumentError(
                f"An option has 1 to {MAX_OPTION_CHARS} characters, not only white space.", field=f"{field}.options"
            )
    # Neither a file nor a message can hold it, and an option that was changed could not be recognised as the answer.
    if not all(map(is_utf8, (checked.text, checked.placeholder, *options))):
        raise InvalidArgumentError("A question holds half of a surrogate pair, which is no text.", field=field)
    return Question(checked.text, options, checked.placeholder)
