"""Configuration: `KERNELEVOLVE_*`, then `./kernelevolve.toml`, then defaults. Unknown keys are errors."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ByteSize, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from kb.errors import SettingsError

PREFIX = "KERNELEVOLVE_"
CONFIG_FILE = "kernelevolve.toml"
ENDPOINT = "openai:"  # an embedding model of this prefix is behind an address
API_KEY_VARIABLE = "KERNELEVOLVE_EMBEDDING_API_KEY"  # of that; no setting: a key stands in no file
# Read by the tests (where sample material lies) and by the harness, which must not depend on this package.
_NOT_SETTINGS = {
    "KERNELEVOLVE_SHARED", "KERNELEVOLVE_KERNELBENCH", "KERNELEVOLVE_NATIVE_CACHE", API_KEY_VARIABLE,
}  # fmt: skip


def default_home() -> Path:
    """`$XDG_DATA_HOME/kernelevolve`, or `~/.local/share/kernelevolve`."""
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "kernelevolve"


class Price(BaseModel):
    """What a chat model costs, in USD per million tokens; `cached`: for input that the provider had kept."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    def cost(self, tokens_in: int, tokens_out: int, cached: int = 0) -> float:
        """USD for one answer; `cached` of the `tokens_in` were kept by the provider."""
        kept = self.input if self.cached is None else self.cached
        return ((tokens_in - cached) * self.input + cached * kept + tokens_out * self.output) / 1e6


class Settings(BaseSettings):
    """Everything that can be configured. Raises SettingsError in place of pydantic's ValidationError."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", toml_file=CONFIG_FILE, env_ignore_empty=True, frozen=True
    )

    home: Path = Field(default_factory=default_home, description="Folder that holds everything stored.")
    embedding_model: str = Field(
        default="",
        description="A sentence-transformers model name or folder, or openai:NAME for an endpoint; "
        "empty: the bundled MiniLM.",
    )
    embedding_base_url: str = Field(
        default="", description="Address of the endpoint of openai:NAME, up to /v1; empty: OpenAI's."
    )
    embedding_window: int = Field(
        default=512, ge=32, description="Tokens that the model of openai:NAME reads of a text."
    )
    embedding_timeout_s: float = Field(
        default=60.0, gt=0, description="How long to wait for an answer of the endpoint of openai:NAME."
    )
    chat_model: str = Field(
        default="",
        description="A chat model, provider:NAME, that says queries in other words and reranks; empty: none.",
    )
    chat_base_url: str = Field(
        default="", description="Address of the chat model's server, up to /v1; empty: the provider's own."
    )
    chat_timeout_s: float = Field(
        default=60.0, gt=0, description="How long to wait for an answer of the chat model."
    )
    prices: dict[str, Price] = Field(
        default_factory=dict,
        description='USD per million tokens of chat models: {"provider:NAME": {"input": 1, "output": 8}}.',
    )
    chat_patience_s: float = Field(
        default=1800.0, ge=0, description="How long a search waits for a chat model that does not answer."
    )
    cross_encoder: str = Field(
        default="", description="A local cross-encoder that reranks: its folder or cached name; empty: none."
    )
    exact_passages: int = Field(
        default=200_000,
        ge=0,
        description="Scopes of up to so many passages are searched exactly, larger ones by Chroma.",
    )
    lock_timeout_s: float = Field(default=60.0, ge=0, description="How long to wait for another process.")
    max_file_mb: float = Field(default=64.0, gt=0, description="Larger files are reported, not ingested.")
    max_archive_mb: float = Field(
        default=2048.0, gt=0, description="Archives of one run may not unpack to more than this."
    )
    quota: ByteSize | None = Field(
        default=None, description="The home folder may not grow beyond this: 500MB, 20GB …"
    )

    @field_validator("home")
    @classmethod
    def _expand_user(cls, home: Path) -> Path:
        try:
            return home.expanduser()  # neither TOML nor a service's environment knows `~`
        except RuntimeError as error:  # nobody of this name
            raise ValueError(str(error)) from error

    @field_validator("embedding_base_url", "chat_base_url")
    @classmethod
    def _http(cls, url: str) -> str:
        if not url:
            return url
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("an address such as http://127.0.0.1:8080/v1 is needed")
        if parts.username or parts.password:  # it would be shown and stored
            raise ValueError(f"no credentials in an address; set {API_KEY_VARIABLE} or the provider's own")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _address_of_what(self) -> Settings:
        if self.embedding_model == ENDPOINT:
            raise ValueError(f"embedding_model names no model: {ENDPOINT}NAME")
        if self.embedding_base_url and not self.embedding_model.startswith(ENDPOINT):
            raise ValueError(f"embedding_base_url is for an embedding_model {ENDPOINT}NAME")
        if self.chat_model and not all(self.chat_model.partition(":")):
            raise ValueError("chat_model must be provider:NAME, such as openai:NAME")
        if self.chat_base_url and not self.chat_model:
            raise ValueError("chat_base_url is for a chat_model")
        return self

    def __init__(self, **values: Any) -> None:
        _reject_unknown_environment(type(self).model_fields)
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError(_one_line(error), hint=f"check {PREFIX}* and {CONFIG_FILE}") from error
        except ValueError as error:  # a TOML file that does not parse
            raise SettingsError(f"{CONFIG_FILE}: {error}", hint="correct the file's syntax") from error

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def _reject_unknown_environment(fields: dict[str, Any]) -> None:
    """pydantic-settings ignores unknown variables; a misspelt one must not pass unseen."""
    known = {PREFIX + name.upper() for name in fields}
    for name in os.environ:
        if name.upper().startswith(PREFIX) and name.upper() not in known | _NOT_SETTINGS:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(sorted(known))}"
            raise SettingsError(f"unknown setting {name} in the environment", hint=hint)


def _one_line(error: ValidationError) -> str:
    parts = []
    for item in error.errors():
        where = ".".join(str(p) for p in item["loc"]) or "settings"
        what = "unknown setting" if item["type"] == "extra_forbidden" else item["msg"]
        parts.append(f"{where}: {what}")
    return "; ".join(parts)
