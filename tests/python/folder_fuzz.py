"""Damaged model folders and GGUF files, loaded and run in a child process.

Each case is made of a file's name and a number, so that a finding can be made again:

    python tests/python/folder_fuzz.py FOLDER openvino_tokenizer.bin 17
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# Numbers that lengths, counts, types and offsets may be damaged to.
ODD_NUMBERS = (0, 1, 7, 31, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
ODD_TEXTS = ("-1", "1.5", "1e400", "", "null", "true", "[]", "{}", '"text"', "\x00", "[" * 3000)
ELEMENT_TYPES = ("f32", "f16", "i64", "i32", "u8", "i8", "u4", "i4", "string", "boolean", "f64")

SECONDS = 60.0  # a case takes a tenth of one, and much longer on a busy machine
BYTES = 3 << 30

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_ATTRIBUTE = re.compile(r'(offset|size|shape|element_type)="([^"]*)"')
_TAG = re.compile(r"<[^<>]*>")


def damaged(whole: bytes, end: int, generator: random.Random) -> bytes:
    """One to four damages before byte `end`."""
    content = bytearray(whole)
    for _ in range(generator.randint(1, 4)):
        at = generator.randrange(4, min(end, len(content) - 8))
        kind = generator.randrange(5)
        if kind == 0:
            content[at] ^= 1 << generator.randrange(8)
        elif kind == 1:
            content[at] = generator.randrange(256)
        elif kind == 2:
            width, form = generator.choice([(4, "<I"), (8, "<Q")])
            number = generator.choice(ODD_NUMBERS) & (2 ** (8 * width) - 1)
            content[at : at + width] = struct.pack(form, number)
        elif kind == 3:
            del content[at : at + generator.randint(1, 40)]
        else:
            other = generator.randrange(4, end)
            content[at:at] = content[other : other + generator.randint(1, 40)]
    return bytes(content)


def _replaced(text: str, pattern: re.Pattern[str], generator: random.Random, new: str) -> str:
    found = list(pattern.finditer(text))
    if not found:
        return text
    start, end = generator.choice(found).span()
    return text[:start] + new + text[end:]


def _odd_number(generator: random.Random) -> str:
    return str(generator.choice((*ODD_NUMBERS, -1, generator.randrange(4000), 2**62 // 4)))


def _damaged_text(text: str, generator: random.Random) -> str:
    """Another number, another value, or a line that is gone or there twice."""
    kind = generator.randrange(4)
    if kind == 0:
        return _replaced(text, _NUMBER, generator, _odd_number(generator))
    if kind == 1:
        return _replaced(text, _NUMBER, generator, generator.choice(ODD_TEXTS))
    if kind == 2:
        quoted = re.compile(r'"[^"\n]*"')
        return _replaced(text, quoted, generator, generator.choice(ODD_TEXTS))
    lines = text.split("\n")
    at = generator.randrange(len(lines))
    lines[at : at + 1] = generator.choice(([], [lines[at]] * 2))
    return "\n".join(lines)


def _damaged_graph(text: str, generator: random.Random) -> str:
    """Of an openvino_*.xml: where constants lie and what they are, or any tag."""
    kind = generator.randrange(5)
    if kind < 3:
        attribute = generator.choice(list(_ATTRIBUTE.finditer(text)))
        name = attribute[1]
        values = {
            "element_type": generator.choice(ELEMENT_TYPES),
            "shape": generator.choice(
                ("", "-1", "0", _odd_number(generator), "1," * 300 + "1", f"{2**32},{2**32}")
            ),
        }
        value = values.get(name, _odd_number(generator))
        return f'{text[: attribute.start()]}{name}="{value}"{text[attribute.end() :]}'
    if kind == 3:
        other = generator.choice(_TAG.findall(text))
        return _replaced(text, _TAG, generator, generator.choice(("", other)))
    return _damaged_text(text, generator)


def _spelled_otherwise(text: str) -> str:
    """The same XML: attributes in the other quotes and with space, ends of layers too."""
    text = re.sub(r' (type|name|variable_id)="([^"\']*)"', r" \1\n= '\2'", text)
    return text.replace("</layer>", "</layer >")


def damaged_file(name: str, whole: bytes, seed: int) -> bytes:
    """What case `seed` makes of the file."""
    generator = random.Random(f"{name} {seed}")
    suffix = Path(name).suffix
    if generator.random() < 0.03:
        return whole[: generator.randrange(len(whole))]
    if suffix == ".gguf":  # what is before the weights, for the most part
        return damaged(whole, len(whole) // generator.choice((2, 20, 20, 20)), generator)
    if suffix == ".bin" or generator.random() < 0.2:
        return damaged(whole + bytes(8), len(whole), generator)[:-8]
    text = whole.decode()
    for _ in range(generator.randint(1, 2)):
        text = (_damaged_graph if suffix == ".xml" else _damaged_text)(text, generator)
    if suffix == ".xml" and generator.random() < 0.25:
        text = _spelled_otherwise(text)
    return text.encode()


@dataclass(frozen=True)
class Finding:
    """A case that ended a child or took too much."""

    file: str
    seed: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}, case {self.seed}: {self.what}"


class Child:
    """A process that loads one folder or file after another."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close())
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def run(self, path: Path) -> tuple[str, bool]:
        """What came of it, and whether that is allowed. After a False the child is of no use."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(f"{path}\n")
            self._process.stdin.flush()
        except BrokenPipeError:  # after the answer to the last one
            return self._death(), False
        end = time.monotonic() + SECONDS
        while not select.select([self._process.stdout], [], [], 0.1)[0]:
            if time.monotonic() > end:
                return f"took more than {SECONDS:.0f} s", False
            if (resident := self._resident()) > BYTES:
                return f"took {resident >> 20} MiB", False
        answer = self._process.stdout.readline().strip()
        if answer:
            return answer, True
        return self._death(), False

    def _resident(self) -> int:
        try:
            pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def _death(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"ended by {name} {' '.join(last)}".strip()


def cases(
    source: Path, name: str, seeds: Iterable[int], scratch: Path
) -> Iterator[tuple[int, Path]]:
    """The damaged folders (or files, where `source` is one), each gone when the next comes."""
    whole = (source / name if source.is_dir() else source).read_bytes()
    place = scratch / "case"
    for seed in seeds:
        content = damaged_file(name, whole, seed)
        if source.is_dir():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            for each in source.iterdir():
                if each.name != name:
                    os.link(each, place / each.name)
            (place / name).write_bytes(content)
            yield seed, place
        else:
            path = scratch / name
            path.write_bytes(content)
            yield seed, path


def files(source: Path) -> list[str]:
    """The names that `fuzz` knows."""
    return sorted(each.name for each in source.iterdir()) if source.is_dir() else [source.name]


def fuzz(
    source: Path,
    scratch: Path,
    seeds: Mapping[str, Iterable[int]],
    report: Callable[[str, int, str], None] = lambda _file, _seed, _answer: None,
) -> list[Finding]:
    """Runs the cases `seeds` of each file of the folder, or of the file `source`."""
    findings = []
    child = Child()
    try:
        for name, numbers in seeds.items():
            for seed, path in cases(source, name, numbers, scratch):
                answer, is_allowed = child.run(path)
                report(name, seed, answer)
                if not is_allowed:
                    findings.append(Finding(name, seed, answer))
                    child.close()
                    child = Child()
    finally:
        child.close()
    return findings


def use(path: Path) -> None:
    """Whatever a program does with a model. Raises what that raises."""
    import pagewheel
    from pagewheel.convert import convert
    from pagewheel.model_info import read_info

    if path.is_file():
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            use(convert(path, Path(folder) / "converted", progress=False))
        return
    errors = []
    steps: list[Callable[[], object]] = [lambda: read_info(path)]
    tokenizer = None
    try:
        tokenizer = pagewheel.Tokenizer(path)
    except Exception as error:
        errors.append(error)
    else:
        text = "Hello <|im_start|> wörld\x00  the \U0001f600 end"
        steps += [
            lambda: tokenizer.decode(tokenizer.encode(text).input_ids),
            lambda: tokenizer.decode([0, 1, 5, 80, 200, 266], skip_special_tokens=False),
            lambda: tokenizer.apply_chat_template([{"role": "user", "content": "Hello"}], True),
        ]
    steps.append(lambda: generate(path))
    for step in steps:
        try:
            step()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


def generate(path: Path) -> None:
    import pagewheel

    pipeline = pagewheel.LLMPipeline(path, "CPU")
    pipeline.generate("Hello, what is the way?", max_new_tokens=2, ignore_eos=True)


def serve() -> None:
    """Paths in, a line for each out."""
    for line in sys.stdin:
        try:
            use(Path(line.rstrip("\n")))
            answer = "works"
        except Exception as error:
            answer = f"{type(error).__name__}: {error!s:.300}"
        print(json.dumps(answer), flush=True)


def main() -> None:
    if len(sys.argv) == 1:
        serve()
        return
    source, name, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    with tempfile.TemporaryDirectory() as scratch:
        for _, path in cases(source, name, [seed], Path(scratch)):
            use(path)


if __name__ == "__main__":
    main()
