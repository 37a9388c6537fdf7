"""What is asked and what is answered: prompts that are the same, usage that adds up, completions with the same keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.codec import from_json, to_json
from engine.lifecycle import FinishReason, RunState
from engine.message import FilePart
from engine.run import Prompt, RunComplete, Usage, run_complete_from_json

words = st.text(st.characters(), max_size=6)
files = st.lists(st.builds(FilePart, words, words, words, words), max_size=2).map(tuple)
clean_words = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)


@given(words, files, words, files)
def test_prompts_have_one_digest_exactly_when_they_are_the_same(
    text: str, attached: tuple[FilePart, ...], other_text: str, other_attached: tuple[FilePart, ...]
) -> None:
    one, other = Prompt(text, attached), Prompt(other_text, other_attached)
    assert (one.digest() == other.digest()) == (one == other)
    assert one.digest() == Prompt(text, attached).digest()


def test_digest_tells_where_one_piece_ends_and_the_next_begins() -> None:
    prompts = [
        Prompt("ab"),
        Prompt("a", (FilePart("b", ""),)),
        Prompt("a", (FilePart("", "b"),)),
        Prompt("a", (FilePart("", "", "b"),)),
        Prompt("a", (FilePart("", "", "", "b"),)),
        Prompt("a", (FilePart("b", ""), FilePart("", ""))),
        Prompt("a\0b"),
    ]
    assert len({prompt.digest() for prompt in prompts}) == len(prompts)


@pytest.mark.parametrize(
    ("prompt", "is_empty"),
    [
        (Prompt(""), True),
        (Prompt(" \n\t"), True),
        (Prompt("x"), False),
        (Prompt("", (FilePart("a.txt", "text/plain", "words"),)), False),
        (Prompt(" ", (FilePart("a.txt", "text/plain", " \n"),)), True),
        (Prompt("", (FilePart("a.png", "image/png", data="aGk="),)), True),
    ],
)
def test_prompt_is_empty_without_text_and_without_a_text_attachment(prompt: Prompt, *, is_empty: bool) -> None:
    assert prompt.is_empty() == is_empty


def test_usage_adds_up_field_by_field() -> None:
    assert Usage(1, 2, 3, 4) + Usage(10, 20, 30, 40) == Usage(11, 22, 33, 44)
    assert Usage() + Usage(1) == Usage(1)


completions = st.builds(
    RunComplete,
    run_id=clean_words,
    session_id=clean_words,
    message_id=st.none() | clean_words,
    text=clean_words,
    status=st.sampled_from(RunState),
    finish_reason=st.sampled_from(FinishReason),
    error=st.none() | clean_words,
    cancelled=st.booleans(),
    usage=st.builds(Usage, st.integers(0, 9), st.integers(0, 9)),
    cost=st.none() | st.floats(0, 10),
    files_changed=st.lists(clean_words, max_size=2).map(tuple),
    unfinished=st.lists(clean_words, max_size=2).map(tuple),
    exit_code=st.integers(0, 255),
)


@given(completions)
def test_completion_comes_back_as_it_went(completion: RunComplete) -> None:
    back = run_complete_from_json(from_json(to_json(completion)))
    assert back == completion
    assert (type(back.status), type(back.finish_reason), type(back.usage)) == (RunState, FinishReason, Usage)


@given(completions)
def test_completion_has_the_same_keys_in_every_outcome(completion: RunComplete) -> None:
    """M3, design 4: nothing is left out for being empty."""
    assert list(from_json(to_json(completion))) == [
        *("run_id", "session_id", "message_id", "text", "status", "finish_reason", "error", "cancelled", "usage"),
        *("cost", "steps", "retries", "files_changed", "denials", "unfinished", "exit_code", "started_at", "ended_at"),
    ]


def test_completion_of_another_version_is_read_as_far_as_it_is_known() -> None:
    data = from_json(to_json(RunComplete("r1", "s1", text="hi", usage=Usage(3))))
    data["colour"] = "red"
    data["usage"]["imagined_tokens"] = 7
    del data["denials"]
    back = run_complete_from_json(data)
    assert (back.text, back.usage, back.denials) == ("hi", Usage(3), ())
