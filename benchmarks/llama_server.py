"""llama.cpp's own server, out of the package xllamacpp, as a peer of benchmarks.serving_peers.

    python benchmarks/llama_server.py MODEL.gguf PORT [PARALLEL]

It runs in an environment of its own, which needs no pagewheel.
"""

from __future__ import annotations

import signal
import sys

import xllamacpp

# Of each of the requests at once, as llama-server's --ctx-size / --parallel.
_CONTEXT_EACH = 2048


def main() -> None:
    model, port, *rest = sys.argv[1:]
    parallel = int(rest[0]) if rest else 16
    settings = xllamacpp.CommonParams()
    settings.model.path = model
    settings.hostnames = ["127.0.0.1"]
    settings.port = int(port)
    settings.n_parallel = parallel
    settings.n_ctx = parallel * _CONTEXT_EACH
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 2
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main()
