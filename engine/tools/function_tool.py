"""A tool made of a typed async function: its signature is the schema, its docstring the description.

    async def read(context: ToolContext, path: Annotated[str, Arg("File to read.")], offset: int = 1) -> ToolOutput:

The first parameter is the context, the others are the model's arguments. `Arg` documents and bounds one; pydantic's
own `Field(...)` may stand in its place. pydantic is loaded when a schema or a validation is first asked for: naming
and listing tools costs nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from engine.codec import clean_text
from engine.limits import TOOL_TEXT_MAX
from engine.tools.base import ToolContext, ToolError, ToolOutput
from engine.tools.output import bound_text

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

_PREFIX = "arg_"  # so that no argument's name ("schema", "copy", "_x") collides with pydantic's own


class Arg:
    """What the schema says of one argument: `Annotated[int, Arg("Lines to show.", ge=1)]`."""

    __slots__ = ("constraints", "description")

    def __init__(self, description: str, **constraints: int) -> None:
        self.description = description
        self.constraints = constraints


class FunctionTool:
    """One tool over `function(context, **arguments)`, which gives back a text or a `ToolOutput`."""

    def __init__(
        self,
        function: Callable[..., Awaitable[ToolOutput | str]],
        *,
        is_read_only: bool,
        name: str | None = None,
    ) -> None:
        self._function = function
        self._name = name or function.__name__
        self._is_read_only = is_read_only
        self._arguments: type[BaseModel] | None = None
        self._schema: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The name the model calls it by."""
        return self._name

    @property
    def description(self) -> str:
        """The first paragraph of the function's docstring, on one line."""
        return " ".join((self._function.__doc__ or "").strip().split("\n\n")[0].split())

    @property
    def is_read_only(self) -> bool:
        """Whether it changes nothing."""
        return self._is_read_only

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, without the noise that pydantic adds."""
        if self._schema is None:
            raw = self._model().model_json_schema()
            schema: dict[str, Any] = {
                "type": "object",
                "properties": {name: _plain(value) for name, value in raw.get("properties", {}).items()},
                "required": raw.get("required", []),
                "additionalProperties": False,
            }
            if "$defs" in raw:
                schema["$defs"] = raw["$defs"]
            self._schema = schema
        return self._schema

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Validate `arguments` and call the function.

        Raises:
            ToolError: the arguments do not fit, or the work failed.
        """
        output = await self._function(context, **self.validate(arguments))
        if isinstance(output, ToolOutput):
            return output
        if len(output) > TOOL_TEXT_MAX:
            return await anyio.to_thread.run_sync(bound_text, output, context.output_dir, self._name)
        return bound_text(output, context.output_dir, self._name)

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the function's types, defaults filled in.

        Raises:
            ToolError: naming each field that is wrong, and what is expected.
        """
        from pydantic import ValidationError

        model = self._model()
        try:
            valid = model.model_validate(arguments)
        except ValidationError as error:
            raise ToolError(self._complaint(error)) from None
        return {name.removeprefix(_PREFIX): getattr(valid, name) for name in model.model_fields}

    def _model(self) -> type[BaseModel]:
        if self._arguments is None:
            self._arguments = _arguments_model(self._function, self._name)
        return self._arguments

    def _complaint(self, error: ValidationError) -> str:
        """One sentence for each wrong field."""
        properties = self.schema["properties"]
        takes = f"{self._name} takes {', '.join(properties) or 'no arguments'}"
        sentences = []
        for trouble in error.errors(include_url=False, include_context=False)[:10]:
            field = ".".join(map(str, trouble["loc"]))
            match trouble["type"]:
                case "missing":
                    sentences.append(f"argument {field!r} is missing: expected {_expected(properties.get(field, {}))}")
                case "extra_forbidden":
                    sentences.append(f"argument {field!r} is unknown: {takes}")
                case _:
                    wanted = trouble["msg"][:1].lower() + trouble["msg"][1:]
                    sentences.append(f"argument {field!r}: {wanted}, got {_shorten(repr(trouble['input']))}")
        return clean_text("; ".join(sentences))


def _arguments_model(function: Callable[..., Any], name: str) -> type[BaseModel]:
    """The pydantic model of a function's arguments, its first parameter (the context) left out."""
    import inspect
    import typing

    from pydantic import ConfigDict, Field, create_model

    hints = typing.get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        hint = hints[parameter.name]
        extra: dict[str, Any] = {}
        if typing.get_origin(hint) is typing.Annotated:
            base, *metadata = typing.get_args(hint)
            for note in metadata:
                if isinstance(note, Arg):
                    extra |= {"description": note.description, **note.constraints}
                else:
                    base = typing.Annotated[base, note]
            hint = base
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[_PREFIX + parameter.name] = (hint, Field(default, alias=parameter.name, **extra))
    model: type[BaseModel] = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
    return model


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """A property without its title; one that may be null is shown as what it is otherwise (null is still taken)."""
    plain = {key: value for key, value in schema.items() if key != "title"}
    choices = [choice for choice in plain.get("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1 and plain.get("default", ...) is None:
        plain = {**choices[0], **plain}
        del plain["anyOf"], plain["default"]
    return plain


def _expected(schema: dict[str, Any]) -> str:
    """What a property wants, in words."""
    description = schema.get("description")
    return f"{schema.get('type', 'a value')}" + (f" ({description})" if description else "")


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
