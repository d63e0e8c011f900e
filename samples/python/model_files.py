"""Answer a batch of prompts with models as they come: .gguf files, Hugging Face folders."""

import argparse
import time

import pagewheel
from pagewheel.default_model import default_model

PROMPTS = ["The capital of France is", "Water boils at", "Once upon a time"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "models", nargs="*", help=".gguf files, Hugging Face folders (safetensors) or OpenVINO's"
    )
    arguments = parser.parse_args()

    scheduler = pagewheel.SchedulerConfig()
    scheduler.cache_size = 1
    for model in arguments.models or [str(default_model())]:
        begin = time.monotonic()
        # What is not in OpenVINO's format is converted once, and found in a cache later.
        pipe = pagewheel.ContinuousBatchingPipeline(model, scheduler, "CPU")
        print(f"{model}, opened in {time.monotonic() - begin:.1f} s")
        config = pagewheel.GenerationConfig(max_new_tokens=12, apply_chat_template=False)
        for prompt, result in zip(PROMPTS, pipe.generate(PROMPTS, config), strict=True):
            print(f"  {prompt}{result.m_generation_ids[0]!r}")


if __name__ == "__main__":
    main()
