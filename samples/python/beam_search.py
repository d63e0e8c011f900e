"""Find the likeliest answers to a prompt, in groups of beams that avoid each other's words."""

import argparse

import pagewheel
from pagewheel.default_model import default_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help=".gguf file or model folder")
    parser.add_argument("--prompt", default="Why is the sky blue?")
    parser.add_argument("--answers", type=int, default=3)
    arguments = parser.parse_args()

    pipe = pagewheel.LLMPipeline(str(arguments.model or default_model()), "CPU")
    config = pagewheel.GenerationConfig()
    config.max_new_tokens = 30
    config.num_beams = 2 * arguments.answers
    config.num_beam_groups = arguments.answers
    config.diversity_penalty = 1.0 if arguments.answers > 1 else 0.0
    config.num_return_sequences = arguments.answers
    results = pipe.generate([arguments.prompt], config)
    for text, score in zip(results.texts, results.scores, strict=True):
        print(f"{score:.3f}: {text}")


if __name__ == "__main__":
    main()
