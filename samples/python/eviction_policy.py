"""Choose what leaves the cache with a policy of one's own, which sees keys and queries."""

import argparse

import numpy as np
import numpy.typing as npt

import pagewheel
from pagewheel.default_model import default_model

Array = npt.NDArray[np.float64]


def ranks(values: Array) -> Array:
    """0 for the least."""
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.float64)


class KeepsForLater(pagewheel.EvictionPolicy):
    """norm_sum, but from `first_layer` on a token also stays for what its key tells.

    That is the sum of two ranks: how little the key is like the others (KeyDiff), and how much
    attention it will get from queries like those seen so far, at distances to come (after
    TriAttention, arXiv:2604.04921).
    """

    def __init__(self, first_layer: int = 20) -> None:
        super().__init__()
        self.first_layer = first_layer
        self.decisions = 0

    def observed(self) -> pagewheel.ObservedQueries:
        # The prompt's last queries and all that are generated, and their means before rotation.
        return pagewheel.ObservedQueries(
            prompt=8, decode=pagewheel.ObservedQueries.ALL, accumulate=True, queries=True
        )

    def drop(self, view: pagewheel.EvictionView, count: int) -> list[int]:
        """`count` of the units [first_unit, last_unit), for one layer of one sequence."""
        self.decisions += 1
        value = self.by_unit(view, view.scores / np.maximum(view.lifetimes, 1))
        if view.layer >= self.first_layer and len(view.inverse_frequencies):
            unlike = self.by_unit(view, -likeness(view.keys(0, view.num_tokens)))
            value = np.maximum(value, (unlike + self.by_unit(view, attention_to_come(view))) / 2)
        return [view.first_unit + int(u) for u in np.argsort(value, kind="stable")[:count]]

    @staticmethod
    def by_unit(view: pagewheel.EvictionView, value: Array) -> Array:
        """Ranks of the units that may go, of values [num_tokens]."""
        first, last = view.first_unit * view.unit_size, view.last_unit * view.unit_size
        return ranks(value[first:last].reshape(-1, view.unit_size).sum(1))


def likeness(keys: Array) -> Array:
    """Mean cosine of keys [tokens, kv heads, size] to their mean: [tokens]."""
    keys = keys / np.linalg.norm(keys, axis=-1, keepdims=True)
    mean = keys.sum(0)
    mean /= np.linalg.norm(mean, axis=-1, keepdims=True)
    return (keys * mean).sum(-1).mean(-1)


def attention_to_come(view: pagewheel.EvictionView) -> Array:
    """Of the mean query at 1, 2, 4 to 1024 positions from here, a mean over heads: [tokens]."""
    tokens, frequencies = view.num_tokens, view.inverse_frequencies
    keys = view.keys_before_rotation(0, tokens).astype(np.float64)
    queries = view.mean_query.astype(np.float64).reshape(keys.shape[1], -1, keys.shape[2])
    half = len(frequencies)

    def pairs(x: Array) -> npt.NDArray[np.complex128]:
        return x[..., :half] + 1j * x[..., half : 2 * half]

    turns = np.exp(1j * np.outer(1 + view.read_at[-1] - view.read_at, frequencies))
    turns = turns * np.exp(1j * np.outer(2.0 ** np.arange(11), frequencies)).mean(0)
    length = view.mean_amplitude.reshape(*queries.shape[:2], half)
    logits = (
        np.einsum("hgf,thf->hgt", pairs(queries), pairs(keys).conj() * turns[:, None]).real
        # Queries that differ much have a mean that is shorter than they are.
        + np.einsum("hgf,thf->hgt", length - abs(pairs(queries)), abs(pairs(keys)))
        + np.einsum("hgf,thf->hgt", queries[..., 2 * half :], keys[..., 2 * half :])
    )
    logits = (logits - logits.mean(-1, keepdims=True)) / (logits.std(-1, keepdims=True) + 1e-9)
    return logits.mean((0, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help=".gguf file or model folder")
    parser.add_argument("--prompt", default="Write about the sea.")
    parser.add_argument("--tokens", type=int, default=200, help="to generate")
    parser.add_argument("--first-layer", type=int, default=20, help="of SmolLM2's 30")
    arguments = parser.parse_args()

    policy = KeepsForLater(arguments.first_layer)
    scheduler = pagewheel.SchedulerConfig()
    scheduler.use_cache_eviction = True
    scheduler.cache_eviction_config = pagewheel.CacheEvictionConfig(
        start_size=16, recent_size=32, max_cache_size=128, apply_rotation=True, policy=policy
    )
    scheduler.cache_eviction_config.granularity = pagewheel.EvictionGranularity.TOKEN
    scheduler.cache_eviction_config.score_pooling = 17
    pipe = pagewheel.LLMPipeline(
        str(arguments.model or default_model()), "CPU", scheduler_config=scheduler
    )
    config = pagewheel.GenerationConfig(max_new_tokens=arguments.tokens, ignore_eos=True)
    pipe.generate(arguments.prompt, config, lambda text: print(text, end="", flush=True))
    print(f"\nthe policy was asked {policy.decisions} times, once per layer and decision")


if __name__ == "__main__":
    main()
