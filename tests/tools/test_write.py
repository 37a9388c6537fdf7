from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from engine.tools.base import ToolError
from tests.tools.helpers import call, make_context

pytestmark = pytest.mark.anyio


async def test_a_new_file_is_made_with_its_folders_and_noted(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    output = await call("write", context, path="a/b/c.txt", content="grüße\n")
    assert (context.cwd / "a/b/c.txt").read_bytes() == "grüße\n".encode()
    assert output.text == "made a/b/c.txt: 8 bytes"
    assert context.files_changed == ["a/b/c.txt"]


async def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    before = os.umask(0o027)
    try:
        await call("write", context, path="a.txt", content="")
    finally:
        os.umask(before)
    assert (context.cwd / "a.txt").stat().st_mode & 0o777 == 0o640


async def test_an_old_file_keeps_its_mode_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    target = context.cwd / "a.sh"
    target.write_text("old and longer")
    target.chmod(0o750)
    output = await call("write", context, path="a.sh", content="new")
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o750
    assert output.text.startswith("replaced a.sh")
    assert list(context.cwd.iterdir()) == [target]


async def test_a_symbolic_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    (context.cwd / "sub").mkdir()
    (context.cwd / "sub/real").write_text("old")
    (context.cwd / "link").symlink_to("sub/real")
    (context.cwd / "dangling").symlink_to("sub/made")
    await call("write", context, path="link", content="new")
    await call("write", context, path="dangling", content="made")
    assert (context.cwd / "link").is_symlink()
    assert (context.cwd / "sub/real").read_text() == "new"
    assert (context.cwd / "dangling").is_symlink()
    assert (context.cwd / "sub/made").read_text() == "made"


@pytest.mark.parametrize("content", ["longer than before", "s"])
async def test_hard_links_stay_one_file(tmp_path: Path, content: str) -> None:
    context = make_context(tmp_path)
    (context.cwd / "one").write_text("content")
    (context.cwd / "two").hardlink_to(context.cwd / "one")
    await call("write", context, path="one", content=content)
    assert (context.cwd / "two").read_text() == content
    assert (context.cwd / "one").samefile(context.cwd / "two")


async def test_a_reader_never_sees_a_half(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    target = context.cwd / "a.txt"
    target.write_text("0" * 100_000)
    with target.open() as early:
        await call("write", context, path="a.txt", content="1" * 100_000)
        assert early.read() == "0" * 100_000
    assert target.read_text() == "1" * 100_000


async def test_concurrent_writers_leave_one_of_their_texts_whole(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    texts = [str(number) * 50_000 for number in range(8)]

    async def write(text: str) -> None:
        await call("write", context, path="a.txt", content=text)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for text in texts:
                tasks.start_soon(write, text)
    assert (context.cwd / "a.txt").read_text() in texts
    assert [path.name for path in context.cwd.iterdir()] == ["a.txt"]


async def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    os.mkfifo(context.cwd / "pipe")
    (context.cwd / "file").touch()
    (context.cwd / "loop").symlink_to("loop")
    for path in (".", "pipe", "/dev/null", "file/below", "loop"):
        with anyio.fail_after(5), pytest.raises(ToolError):
            await call("write", context, path=path, content="x")
    assert context.files_changed == []


async def test_a_cancelled_call_writes_nothing(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await call("write", context, path="a.txt", content="x")
    assert scope.cancelled_caught
    assert list(context.cwd.iterdir()) == []


@pytest.mark.parametrize("links", [1, 2])
def test_a_disk_that_is_full_leaves_the_old_content(tmp_path: Path, links: int) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old content")
    if links == 2:
        (tmp_path / "b.txt").hardlink_to(target)
    code = (
        "import resource, anyio, sys\n"
        "from pathlib import Path\n"
        "from engine.tools.base import ToolContext, ToolError\n"
        "from engine.tools.write import TOOL\n"
        "folder = Path(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "context = ToolContext(folder, folder / 'out')\n"
        "try:\n"
        "    anyio.run(TOOL.run, {'path': 'a.txt', 'content': 'x' * 100_000}, context)\n"
        "except ToolError as error:\n"
        "    print(error, context.files_changed)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=root, capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout == "cannot write a.txt: File too large []\n"
    assert target.read_text() == "old content"
    assert len(list(tmp_path.iterdir())) == links
