from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.tools.base import ToolError
from engine.tools.edit import replace_piece
from tests.tools.helpers import call, make_context

pytestmark = pytest.mark.anyio

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=8)
PIECES = st.text(st.sampled_from("ab\n\r é"), min_size=1, max_size=4)


async def test_a_piece_is_replaced_and_the_file_noted(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    (context.cwd / "a.py").write_text("x = 1\ny = 2\n")
    (context.cwd / "a.py").chmod(0o755)
    output = await call("edit", context, path="a.py", old_string="y = 2", new_string="y = 3")
    assert (context.cwd / "a.py").read_text() == "x = 1\ny = 3\n"
    assert (context.cwd / "a.py").stat().st_mode & 0o777 == 0o755
    assert output.text == "edited a.py at line 2"
    assert context.files_changed == ["a.py"]


async def test_a_piece_found_more_than_once_is_refused_with_its_lines(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    (context.cwd / "a").write_text("x\ny\nx\n")
    with pytest.raises(ToolError, match=r"found 2 times \(lines 1, 3\).*replace_all"):
        await call("edit", context, path="a", old_string="x", new_string="z")
    assert (context.cwd / "a").read_text() == "x\ny\nx\n"
    assert context.files_changed == []
    output = await call("edit", context, path="a", old_string="x", new_string="z", replace_all=True)
    assert (context.cwd / "a").read_text() == "z\ny\nz\n"
    assert output.text == "edited a at 2 places"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("nowhere", "x", "not found"),
        ("b  c", "x", "line 2 the same words stand with other white space"),
        ("", "x", "empty"),
        ("b", "b", "the same"),
        ("\ufffd", "x", "U\\+FFFD"),
        ("\ud800", "x", "surrogates"),
    ],
)
async def test_what_cannot_be_done_is_told_and_changes_nothing(tmp_path: Path, old: str, new: str, words: str) -> None:
    context = make_context(tmp_path)
    (context.cwd / "a").write_bytes(b"a\nb\tc\n\xff")
    with pytest.raises(ToolError, match=words):
        await call("edit", context, path="a", old_string=old, new_string=new)
    assert (context.cwd / "a").read_bytes() == b"a\nb\tc\n\xff"


async def test_crlf_bom_and_invalid_bytes_elsewhere_stay(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    (context.cwd / "a").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n\xff\xfe\0\r\n")
    await call("edit", context, path="a", old_string="one\ntwo\n", new_string="1\n2\n3\n")
    assert (context.cwd / "a").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n3\r\n\xff\xfe\0\r\n"


async def test_links_stay(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    (context.cwd / "real").write_text("old")
    (context.cwd / "soft").symlink_to("real")
    (context.cwd / "hard").hardlink_to(context.cwd / "real")
    await call("edit", context, path="soft", old_string="old", new_string="new")
    assert (context.cwd / "soft").is_symlink()
    assert (context.cwd / "hard").read_text() == "new"
    assert (context.cwd / "hard").samefile(context.cwd / "real")


async def test_a_missing_file_is_an_error_text(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="cannot read a: No such file"):
        await call("edit", make_context(tmp_path), path="a", old_string="x", new_string="y")


def test_a_file_is_not_blown_up_beyond_the_limit() -> None:
    with pytest.raises(ToolError, match="grow beyond"):
        replace_piece(b"a" * 100_000, "a", "b" * 100_000, replace_all=True)


@given(before=st.binary(max_size=40), after=st.binary(max_size=40), old=PIECES, new=WORDS)
def test_bytes_around_the_piece_are_untouched(before: bytes, after: bytes, old: str, new: str) -> None:
    piece = old.encode()
    data = before + piece + after
    assume(new != old)
    assume(sum(data.startswith(piece, at) for at in range(len(data))) == 1)
    try:
        changed, _ = replace_piece(data, old, new, replace_all=False)
    except ToolError:  # in a CRLF file a lone \n stands for CRLF, so this piece is another one
        assert b"\r\n" in data
        return
    if b"\r\n" not in data or "\n" not in old:
        assert changed == before + new.encode() + after


@given(lines=st.lists(WORDS, min_size=2, max_size=6), new=st.lists(WORDS, min_size=2, max_size=4), data=st.data())
def test_a_crlf_file_stays_one(lines: list[str], new: list[str], data: st.DataObject) -> None:
    raw = "\r\n".join(lines).encode()
    first = data.draw(st.integers(0, len(lines) - 2))
    old = "\n".join(lines[first : first + 2])
    assume(old != "\n".join(new))
    crlf = old.replace("\n", "\r\n").encode()
    assume(raw.find(crlf) == raw.rfind(crlf))
    changed, _ = replace_piece(raw, old, "\n".join(new), replace_all=False)
    assert changed.count(b"\n") == changed.count(b"\r\n")
    assert changed == raw.replace(crlf, "\r\n".join(new).encode())


@given(data=st.binary(max_size=60), old=PIECES, new=WORDS)
def test_replace_all_is_what_bytes_replace_does(data: bytes, old: str, new: str) -> None:
    assume(b"\r\n" not in data)
    assume(old != new)
    data = data + old.encode()
    assume(b"\r\n" not in data)
    changed, _ = replace_piece(data, old, new, replace_all=True)
    assert changed == data.replace(old.encode(), new.encode())
