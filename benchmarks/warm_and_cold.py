"""How often a second turn over cached tokens is answered as one whose prompt is computed whole.

    python -m benchmarks.warm_and_cold
    python -m benchmarks.warm_and_cold --model MODEL --chats 500 --set KV_CACHE_PRECISION=f32

A chat is a piece of the Python reference manual, its answer, and another piece. Three engines
answer that greedily: one that has the first turn in its cache, one that keeps nothing, and one
that keeps nothing and answers eight chats at once. The last two are both cold: as far as they
differ, rounding and not the cache makes the difference.
"""

from __future__ import annotations

import random

import pagewheel
from benchmarks.command_line import model_folder, parser_with_model
from benchmarks.fidelity import common
from benchmarks.prompts import PromptSource, real_text

AT_ONCE = 8
TURN = 24  # tokens of the first answer


def main() -> None:
    """Print a line for each comparison."""
    parser = parser_with_model(__doc__)
    parser.add_argument("--chats", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=40, help="of the answers that are compared")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    properties = dict(one.split("=", 1) for one in arguments.set)
    folder = model_folder(arguments.model)

    def engine(keeps: bool) -> pagewheel.ContinuousBatchingPipeline:
        scheduler = pagewheel.SchedulerConfig()
        scheduler.enable_prefix_caching = keeps
        return pagewheel.ContinuousBatchingPipeline(folder, scheduler, "CPU", properties)

    def answers(
        pipeline: pagewheel.ContinuousBatchingPipeline, prompts: list[list[int]], tokens: int
    ) -> list[list[int]]:
        config = pagewheel.GenerationConfig(max_new_tokens=tokens, ignore_eos=True)
        return [one.m_generation_ids[0] for one in pipeline.generate(prompts, config)]

    chance = random.Random(0)
    lengths = [n for _ in range(arguments.chats) for n in (chance.randint(16, 200), 16)]
    ids = pagewheel.Tokenizer(folder).encode(real_text(None)).input_ids.data[0].tolist()
    pieces = iter(PromptSource(ids * (1 + sum(lengths) // len(ids))).cut(lengths))

    warm, cold = engine(True), engine(False)
    prompts, found = [], []
    for first, second in zip(pieces, pieces, strict=True):
        prompts.append(first + answers(warm, [first], TURN)[0] + second)
        found += answers(warm, prompts[-1:], arguments.tokens)
    alone = [answers(cold, [prompt], arguments.tokens)[0] for prompt in prompts]
    beside = [
        answer
        for begin in range(0, len(prompts), AT_ONCE)
        for answer in answers(cold, prompts[begin : begin + AT_ONCE], arguments.tokens)
    ]
    for name, others in (("warm", found), (f"cold, {AT_ONCE} at once", beside)):
        same = sum(a == b for a, b in zip(alone, others, strict=True))
        agree = sum(common(a, b) for a, b in zip(alone, others, strict=True)) / len(alone)
        print(f"{name}: {same} of {len(alone)} are those of cold alone, {agree:.1f} tokens agree")


if __name__ == "__main__":
    main()
