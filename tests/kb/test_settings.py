from __future__ import annotations

from pathlib import Path

import pytest

from kb import Settings
from kb.errors import SettingsError


def test_environment_wins_over_file_wins_over_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERNELEVOLVE_HOME", "/from/environment")
    (tmp_path / "kernelevolve.toml").write_text('home = "/from/file"\nmax_file_mb = 3.0\n')
    settings = Settings()
    assert settings.home == Path("/from/environment")
    assert settings.max_file_mb == 3.0
    assert settings.lock_timeout_s == 60.0


def test_home_defaults_to_the_users_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELEVOLVE_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert Settings().home == tmp_path / "kernelevolve"


def test_misspelt_variable_is_an_error_with_a_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELEVOLVE_HOEM", "/x")
    with pytest.raises(SettingsError, match="KERNELEVOLVE_HOEM") as caught:
        Settings()
    assert "KERNELEVOLVE_HOME" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "message"),
    [("hoem = '/x'", "hoem: unknown setting"), ("max_file_mb = 'big'", "max_file_mb"), ("home = [", "toml")],
)
def test_bad_file_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernelevolve.toml").write_text(content)
    with pytest.raises(SettingsError, match=message) as caught:
        Settings()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["KERNELEVOLVE_SHARED", "KERNELEVOLVE_KERNELBENCH", "KERNELEVOLVE_NATIVE_CACHE"]
)
def test_variables_of_other_parts_are_no_settings(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "/x")
    assert Settings().max_file_mb > 0


def test_tilde_in_home_is_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("KERNELEVOLVE_HOME", "~/kernels")
    assert Settings().home == Path("/home/someone/kernels")
    monkeypatch.setenv("KERNELEVOLVE_HOME", "~nobody-of-this-name/kernels")
    with pytest.raises(SettingsError, match="home"):
        Settings()
