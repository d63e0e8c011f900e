"""Talk with a model; the end of the input ends the conversation."""

import argparse
import sys

import pagewheel
from pagewheel.default_model import default_model


def show(text: str) -> pagewheel.StreamingStatus:
    print(text, end="", flush=True)
    return pagewheel.StreamingStatus.RUNNING


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help=".gguf file or model folder")
    arguments = parser.parse_args()

    pipe = pagewheel.LLMPipeline(str(arguments.model or default_model()), "CPU")
    config = pagewheel.GenerationConfig()
    config.max_new_tokens = 300
    history = pagewheel.ChatHistory()
    print("> ", end="", flush=True)
    for question in sys.stdin:
        history.append({"role": "user", "content": question.strip()})
        answer = pipe.generate(history, config, show)
        history.append({"role": "assistant", "content": answer.texts[0]})
        print("\n> ", end="", flush=True)


if __name__ == "__main__":
    main()
