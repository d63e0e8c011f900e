"""Let urgent requests overtake others, end late ones at a deadline, refuse what is too much."""

import argparse

import pagewheel
from pagewheel.default_model import default_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help=".gguf file or model folder")
    arguments = parser.parse_args()

    scheduler = pagewheel.SchedulerConfig()
    scheduler.num_kv_blocks = 60
    scheduler.max_num_seqs = 1  # so that one is seen to wait for another
    scheduler.max_queue = 4
    model = str(arguments.model or default_model())
    pipe = pagewheel.ContinuousBatchingPipeline(model, scheduler, "CPU")

    requests = {
        "patient": {"max_new_tokens": 20},
        "urgent": {"max_new_tokens": 20, "priority": 5},
        # Seconds from its submission, the time in the queue included.
        "late": {"max_new_tokens": 1000, "timeout": 1.0},
        "hopeless": {"max_new_tokens": 20, "timeout": 0.001},
        "one too many": {"max_new_tokens": 20},
    }
    handles = {}
    for number, (name, parameters) in enumerate(requests.items()):
        config = pagewheel.GenerationConfig(ignore_eos=True, **parameters)
        try:
            handles[name] = pipe.add_request(number, "Once upon a time", config)
        except pagewheel.QueueFullError as error:
            print(f"{name}: refused, {error}")

    over = set()
    while pipe.has_non_finished_requests():
        pipe.step()
        for name, handle in handles.items():
            if name in over or handle.get_status() == pagewheel.GenerationStatus.RUNNING:
                continue
            over.add(name)
            tokens = sum(len(output.generated_ids) for output in handle.outputs_so_far())
            print(f"{name}: {handle.get_status().name} with {tokens} tokens")


if __name__ == "__main__":
    main()
