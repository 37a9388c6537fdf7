"""A name becomes a model, and no name a choice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import ConfigurationError
from engine.model import local
from engine.model.catalog import NoModelError, choose_model, list_models, open_model
from engine.model.install import SMOLLM2_SIZE, smollm2_path

KEY = {"OPENAI_API_KEY": "sk-test"}
OWN = {"OPENAI_BASE_URL": "http://127.0.0.1:11434/v1"}


def chosen(data_dir: Path, name: str | None = None, base_url: str | None = None, **environ: str) -> str:
    return choose_model(name, environ=environ, data_dir=data_dir, base_url=base_url).name


def put_weights(data_dir: Path) -> None:
    """A file of the right size: what choosing looks at."""
    path = smollm2_path(data_dir)
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(SMOLLM2_SIZE)


def test_a_named_model_goes_before_the_environment(tmp_path: Path) -> None:
    assert chosen(tmp_path, "openai/a", AGENT_MODEL="openai/b", **KEY) == "openai/a"
    assert chosen(tmp_path, AGENT_MODEL="openai/b", OPENAI_MODEL="c", **KEY) == "openai/b"
    assert chosen(tmp_path, OPENAI_MODEL="c", **KEY) == "openai/c"
    assert chosen(tmp_path, "openai/org/name:tag", **OWN) == "openai/org/name:tag"
    assert chosen(tmp_path, "openai/a", base_url="http://host/v1") == "openai/a"


def test_an_endpoint_without_a_model_name_asks_for_one(tmp_path: Path) -> None:
    put_weights(tmp_path)
    for environ in (KEY, OWN):
        with pytest.raises(ConfigurationError, match="--model openai/NAME"):
            chosen(tmp_path, **environ)


def test_with_nothing_configured_the_embedded_model_serves_and_says_so(tmp_path: Path) -> None:
    put_weights(tmp_path)
    choice = choose_model(None, environ={}, data_dir=tmp_path)
    assert choice.name == "local/smollm2"
    assert choice.notice is not None
    assert "OPENAI_API_KEY" in choice.notice
    assert "\n" not in choice.notice
    named = choose_model("local/smollm2", environ={}, data_dir=tmp_path)
    assert named.notice is None


def test_with_nothing_at_all_the_three_ways_are_named(tmp_path: Path) -> None:
    with pytest.raises(NoModelError) as caught:
        chosen(tmp_path)
    for way in ("OPENAI_API_KEY", "agent models install smollm2", "script/FILE"):
        assert way in str(caught.value)


def test_weights_without_their_runtime_do_not_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_weights(tmp_path)
    monkeypatch.setattr(local, "is_runtime_installed", lambda: False)
    with pytest.raises(NoModelError):
        chosen(tmp_path)
    with pytest.raises(ConfigurationError, match="pip install"):
        chosen(tmp_path, "local/smollm2")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt-4", "provider/model"),
        ("openai/", "provider/model"),
        ("/x", "no provider ''"),
        ("anthropic/x", "no provider 'anthropic'"),
        ("openai/x", "OPENAI_API_KEY"),
        ("local/smollm2", "agent models install smollm2"),
        ("local/none.gguf", "no file none.gguf"),
        ("script/none.json", "no file none.json"),
    ],
)
def test_a_name_that_cannot_be_served_says_what_to_do(tmp_path: Path, name: str, words: str) -> None:
    for attempt in (choose_model, open_model):
        with pytest.raises(ConfigurationError) as caught:
            attempt(name, environ={}, data_dir=tmp_path)
        assert words in str(caught.value)


def test_an_unknown_provider_gets_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"openai/NAME.*local/smollm2.*script/FILE"):
        chosen(tmp_path, "anthropic/x")


def test_a_bad_base_url_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="base URL"):
        chosen(tmp_path, "openai/x", base_url="host")


def test_models_are_opened_by_name(tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    path.write_text('{"responses":[{"text":"hi"}]}')
    put_weights(tmp_path)
    chat = open_model("openai/x", environ=KEY, data_dir=tmp_path)
    replayed = open_model(f"script/{path}", environ={}, data_dir=tmp_path)
    embedded = open_model("", environ={}, data_dir=tmp_path)
    assert (chat.name, chat.takes_tools, "image/png" in chat.media_types) == ("openai/x", True, True)
    assert replayed.name == f"script/{path}"
    assert (embedded.name, embedded.takes_tools, embedded.media_types) == ("local/smollm2", False, frozenset())


def test_the_list_says_what_is_ready_and_how_to_get_the_rest(tmp_path: Path) -> None:
    bare = {row.provider: row for row in list_models(environ={}, data_dir=tmp_path)}
    assert [row.is_ready for row in bare.values()] == [False, False, True]
    assert "OPENAI_API_KEY" in bare["openai"].how
    put_weights(tmp_path)
    environ = {"OPENAI_API_KEY": "sk-secret", "OPENAI_BASE_URL": "http://me:secret@host/v1"}
    full = list_models(environ=environ, data_dir=tmp_path)
    assert all(row.is_ready for row in full)
    assert "secret" not in str(full)


def test_choosing_a_model_imports_no_client_library(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from engine.model.catalog import *;"
        f"open_model('openai/x', environ={KEY!r}, data_dir=Path({str(tmp_path)!r}));"
        f"list_models(environ={KEY!r}, data_dir=Path({str(tmp_path)!r}));"
        "print(sorted({'httpx2', 'xllamacpp', 'ssl', 'httpcore2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
