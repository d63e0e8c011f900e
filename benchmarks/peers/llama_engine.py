"""llama.cpp through llama-cpp-python's C interface, batched as its own server batches."""

from __future__ import annotations

import ctypes
import importlib
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import usable_cores
from benchmarks.peers.engine import Engine, Generated, common_prefix

_BATCH = 2048
_OPTIONS = {"weights", "flash_attn", "cache_type", "ubatch", "share_prefix", "kv_unified"}
_OPTIONS |= {"temperature"}


class LlamaEngine(Engine):
    """llama.cpp with a context as large as the task needs, made before the clock starts.

    Options: `weights`, a format such as Q4_0 to requantise the file to before loading
    (uncounted; by default the file as it is); `flash_attn`, true, false or "auto"
    (default); `cache_type`, f16 (default) or q8_0; `ubatch`, tokens per graph (512);
    `share_prefix`: what all prompts begin with is computed once, on the clock, and
    given to the other sequences (llama_memory_seq_cp); `kv_unified`: one buffer for
    all sequences, in which a shared prefix lies once; `temperature`, 0 (greedy) by default.
    """

    def load(self, model: Path, device: str) -> None:
        if device != "CPU":
            raise ValueError(f"llama.cpp is measured on CPU, not {device}")
        unknown = set(self.options) - _OPTIONS
        if unknown:
            raise ValueError(f"unknown options {sorted(unknown)}: expected {sorted(_OPTIONS)}")
        self._api = importlib.import_module("llama_cpp")
        self._silence = self._api.llama_log_callback(lambda level, text, data: None)
        self._api.llama_log_set(self._silence, ctypes.c_void_p())
        self._api.llama_backend_init()
        path = self.weights(model)
        self._model = self._api.llama_model_load_from_file(
            os.fsencode(path), self._api.llama_model_default_params()
        )
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self._vocabulary = self._api.llama_model_get_vocab(self._model)
        self._context: Any = None
        self._shape = (0, 0)
        self._batch = self._api.llama_batch_init(_BATCH, 0, 1)
        self._sampler = self._make_sampler(float(self.options.get("temperature", 0)))

    def _make_sampler(self, temperature: float) -> Any:
        if temperature == 0:
            return self._api.llama_sampler_init_greedy()
        parameters = self._api.llama_sampler_chain_default_params()
        chain = self._api.llama_sampler_chain_init(parameters)
        self._api.llama_sampler_chain_add(chain, self._api.llama_sampler_init_temp(temperature))
        self._api.llama_sampler_chain_add(chain, self._api.llama_sampler_init_dist(0))
        return chain

    def weights(self, model: Path) -> Path:
        return self._requantised(model) if "weights" in self.options else model

    def _requantised(self, model: Path) -> Path:
        """The file in another format, made once beside other temporary files."""
        name = str(self.options["weights"])
        format_id = getattr(self._api, f"LLAMA_FTYPE_MOSTLY_{name}", None)
        if format_id is None:
            raise ValueError(f"weights is {name!r}: expected a format such as Q4_0 or Q8_0")
        stat = model.stat()
        target = Path(
            tempfile.gettempdir(), f"{model.stem}-{stat.st_size}-{stat.st_mtime_ns}-{name}.gguf"
        )
        if not target.is_file():
            parameters = self._api.llama_model_quantize_default_params()
            parameters.ftype = format_id
            parameters.allow_requantize = True
            unfinished = target.with_suffix(f".{os.getpid()}")
            failed = self._api.llama_model_quantize(
                os.fsencode(model), os.fsencode(unfinished), ctypes.byref(parameters)
            )
            if failed:
                raise RuntimeError(f"llama.cpp cannot requantise {model} to {name}")
            unfinished.replace(target)
        return target

    def settings(self) -> dict[str, str]:
        defaults = {"weights": "as in the file", "flash_attn": "auto", "cache_type": "f16"}
        return {key: str(value) for key, value in {**defaults, **self.options}.items()}

    def encode(self, text: str) -> list[int]:
        data = text.encode()
        tokens = (ctypes.c_int32 * (len(data) + 8))()
        count = self._api.llama_tokenize(
            self._vocabulary, data, len(data), tokens, len(tokens), False, False
        )
        if count < 0:
            raise RuntimeError(f"llama.cpp cannot tokenise {len(data)} bytes")
        return list(tokens[:count])

    def _prepare(self, sequences: int, length: int, shared: int) -> None:
        """A context for that many sequences of that many tokens, empty; they share `shared`."""
        length = -(-length // 256) * 256
        if (sequences, length) != self._shape:
            if self._context:
                self._api.llama_free(self._context)
            parameters = self._api.llama_context_default_params()
            parameters.n_seq_max = sequences
            parameters.n_ctx = sequences * length
            if self.options.get("kv_unified", False):
                parameters.kv_unified = True
                parameters.n_ctx -= (sequences - 1) * (shared // 256 * 256)
            parameters.n_batch = _BATCH
            parameters.n_ubatch = int(self.options.get("ubatch", 512))
            parameters.n_threads = parameters.n_threads_batch = usable_cores()
            flash = self.options.get("flash_attn", "auto")
            parameters.flash_attn_type = -1 if flash == "auto" else int(bool(flash))
            if self.options.get("cache_type", "f16") == "q8_0":
                parameters.type_k = parameters.type_v = self._api.GGML_TYPE_Q8_0
            self._context = self._api.llama_init_from_model(self._model, parameters)
            if not self._context:
                raise RuntimeError(f"llama.cpp cannot make a context of {parameters.n_ctx} tokens")
            self._shape = (sequences, length)
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), True)

    def generate(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Generated:
        shared = common_prefix(prompts) if self.options.get("share_prefix", False) else 0
        self._prepare(len(prompts), max(map(len, prompts)) + new_tokens, shared)
        started = time.perf_counter()
        steps: list[float] = []
        tokens = [list(prompt) for prompt in prompts]
        ends = [len(prompt) + new_tokens for prompt in prompts]
        cached = [shared] * len(prompts)
        self._compute_for_all(prompts[0][:shared], len(prompts))
        while any(len(known) < end for known, end in zip(tokens, ends, strict=True)):
            sampled = self._fill(tokens, ends, cached)
            self._decode()
            for sequence, row in sampled:
                tokens[sequence].append(
                    self._api.llama_sampler_sample(self._sampler, self._context, row)
                )
            if sampled:
                steps.append(time.perf_counter() - started)
        last_token = time.perf_counter() - started
        return Generated(steps[0] if steps else last_token, last_token, steps)

    def _decode(self) -> None:
        status = self._api.llama_decode(self._context, self._batch)
        if status != 0:
            raise RuntimeError(f"llama_decode failed with {status}")

    def _compute_for_all(self, prefix: Sequence[int], sequences: int) -> None:
        """The first sequence computes the prefix; the others get it."""
        batch = self._batch
        for first in range(0, len(prefix), _BATCH):
            batch.n_tokens = len(prefix[first : first + _BATCH])
            for row in range(batch.n_tokens):
                self._set_row(row, prefix[first + row], first + row, 0)
                batch.logits[row] = False
            self._decode()
        memory = self._api.llama_get_memory(self._context)
        for sequence in range(1, sequences if prefix else 0):
            self._api.llama_memory_seq_cp(memory, 0, sequence, -1, -1)

    def _set_row(self, row: int, token: int, position: int, sequence: int) -> None:
        batch = self._batch
        batch.token[row] = token
        batch.pos[row] = position
        batch.n_seq_id[row] = 1
        batch.seq_id[row][0] = sequence

    def _fill(
        self, tokens: list[list[int]], ends: list[int], cached: list[int]
    ) -> list[tuple[int, int]]:
        """Decodes first, then prefill chunks; (sequence, row) of those that sample."""
        batch, row = self._batch, 0
        sampled = []
        waiting = [i for i, known in enumerate(tokens) if len(known) < ends[i]]
        for sequence in sorted(waiting, key=lambda i: len(tokens[i]) - cached[i] > 1):
            known = tokens[sequence]
            count = min(len(known) - cached[sequence], _BATCH - row)
            for position in range(cached[sequence], cached[sequence] + count):
                self._set_row(row, known[position], position, sequence)
                batch.logits[row] = position == len(known) - 1
                row += 1
            cached[sequence] += count
            if count and cached[sequence] == len(known):
                sampled.append((sequence, row - 1))
        batch.n_tokens = row
        return sampled
