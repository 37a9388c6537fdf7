"""glob, grep and ls: what looks through folders."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from engine.limits import TOOL_TEXT_MAX
from engine.tools import glob as glob_module
from engine.tools import grep as grep_module
from engine.tools.base import ToolContext, ToolError
from engine.tools.children import is_any_live
from engine.tools.walk import PathPattern
from tests.tools.helpers import call, make_context

pytestmark = pytest.mark.anyio


def make_tree(folder: Path, *paths: str) -> ToolContext:
    context = make_context(folder)
    for path in paths:
        target = context.cwd / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"hello from {path}\n")
    return context


@pytest.mark.parametrize(
    ("pattern", "path", "is_match"),
    [
        ("*.py", "a.py", True),
        ("*.py", "d/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "d/e/a.py", True),
        ("d/**", "d/e/a.py", True),
        ("d/**/e/*", "d/e/a", True),
        ("d/**/e/*", "d/x/y/e/a", True),
        ("*.{py,pyi}", "a.pyi", True),
        ("*.{c,{h,hh}}", "a.hh", True),
        ("[!a]?.txt", "bc.txt", True),
        ("[!a]?.txt", "ab.txt", False),
        ("{a", "{a", True),
        ("./d/*", "d/a", True),
        (".*", ".hidden", True),
    ],
)
def test_patterns_match_as_shells_do(pattern: str, path: str, is_match: bool) -> None:
    compiled = PathPattern(pattern)
    states = compiled.start()
    for name in path.split("/"):
        states = compiled.step(states, name)
    assert compiled.is_match(states) == is_match


async def test_glob_finds_in_order_of_path_and_leaves_git_out(tmp_path: Path) -> None:
    context = make_tree(tmp_path, "b.py", "a/z.py", "a/b/c.py", ".git/x.py", "a/.git/y.py", "c.txt")
    assert (await call("glob", context, pattern="**/*.py")).text == "a/b/c.py\na/z.py\nb.py"
    assert (await call("glob", context, pattern="*", path="a")).text == "a/b/\na/z.py"
    assert (await call("glob", context, pattern="*.rs")).text == "[no matches]"


async def test_glob_does_not_follow_loops(tmp_path: Path) -> None:
    context = make_tree(tmp_path, "a/b.py")
    (context.cwd / "a/loop").symlink_to("..")
    with anyio.fail_after(5):
        assert (await call("glob", context, pattern="**/*")).text == "a/\na/b.py\na/loop"


async def test_glob_is_bounded_with_a_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glob_module, "MATCHES_MAX", 2)
    context = make_tree(tmp_path, "a", "b", "c")
    output = await call("glob", context, pattern="*")
    assert output.text == "a\nb\n[cut: the first 2 matches are shown; narrow the pattern or the path]"


async def test_no_pattern_takes_exponential_time(tmp_path: Path) -> None:
    context = make_tree(tmp_path, "a" * 200, *["d/" * n + "f" for n in range(1, 15)])
    with anyio.fail_after(5):
        await call("glob", context, pattern="*a" * 60 + "b")
        await call("glob", context, pattern="**/" * 60 + "*a*a*a*b")


@pytest.mark.parametrize("pattern", ["", "/", "../*", "{a,b}" * 10])
async def test_a_useless_pattern_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(ToolError, match="pattern"):
        await call("glob", make_context(tmp_path), pattern=pattern)


async def test_grep_tells_path_line_and_text_in_order(tmp_path: Path) -> None:
    context = make_tree(tmp_path, "b.py", "a/c.txt", ".git/x")
    assert (await call("grep", context, pattern="hel+o")).text == "a/c.txt:1:hello from a/c.txt\nb.py:1:hello from b.py"
    assert (await call("grep", context, pattern="HELLO", include="*.txt")).text == "[no matches]"
    output = await call("grep", context, pattern="HELLO", include="*.txt", ignore_case=True)
    assert output.text == "a/c.txt:1:hello from a/c.txt"
    assert (await call("grep", context, pattern="from", path="a")).text == "a/c.txt:1:hello from a/c.txt"
    assert (await call("grep", context, pattern="from", path="b.py")).text == "b.py:1:hello from b.py"


async def test_grep_shows_lines_around(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    (context.cwd / "a").write_text("".join(f"{n}\n" for n in range(1, 21)))
    output = await call("grep", context, pattern="^(5|7|15)$", context_lines=1)
    assert output.text.splitlines() == [
        *["a-4-4", "a:5:5", "a-6-6", "a:7:7", "a-8-8", "--", "a-14-14", "a:15:15", "a-16-16"]
    ]


async def test_grep_leaves_binaries_pipes_and_invalid_bytes_be(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    (context.cwd / "bin").write_bytes(b"hit\0hit\n")
    (context.cwd / "text").write_bytes(b"\xff hit \xe9\r\n")
    os.mkfifo(context.cwd / "pipe")
    with anyio.fail_after(5):
        output = await call("grep", context, pattern="hit")
    assert output.text == "text:1:\ufffd hit \ufffd\n[1 binary files were left out]"


async def test_grep_cuts_long_lines_around_the_match(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    (context.cwd / "a").write_text("x" * 500_000 + "needle" + "y" * 500_000)
    output = await call("grep", context, pattern="needle")
    assert "needle" in output.text
    assert output.text.startswith("a:1:[...]xxx")
    assert len(output.text) < 500


async def test_grep_is_bounded(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    (context.cwd / "a").write_text(f"{'x' * 300}\n" * 10_000)
    output = await call("grep", context, pattern="x")
    assert len(output.text) <= TOOL_TEXT_MAX
    assert "stopped at 500 matches" in output.text


@pytest.mark.parametrize("arguments", [{"pattern": "("}, {"pattern": "x", "include": ".."}, {"pattern": "x" * 10_001}])
async def test_grep_refuses_what_is_no_pattern(tmp_path: Path, arguments: dict[str, str]) -> None:
    with pytest.raises(ToolError, match="pattern"):
        await call("grep", make_context(tmp_path), **arguments)


async def test_grep_refuses_devices_and_missing_paths(tmp_path: Path) -> None:
    for path in ("/dev/zero", "missing"):
        with anyio.fail_after(5), pytest.raises(ToolError):
            await call("grep", make_context(tmp_path), pattern="x", path=path)


async def test_an_expression_that_backtracks_for_ever_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grep_module, "SEARCH_SECONDS", 0.5)
    context = make_context(tmp_path)
    (context.cwd / "a").write_text("hit aa\n" + "a" * 60 + "\n")
    with anyio.fail_after(5):
        output = await call("grep", context, pattern="hit|^(a+)+b$")
    assert output.is_error
    assert output.text.startswith("a:1:hit aa\n[stopped after 0.5 s")
    assert not is_any_live()


async def test_a_cancel_ends_the_search(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    (context.cwd / "a").write_text("a" * 60 + "\n")
    with anyio.fail_after(5):
        with anyio.move_on_after(0.2) as scope:
            await call("grep", context, pattern="^(a+)+b$")
    assert scope.cancelled_caught
    assert not is_any_live()


async def test_ls_tells_kinds_sizes_and_targets(tmp_path: Path) -> None:
    context = make_tree(tmp_path, "d/x")
    (context.cwd / "f").write_text("12345")
    (context.cwd / "l").symlink_to("nowhere/../f")
    os.mkfifo(context.cwd / "p")
    output = await call("ls", context)
    assert output.text == "d/\nf  5\nl -> nowhere/../f\np  [neither file nor folder]"
    (context.cwd / "d/x").unlink()
    assert (await call("ls", context, path="d")).text == "[the folder is empty]"
    for path in ("missing", "f"):
        with pytest.raises(ToolError, match="cannot list"):
            await call("ls", context, path=path)
