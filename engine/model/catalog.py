"""Which models there are: a name becomes an adapter, no name becomes a choice, and `agent models` gets its list.

Checking a name costs no import of an adapter's libraries: a bad one is refused before anything is stored (design, 9).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from engine.errors import ConfigurationError
from engine.model.base import Model

OPENAI_BASE_URL = "https://api.openai.com/v1"

PROVIDERS = {
    "openai": "openai/NAME: OpenAI, or any server that speaks its chat completions",
    "local": "local/smollm2 or local/PATH.gguf: a model in this machine's memory",
    "script": "script/FILE: answers replayed from a JSON file",
}

SMOLLM2_NOTICE = (
    "no model is configured, so the embedded local/smollm2 (135 million parameters, good for trying the pipeline only) "
    "serves: set OPENAI_API_KEY or OPENAI_BASE_URL and give --model openai/NAME for a real one"
)


class NoModelError(ConfigurationError):
    """No model was named and none is there to serve by itself."""

    def __init__(self) -> None:
        super().__init__(
            "no model is configured. Three ways to get one: set OPENAI_API_KEY (or OPENAI_BASE_URL for a server of "
            "your own) and give --model openai/NAME; run `agent models install smollm2` for a small embedded one; "
            "give --model script/FILE to replay answers from a file"
        )


class ModelChoice(NamedTuple):
    """The model that serves, and what a person should know of the choice, if anything."""

    name: str
    notice: str | None


class ProviderStatus(NamedTuple):
    """One line of `agent models`. `how` says how to configure it, or what to give as `--model`."""

    provider: str
    is_ready: bool
    detail: str
    how: str


def choose_model(
    name: str | None, *, environ: Mapping[str, str], data_dir: Path, base_url: str | None = None
) -> ModelChoice:
    """The model that a name, or nothing, stands for: `AGENT_MODEL`, `openai/$OPENAI_MODEL`, the embedded one.

    Raises:
        ConfigurationError: there is no such model, or it is not configured.
        NoModelError: nothing was named and nothing is configured.
    """
    notice = None
    named = (name or environ.get("AGENT_MODEL", "")).strip()
    if not named and _is_openai_ready(environ, base_url):
        model_id = environ.get("OPENAI_MODEL", "").strip()
        if not model_id:
            raise ConfigurationError(
                "an OpenAI-compatible endpoint is configured but no model is named: give --model openai/NAME, or set "
                "AGENT_MODEL=openai/NAME"
            )
        named = f"openai/{model_id}"
    if not named:
        if not _is_smollm2_ready(data_dir):
            raise NoModelError
        named, notice = "local/smollm2", SMOLLM2_NOTICE
    _check(named, environ=environ, data_dir=data_dir, base_url=base_url)
    return ModelChoice(named, notice)


def open_model(name: str, *, environ: Mapping[str, str], data_dir: Path, base_url: str | None = None) -> Model:
    """The adapter of `provider/model`; an empty name means the default one. Nothing is connected or loaded yet.

    Raises:
        ConfigurationError: there is no such model, or it is not configured.
    """
    name = choose_model(name, environ=environ, data_dir=data_dir, base_url=base_url).name
    provider, _, model_id = name.partition("/")
    match provider:
        case "openai":
            from engine.model.openai_chat import OpenAIChatModel

            address = base_url or environ.get("OPENAI_BASE_URL") or OPENAI_BASE_URL
            return OpenAIChatModel(name, model_id, address, environ.get("OPENAI_API_KEY"))
        case "local":
            from engine.model.local import LocalModel

            return LocalModel(name, _local_path(model_id, data_dir))
        case _:
            from engine.model.script import ScriptModel

            return ScriptModel.from_file(Path(model_id).expanduser(), name=name)


def list_models(*, environ: Mapping[str, str], data_dir: Path, base_url: str | None = None) -> list[ProviderStatus]:
    """What is configured, and how to configure the rest."""
    from engine.model.install import is_smollm2_installed, smollm2_path
    from engine.model.local import INSTALL_HINT, is_runtime_installed
    from engine.model.transport import shown_url

    address = base_url or environ.get("OPENAI_BASE_URL") or OPENAI_BASE_URL
    is_ready = _is_openai_ready(environ, base_url)
    key = "OPENAI_API_KEY is set" if environ.get("OPENAI_API_KEY") else "OPENAI_API_KEY is not set"
    detail = f"{shown_url(address)}, {key}"
    how = "--model openai/NAME" if is_ready else "set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own"
    rows = [ProviderStatus("openai", is_ready, detail, how)]
    if not is_runtime_installed():
        rows.append(ProviderStatus("local", False, "xllamacpp is not installed", INSTALL_HINT))
    elif not is_smollm2_installed(data_dir):
        how = "agent models install smollm2, or --model local/PATH.gguf"
        rows.append(ProviderStatus("local", False, "smollm2 is not installed", how))
    else:
        how = "--model local/smollm2 or local/PATH.gguf"
        rows.append(ProviderStatus("local", True, f"smollm2 at {smollm2_path(data_dir)}", how))
    rows.append(ProviderStatus("script", True, "answers from a JSON file", "--model script/FILE"))
    return rows


def _check(name: str, *, environ: Mapping[str, str], data_dir: Path, base_url: str | None) -> None:
    """Refuse a name that cannot be served, saying what to do."""
    provider, slash, model_id = name.partition("/")
    if not slash or not model_id or provider not in PROVIDERS:
        known = "; ".join(PROVIDERS.values())
        wrong = f"no provider {provider!r}" if slash and model_id else "it is not of the form provider/model"
        raise ConfigurationError(f"unknown model {name[:100]!r}, {wrong}. There are {known}")
    match provider:
        case "openai":
            from engine.model.transport import clean_base_url

            if not _is_openai_ready(environ, base_url):
                raise ConfigurationError(
                    f"{name} needs a key: set OPENAI_API_KEY, or OPENAI_BASE_URL (or --base-url) for your own server"
                )
            clean_base_url(base_url or environ.get("OPENAI_BASE_URL") or OPENAI_BASE_URL)
        case "local":
            _check_local(name, _local_path(model_id, data_dir))
        case _:
            if not Path(model_id).expanduser().is_file():
                raise ConfigurationError(f"{name}: there is no file {model_id}")


def _check_local(name: str, path: Path) -> None:
    from engine.model.install import SMOLLM2_FILE
    from engine.model.local import INSTALL_HINT, is_runtime_installed

    if not is_runtime_installed():
        raise ConfigurationError(f"{name} needs xllamacpp, which is not installed: {INSTALL_HINT}")
    if path.is_file():
        return
    if path.name == SMOLLM2_FILE and name == "local/smollm2":
        raise ConfigurationError("local/smollm2 is not installed: agent models install smollm2")
    raise ConfigurationError(f"{name}: there is no file {path}; the known name is local/smollm2")


def _local_path(model_id: str, data_dir: Path) -> Path:
    if model_id == "smollm2":
        from engine.model.install import smollm2_path

        return smollm2_path(data_dir)
    return Path(model_id).expanduser()


def _is_openai_ready(environ: Mapping[str, str], base_url: str | None) -> bool:
    return bool(base_url or environ.get("OPENAI_API_KEY") or environ.get("OPENAI_BASE_URL"))


def _is_smollm2_ready(data_dir: Path) -> bool:
    from engine.model.install import is_smollm2_installed

    if not is_smollm2_installed(data_dir):
        return False
    from engine.model.local import is_runtime_installed

    return is_runtime_installed()
