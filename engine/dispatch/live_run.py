"""A run that this process owns and has not settled: its place, its stop button, and its one completion."""

from __future__ import annotations

import anyio

from engine.lifecycle import RunState, Trigger, next_state
from engine.message import Message
from engine.run import RunRequest
from engine.turn.loop import user_message
from engine.turn.record import TurnRecord
from engine.turn.stop import StopSignal


class LiveRun:
    """Made when the prompt is reserved, dropped when its completion is out. Only the loop's thread touches it.

    `ticket` is this process's order of acceptance, given before anything is awaited; `accept_seq` the store's, given
    when the row is in (0 before). Rows are inserted in ticket order, so the two agree within a session. `deadline` is
    on anyio's clock.
    """

    def __init__(self, request: RunRequest, session_id: str, ticket: int, *, session_is_new: bool) -> None:
        self.request = request
        self.run_id = request.run_id
        self.session_id = session_id
        self.session_is_new = session_is_new
        self.ticket = ticket
        self.accept_seq = 0
        self.state = RunState.ACCEPTED
        self.stop = StopSignal()
        self.record = TurnRecord()
        self.user_message: Message = user_message(request.prompt)
        self.is_user_saved = False
        self.started_at: str | None = None
        self.deadline: float | None = None
        self.deadline_scope: anyio.CancelScope | None = None

    def apply(self, trigger: Trigger) -> None:
        """Move along the life cycle's table.

        Raises:
            IllegalTransitionError: a bug of ours.
        """
        self.state = next_state(self.state, trigger)

    def remaining_seconds(self) -> float | None:
        """What is left of the run's own time limit; None if it has none."""
        return None if self.deadline is None else max(0.0, self.deadline - anyio.current_time())
