"""Generate without end, past the model's context, in a cache of a fixed size."""

import argparse
from pathlib import Path

import pagewheel
from pagewheel.default_model import default_model


def resident_megabytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 // 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help=".gguf file or model folder")
    parser.add_argument("--tokens", type=int, default=1000, help="when to stop it; 0: Ctrl-C does")
    parser.add_argument("--report", type=int, default=250, help="tokens between two lines")
    arguments = parser.parse_args()

    scheduler = pagewheel.SchedulerConfig()
    scheduler.num_kv_blocks = 32  # of 32 tokens: the budget and what a step adds
    scheduler.use_cache_eviction = True
    scheduler.cache_eviction_config = pagewheel.CacheEvictionConfig(
        start_size=32, recent_size=128, max_cache_size=512, apply_rotation=True
    )
    model = str(arguments.model or default_model())
    pipe = pagewheel.ContinuousBatchingPipeline(model, scheduler, "CPU")
    # No limit and no stop token: with cache eviction that is allowed.
    config = pagewheel.GenerationConfig(
        ignore_eos=True, do_sample=True, temperature=0.9, top_p=0.95, repetition_penalty=1.1
    )
    handle = pipe.add_request(0, "Once upon a time", config)
    generated, text = 0, ""
    while not arguments.tokens or generated < arguments.tokens:
        for output in handle.read(with_text=True).values():
            generated += len(output.generated_ids)
            text += output.text
            if generated % arguments.report == 0:
                blocks = pipe.get_statistics().num_used_blocks
                print(f"{generated} tokens, {blocks} blocks, {resident_megabytes()} MB: {text!r}")
                text = ""
    handle.stop()


if __name__ == "__main__":
    main()
