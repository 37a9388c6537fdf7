"""The program of the embedded model's process: loads a GGUF file with xllamacpp and serves it on loopback.

It is run by its path (`python -P local_server.py`) and imports nothing of ours, so that it starts fast and wherever the
engine was started. One JSON line on standard input says what to load; one on standard output says where it is served,
or what went wrong. It ends when its standard input does, so it never outlives the process that started it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any


def main() -> int:
    """Serve until standard input ends."""
    # Native code that prints must not write between our lines: it gets the null device, we keep the pipe.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    wanted = json.loads(sys.stdin.readline())
    # Loading holds the interpreter's lock, so this thread notices an end of input only once loading is done; whoever
    # wants it gone sooner kills the process.
    ended = threading.Event()
    threading.Thread(target=_wait_input_end, args=(ended,), daemon=True).start()
    try:
        server = _load(wanted)
    except (ImportError, RuntimeError, OSError, ValueError) as error:
        print(json.dumps({"error": f"{error}"}), file=answers, flush=True)
        return 1
    print(json.dumps({"address": server.listening_address}), file=answers, flush=True)
    ended.wait()
    # No tidy end: native threads may be in the middle of a token, and there is nothing to save.
    os._exit(0)


def _wait_input_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def _load(wanted: dict[str, Any]) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = wanted["path"]
    params.n_ctx = wanted["context_tokens"]
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = wanted["threads"]
    params.sampling.temp = 0.0
    params.sampling.seed = 42
    params.n_predict = wanted["answer_tokens"]
    params.verbosity = -1
    params.warmup = False
    params.ui = False
    params.endpoint_slots = False
    params.cache_ram_mib = 0
    params.api_keys = [wanted["key"]]  # other users of the machine can reach the port
    return xllamacpp.Server(params)


if __name__ == "__main__":
    sys.exit(main())
