from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import anyio
import pytest

from engine.limits import TOOL_TEXT_MAX
from engine.tools.base import ToolError
from tests.tools.helpers import call, make_context

pytestmark = pytest.mark.anyio


async def test_a_text_file_is_shown_as_it_is(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    (context.cwd / "a.txt").write_bytes("ein\r\nzwei\tß\nlast".encode())
    output = await call("read", context, path="a.txt")
    assert output.text == "ein\r\nzwei\tß\nlast"
    assert output.size == len(output.text.encode())
    assert (await call("read", context, path=str(context.cwd / "a.txt"))).text == output.text


async def test_a_window_of_lines_says_how_to_go_on(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    (context.cwd / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    output = await call("read", context, path="a.txt", offset=3, limit=2)
    assert output.text.startswith("line 3\nline 4\n[cut:")
    assert "Go on with offset=5" in output.text
    assert (await call("read", context, path="a.txt", offset=9, limit=2)).text == "line 9\nline 10\n"


async def test_windows_put_together_are_the_file(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    lines = [f"{n} {'x' * (n % 90)}\n" for n in range(3000)]
    (context.cwd / "a.txt").write_text("".join(lines))
    seen: list[str] = []
    while len(seen) < len(lines):
        output = await call("read", context, path="a.txt", offset=len(seen) + 1)
        assert len(output.text) <= TOOL_TEXT_MAX
        body, notice, rest = output.text.partition("[cut:")
        seen += body.splitlines(keepends=True)
        assert not notice or f"offset={len(seen) + 1}" in rest
    assert seen == lines


async def test_a_line_of_any_length_is_bounded(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    (context.cwd / "a.txt").write_text("x" * 1_000_000 + "\nsecond\n")
    output = await call("read", context, path="a.txt")
    assert len(output.text) <= TOOL_TEXT_MAX
    assert "line 1 is longer" in output.text
    assert output.size == 1_000_008
    assert (await call("read", context, path="a.txt", offset=2)).text == "second\n"


async def test_an_offset_behind_the_end_names_the_number_of_lines(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    (context.cwd / "a.txt").write_text("one\ntwo")
    with pytest.raises(ToolError, match="only 2 lines"):
        await call("read", context, path="a.txt", offset=9)


async def test_an_empty_file_says_so(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    (context.cwd / "a.txt").touch()
    assert (await call("read", context, path="a.txt")).text == "[the file is empty]"


async def test_invalid_utf8_is_replaced_and_said(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    (context.cwd / "a.txt").write_bytes(b"caf\xe9\n")
    output = await call("read", context, path="a.txt")
    assert output.text == "caf\ufffd\n[bytes that are not valid UTF-8 are shown as U+FFFD]"


async def test_a_byte_order_mark_is_not_shown(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    (context.cwd / "a.txt").write_bytes(b"\xef\xbb\xbfhi\n")
    assert (await call("read", context, path="a.txt")).text == "hi\n"


@pytest.mark.parametrize(
    ("start", "kind"),
    [(b"\x89PNG\r\n\x1a\n\0", "PNG image"), (b"%PDF-1.7", "PDF document"), (b"ab\0cd", "binary data")],
)
async def test_a_binary_file_is_refused_with_type_and_size(tmp_path: Path, start: bytes, kind: str) -> None:
    context = make_context(tmp_path)
    (context.cwd / "a.bin").write_bytes(start.ljust(1234, b"x"))
    with pytest.raises(ToolError, match=f"a.bin is no text file: {kind}, 1,234 bytes"):
        await call("read", context, path="a.bin")


async def test_pipes_devices_sockets_and_folders_are_refused_at_once(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    os.mkfifo(context.cwd / "pipe")
    (context.cwd / "link").symlink_to("pipe")
    expected = {"pipe": "named pipe", "link": "named pipe", "/dev/zero": "character device", ".": "folder"}
    with socket.socket(socket.AF_UNIX) as listener, tempfile.TemporaryDirectory(dir="/tmp") as short:
        listener.bind(f"{short}/sock")  # a socket's path has to be short
        expected[f"{short}/sock"] = "socket"
        for path, kind in expected.items():
            with anyio.fail_after(5), pytest.raises(ToolError, match=kind):
                await call("read", context, path=path)


@pytest.mark.parametrize("path", ["missing.txt", "", "a\0b", "a.txt/b", "x" * 5000])
async def test_a_path_that_leads_nowhere_is_an_error_text(tmp_path: Path, path: str) -> None:
    context = make_context(tmp_path)
    (context.cwd / "a.txt").touch()
    with pytest.raises(ToolError):
        await call("read", context, path=path)


async def test_a_sparse_file_of_a_terabyte_is_answered_at_once(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    with (context.cwd / "big").open("wb") as file:
        file.write(b"start\n" + b"x" * 10_000)
        file.truncate(1 << 40)
    with anyio.fail_after(5):
        output = await call("read", context, path="big", limit=1)
    assert output.text.startswith("start\n[cut:")
    assert output.size == 1 << 40


async def test_a_cancel_ends_the_search_for_a_far_line(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    with (context.cwd / "big").open("wb") as file:
        file.write(b"x\n" * 10_000)
        file.truncate(1 << 40)
    with anyio.fail_after(5):
        with anyio.move_on_after(0.1) as scope:
            await call("read", context, path="big", offset=1_000_000)
    assert scope.cancelled_caught
