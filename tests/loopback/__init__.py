"""A provider on 127.0.0.1 that speaks chat completions, does what a test scripts, and refuses what real ones refuse."""

from tests.loopback.provider import LoopbackProvider, Recorded
from tests.loopback.replies import CLOSE, RESET, Hold, Reply, answer, refusal, tool_call

__all__ = ["CLOSE", "RESET", "Hold", "LoopbackProvider", "Recorded", "Reply", "answer", "refusal", "tool_call"]
