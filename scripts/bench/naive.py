"""The yardstick of overhead.py: what a small agent costs when it is written without a thought for its start.

Everything imported at the top, tables made on each start, a client with all defaults; one row in, one streamed
request, the row updated. Not to be improved: `agent run` is measured against it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import httpx2
import typer
from sqlmodel import Field, Session, SQLModel, create_engine

app = typer.Typer()


class Run(SQLModel, table=True):
    """One prompt and its answer."""

    id: int | None = Field(default=None, primary_key=True)
    prompt: str
    answer: str | None = None


@app.command()
def run(
    prompt: Annotated[str, typer.Argument()],
    base_url: Annotated[str, typer.Option()],
    data_dir: Annotated[Path, typer.Option()],
) -> None:
    """Answer one prompt."""
    data_dir.mkdir(parents=True, exist_ok=True)
    engine = create_engine(f"sqlite:///{data_dir / 'naive.db'}")
    SQLModel.metadata.create_all(engine)
    with Session(engine) as session:
        row = Run(prompt=prompt)
        session.add(row)
        session.commit()
        row.answer = request_answer(prompt, base_url)
        session.add(row)
        session.commit()
        print(row.answer)


def request_answer(prompt: str, base_url: str) -> str:
    """One chat completion, streamed."""
    body = {"model": "x", "stream": True, "messages": [{"role": "user", "content": prompt}]}
    answer = ""
    with (
        httpx2.Client() as client,
        client.stream("POST", f"{base_url}/chat/completions", json=body) as response,
    ):
        for line in response.iter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    answer += choice["delta"].get("content") or ""
    return answer


if __name__ == "__main__":
    app()
