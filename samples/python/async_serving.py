"""Serve many clients with asyncio, while a thread of the pipeline's own makes the steps."""

import argparse
import asyncio

import pagewheel
from pagewheel.default_model import default_model

PROMPTS = ["The capital of France is", "1, 2, 3, 4,", "Once upon a time", "Water boils at"]


async def client(
    pipe: pagewheel.ContinuousBatchingPipeline, number: int, patience: float
) -> tuple[str, str]:
    """The text that came, and how it ended. A client that gives up frees its blocks at once."""
    config = pagewheel.GenerationConfig(max_new_tokens=24, ignore_eos=True)
    handle = pipe.add_request(number, PROMPTS[number % len(PROMPTS)], config)
    text = ""

    async def receive() -> None:
        nonlocal text
        async for outputs in handle.outputs(with_text=True):
            text += outputs[0].text  # here a server would send it

    try:
        await asyncio.wait_for(receive(), patience)
    except asyncio.TimeoutError:
        handle.cancel()
    return text, handle.get_status().name


async def serve(pipe: pagewheel.ContinuousBatchingPipeline, clients: int) -> None:
    # The last client has no patience.
    served = [client(pipe, i, 60 if i + 1 < clients else 0.001) for i in range(clients)]
    for number, (text, status) in enumerate(await asyncio.gather(*served)):
        print(f"{number} {status}: {PROMPTS[number % len(PROMPTS)]}{text!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help=".gguf file or model folder")
    parser.add_argument("--clients", type=int, default=6)
    arguments = parser.parse_args()

    scheduler = pagewheel.SchedulerConfig()
    scheduler.cache_size = 1
    model = str(arguments.model or default_model())
    pipe = pagewheel.ContinuousBatchingPipeline(model, scheduler, "CPU")
    pipe.start()
    asyncio.run(serve(pipe, arguments.clients))
    pipe.stop()


if __name__ == "__main__":
    main()
