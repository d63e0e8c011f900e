"""Compute a system prompt once: pin it, share it between requests, save it for the next start."""

import argparse
import tempfile
from pathlib import Path

import pagewheel
from pagewheel.default_model import default_model

SYSTEM = "You are a librarian. " + "You answer briefly, and name a book whenever you can. " * 20
QUESTIONS = ["Who was Sherlock Holmes?", "What is a whale?", "Where is Troy?"]


def make_pipeline(model: str) -> pagewheel.ContinuousBatchingPipeline:
    scheduler = pagewheel.SchedulerConfig()
    scheduler.cache_size = 1
    scheduler.enable_prefix_caching = True
    return pagewheel.ContinuousBatchingPipeline(model, scheduler, "CPU")


def ask(pipe: pagewheel.ContinuousBatchingPipeline, question: str) -> None:
    history = pagewheel.ChatHistory(
        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    )
    (result,) = pipe.generate([history], pagewheel.GenerationConfig(max_new_tokens=20))
    metrics = result.perf_metrics
    found = metrics.get_num_prefix_cache_hit_tokens()
    print(
        f"{question}{result.m_generation_ids[0]!r}\n  {found} of {metrics.get_num_input_tokens()} "
        f"prompt tokens were cached; first token after {metrics.get_ttft().mean:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help=".gguf file or model folder")
    parser.add_argument("--file", type=Path, help="where prefixes are kept; else a temporary file")
    arguments = parser.parse_args()
    model = str(arguments.model or default_model())

    with tempfile.TemporaryDirectory() as folder:
        path = arguments.file or Path(folder) / "prefixes"
        pipe = make_pipeline(model)
        tokenizer = pipe.get_tokenizer()
        prompt = tokenizer.apply_chat_template([{"role": "system", "content": SYSTEM}], False)
        tokens = tokenizer.encode(prompt).input_ids.data[0]
        cache = pipe.get_prefix_cache()
        print(f"{cache.pin(tokens)} tokens are pinned: they stay whatever else is cached")
        for question in QUESTIONS:
            ask(pipe, question)
        cache.save(path)

        pipe = make_pipeline(model)  # as the program's next start would
        print(f"{pipe.get_prefix_cache().load(path)} tokens came from {path.name}")
        ask(pipe, QUESTIONS[0])


if __name__ == "__main__":
    main()
