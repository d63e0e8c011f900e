"""Draw several answers to one prompt at random; the seed makes them repeatable."""

import argparse

import pagewheel
from pagewheel.default_model import default_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help=".gguf file or model folder")
    parser.add_argument("--prompt", default="Give me a name for a cat.")
    parser.add_argument("--answers", type=int, default=3)
    arguments = parser.parse_args()

    pipe = pagewheel.LLMPipeline(str(arguments.model or default_model()), "CPU")
    config = pagewheel.GenerationConfig()
    config.max_new_tokens = 40
    config.do_sample = True
    config.temperature = 0.8
    config.top_p = 0.95
    config.top_k = 50
    for seed in range(arguments.answers):
        config.rng_seed = seed
        print(f"seed {seed}:", pipe.generate(arguments.prompt, config))


if __name__ == "__main__":
    main()
