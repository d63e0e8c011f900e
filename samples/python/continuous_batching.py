"""Serve several prompts at once; a request joins the others while they are being answered."""

import argparse

import pagewheel
from pagewheel.default_model import default_model

PROMPTS = ["The capital of France is", "1, 2, 3, 4,", "Once upon a time", "Water boils at"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help=".gguf file or model folder")
    arguments = parser.parse_args()

    scheduler = pagewheel.SchedulerConfig()
    scheduler.cache_size = 1  # GB of KV cache for all requests together
    model = str(arguments.model or default_model())
    pipe = pagewheel.ContinuousBatchingPipeline(model, scheduler, "CPU")
    config = pagewheel.GenerationConfig()
    config.max_new_tokens = 20

    waiting = list(enumerate(PROMPTS))
    handles, tokens = {}, {number: [] for number, _ in waiting}
    while waiting or pipe.has_non_finished_requests():
        if waiting:
            number, prompt = waiting.pop(0)
            handles[number] = pipe.add_request(number, prompt, config)
        pipe.step()
        for number, handle in handles.items():
            while handle.can_read():
                for output in handle.read().values():
                    tokens[number] += output.generated_ids

    tokenizer = pipe.get_tokenizer()
    for number, prompt in enumerate(PROMPTS):
        print(repr(prompt), "->", repr(tokenizer.decode(tokens[number])))


if __name__ == "__main__":
    main()
