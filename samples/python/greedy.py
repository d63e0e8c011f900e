"""Answer a prompt by taking the likeliest token each time; print it as it comes."""

import argparse

import pagewheel
from pagewheel.default_model import default_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help=".gguf file or model folder")
    parser.add_argument("--prompt", default="Why is the sky blue?")
    arguments = parser.parse_args()

    pipe = pagewheel.LLMPipeline(str(arguments.model or default_model()), "CPU")
    config = pagewheel.GenerationConfig()
    config.max_new_tokens = 100
    config.do_sample = False
    pipe.generate(arguments.prompt, config, lambda text: print(text, end="", flush=True))
    print()


if __name__ == "__main__":
    main()
