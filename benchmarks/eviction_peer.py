"""openvino-genai's cache eviction on the samples of `pagewheel evaluate-cache`.

    python -m benchmarks.eviction_peer --policy norm_sum --budget 0.25 --output peer.json

The same prompts, budgets and columns, without those that need its logits (KL) or perplexity. It
evicts after the prompt only, so facts that are asked for later are not measured. It runs without
rotation, which breaks its answers, and reads pagewheel's converted folder: its weights are exact.
Policies are norm_sum, sum and kvcrush: adaptive_rkv of openvino-genai 2026.4.1 throws for these
prompts ("Diversity score size mismatch"). It lets the last block fill up beyond the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import openvino as ov
import openvino_genai as genai

from benchmarks.command_line import model_folder, parser_with_model
from pagewheel.evaluate_cache.report import Report
from pagewheel.evaluate_cache.run import (
    BLOCK,
    FULL,
    Evaluation,
    Plan,
    Progress,
    Setting,
    common_share,
)
from pagewheel.evaluate_cache.tasks import TASKS

_NORM_SUM = genai.AggregationMode.NORM_SUM


class Peer(Evaluation):
    """Answers of openvino-genai. Prompts are given as they come, all in one batch."""

    def generate(
        self,
        setting: Setting,
        prompts: Sequence[list[int]],
        new_tokens: int,
        progress: Progress,
        while_reading: bool = False,
    ) -> list[list[int]]:
        assert not while_reading
        progress("")
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = 1
        if setting.text != FULL:
            plan, budget = self.plan, setting.budget(self.plan)
            crush = setting.text == "kvcrush"
            blocks = (budget - plan.start_size - plan.recent_size) // BLOCK
            mode = genai.AggregationMode.SUM if setting.text == "sum" else _NORM_SUM
            scheduler.use_cache_eviction = True
            scheduler.cache_eviction_config = genai.CacheEvictionConfig(
                plan.start_size,
                plan.recent_size,
                budget,
                mode,
                kvcrush_config=genai.KVCrushConfig(max(1, blocks // 4)) if crush else None,
            )
        properties = dict(self.plan.properties)
        pipeline = genai.ContinuousBatchingPipeline(str(self.folder), scheduler, "CPU", properties)
        options = genai.GenerationConfig(max_new_tokens=new_tokens, ignore_eos=True)
        answers = []
        for prompt in prompts:
            results = pipeline.generate([ov.Tensor(np.array([prompt], np.int64))], [options])
            answers.append(list(results[0].m_generation_ids[0]))
        return answers


def main() -> None:
    """Measures what the file lacks, and prints the table."""
    parser = parser_with_model(__doc__)
    parser.add_argument(
        "--policy", nargs="+", default=["norm_sum"], choices=("norm_sum", "sum", "kvcrush")
    )
    parser.add_argument("--budget", nargs="+", type=float, default=[0.25, 0.5])
    parser.add_argument("--only", nargs="+", default=[*TASKS, "prose", "code"])
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    properties = {
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "f16",
        "INFERENCE_NUM_THREADS": arguments.threads,
    }
    plan = Plan(arguments.samples, properties=tuple(properties.items()))
    folder = model_folder(arguments.model)
    peer, report = (
        Peer(folder, plan),
        Report(f"openvino-genai {folder.name}", plan, arguments.output),
    )
    settings = [Setting(policy, share) for policy in arguments.policy for share in arguments.budget]
    full: dict[str, list[list[int]]] = {}
    for name in arguments.only:
        for setting in [Setting(FULL), *settings]:
            if name in TASKS:
                if not TASKS[name].while_reading and not report.has(name, setting):
                    report.add(name, setting, peer.told(name, setting, lambda _done: None))
                continue
            if setting.text != FULL and report.has(name, setting):
                continue
            got = peer.generate(setting, peer.prompts(name), plan.new_tokens, lambda _done: None)
            if setting.text == FULL:
                full[name] = got
            else:
                pairs = zip(full[name], got, strict=True)
                report.add(f"{name} agreement", setting, [common_share(a, b) for a, b in pairs])
    print(report.markdown(), end="")


if __name__ == "__main__":
    main()
