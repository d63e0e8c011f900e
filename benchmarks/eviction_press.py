"""kvpress's presses on the samples of `pagewheel evaluate-cache`.

    pip install kvpress "transformers<5.3"
    python -m benchmarks.eviction_press --model FILE.gguf --budget 0.25 0.5 --output press.json

A press scores a prompt once, when it has been read, and nothing goes afterwards. It keeps so much
of the prompt that over the tokens that are generated it holds as much as pagewheel on average. The
model is transformers', in f32 with a cache of f32, from the same file. Keys stay at their places.
Facts that are asked for later are not measured: a press would have to read the prompt in pieces.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import kvpress
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from benchmarks.command_line import parser_with_model
from pagewheel.convert import resolve_model
from pagewheel.default_model import default_model
from pagewheel.evaluate_cache.measure import measure
from pagewheel.evaluate_cache.report import Report
from pagewheel.evaluate_cache.run import FULL, Evaluation, Plan, Progress, Recorder, Setting

_PRESSES = {
    "snapkv": kvpress.SnapKVPress,
    "expected_attention": kvpress.ExpectedAttentionPress,
    "kvzip": kvpress.KVzipPress,
    "streaming": kvpress.StreamingLLMPress,
}


class Presses(Evaluation):
    """Answers of transformers with a press as the setting."""

    def __init__(self, gguf: Path, plan: Plan) -> None:
        super().__init__(resolve_model(gguf), plan)
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32, attn_implementation="sdpa"
        ).eval()
        # KVzip reads the tokenizer that stands beside the model.
        self._tokenizer_folder = tempfile.TemporaryDirectory()
        tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
        tokenizer.save_pretrained(self._tokenizer_folder.name)
        self.model.config.name_or_path = self._tokenizer_folder.name

    def _press(self, setting: Setting) -> AbstractContextManager[Any]:
        if setting.text == FULL:
            return nullcontext()
        budget = setting.budget(self.plan)
        # pagewheel holds the budget less half of what a decision makes room for.
        kept = budget - min(32, budget // 16) // 2 - self.plan.new_tokens // 2
        press = _PRESSES[setting.text](compression_ratio=1 - kept / self.plan.tokens)
        context: AbstractContextManager[Any] = press(self.model)
        return context

    @torch.no_grad()
    def _answer(
        self, setting: Setting, prompt: list[int], new_tokens: int, recorder: Recorder | None
    ) -> list[int]:
        cache = DynamicCache()
        with self._press(setting):
            logits = self.model(torch.tensor([prompt]), past_key_values=cache).logits[0, -1]
        answer: list[int] = []
        while True:
            row = logits.numpy().copy()
            if recorder is not None:
                recorder(np.empty(0, np.int64), row)
            answer.append(int(row.argmax()))
            if len(answer) == new_tokens:
                return answer
            logits = self.model(
                torch.tensor([answer[-1:]]),
                past_key_values=cache,
                position_ids=torch.tensor([[len(prompt) + len(answer) - 1]]),
            ).logits[0, -1]

    def generate(
        self,
        setting: Setting,
        prompts: Sequence[list[int]],
        new_tokens: int,
        progress: Progress,
        while_reading: bool = False,
    ) -> list[list[int]]:
        assert not while_reading
        return [self._answer(setting, prompt, new_tokens, None) for prompt in prompts]

    def _continued(
        self, name: str, setting: Setting, references: Sequence[Recorder] | None, show: Progress
    ) -> list[Recorder]:
        prompts = self.prompts(name)
        recorders = [Recorder(references[i] if references else None) for i in range(len(prompts))]
        for prompt, recorder in zip(prompts, recorders, strict=True):
            self._answer(setting, prompt, self.plan.new_tokens, recorder)
        return recorders


def main() -> None:
    """Measures what the file lacks, and prints the table."""
    parser = parser_with_model(__doc__)
    parser.add_argument("--press", nargs="+", default=list(_PRESSES), choices=list(_PRESSES))
    parser.add_argument("--budget", nargs="+", type=float, default=[0.25, 0.5])
    parser.add_argument("--only", nargs="+", default=["passkey", "prose"])
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    gguf = arguments.model or default_model()
    plan = Plan(arguments.samples)
    report = Report(f"kvpress {gguf.name}", plan, arguments.output)
    settings = [Setting(press, share) for press in arguments.press for share in arguments.budget]
    chosen = [Setting(FULL), *settings]
    measure(Presses(gguf, plan), chosen, arguments.only, report, lambda _done: None)
    print(report.markdown(), end="")


if __name__ == "__main__":
    main()
