"""The commands and their options; what they do is in the files beside this one.

Heavy modules are imported inside the commands, so that `--help` is quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

import pagewheel
from pagewheel._pagewheel import eviction_policies
from pagewheel.cli.bench_serve import bench_serve
from pagewheel.cli.chat import (
    Answerer,
    Chat,
    LocalModel,
    PipelineOptions,
    ServerModel,
    generate_text,
    model_option,
    model_path,
    open_chat,
    open_pipeline,
)
from pagewheel.cli.endpoint import api_base
from pagewheel.cli.evaluate_cache import evaluate_cache
from pagewheel.cli.generation_options import Sampling, StructureOptions, generation_options
from pagewheel.cli.models import list_models, pull, remove, show_cache
from pagewheel.cli.serve import serve
from pagewheel.cli.terminal import (
    check_text,
    ended_as_interrupted,
    failures,
    prompt_text,
    show_any_path,
)
from pagewheel.options import (
    option,
    parse_properties,
    properties_option,
    scheduler_with,
    with_option_groups,
    wrong_usage,
)

app = typer.Typer(
    name="pagewheel",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Numbers that the core holds in 64 bits, and those that count what is held in memory.
_MAX_NUMBER = 2**64 - 1
_MAX_COUNT = 2**31 - 1

Stats = Annotated[bool, typer.Option("--stats", help="Print times to standard error.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"pagewheel {pagewheel.__version__}, OpenVINO {metadata.version('openvino')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the versions of pagewheel and OpenVINO, and exit.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks instead of one-line errors.")
    ] = False,
) -> None:
    """Run language models on the OpenVINO runtime.

    Where no model is given, generate, chat, info, trace and serve use SmolLM2-135M-Instruct (95 MB,
    downloaded once). Any other is named by its path, or as the Hugging Face hub names it.
    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
    """
    context.obj = debug


@app.command()
@generation_options(max_new_tokens=256)
@with_option_groups
def generate(
    context: typer.Context,
    sampling: Sampling,
    on_pipeline: PipelineOptions,
    on_structure: StructureOptions,
    prompt: Annotated[str, typer.Argument(help="The prompt; '-' reads standard input.")],
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text as it is: no chat template.")
    ] = False,
    stats: Stats = False,
) -> None:
    """Answer one prompt; the text streams to standard output.

    [bold]Examples[/bold]

    pagewheel generate "Why is the sky blue?"

    pagewheel generate --raw --max-new-tokens 40 "Once upon a time"

    pagewheel generate --temperature 0.8 --top-p 0.95 --seed 7 "Write a haiku"

    pagewheel generate --json-schema person.json "Invent a person, in JSON."

    pagewheel generate --choice yes --choice no "Is the sky blue?"

    pagewheel generate --num-beams 4 "Translate to French: the cat sleeps"

    pagewheel generate -m Qwen/Qwen3-0.6B "Name three rivers."

    cat question.txt | pagewheel generate --stats --model model.gguf -
    """
    arguments = on_pipeline.parsed()
    with failures(debug=context.obj):
        structure = on_structure.config()
        text = prompt_text(prompt)
        pipeline = open_pipeline(*arguments)
        generate_text(pipeline, text, sampling, structure, raw=raw, stats=stats)


@app.command()
@generation_options(max_new_tokens=1024, with_beams=False)
@with_option_groups
def chat(
    context: typer.Context,
    sampling: Sampling,
    on_pipeline: PipelineOptions,
    on_structure: StructureOptions,
    system: Annotated[
        str | None, typer.Option(help="The system message that opens the conversation.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Talk with a model of a server of OpenAI's API; --model is its name there.",
        ),
    ] = None,
    api_key: Annotated[
        str, typer.Option(envvar="OPENAI_API_KEY", help="Of the server.", show_envvar=True)
    ] = "",
    stats: Stats = False,
) -> None:
    """Talk with a model.

    /reset forgets the conversation, /quit or end of input leaves. Ctrl-C stops an
    answer, not the program. --json-schema, --regex and --choice are of every answer.

    [bold]Examples[/bold]

    pagewheel chat

    pagewheel chat --model model.gguf --system "Answer in French." --temperature 0.7

    pagewheel chat --eviction start=32,recent=128,max=672,rotate

    pagewheel chat --server http://127.0.0.1:8000
    """
    arguments = on_pipeline.parsed()
    if server is not None and on_pipeline.are_given:
        raise typer.BadParameter(
            "--device, --property and --eviction are for a model in this process"
        )
    structure = on_structure.config()
    if server is not None and structure is not None:
        raise typer.BadParameter("the shape of an answer is for a model in this process")
    with wrong_usage("--server"):
        base = "" if server is None else api_base(server)
    with failures(debug=context.obj):
        check_text("--system", system or "")
        answerer: Answerer
        if server is not None:
            answerer = ServerModel(base, api_key, str(on_pipeline.model or ""), sampling)
        else:
            pipeline, forgets_from = open_chat(*arguments)
            answerer = LocalModel(pipeline, sampling, structure, forgets_from)
        Chat(answerer, system, stats).run()


@app.command()
def convert(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(help="A .gguf file, a Hugging Face folder, or a model's name.")
    ],
    output: Annotated[
        Path | None, typer.Argument(help="A new or empty folder; by default an entry of the cache.")
    ] = None,
    weight_format: Annotated[
        str,
        typer.Option(help="Of a Hugging Face folder's weights: auto, f16, int8 or int4."),
    ] = "auto",
    symmetric: Annotated[bool, typer.Option(help="int8 and int4 without zero points.")] = False,
    group_size: Annotated[int, typer.Option(help="Of int4: 32, 64 or 128.")] = 64,
    context_length: Annotated[
        int | None,
        typer.Option(
            min=1, max=_MAX_COUNT, help="For models whose rotation depends on it (longrope)."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Convert a model to an OpenVINO folder and print where it is.

    The other commands convert by themselves, once; use this to keep or ship the folder.

    [bold]Examples[/bold]

    pagewheel convert model.gguf

    pagewheel convert model.gguf converted/

    pagewheel convert hf-folder/ converted/ --weight-format int4
    """
    with failures(debug=context.obj), ended_as_interrupted():
        from pagewheel.convert import convert as convert_model
        from pagewheel.convert.weights.compression import Compression

        with wrong_usage("--weight-format", "--group-size"):
            Compression(weight_format, symmetric, group_size)
        folder = convert_model(
            source,
            output,
            weight_format=weight_format,
            symmetric=symmetric,
            group_size=group_size,
            context_length=context_length,
            progress=not quiet,
        )
        typer.echo(folder)


@app.command()
def info(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(
            help="A .gguf file or Hugging Face folder (converted first), an OpenVINO model "
            "folder, or a model's name. By default SmolLM2-135M-Instruct, downloaded once."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    ops: Annotated[
        bool,
        typer.Option(
            "--ops",
            help="Say what runs in pagewheel's own operations, and what fast prefill leaves out "
            "(on CPU).",
        ),
    ] = False,
) -> None:
    """Describe a model: its shape, weights, size on disk and KV cache per token.

    [bold]Examples[/bold]

    pagewheel info

    pagewheel info model.gguf --json
    """
    with failures(debug=context.obj):
        from pagewheel.cli.info import print_info
        from pagewheel.convert import resolve_model

        print_info(resolve_model(model_path(model)), as_json=json, with_ops=ops)


@dataclass(frozen=True)
class TraceOptions:
    """What is generated, and how its cache is kept small."""

    output: Path = option(
        ..., "Folder for trace.json.gz, trace.html and pictures (SVG).", "--output", "-o"
    )
    model: str | None = model_option()
    max_new_tokens: int = option(
        256, "Tokens to generate at most.", *("--max-new-tokens", "-n"), min=1, max=_MAX_NUMBER
    )
    policy: str = option(
        "norm_sum",
        "Eviction policy: " + ", ".join(each.name for each in eviction_policies()) + ".",
    )
    granularity: str = option("auto", "What goes at a time: auto, block or token.")
    start_size: int = option(32, "First tokens that stay.", min=0, max=_MAX_COUNT)
    recent_size: int = option(64, "Last tokens that stay.", min=0, max=_MAX_COUNT)
    max_cache_size: int = option(192, "Tokens in the cache at most.", min=1, max=_MAX_COUNT)
    rotation: bool = option(True, "Keep positions in the context.", "--rotation/--no-rotation")
    properties: list[str] | None = properties_option()

    def scheduler(self) -> pagewheel.SchedulerConfig:
        """Raises typer.BadParameter."""
        with wrong_usage("--policy", "--granularity", "--*-size"):
            names = ("start_size", "recent_size", "max_cache_size", "policy", "granularity")
            given = {name: getattr(self, name) for name in names}
            scheduler = scheduler_with({**given, "apply_rotation": self.rotation})
            scheduler.validate()
            return scheduler


@app.command()
@with_option_groups
def trace(
    context: typer.Context,
    options: TraceOptions,
    prompt: Annotated[str, typer.Argument(help="The prompt; '-' reads standard input.")],
) -> None:
    """Generate with cache eviction and draw what was kept.

    [bold]Examples[/bold]

    pagewheel trace -o kept/ "Tell me a long story about a lighthouse."

    pagewheel trace -o kept/ --policy streaming --granularity token -n 500 - < text.txt
    """
    settings = parse_properties(options.properties or [])
    with failures(debug=context.obj):
        from pagewheel.convert import resolve_model
        from pagewheel.trace import record, write_page, write_pictures

        eviction = options.scheduler().cache_eviction_config
        text = prompt_text(prompt)
        folder = resolve_model(model_path(options.model))
        recorded = record(folder, text, eviction, options.max_new_tokens, settings)
        output = options.output
        output.mkdir(parents=True, exist_ok=True)
        recorded.write(output / "trace.json.gz")
        write_page(recorded, output / "trace.html")
        write_pictures(recorded, output)
        typer.echo(
            f"{len(recorded.layers)} layers, {len(recorded.decisions)} decisions: "
            f"{output / 'trace.html'}"
        )


app.command()(serve)
app.command()(pull)
app.command("list")(list_models)
app.command("rm")(remove)
app.command("cache")(show_cache)
app.command("bench-serve")(bench_serve)
app.command("evaluate-cache")(evaluate_cache)


def main() -> None:
    """Entry point of the `pagewheel` command."""
    show_any_path()
    app(prog_name="pagewheel")
