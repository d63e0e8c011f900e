"""Choose what leaves the cache with a policy of one's own: here, every other token goes first."""

import argparse

import pagewheel
from pagewheel.default_model import default_model


class EveryOther(pagewheel.EvictionPolicy):
    """Thins out what is old instead of dropping the oldest."""

    def __init__(self) -> None:
        super().__init__()
        self.decisions = 0

    def observed(self) -> pagewheel.ObservedQueries:
        # Which attention `view.scores` sums up. A policy that reads none leaves this out.
        return pagewheel.ObservedQueries(decode=16)

    def drop(self, view: pagewheel.EvictionView, count: int) -> list[int]:
        """`count` of the units [first_unit, last_unit), for one layer of one sequence."""
        self.decisions += 1
        units = range(view.first_unit, view.last_unit)
        # Odd positions first, and among them those that got the least attention.
        by_attention = sorted(
            units, key=lambda u: (view.positions[u] % 2 == 0, float(view.scores[u]))
        )
        return by_attention[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help=".gguf file or model folder")
    parser.add_argument("--prompt", default="Write about the sea.")
    parser.add_argument("--tokens", type=int, default=200, help="to generate")
    arguments = parser.parse_args()

    policy = EveryOther()
    scheduler = pagewheel.SchedulerConfig()
    scheduler.use_cache_eviction = True
    scheduler.cache_eviction_config = pagewheel.CacheEvictionConfig(
        start_size=16, recent_size=32, max_cache_size=128, apply_rotation=True, policy=policy
    )
    scheduler.cache_eviction_config.granularity = pagewheel.EvictionGranularity.TOKEN
    pipe = pagewheel.LLMPipeline(
        str(arguments.model or default_model()), "CPU", scheduler_config=scheduler
    )
    config = pagewheel.GenerationConfig(max_new_tokens=arguments.tokens, ignore_eos=True)
    pipe.generate(arguments.prompt, config, lambda text: print(text, end="", flush=True))
    print(f"\nthe policy was asked {policy.decisions} times, once per layer and decision")


if __name__ == "__main__":
    main()
