"""The tree of commands: each is imported when it is asked for, so that none pays for another's imports."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from cli import VERSION
from cli.parse import AgentCommand, make_plain
from cli.wall import guard

COMMANDS: dict[str, tuple[str, str, str]] = {
    "run": ("cli.run", "run", "Run a prompt to its end and print the answer."),
    "cancel": ("cli.cancel", "cancel", "Stop a run, or all of a session."),
    "wait": ("cli.runs", "wait", "Wait for a run and print its result."),
    "show": ("cli.runs", "show", "Show what is on record of a run."),
    "runs": ("cli.runs", "runs", "List runs, newest first."),
    "sessions": ("cli.sessions", "sessions", "List sessions, latest activity first."),
    "models": ("cli.models", "models", "List models, or install the embedded one."),
    "doctor": ("cli.doctor", "doctor", "Check that everything a run needs is there."),
    "schema": ("cli.schema", "schema", "Print the JSON Schema of the jsonl events."),
}
"""Command: its module, its function there, its line in the overview."""

EXAMPLES = """Examples:

\b
  agent run "Say hello in five words."
  git diff | agent run "Review this change."
  agent run --output json --timeout 300 "Why does the build fail?" < build.log
  agent run --run-id nightly-42 --allow write "Update CHANGELOG.md"
  agent cancel nightly-42
"""


class AgentGroup(typer.core.TyperGroup):
    """The root: finds commands by name, and is the wall that turns errors into one line and an exit code."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, built on first use; None if there is none."""
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            self.commands[cmd_name] = _build(cmd_name)
        return self.commands.get(cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, in the order of the table."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The overview, from the table: no command is imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begin with; a near miss is named, as typer does for commands that are built."""
        if args and args[0] not in COMMANDS:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f'to run a prompt: agent run "{args[0]} ..."'
            ctx.fail(f"no such command {args[0]!r}: {hint}")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the command."""
        make_plain(self.get_params(ctx))  # with --help, which is no declared parameter
        return super().parse_args(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line; returns its exit code, or exits with it when standing alone."""
        parent = super().main  # bound here: inside a nested function `super` has nothing to go by

        def run() -> Any:
            return parent(args, prog_name or "agent", complete_var, False, windows_expand_args, **extra)

        code = guard(run, args)
        if standalone_mode:
            raise SystemExit(code)
        return code


def _build(name: str) -> Any:
    module, function, short_help = COMMANDS[name]
    command: Callable[..., int] = getattr(importlib.import_module(module), function)
    return build_command(name, command, short_help)


def build_command(name: str, function: Callable[..., int], short_help: str) -> Any:
    """The command that `function` is, its help taken from its docstring."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name, cls=AgentCommand, short_help=short_help, context_settings=_CONTEXT)(function)
    built = typer.main.get_command(app)
    built.name = name
    return built


def build_root() -> AgentGroup:
    """The whole command line, ready for `main`."""
    group = typer.main.get_command(make_app())
    assert isinstance(group, AgentGroup)
    return group


def make_app() -> typer.Typer:
    """The command line as typer has it."""
    app = typer.Typer(
        name="agent",
        cls=AgentGroup,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        invoke_without_command=True,
        context_settings=_CONTEXT,
        epilog=EXAMPLES,
    )
    app.callback()(_root)
    return app


def _root(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> int:
    """Run an AI agent to its end, headless: a prompt in, an answer on standard output, an exit code to branch on.

    `agent COMMAND --help` explains a command.
    """
    from cli.streams import say_raw, write_all

    if version:
        write_all(f"agent {VERSION}\n".encode())
        raise typer.Exit(0)
    if ctx.invoked_subcommand is None:
        say_raw(ctx.get_help() + "\n")
        return 2
    return 0


_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
