"""The commands and their options; what they do is in the files beside this one.

Heavy modules are imported inside the commands, so that `--help` is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pagewheel._pagewheel import eviction_policies
from pagewheel.cli.bench_serve import bench_serve
from pagewheel.cli.endpoint import api_base
from pagewheel.cli.eviction import Eviction, eviction_arguments, scheduler_with
from pagewheel.cli.failures import ended_as_interrupted, failures, wrong_usage
from pagewheel.cli.generation_options import generation_options
from pagewheel.cli.options import (
    check_text,
    parse_properties,
    prompt_text,
    show_any_path,
)
from pagewheel.cli.sampling import Sampling
from pagewheel.cli.serve import serve
from pagewheel.cli.structure import Choice, JsonSchema, Regex, structure

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

Model = Annotated[
    Path | None,
    typer.Option(
        "--model",
        "-m",
        help="A .gguf file, a Hugging Face folder or an OpenVINO model folder. "
        "By default SmolLM2-135M-Instruct, downloaded once.",
    ),
]
Device = Annotated[str, typer.Option(help="OpenVINO device: CPU, GPU, GPU.1...")]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "-p",
        metavar="KEY=VALUE",
        help="An OpenVINO property, e.g. INFERENCE_NUM_THREADS=4; repeat it.",
    ),
]
Stats = Annotated[bool, typer.Option("--stats", help="Print times to standard error.")]


@app.callback()
def root(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks instead of one-line errors.")
    ] = False,
) -> None:
    """Run language models on the OpenVINO runtime.

    Where no model is given, all but convert and bench-serve use SmolLM2-135M-Instruct (95 MB,
    downloaded once).
    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
    """
    context.obj = debug


@app.command()
@generation_options(max_new_tokens=256)
def generate(
    context: typer.Context,
    sampling: Sampling,
    prompt: Annotated[str, typer.Argument(help="The prompt; '-' reads standard input.")],
    model: Model = None,
    device: Device = "CPU",
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text as it is: no chat template.")
    ] = False,
    json_schema: JsonSchema = None,
    regex: Regex = None,
    choice: Choice = None,
    stats: Stats = False,
    eviction: Eviction = None,
    properties: Properties = None,
) -> None:
    """Answer one prompt; the text streams to standard output.

    [bold]Examples[/bold]

    pagewheel generate "Why is the sky blue?"

    pagewheel generate --raw --max-new-tokens 40 "Once upon a time"

    pagewheel generate --temperature 0.8 --top-p 0.95 --seed 7 "Write a haiku"

    pagewheel generate --json-schema person.json "Invent a person, in JSON."

    pagewheel generate --choice yes --choice no "Is the sky blue?"

    pagewheel generate --num-beams 4 "Translate to French: the cat sleeps"

    cat question.txt | pagewheel generate --stats --model model.gguf -
    """
    settings = parse_properties(properties or [])
    evicted = eviction_arguments(eviction)
    with failures(debug=context.obj):
        from pagewheel.cli.generate import generate_text
        from pagewheel.cli.pipeline import open_pipeline

        shape = structure(json_schema, regex, choice)
        text = prompt_text(prompt)
        pipeline = open_pipeline(model, device, settings, evicted)
        generate_text(pipeline, text, sampling, shape, raw=raw, stats=stats)


@app.command()
@generation_options(max_new_tokens=1024, with_beams=False)
def chat(
    context: typer.Context,
    sampling: Sampling,
    model: Model = None,
    device: Device = "CPU",
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
    json_schema: JsonSchema = None,
    regex: Regex = None,
    choice: Choice = None,
    stats: Stats = False,
    eviction: Eviction = None,
    properties: Properties = None,
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
    settings = parse_properties(properties or [])
    evicted = eviction_arguments(eviction)
    if server is not None and (settings or evicted or device != "CPU"):
        raise typer.BadParameter(
            "--device, --property and --eviction are for a model in this process"
        )
    shape = structure(json_schema, regex, choice)
    if server is not None and shape is not None:
        raise typer.BadParameter("the shape of an answer is for a model in this process")
    with wrong_usage("--server"):
        base = "" if server is None else api_base(server)
    with failures(debug=context.obj):
        from pagewheel.cli.answers import LocalModel, ServerModel
        from pagewheel.cli.chat import Chat
        from pagewheel.cli.pipeline import open_pipeline

        check_text("--system", system or "")
        answerer = (
            LocalModel(open_pipeline(model, device, settings, evicted), sampling, shape)
            if server is None
            else ServerModel(base, api_key, str(model or ""), sampling)
        )
        Chat(answerer, system, stats).run()


@app.command()
def convert(
    context: typer.Context,
    source: Annotated[Path, typer.Argument(help="A .gguf file or a Hugging Face folder.")],
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
        Path | None,
        typer.Argument(
            help="A .gguf file or Hugging Face folder (converted first), or an OpenVINO model "
            "folder. By default SmolLM2-135M-Instruct, downloaded once."
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
        from pagewheel.cli.pipeline import model_path
        from pagewheel.convert import resolve_model

        print_info(resolve_model(model_path(model)), as_json=json, with_ops=ops)


@app.command()
def trace(
    context: typer.Context,
    prompt: Annotated[str, typer.Argument(help="The prompt; '-' reads standard input.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Folder for trace.json.gz, trace.html and pictures (SVG)."
        ),
    ],
    model: Model = None,
    max_new_tokens: Annotated[
        int,
        typer.Option(
            "--max-new-tokens", "-n", min=1, max=_MAX_NUMBER, help="Tokens to generate at most."
        ),
    ] = 256,
    policy: Annotated[
        str,
        typer.Option(
            help="Eviction policy: " + ", ".join(each.name for each in eviction_policies()) + "."
        ),
    ] = "norm_sum",
    granularity: Annotated[
        str, typer.Option(help="What goes at a time: auto, block or token.")
    ] = "auto",
    start_size: Annotated[
        int, typer.Option(min=0, max=_MAX_COUNT, help="First tokens that stay.")
    ] = 32,
    recent_size: Annotated[
        int, typer.Option(min=0, max=_MAX_COUNT, help="Last tokens that stay.")
    ] = 64,
    max_cache_size: Annotated[
        int, typer.Option(min=1, max=_MAX_COUNT, help="Tokens in the cache at most.")
    ] = 192,
    rotation: Annotated[
        bool, typer.Option("--rotation/--no-rotation", help="Keep positions contiguous.")
    ] = True,
    properties: Properties = None,
) -> None:
    """Generate with cache eviction and draw what was kept.

    [bold]Examples[/bold]

    pagewheel trace -o kept/ "Tell me a long story about a lighthouse."

    pagewheel trace -o kept/ --policy streaming --granularity token -n 500 - < text.txt
    """
    settings = parse_properties(properties or [])
    with failures(debug=context.obj):
        from pagewheel.cli.pipeline import model_path
        from pagewheel.convert import resolve_model
        from pagewheel.trace import record, write_page, write_pictures

        with wrong_usage("--policy", "--granularity", "--*-size"):
            scheduler = scheduler_with(
                {
                    "start_size": start_size,
                    "recent_size": recent_size,
                    "max_cache_size": max_cache_size,
                    "apply_rotation": rotation,
                    "policy": policy,
                    "granularity": granularity,
                }
            )
            scheduler.validate()
        text = prompt_text(prompt)
        folder = resolve_model(model_path(model))
        recorded = record(folder, text, scheduler.cache_eviction_config, max_new_tokens, settings)
        output.mkdir(parents=True, exist_ok=True)
        recorded.write(output / "trace.json.gz")
        write_page(recorded, output / "trace.html")
        write_pictures(recorded, output)
        typer.echo(
            f"{len(recorded.layers)} layers, {len(recorded.decisions)} decisions: "
            f"{output / 'trace.html'}"
        )


app.command()(serve)
app.command("bench-serve")(bench_serve)


def main() -> None:
    """Entry point of the `pagewheel` command."""
    show_any_path()
    app(prog_name="pagewheel")
