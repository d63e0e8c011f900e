"""Choose what leaves the cache with a policy of one's own: what is neither attended nor unlike the
rest goes. Of a conversation's facts it keeps more than the built-in default, for it does not need
to know the question: docs/eviction.md has the figures."""

import argparse

import numpy as np

import pagewheel
from pagewheel.default_model import default_model


def ranks(values: np.ndarray) -> np.ndarray:
    return values.argsort(kind="stable").argsort(kind="stable")


class AttendedOrUnlike(pagewheel.EvictionPolicy):
    """A token stays for the better of two ranks: its attention, and how little its key before
    rotation is like the mean key."""

    def __init__(self) -> None:
        super().__init__()
        self.decisions = 0

    def observed(self) -> pagewheel.ObservedQueries:
        # Which attention `view.scores` sums up: of a prompt's last 8 queries and of all that are
        # generated. With statistics the view has keys before rotation.
        every = pagewheel.ObservedQueries.ALL
        return pagewheel.ObservedQueries(8, every, accumulate=True, statistics=True)

    def drop(self, view: pagewheel.EvictionView, count: int) -> list[int]:
        """`count` of the units [first_unit, last_unit), for one layer of one sequence."""
        self.decisions += 1
        keys = view.unrotated_keys(0, view.num_tokens).reshape(view.num_tokens, -1)
        keys /= np.linalg.norm(keys, axis=1, keepdims=True)
        attention = view.scores / np.maximum(view.lifetimes, 1)

        def of_units(tokens: np.ndarray) -> np.ndarray:
            units = tokens[: view.last_unit * view.unit_size].reshape(-1, view.unit_size)
            return units[view.first_unit :].sum(1)

        attended, like = of_units(attention), of_units(keys @ keys.mean(0))
        value = np.maximum(ranks(attended), ranks(-like))
        return (view.first_unit + value.argsort(kind="stable")[:count]).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help=".gguf file or model folder")
    parser.add_argument("--prompt", default="Write about the sea.")
    parser.add_argument("--tokens", type=int, default=200, help="to generate")
    arguments = parser.parse_args()

    policy = AttendedOrUnlike()
    scheduler = pagewheel.SchedulerConfig()
    scheduler.use_cache_eviction = True
    scheduler.cache_eviction_config = pagewheel.CacheEvictionConfig(
        start_size=16,
        recent_size=32,
        max_cache_size=128,
        apply_rotation=True,
        policy=policy,
        granularity="token",
        score_pooling=17,
    )
    pipe = pagewheel.LLMPipeline(
        str(arguments.model or default_model()), "CPU", scheduler_config=scheduler
    )
    config = pagewheel.GenerationConfig(max_new_tokens=arguments.tokens, ignore_eos=True)
    pipe.generate(arguments.prompt, config, lambda text: print(text, end="", flush=True))
    print(f"\nthe policy was asked {policy.decisions} times, once per layer and decision")


if __name__ == "__main__":
    main()
