from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from engine.errors import ConfigurationError
from engine.limits import TOOL_TEXT_MAX
from engine.tools.base import ToolContext, ToolError
from engine.tools.function_tool import Arg, FunctionTool
from engine.tools.registry import ALL, READ_ONLY, is_read_only, open_tools
from tests.tools.helpers import make_context

pytestmark = pytest.mark.anyio


async def sample(
    context: ToolContext,
    path: Annotated[str, Arg("Where.")],
    count: Annotated[int, Arg("How many.", ge=1, le=9)] = 3,
    mode: Literal["fast", "slow"] = "fast",
    limit: int | None = None,
    schema: Annotated[bool, Field(description="Named like a thing of pydantic's.")] = False,
) -> str:
    """Do a thing
    in one go.

    This is for programmers.
    """
    return f"{context.cwd.name} {path} {count} {mode} {limit} {schema}"


TOOL = FunctionTool(sample, is_read_only=True)


def test_the_signature_is_the_schema() -> None:
    assert TOOL.schema == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where."},
            "count": {"type": "integer", "description": "How many.", "minimum": 1, "maximum": 9, "default": 3},
            "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
            "limit": {"type": "integer"},
            "schema": {
                "type": "boolean",
                "description": "Named like a thing of pydantic's.",
                "default": False,
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    }


def test_the_first_paragraph_is_the_description() -> None:
    assert TOOL.description == "Do a thing in one go."
    assert TOOL.name == "sample"


async def test_arguments_reach_the_function_with_defaults_filled_in(tmp_path: Path) -> None:
    output = await TOOL.run({"path": "x", "limit": None, "schema": True}, make_context(tmp_path))
    assert output.text == "work x 3 fast None True"
    assert output.size == len(output.text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["'path' is missing", "expected string", "Where."]),
        ({"path": 5}, ["'path'", "valid string", "got 5"]),
        ({"path": "x", "count": "many"}, ["'count'", "valid integer", "'many'"]),
        ({"path": "x", "count": 10}, ["'count'", "less than or equal to 9", "got 10"]),
        ({"path": "x", "mode": "odd"}, ["'mode'", "'fast' or 'slow'", "'odd'"]),
        ({"path": "x", "pth": 1}, ["'pth' is unknown", "sample takes path, count, mode, limit, schema"]),
        ({"arg_path": "x"}, ["'path' is missing", "'arg_path' is unknown"]),
    ],
)
async def test_a_wrong_argument_is_named_with_what_is_expected(
    tmp_path: Path, arguments: dict[str, object], words: list[str]
) -> None:
    with pytest.raises(ToolError) as caught:
        await TOOL.run(arguments, make_context(tmp_path))
    assert all(word in str(caught.value) for word in words), str(caught.value)


async def test_a_long_text_is_bounded_and_kept_whole_in_a_file(tmp_path: Path) -> None:
    async def talk(context: ToolContext) -> str:
        """Talk."""
        return "word " * TOOL_TEXT_MAX

    context = make_context(tmp_path)
    output = await FunctionTool(talk, is_read_only=True).run({}, context)
    assert len(output.text) <= TOOL_TEXT_MAX
    assert output.size == 5 * TOOL_TEXT_MAX
    (kept,) = context.output_dir.iterdir()
    assert str(kept) in output.text
    assert kept.read_text() == "word " * TOOL_TEXT_MAX


def test_the_registry_opens_what_is_named_in_order_and_once() -> None:
    tools = open_tools(["shell", "read", "shell"])
    assert list(tools) == ["shell", "read"]
    assert [tool.name for tool in tools.values()] == ["shell", "read"]


def test_every_built_in_tool_is_what_the_registry_says_of_it() -> None:
    tools = open_tools(ALL)
    assert {name: tool.is_read_only for name, tool in tools.items()} == {name: name in READ_ONLY for name in ALL}
    assert all(is_read_only(name) == tool.is_read_only for name, tool in tools.items())
    for tool in tools.values():
        assert tool.description
        assert tool.schema["additionalProperties"] is False
        assert all(value["description"] for value in tool.schema["properties"].values())


def test_an_unknown_tool_is_refused_naming_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"'rm', 'dd'; the tools are read, glob, grep, ls, write, edit, shell"):
        open_tools(["read", "rm", "dd"])


def test_opening_tools_does_not_load_pydantic() -> None:
    code = (
        "import sys\n"
        "from engine.tools.registry import ALL, open_tools\n"
        "assert 'engine.tools.read' not in sys.modules\n"
        "tools = open_tools(['read'])\n"
        "assert 'engine.tools.shell' not in sys.modules\n"
        "tools = open_tools(ALL)\n"
        "assert tools['read'].name == 'read' and tools['read'].description\n"
        "assert 'pydantic' not in sys.modules, 'pydantic was loaded'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_the_schemas_that_models_are_shown_stay_as_they_are() -> None:
    shown = {}
    for name, tool in open_tools(ALL).items():
        types = {key: value.get("type") for key, value in tool.schema["properties"].items()}
        shown[name] = types | {"!": tool.schema["required"]}
    assert shown == {
        "read": {"path": "string", "offset": "integer", "limit": "integer", "!": ["path"]},
        "glob": {"pattern": "string", "path": "string", "!": ["pattern"]},
        "grep": {
            "pattern": "string",
            "path": "string",
            "include": "string",
            "context_lines": "integer",
            "ignore_case": "boolean",
            "!": ["pattern"],
        },
        "ls": {"path": "string", "!": []},
        "write": {"path": "string", "content": "string", "!": ["path", "content"]},
        "edit": {
            "path": "string",
            "old_string": "string",
            "new_string": "string",
            "replace_all": "boolean",
            "!": ["path", "old_string", "new_string"],
        },
        "shell": {"command": "string", "timeout": "integer", "!": ["command"]},
    }
