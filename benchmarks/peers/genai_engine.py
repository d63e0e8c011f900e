"""openvino-genai, with the best settings found for it."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from benchmarks.peers.genai_api import GenaiApiEngine

_NOTE = "benchmark.json"


class GenaiEngine(GenaiApiEngine):
    """openvino-genai's ContinuousBatchingPipeline.

    Settings: no limit on the tokens of a batch, as its own LLMPipeline sets (the
    default of 256 cuts prompts into more steps); a pool of 2 GB, reserved at once
    and committed as it is used, so that it never grows by copying; prefix caching
    off, because rounds repeat the same prompts; OpenVINO's default cache
    precision (u8). `--set` changes any of them.
    """

    module_name = "openvino_genai"

    def scheduler_config(self) -> Any:
        config = self._api.SchedulerConfig()
        config.max_num_batched_tokens = 2**31 - 1
        config.cache_size = 2
        config.dynamic_split_fuse = True
        config.enable_prefix_caching = False
        return config

    def open_pipeline(self, model: Path, config: Any, device: str, properties: Any) -> Any:
        self._eos_token_id = _eos_token_id(model)
        return self._api.ContinuousBatchingPipeline(str(model), config, device, properties)

    def _config(self, new_tokens: int, seed: int) -> Any:
        config = super()._config(new_tokens, seed)
        if self._eos_token_id is not None:
            # The folder it saves from a .gguf has no generation config; it then
            # refuses requests whose stop tokens it fills in with -1.
            config.eos_token_id = self._eos_token_id
            config.stop_token_ids = {self._eos_token_id}
        return config

    @staticmethod
    def prepare_cached_load(model: Path, cache: Path) -> Path:
        """Its IR folder, saved by itself from a .gguf (without the tokenizer)."""
        if model.suffix != ".gguf":
            return model
        api = importlib.import_module("openvino_genai")
        link = cache / model.name
        link.symlink_to(model.resolve())
        pipeline = api.ContinuousBatchingPipeline(
            str(link), api.SchedulerConfig(), "CPU", {"enable_save_ov_model": True}
        )
        eos = pipeline.get_tokenizer().get_eos_token_id()
        link.unlink()
        (cache / _NOTE).write_text(json.dumps({"eos_token_id": eos}), encoding="utf-8")
        return cache


def _eos_token_id(model: Path) -> int | None:
    """What `prepare_cached_load` noted beside the model, if it did."""
    note = model / _NOTE
    if not note.is_file():
        return None
    return int(json.loads(note.read_text(encoding="utf-8"))["eos_token_id"])
