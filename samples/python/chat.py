"""Talk with a model; an empty line ends the conversation."""

import argparse

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
    while question := input("> "):
        history.append({"role": "user", "content": question})
        answer = pipe.generate(history, config, show)
        history.append({"role": "assistant", "content": answer.texts[0]})
        print()


if __name__ == "__main__":
    main()
