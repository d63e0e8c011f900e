"""Hold a chat's cache to a budget while it outgrows it, and its positions to the context."""

import argparse

import pagewheel
from pagewheel.default_model import default_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help=".gguf file or model folder")
    parser.add_argument("--tokens", type=int, default=400, help="to generate")
    parser.add_argument("--budget", type=int, default=192, help="tokens that the cache may hold")
    arguments = parser.parse_args()

    scheduler = pagewheel.SchedulerConfig()
    scheduler.num_kv_blocks = 100
    scheduler.use_cache_eviction = True
    scheduler.cache_eviction_config = pagewheel.CacheEvictionConfig(
        start_size=32,  # the first tokens stay: attention sinks
        recent_size=64,  # and the last ones
        max_cache_size=arguments.budget,  # of those between, the least attended go
        apply_rotation=True,  # positions stay within what the model knows
    )
    model = str(arguments.model or default_model())
    pipe = pagewheel.ContinuousBatchingPipeline(model, scheduler, "CPU")
    config = pagewheel.GenerationConfig(
        max_new_tokens=arguments.tokens, ignore_eos=True, repetition_penalty=1.1
    )
    history = pagewheel.ChatHistory(
        [{"role": "user", "content": "Tell me about the history of Rome."}]
    )
    prompt = pipe.get_tokenizer().apply_chat_template(history, add_generation_prompt=True)

    handle = pipe.add_request(0, prompt, config)
    while handle.get_status() == pagewheel.GenerationStatus.RUNNING:
        for output in handle.read(with_text=True).values():
            print(output.text, end="", flush=True)
    blocks = pipe.get_statistics().max_used_blocks
    print(f"\n{arguments.tokens} tokens in at most {blocks} blocks of the cache, 32 tokens each")


if __name__ == "__main__":
    main()
