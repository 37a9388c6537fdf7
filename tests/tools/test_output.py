from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.limits import TOOL_TEXT_MAX
from engine.tools import output as output_module
from engine.tools.output import KEPT_BYTES_MAX, OutputSink, bound_text


def test_a_short_text_stays_as_it_is_and_makes_no_file(tmp_path: Path) -> None:
    result = bound_text("grüße", tmp_path / "out", "x")
    assert (result.text, result.size, result.is_error) == ("grüße", 7, False)
    assert not (tmp_path / "out").exists()


def test_a_long_text_keeps_head_and_tail_and_names_the_whole(tmp_path: Path) -> None:
    text = "BEGIN" + "é" * TOOL_TEXT_MAX + "END"
    result = bound_text(text, tmp_path / "out", "x")
    assert len(result.text) == TOOL_TEXT_MAX
    assert result.text.startswith("BEGIN")
    assert result.text.endswith("END")
    assert f"{len(text.encode()):,} bytes in all" in result.text
    (kept,) = (tmp_path / "out").iterdir()
    assert f"the whole is in {kept}" in result.text
    assert kept.read_text() == text
    assert kept.stat().st_mode & 0o777 == 0o600


def test_nul_and_lone_surrogates_are_replaced(tmp_path: Path) -> None:
    assert bound_text("a\0b\ud800c", tmp_path, "x").text == "a\ufffdb\ufffdc"


@given(pieces=st.lists(st.binary(max_size=300)))
def test_small_pieces_come_back_whole_whatever_their_bytes(pieces: list[bytes]) -> None:
    sink = OutputSink(Path("/nonexistent"), "x")
    for piece in pieces:
        sink.feed(piece)
    whole = b"".join(pieces)
    assert sink.size == len(whole)
    assert sink.finish() == whole.decode("utf-8", "replace").replace("\0", "\ufffd")


@given(data=st.data(), filler=st.sampled_from([b"a", "é".encode(), "😀".encode(), b"\xff", b"\0\n"]))
def test_an_output_of_any_bytes_in_any_pieces_is_bounded(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, filler: bytes
) -> None:
    folder = tmp_path_factory.mktemp("sink")
    whole = b"HEAD" + filler * data.draw(st.integers(TOOL_TEXT_MAX, 3 * KEPT_BYTES_MAX)) + b"TAIL"
    step = data.draw(st.integers(1000, 2 * KEPT_BYTES_MAX))
    sink = OutputSink(folder, "x")
    for at in range(0, len(whole), step):
        sink.feed(whole[at : at + step])
    text = sink.finish()
    assert sink.size == len(whole)
    assert len(text) <= TOOL_TEXT_MAX
    assert text.startswith("HEAD")
    assert text.endswith("TAIL")
    (kept,) = folder.iterdir()
    assert str(kept) in text
    assert kept.read_bytes() == whole


def test_the_file_is_capped_and_the_notice_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_module, "FILE_BYTES_MAX", 200_000)
    sink = OutputSink(tmp_path, "x")
    for _ in range(10):
        sink.feed(b"x" * 50_000)
    text = sink.finish()
    (kept,) = tmp_path.iterdir()
    assert kept.stat().st_size == 200_000
    assert f"its first 200,000 bytes are in {kept}" in text
    assert "500,000 bytes in all" in text


def test_where_no_file_can_be_made_the_output_is_shown_all_the_same(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    text = bound_text("x" * 2 * TOOL_TEXT_MAX, blocked / "out", "x").text
    assert len(text) == TOOL_TEXT_MAX
    assert "could not be kept" in text
