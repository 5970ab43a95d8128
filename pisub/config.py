"""Settings: the one place that reads the environment and the configuration file.

Order of precedence: what the program or the command line passes, then ``PISUB_*`` variables, then ``config.toml`` in
the user's configuration directory, then the defaults here. A wrong key or value is named with its place.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from pisub.errors import InvalidArgumentError
from pisub.protocol.limits import (
    ACTIVE_NOTICE_AFTER_S,
    DEFAULT_ASK_TIMEOUT_MS,
    DEFAULT_BATCH_CONCURRENCY,
    DEFAULT_BATCH_TASKS,
    DEFAULT_CONCURRENCY,
    DEFAULT_MAX_DEPTH,
    DEFAULT_NOTIFY_INTERVAL_MS,
    DEFAULT_QUESTION_TIMEOUT_MS,
    DEFAULT_SPAWNS_PER_RUN,
    DEFAULT_SUPERVISOR_TIMEOUT_MS,
    DEFAULT_TIMEOUT_MS,
    FAILED_TOOLS_NOTICE,
)
from pisub.small_files import read_small

#: What a child begins with.
Context = Literal["fresh", "fork"]
_PREFIX = "PISUB_"
_MAX_FILE_BYTES = 1024 * 1024
#: Variables that pisub sets for the processes it starts; they are not settings.
RUN_ID_VARIABLE = "PISUB_RUN_ID"
MAX_DEPTH_VARIABLE = "PISUB_MAX_DEPTH"
DEPTH_VARIABLE = "PISUB_DEPTH"
SESSION_VARIABLE = "PISUB_SESSION"
HOME_VARIABLE = "PISUB_HOME"
RUNTIME_DIR_VARIABLE = "PISUB_RUNTIME_DIR"
#: Of a program with a schema: where that is, and where its structured result goes. What it starts as runs has neither.
OUTPUT_SCHEMA_VARIABLE = "PISUB_OUTPUT_SCHEMA"
STRUCTURED_OUTPUT_VARIABLE = "PISUB_STRUCTURED_OUTPUT"
_OF_ONE_RUN = frozenset({RUN_ID_VARIABLE, DEPTH_VARIABLE, OUTPUT_SCHEMA_VARIABLE, STRUCTURED_OUTPUT_VARIABLE})
_FOR_DAEMONS = frozenset({"PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR"})
_NOT_SETTINGS = _OF_ONE_RUN | {"PISUB_CONFIG", "PISUB_DEBUG"}
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
#: A width: 0 would start nothing, ever.
Width = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
#: What each type of setting takes, for people.
_WANTED = {
    "Count": "a whole number, 0 or more",
    "Width": "a whole number, 1 or more",
    "Width | None": "a whole number, 1 or more",
    "bool": "true or false",
    "int": "a whole number",
    "int | None": "a whole number",
    "str": "a text",
    "str | None": "a text",
    "Path | None": "a path",
    "dict[str, dict[str, Any]]": "a table for each agent, by its name",
    "dict[str, Any]": "a table",
    "Context | None": "a context, fresh or fork",
}


#: Settings that are tables, and JSON in a variable.
_TABLES = frozenset({"agents", "intercom_bridge"})
#: How people write a switch in a variable.
_SWITCHES = {**dict.fromkeys(("yes", "on", "enabled"), "true"), **dict.fromkeys(("no", "off", "disabled"), "false")}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be configured.

    Attributes:
        home: State root (`PISUB_HOME`); None is the platform's user state directory.
        runtime_dir: Sockets and locks (`PISUB_RUNTIME_DIR`); None is `XDG_RUNTIME_DIR`, else a directory of the user's.
        session: Session id (`PISUB_SESSION`) of programs that name none.
        fsync: Whether what must survive a power cut is flushed (`PISUB_FSYNC`); tests turn it off.
        timeout_ms: Deadline of a run's work.
        ask_timeout_ms: Time for a whole ask from its first dialog; 0 waits for ever.
        question_timeout_ms: Time for one dialog; 0 waits for ever.
        queue_timeout_ms: How long a batch may wait for its first dialog at a host; 0 waits for ever.
        supervisor_timeout_ms: How long a child waits for a word of the session that started it.
        notify_bell: Whether the terminal's bell rings when a batch of questions is shown there.
        notify_desktop: Whether `notify-send` is called when a batch comes, where there is a desktop.
        notify_command: A program, with arguments as a shell would split them, that is run when a batch comes.
        notify_webhook: An http or https address that is posted to when a batch comes.
        notify_interval_ms: At least this long between two notifications; what comes between is told together.
        idle_exit_ms: The broker and a nursery leave after this long without work; the broker's default is 30 s.
        log_level: debug, info, warning or error, for the programs' log files.
        nursery: Whether runners are forked from a preloaded nursery (`PISUB_NURSERY`); no means a new interpreter each.
        max_depth: How deep delegation goes; 0 turns it off (contract, runs 5.1).
        max_spawns_per_session: Runs that a session may ever start; 0 is no limit. Kept from a session's first run on.
        max_spawns_per_run: Runs that may ever be started below one of a person's or a program's; 0 is the default.
        max_active_async_runs_per_session: Detached runs of a session that go on at once, nested ones not counted; 0 is
            no limit.
        global_concurrency_limit: Runs that one client's ``spawn_all`` keeps going at once, all its batches together.
        parallel_max_tasks: Tasks of one batch.
        parallel_concurrency: Runs of one batch that go on at once.
        wait_tool_enabled: Whether the tool ``bg_wait`` waits; switched off it returns at once.
        needs_attention_after_ms: A run that says nothing for longer, outside of a tool, is shown as quiet; None is a
            minute, and more for an agent that is to think: times 2 for ``medium``, 5 for ``high``, 10 above it.
        active_notice_after_ms: A run, or a tool, that is at work for this long is shown so.
        failed_tools_notice: So many failed tools in a row are shown.
        agents: Keys that replace those of an agent's file, by its name; ``disabled`` takes it away (`PISUB_AGENTS` is a
            JSON object).
        default_context: ``fresh`` or ``fork``, before what an agent says; None leaves it to the agent.
        intercom_bridge: What a child is told of its supervisor: ``mode`` (always, fork-only, off), ``instructionFile``,
            ``resultDelivery`` (`PISUB_INTERCOM_BRIDGE` is a JSON object).
    """

    home: Path | None = None
    runtime_dir: Path | None = None
    session: str | None = None
    fsync: bool = True
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    ask_timeout_ms: int = DEFAULT_ASK_TIMEOUT_MS
    question_timeout_ms: int = DEFAULT_QUESTION_TIMEOUT_MS
    queue_timeout_ms: int = 0
    supervisor_timeout_ms: Width = DEFAULT_SUPERVISOR_TIMEOUT_MS
    notify_bell: bool = True
    notify_desktop: bool = True
    notify_command: str | None = None
    notify_webhook: str | None = None
    notify_interval_ms: int = DEFAULT_NOTIFY_INTERVAL_MS
    idle_exit_ms: int | None = None
    log_level: str = "info"
    nursery: bool = True
    max_depth: Count = DEFAULT_MAX_DEPTH
    max_spawns_per_session: Count = 0
    max_spawns_per_run: Count = DEFAULT_SPAWNS_PER_RUN
    max_active_async_runs_per_session: Count = 0
    global_concurrency_limit: Width = DEFAULT_CONCURRENCY
    parallel_max_tasks: Width = DEFAULT_BATCH_TASKS
    parallel_concurrency: Width = DEFAULT_BATCH_CONCURRENCY
    wait_tool_enabled: bool = True
    needs_attention_after_ms: Width | None = None
    active_notice_after_ms: Width = round(ACTIVE_NOTICE_AFTER_S * 1000)
    failed_tools_notice: Width = FAILED_TOOLS_NOTICE
    agents: dict[str, dict[str, Any]] = {}
    default_context: Context | None = None
    intercom_bridge: dict[str, Any] = {}


def load_settings(
    *, environ: Mapping[str, str] | None = None, config_file: Path | None = None, **overrides: object
) -> Settings:
    """Read the settings.

    Args:
        environ: Instead of this process's environment.
        config_file: Instead of `PISUB_CONFIG` or the platform's place; a missing default file is no error.
        **overrides: Fields of ``Settings``; None means "not given".

    Raises:
        InvalidArgumentError: A key is unknown or a value is not allowed; the message names key and place.
    """
    source = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    values.update(_from_file(source, config_file))
    values.update(_from_environment(source))
    values.update({key: value for key, value in overrides.items() if value is not None})
    return _convert(values, "the settings passed")


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the ``PISUB_*`` variables that mean nothing: most are misspelt. Other programs may have some of theirs."""
    source = os.environ if environ is None else environ
    known = _NOT_SETTINGS | {_PREFIX + name.upper() for name in Settings.__struct_fields__}
    return sorted(name for name in source if name.startswith(_PREFIX) and name not in known)


def structured_places() -> tuple[str, str] | None:
    """Return where the schema of the program that this process belongs to is, and where its value goes."""
    schema, output = os.environ.get(OUTPUT_SCHEMA_VARIABLE), os.environ.get(STRUCTURED_OUTPUT_VARIABLE)
    return (schema, output) if schema and output else None


def caller_environment() -> dict[str, str]:
    """Return a copy of this process's environment, as a launch hands it to a runner."""
    return dict(os.environ)


def outer_depth() -> int:
    """Return how deep ``PISUB_DEPTH`` says that this process stands among delegations; 0 where it says no number."""
    text = os.environ.get(DEPTH_VARIABLE, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def wants_color(environ: Mapping[str, str] | None = None) -> bool:
    """Tell whether a terminal may be sent colours: not where ``NO_COLOR`` is set to anything, or ``TERM`` is dumb."""
    source = os.environ if environ is None else environ
    return not source.get("NO_COLOR") and source.get("TERM") != "dumb"


def is_debugging(environ: Mapping[str, str] | None = None) -> bool:
    """Tell whether ``PISUB_DEBUG`` asks for tracebacks; no setting, as it counts where the settings are wrong too."""
    source = os.environ if environ is None else environ
    return source.get("PISUB_DEBUG", "").lower() in {"1", "true", "yes", "on"}


def has_desktop(environ: Mapping[str, str] | None = None) -> bool:
    """Tell whether this process belongs to a desktop session, where a notification is seen."""
    source = os.environ if environ is None else environ
    return bool(source.get("DISPLAY") or source.get("WAYLAND_DISPLAY"))


def session_runtime_dir() -> str | None:
    """Return what the system names as the login session's runtime directory, or None."""
    return os.environ.get("XDG_RUNTIME_DIR") or None


def interpreter_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what the dynamic loader and the interpreter read when they start, so that no later launch can change it.

    PYTHONPATH is not among it: a runner gets its caller's ``sys.path`` with its launch.
    """
    source = os.environ if environ is None else environ
    return {
        name: value
        for name, value in sorted(source.items())
        if name.startswith(("LD_", "PYTHON")) and name != "PYTHONPATH"
    }


def daemon_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what a program of ours that outlives its starter is given: places, language, time zone, settings.

    Never which run started it: what a run leaves behind is found by that mark, and a daemon is nobody's.
    """
    source = os.environ if environ is None else environ
    return {
        name: value
        for name, value in source.items()
        if (name in _FOR_DAEMONS or name.startswith(("LC_", "XDG_", _PREFIX))) and name not in _OF_ONE_RUN
    }


def user_config_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of the user's configuration: agents, `config.toml`."""
    source = os.environ if environ is None else environ
    if named := source.get("PISUB_CONFIG"):
        return Path(named).parent
    import platformdirs  # noqa: PLC0415  # 10 ms that reading commands need not pay when PISUB_CONFIG is set

    return Path(platformdirs.user_config_dir("pisub", appauthor=False))


def config_path(environ: Mapping[str, str] | None = None) -> Path:
    """Return the configuration file: the one that ``PISUB_CONFIG`` names, else the user's."""
    source = os.environ if environ is None else environ
    named = source.get("PISUB_CONFIG")
    return Path(named) if named else user_config_dir(source) / "config.toml"


def _from_file(environ: Mapping[str, str], config_file: Path | None) -> dict[str, Any]:
    is_named = config_file is not None or bool(environ.get("PISUB_CONFIG"))
    path = config_file or config_path(environ)
    try:
        # /dev/null is how people say "none"; any other device could be read for ever.
        text = b"" if str(path) == os.devnull else read_small(path, _MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        if is_named:
            raise InvalidArgumentError(f"The configuration file {path} does not exist.", field="PISUB_CONFIG") from None
        return {}
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error.strerror}.", field="config") from error
    if len(text) > _MAX_FILE_BYTES:
        sentence = f"{path} has more than {_MAX_FILE_BYTES} bytes, which no configuration has."
        raise InvalidArgumentError(sentence, field="config")
    try:
        values = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{path} is not TOML: {error}", field="config") from error
    _convert(values, str(path))
    return values


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(Settings):
        name = _PREFIX + field.name.upper()
        text = environ.get(name)
        if text:
            if field.type == "bool" or field.type is bool:
                text = _SWITCHES.get(text.strip().lower(), text)
            value = _table(text) if field.name in _TABLES else text
            values[field.name] = value
            _convert({field.name: value}, name)
    return values


def _table(text: str) -> object:
    """Return the JSON value of a variable; what is none stays the text, and is refused as such."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _convert(values: dict[str, Any], place: str) -> Settings:
    unknown = sorted(values.keys() - set(Settings.__struct_fields__))
    if unknown:
        known = ", ".join(Settings.__struct_fields__)
        raise InvalidArgumentError(f"{place}: unknown setting {unknown[0]!r}; known are {known}.", field=unknown[0])
    # An environment writes booleans and numbers as text ("0", "true", "12"): strict=False takes them.
    try:
        return msgspec.convert(
            {key: str(value) if isinstance(value, Path) else value for key, value in values.items()},
            Settings,
            strict=False,
            dec_hook=_decode_path,
        )
    except msgspec.ValidationError as error:
        field = str(error).rpartition("$.")[2].rstrip("`") or None
        if field is None or field not in values:
            raise InvalidArgumentError(f"{place}: {error}", field=field) from error
        named = place if place.startswith(_PREFIX) else f"{place}: {field}"
        wanted = _WANTED[Settings.__annotations__[field]]
        raise InvalidArgumentError(f"{named} is {values[field]!r}: give {wanted}.", field=field) from error


def _decode_path(kind: type, value: object) -> Path:
    if kind is Path and isinstance(value, str):
        return Path(value).expanduser()
    raise TypeError(f"no conversion to {kind!r}")  # msgspec makes a ValidationError of it
