import os
import re
from pathlib import Path

import msgspec
import pytest

from pisub.config import Settings, load_settings, unknown_variables, user_config_dir
from pisub.errors import InvalidArgumentError


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return path


def test_what_is_passed_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    path = config(tmp_path, "timeout_ms = 1\nmax_depth = 1\nlog_level = 'debug'")
    environ = {"PISUB_TIMEOUT_MS": "2", "PISUB_MAX_DEPTH": "3"}
    settings = load_settings(environ=environ, config_file=path, timeout_ms=9)
    assert (settings.timeout_ms, settings.max_depth, settings.log_level) == (9, 3, "debug")
    assert settings.ask_timeout_ms == Settings().ask_timeout_ms


def test_an_unknown_key_is_named_with_its_place(tmp_path: Path) -> None:
    path = config(tmp_path, "timeuot_ms = 1")
    with pytest.raises(InvalidArgumentError, match="timeuot_ms") as caught:
        load_settings(environ={}, config_file=path)
    assert str(path) in caught.value.message
    assert caught.value.field == "timeuot_ms"


def test_a_wrong_value_is_named_with_its_variable() -> None:
    with pytest.raises(InvalidArgumentError, match="PISUB_TIMEOUT_MS") as caught:
        load_settings(environ={"PISUB_TIMEOUT_MS": "soon", "PISUB_CONFIG": ""}, config_file=None)
    assert caught.value.field == "timeout_ms"
    assert caught.value.message == "PISUB_TIMEOUT_MS is 'soon': give a whole number."


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("number", range(5))
def test_a_switch_in_the_environment_is_written_in_five_ways_and_wins_over_the_file(
    tmp_path: Path, number: int, is_on: bool
) -> None:
    words = ("true", "1", "yes", "on", "enabled") if is_on else ("false", "0", "no", "off", "disabled")
    path = config(tmp_path, f"wait_tool_enabled = {str(not is_on).lower()}")
    for word in (words[number], words[number].upper()):
        settings = load_settings(environ={"PISUB_WAIT_TOOL_ENABLED": word}, config_file=path)
        assert settings.wait_tool_enabled is is_on


@pytest.mark.parametrize("text", ["maybe", "2", "tru", " "])
def test_what_is_no_switch_is_refused_by_its_variable(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="PISUB_WAIT_TOOL_ENABLED") as caught:
        load_settings(environ={"PISUB_WAIT_TOOL_ENABLED": text, "PISUB_CONFIG": ""})
    assert caught.value.field == "wait_tool_enabled"


@pytest.mark.parametrize("field", msgspec.structs.fields(Settings), ids=lambda field: field.name)
def test_a_value_of_a_type_that_fits_no_setting_is_answered_with_what_does(
    field: msgspec.structs.FieldInfo, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgumentError, match=rf": {field.name} is \[\]: give (a|true)") as caught:
        load_settings(environ={}, config_file=config(tmp_path, f"{field.name} = []"))
    assert caught.value.field == field.name


def test_a_variable_that_means_nothing_is_found() -> None:
    environ = {"PISUB_FSINC": "0", "PISUB_FSYNC": "0", "PISUB_RUN_ID": "x", "PISUB_DEBUG": "1", "PATH": "/bin"}
    assert unknown_variables(environ) == ["PISUB_FSINC"]


def test_a_file_that_is_not_toml_or_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="is not TOML"):
        load_settings(environ={}, config_file=config(tmp_path, "= 1"))
    with pytest.raises(InvalidArgumentError, match="does not exist"):
        load_settings(environ={"PISUB_CONFIG": str(tmp_path / "missing.toml")})


def test_a_file_without_an_end_or_a_writer_is_refused_and_the_null_device_is_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for place in (Path("/dev/zero"), tmp_path / "fifo", tmp_path):
        with pytest.raises(InvalidArgumentError, match=re.escape(f"{place} cannot be read: ")) as caught:
            load_settings(environ={"PISUB_CONFIG": str(place)})
        assert caught.value.field == "config"
    with pytest.raises(InvalidArgumentError, match="which no configuration has"):
        load_settings(environ={}, config_file=config(tmp_path, "#" * (1024 * 1024 + 1)))
    assert load_settings(environ={"PISUB_CONFIG": os.devnull}) == Settings()


def test_booleans_and_paths_are_read_from_text(tmp_path: Path) -> None:
    environ = {"PISUB_FSYNC": "0", "PISUB_HOME": "~/x"}
    settings = load_settings(environ=environ, config_file=config(tmp_path, ""))
    assert settings.fsync is False
    assert settings.home == Path("~/x").expanduser()


def test_an_empty_variable_is_as_if_it_were_not_set(tmp_path: Path) -> None:
    assert load_settings(environ={"PISUB_SESSION": ""}, config_file=config(tmp_path, "")).session is None


def test_the_configuration_lies_beside_the_named_file(tmp_path: Path) -> None:
    assert user_config_dir({"PISUB_CONFIG": str(tmp_path / "c.toml")}) == tmp_path
