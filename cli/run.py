"""`agent run`: from flags to a plan that has been checked as far as it can be before anything is stored."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cli import wiring
from cli.options import DataDir, Quiet, Verbose
from cli.parse import clean_argument, parse_choice, parse_count, parse_seconds

if TYPE_CHECKING:
    from cli.stdin import StdinPlan
    from engine.limits import RunLimits
    from engine.message import FilePart
    from engine.settings import Settings


@dataclass(frozen=True, slots=True)
class RunPlan:
    """All that the flags said, checked. `is_lines`: requests come as lines on standard input."""

    settings: Settings
    words: list[str]
    files: tuple[FilePart, ...]
    stdin: StdinPlan
    run_id: str | None
    session_id: str | None
    is_continued: bool
    model: str
    notice: str | None
    system: str
    tools: tuple[str, ...]
    limits: RunLimits
    cwd: str
    is_lines: bool
    output: str
    output_file: str | None
    is_quiet: bool
    is_verbose: bool


def run(
    prompt: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROMPT", help="The prompt; `-` stands for standard input.", show_default=False),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--run-id", metavar="ID", help="Name the run; the same id never runs twice.")
    ] = None,
    session: Annotated[str | None, typer.Option("--session", "-s", metavar="ID", help="Go on in this session.")] = None,
    is_continued: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on in the session that was used last.")
    ] = False,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="NAME", help="provider/model, such as openai/gpt-5.")
    ] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="An OpenAI-compatible endpoint.")
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", metavar="PATH", help="Attach a file; may be given again.", show_default=False),
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", metavar="TEXT", help="Instructions that stand before the conversation.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="text|json|jsonl", help="The answer, one object, or events by line."),
    ] = None,
    input_form: Annotated[
        str | None,
        typer.Option("--input", metavar="text|jsonl", help="jsonl: one request a line on standard input."),
    ] = None,
    max_steps: Annotated[
        str | None, typer.Option("--max-steps", metavar="N", help="Model calls, at most (default: 50).")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="SECONDS", help="End the run after this long; exit code 124.")
    ] = None,
    idle_timeout: Annotated[
        str | None,
        typer.Option("--idle-timeout", metavar="SECONDS", help="How long a model may stall (default: 120)."),
    ] = None,
    stdin_wait: Annotated[
        str | None,
        typer.Option("--stdin-wait", metavar="SECONDS", help="How long a pipe may be silent (default: 10)."),
    ] = None,
    no_stdin: Annotated[bool, typer.Option("--no-stdin", help="Do not read standard input.")] = False,
    output_file: Annotated[
        str | None,
        typer.Option(
            "--output-file", metavar="PATH", help="Also write the answer (with -o json: the object) here, whole."
        ),
    ] = None,
    tools: Annotated[
        str | None, typer.Option("--tools", metavar="LIST", help="Offer these tools only, such as read,grep.")
    ] = None,
    no_tools: Annotated[bool, typer.Option("--no-tools", help="Offer no tools.")] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="LIST", help="Offer tools that change things: write, shell or all."),
    ] = None,
    concurrency: Annotated[
        str | None,
        typer.Option("--concurrency", metavar="N", help="Sessions that run at once with --input jsonl (default: 4)."),
    ] = None,
    save_timeout: Annotated[
        str | None,
        typer.Option("--save-timeout", metavar="SECONDS", help="How long saving may take at the end (default: 10)."),
    ] = None,
    data_dir: DataDir = None,
    ephemeral: Annotated[bool, typer.Option("--ephemeral", help="Keep nothing on disk.")] = False,
    is_quiet: Quiet = False,
    is_verbose: Verbose = False,
) -> int:
    """Run a prompt to its end, print the answer on standard output and exit with a code to branch on.

    The prompt is the words, or standard input, or both (the words first). Options may stand before or after the
    words; -- ends options. Without --allow the model may look but not touch.

    \b
    Examples:
      agent run "Say hello in five words."
      git diff --staged | agent run "Write a commit message for this."
      agent run -f error.log --output json "What went wrong?" | jq -r .text
      agent run --run-id deploy-7 --timeout 600 --allow write,shell "Fix the failing test."
      agent run --continue "And in French?"
      agent run --input jsonl --concurrency 8 < requests.jsonl > results.jsonl

    \b
    Exit codes:
      0 completed    1 failed       2 usage          3 needs input   4 cancelled by someone else
      5 limit met    124 timed out  130/143/129 SIGINT/SIGTERM/SIGHUP  141 standard output closed
    """
    from cli.output_file import check_output_file
    from cli.tool_choice import choose_tools
    from engine.limits import IDLE_SECONDS, MAX_STEPS, SAVE_SECONDS, RunLimits

    words = [clean_argument(word) for word in prompt or []]
    is_lines = parse_choice("--input", input_form, ("text", "jsonl")) == "jsonl"
    shown = parse_choice("--output", output or ("jsonl" if is_lines else None), ("text", "json", "jsonl"))
    limits = RunLimits(
        max_steps=parse_count("--max-steps", max_steps, MAX_STEPS),
        timeout_seconds=None if timeout is None else parse_seconds("--timeout", timeout, 0.0),
        idle_seconds=parse_seconds("--idle-timeout", idle_timeout, IDLE_SECONDS),
    )
    single = {"--run-id": run_id, "--output-file": output_file, "--session": session, "--file": file}
    _check_combination(is_lines, shown, words, single, is_continued=is_continued, no_stdin=no_stdin)
    _check_ids(run_id, session)
    chosen_tools = choose_tools(tools, no_tools=no_tools, allow=allow or [])
    if output_file is not None:
        check_output_file(output_file)
    stdin, words = _plan_stdin(
        words, is_lines=is_lines, no_stdin=no_stdin, wait=stdin_wait, has_files=bool(file), is_quiet=is_quiet
    )
    settings = wiring.make_settings(
        data_dir=data_dir,
        ephemeral=ephemeral,
        save_seconds=parse_seconds("--save-timeout", save_timeout, SAVE_SECONDS),
        concurrency=parse_count("--concurrency", concurrency, 4, count_max=1000),
        base_url=base_url,
    )
    choice = wiring.resolve_model(settings, clean_argument(model) if model else None)
    plan = RunPlan(
        settings=settings,
        words=words,
        files=_attach(file or [], choice.name),
        stdin=stdin,
        run_id=run_id,
        session_id=session,
        is_continued=is_continued,
        model=choice.name,
        notice=choice.notice,
        system=clean_argument(system or ""),
        tools=chosen_tools,
        limits=limits,
        cwd=_working_directory(),
        is_lines=is_lines,
        output=shown,
        output_file=output_file,
        is_quiet=is_quiet,
        is_verbose=is_verbose,
    )
    return _execute(plan)


def _execute(plan: RunPlan) -> int:
    wiring.set_up_logging(is_verbose=plan.is_verbose)
    if plan.is_lines:
        from cli.run_lines import run_lines

        return wiring.run_async(lambda: run_lines(plan))
    from cli.run_one import run_one

    return wiring.run_async(lambda: run_one(plan))


def _check_combination(
    is_lines: bool,
    output: str,
    words: list[str],
    single: dict[str, str | list[str] | None],
    *,
    is_continued: bool,
    no_stdin: bool,
) -> None:
    from engine.errors import UsageError

    if is_continued and single["--session"] is not None:
        raise UsageError("--session and --continue both name a session: leave one out")
    if not is_lines:
        return
    taken = [name for name, value in single.items() if value]
    taken += ["--continue"] * is_continued + ["--no-stdin"] * no_stdin + ["PROMPT"] * any(word != "-" for word in words)
    if taken:
        raise UsageError(f"--input jsonl takes its requests from standard input: leave out {', '.join(taken)}")
    if output != "jsonl":
        raise UsageError(f"--input jsonl answers in lines of JSON: leave out --output {output}")


def _check_ids(run_id: str | None, session_id: str | None) -> None:
    """Refuse illegal ids before a model is looked for or standard input is read."""
    from engine.errors import IllegalIdError
    from engine.ids import is_legal_id

    for kind, value in (("run", run_id), ("session", session_id)):
        if value is not None and not is_legal_id(value):
            raise IllegalIdError(kind, clean_argument(value))


def _plan_stdin(
    words: list[str], *, is_lines: bool, no_stdin: bool, wait: str | None, has_files: bool, is_quiet: bool
) -> tuple[StdinPlan, list[str]]:
    from cli.prompt import split_dash
    from cli.stdin import WAIT_SECONDS, StdinPlan, choose_use

    wait_seconds = parse_seconds("--stdin-wait", wait, WAIT_SECONDS)
    words, has_dash = split_dash(words)
    setting = os.environ.get("AGENT_STDIN", "")
    use = choose_use(has_dash=has_dash or is_lines, no_stdin=no_stdin, setting=setting)
    has_prompt = any(word.strip() for word in words) or has_files
    return StdinPlan(use, has_prompt, wait_seconds, is_quiet), words


def _attach(paths: list[str], model: str) -> tuple[FilePart, ...]:
    if not paths:
        return ()
    from cli.prompt import read_attachment

    takes_images = model.startswith("openai/")
    return tuple(read_attachment(path, takes_images=takes_images) for path in paths)


def _working_directory() -> str:
    from engine.errors import ConfigurationError

    try:
        return os.getcwd()  # noqa: PTH109 - text is what is needed
    except OSError as error:
        raise ConfigurationError(f"the working directory is gone ({error.strerror}): change to another one") from error
