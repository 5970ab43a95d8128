"""Work of a session that is no run of pisub's: who knows of it registers here, and a wait takes it into account.

Owns what a provider may be and what it may say. It is believed only while everything that it says is well-formed: one
wrong item makes all that it said a problem, and nothing is taken for done. What a wait makes of it is ``waiter``'s.
A provider is two functions and some topics, so that one of another process can be registered the same way.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Annotated, Final, cast

import msgspec

from pisub import arguments
from pisub.errors import InvalidArgumentError
from pisub.protocol.limits import (
    MAX_PROVIDER_NAME_CHARS,
    MAX_PROVIDERS,
    MAX_TOPIC_CHARS,
    MAX_WORK_ID_CHARS,
    MAX_WORK_ITEMS,
    PROVIDER_TIMEOUT_S,
)

_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_WORK_ID_CHARS)]

#: What is said of a provider that a wait had items of.
GONE: Final = "it is not registered any more, so the end of its work cannot be confirmed"
#: What is said of one that a wait had no time left for.
SILENT: Final = "it had not said how its work stands when the wait was given up"


class WorkContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider is asked about.

    Attributes:
        session_id: The session. A provider may list work of others too: it is left out.
        now_ms: Unix time in milliseconds.
    """

    session_id: str
    now_ms: int


class WorkItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One piece of work that goes on.

    Attributes:
        id: Unique among the provider's work of the session; 1 to 256 characters.
        session_id: Whose it is.
    """

    id: _Id
    session_id: _Id


#: Items, or mappings with the keys ``id`` and ``sessionId``.
Listed = Sequence["WorkItem | Mapping[str, object]"]
ListActiveWork = Callable[[WorkContext], "Listed | Awaitable[Listed]"]
Reconcile = Callable[[WorkContext], "Awaitable[None] | None"]


class WorkSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What goes on at one moment.

    Attributes:
        items: By provider, the ids of the session's work; of each that was asked and is to be believed.
        problems: By provider: why nothing can be said of its work.
    """

    items: Mapping[str, tuple[str, ...]] = {}
    problems: Mapping[str, str] = {}


class _Provider(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    list_active_work: ListActiveWork
    reconcile: Reconcile | None
    wake_channels: tuple[str, ...]


class BackgroundWork:
    """The providers of one program. Not thread-safe; used on the loop of its client."""

    def __init__(self) -> None:
        self._providers: dict[str, _Provider] = {}

    def register(
        self,
        name: str,
        list_active_work: ListActiveWork,
        *,
        reconcile: Reconcile | None = None,
        wake_channels: Sequence[str] = (),
    ) -> Callable[[], None]:
        """Have waits take a provider's work into account from their next look on.

        Both functions may be coroutine functions. They run on the client's loop, and have 10 seconds.

        Args:
            name: 1 to 128 characters without white space around them. A name that is taken is taken over: waits
                that go on ask the new provider for the work of the old one.
            list_active_work: Returns all work that goes on, at most 10,000 items. What it listed before and lists no
                more has ended.
            reconcile: Called before each listing, to look whether what should go on still does.
            wake_channels: Topics; a message on one, in the session's scope, only makes the next look come sooner.

        Returns:
            Takes the provider back. After another took its name over it does nothing.

        Raises:
            InvalidArgumentError: ``field`` says what is wrong; nothing was changed.
        """
        _check_trimmed(name, "name", MAX_PROVIDER_NAME_CHARS)
        for field, function in (("list_active_work", list_active_work), ("reconcile", reconcile)):
            if not callable(function) and not (field == "reconcile" and function is None):
                raise InvalidArgumentError(f"{field} must be a function, not {type(function).__name__}.", field=field)
        if name not in self._providers and len(self._providers) >= MAX_PROVIDERS:
            raise InvalidArgumentError(f"{MAX_PROVIDERS} providers are registered: that is the most.", field="name")
        provider = _Provider(
            name=name,
            list_active_work=list_active_work,
            reconcile=reconcile,
            wake_channels=_check_channels(wake_channels),
        )
        self._providers[name] = provider

        def unregister() -> None:
            if self._providers.get(name) is provider:
                del self._providers[name]

        return unregister

    @property
    def names(self) -> tuple[str, ...]:
        """Who is registered."""
        return tuple(self._providers)

    @property
    def wake_channels(self) -> tuple[str, ...]:
        """All providers' topics, each once. No provider is asked for it."""
        return tuple(dict.fromkeys(topic for each in self._providers.values() for topic in each.wake_channels))

    async def snapshot(self, session_id: str, *, now_ms: int, names: Collection[str] | None = None) -> WorkSnapshot:
        """Ask the providers, all at once, what goes on in a session.

        Args:
            session_id: Exactly this one's work is returned.
            now_ms: Unix time in milliseconds.
            names: Only these; one that is not registered is a problem. None is all.
        """
        asked = [each for each in self._providers.values() if names is None or each.name in names]
        context = WorkContext(session_id=session_id, now_ms=now_ms)
        problems = {name: GONE for name in names or () if name not in self._providers}
        items: dict[str, tuple[str, ...]] = {}
        answers = await asyncio.gather(*(_ask(each, context) for each in asked))
        for provider, answer in zip(asked, answers, strict=True):
            if isinstance(answer, str):
                problems[provider.name] = answer
            else:
                items[provider.name] = answer
        return WorkSnapshot(items=items, problems=problems)


async def _ask(provider: _Provider, context: WorkContext) -> tuple[str, ...] | str:
    """Return the ids of a session's work, or what is wrong with the provider."""
    step = "reconcile"
    try:
        async with asyncio.timeout(PROVIDER_TIMEOUT_S):
            if provider.reconcile is not None:
                await _settled(provider.reconcile(context))
            step = "list_active_work"
            listed = await _settled(provider.list_active_work(context))
    except TimeoutError as error:
        return f"{step} failed: {str(error) or f'it did not return within {PROVIDER_TIMEOUT_S:g} s'}"
    except Exception as error:  # noqa: BLE001  # somebody else's code: whatever it raises, nothing is confirmed
        return f"{step} failed: {str(error) or type(error).__name__}"
    try:
        return _check_items(listed, context.session_id)
    except (msgspec.ValidationError, InvalidArgumentError) as error:
        return f"{step} returned what cannot be used: {error}"


async def _settled(returned: object) -> object:
    return await returned if inspect.isawaitable(returned) else returned


def _check_items(listed: object, session_id: str) -> tuple[str, ...]:
    """Check everything, also what is of other sessions; return the ids of this one's."""
    if not isinstance(listed, list | tuple):
        raise InvalidArgumentError(f"it is no list but of type {type(listed).__name__}.", field="items")
    given = cast("Sequence[object]", listed)
    if len(given) > MAX_WORK_ITEMS:
        raise InvalidArgumentError(f"it has {len(given)} items; {MAX_WORK_ITEMS} are the most.", field="items")
    # Made by hand, a struct's fields were never checked.
    plain = [{"id": each.id, "sessionId": each.session_id} if isinstance(each, WorkItem) else each for each in given]
    items = msgspec.convert(plain, list[WorkItem])
    if len(set(items)) != len(items):
        twice, _ = Counter(items).most_common(1)[0]
        raise InvalidArgumentError(f"it has {twice.id!a} of session {twice.session_id!a} twice.", field="items")
    return tuple(each.id for each in items if each.session_id == session_id)


def _check_channels(channels: object) -> tuple[str, ...]:
    if isinstance(channels, str) or not isinstance(channels, Sequence):
        raise InvalidArgumentError(
            f"wake_channels must be a list of topics, not {type(channels).__name__}.", field="wake_channels"
        )
    given = cast("Sequence[object]", channels)
    topics = tuple(_check_trimmed(each, "wake_channels", MAX_TOPIC_CHARS) for each in given)
    if len(set(topics)) != len(topics):
        raise InvalidArgumentError("wake_channels names a topic twice.", field="wake_channels")
    return topics


def _check_trimmed(value: object, field: str, max_chars: int) -> str:
    text = arguments.name(value, field)
    arguments.text(text, field, max_chars=max_chars)
    if text != text.strip() or "\0" in text:
        raise InvalidArgumentError(f"{field}: {text[:40]!a} has white space around it, or a NUL in it.", field=field)
    return text
