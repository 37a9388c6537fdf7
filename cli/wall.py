"""The wall of the command line: whatever flies, the caller gets one line on standard error and an exit code."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer

from cli import exit_code
from cli.streams import say_error, say_raw
from engine.errors import EngineError, UsageError


def guard(run: Callable[[], Any], args: Sequence[str] | None) -> int:
    """Run a command; returns its exit code, or that of what it raised, told in one line."""
    try:
        code = run()
    except KeyboardInterrupt:
        return exit_code.SIGINT
    except SystemExit as left:
        # typer leaves this way when the reader of a help text has gone, and after printing a completion script.
        return exit_code.STDOUT_CLOSED if _is_closed(left) else _code_of(left)
    except Exception as error:  # noqa: BLE001 - this is the wall
        return _tell(_innermost(error), is_verbose=_is_verbose(args))
    return code if isinstance(code, int) else exit_code.OK


def _tell(error: BaseException, *, is_verbose: bool) -> int:
    if is_verbose and not isinstance(error, typer.TyperException):
        import traceback

        say_raw("".join(traceback.format_exception(error)))
    match error:
        case KeyboardInterrupt():
            return exit_code.SIGINT
        case typer.TyperException():
            say_error(_hinted(error))
            return error.exit_code
        case typer.Abort():
            return exit_code.SIGINT
        case UsageError():
            say_error(str(error))
            return exit_code.USAGE
        case EngineError():
            say_error(str(error))
            return exit_code.FAILED
        case BrokenPipeError():
            return exit_code.STDOUT_CLOSED
        case OSError():
            say_error(_of_os_error(error))
            return exit_code.FAILED
        case _:
            told = f"{type(error).__name__}: {error}".rstrip(": ")
            hint = "" if is_verbose else " (run it again with --verbose for the traceback)"
            say_error(f"internal error: {told}{hint}")
            return exit_code.FAILED


def _is_closed(left: SystemExit) -> bool:
    return isinstance(left.__context__, OSError) and left.__context__.errno == errno.EPIPE


def _code_of(left: SystemExit) -> int:
    return left.code if isinstance(left.code, int) else exit_code.OK if left.code is None else exit_code.FAILED


def _hinted(error: typer.TyperException) -> str:
    """A parser's message with the way on: typer's own is several lines, or a box."""
    told = error.format_message()
    told = (told[:1].lower() + told[1:]).rstrip(".")
    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx is not None else "agent"
    hint = f"`{path} --help` shows usage"
    if getattr(error, "option_name", None) and path == "agent run":
        hint += ", and -- before the prompt ends options"
    return f"{told}: {hint}"


def _of_os_error(error: OSError) -> str:
    named = f"{error.filename}: " if error.filename is not None else ""
    return f"{named}{error.strerror or error}"


def _innermost(error: BaseException) -> BaseException:
    """The one error inside groups; of several, the first that is no mere usage error."""
    while isinstance(error, BaseExceptionGroup):
        error = next((each for each in error.exceptions if not isinstance(each, UsageError)), error.exceptions[0])
    return error


def _is_verbose(args: Sequence[str] | None) -> bool:
    given = sys.argv[1:] if args is None else args
    return any(arg in {"--verbose", "-v"} for arg in given)
