"""The command line: thin functions that read a job and hand it on. Each command imports what it needs, when it runs.

Exit codes (the pod contract): 0 done, 1 a step failed or the disk took no more, 2 a bad job, command line or folder,
3 the run stopped itself, 130 Ctrl-C, 143 SIGTERM.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rollplex.api.errors import JobError, RunInterrupted, RunStopped, StepFailed
from rollplex.api.job import RollplexJob
from rollplex.api.load import load_job
from rollplex.api.not_yet import not_yet
from rollplex.environment import set_defaults
from rollplex.files import reason


class _Commands(TyperGroup):
    """Turns what ends a command into its exit code, and an error of the user's into a line rather than a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (JobError, RunInterrupted, RunStopped, StepFailed) as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(error.exit_code) from None
        except OSError as error:
            if error.filename is None:  # about no file that somebody could look at: a fault of ours
                raise
            typer.echo(f"{error.filename}: {error.strerror}", err=True)
            raise typer.Exit(JobError.exit_code) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=_Commands,
    help="RL post-training of vision-language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a traceback is for its reader's own terminal settings
    rich_markup_mode=None,
)
data_app = typer.Typer(help="Make a small data set, and a small model to train on it.", no_args_is_help=True)
app.add_typer(data_app, name="data")

Job = Annotated[Path, typer.Argument(help="A RollplexJob (docs/job.md).")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a field of spec: training.steps=20.")
]
Ranks = Annotated[int | None, typer.Option("--ranks", min=1, help="Ranks that will take part.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write, made if missing.")]
Kinds = Annotated[str, typer.Option("--kinds", help="Kinds of question, with commas between.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="The same seed writes the same files.")]


@app.command()
def validate(
    job: Job,
    overrides: Overrides = None,
    cluster: Annotated[bool, typer.Option("--cluster", help="Also check what becomes of it in pods.")] = False,
    ranks: Ranks = None,
) -> None:
    """Print every fault of a job with its path, one a line."""
    if cluster and ranks is not None:
        raise typer.BadParameter("a cluster's ranks are nodes x hardware.ranksPerNode of the job", param_hint="--ranks")
    try:
        valid = load_job(job, overrides or (), context="cluster" if cluster else "job", ranks=ranks)
    except JobError as error:
        typer.echo(str(error))  # what was asked for, so not on stderr
        raise typer.Exit(error.exit_code) from None
    typer.echo(_summary(valid))


@app.command()
def train(
    job: Job,
    overrides: Overrides = None,
    name: Annotated[str | None, typer.Option("--name", help="Of the run: its folder is runs/NAME.")] = None,
    ranks: Ranks = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start anew; an earlier run of that name is moved aside, not deleted.")
    ] = False,
) -> None:
    """Train on this machine; goes on from the newest checkpoint of the run where there is one."""
    valid = load_job(job, overrides or (), context="train", ranks=ranks or 1)
    from rollplex.train import train as run

    run(valid, name, fresh)


@app.command()
def plan(
    job: Job,
    overrides: Overrides = None,
    ranks: Ranks = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="NAME|GB", help="h800, h100, h200, b200, cpu, or a GPU's memory in GB."),
    ] = None,
    hardware: Annotated[
        Path | None, typer.Option("--hardware", metavar="FILE", help="Figures that rollplex calibrate measured.")
    ] = None,
    prompt_tokens: Annotated[
        int | None, typer.Option("--prompt-tokens", help="Of a prompt; the limit by default.")
    ] = None,
    response_tokens: Annotated[
        int | None, typer.Option("--response-tokens", help="Of a response, median; half the limit by default.")
    ] = None,
    sweep: Annotated[
        str | None, typer.Option("--sweep", metavar="PARAMETER=VALUE,VALUE", help="Plan once for each value.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the plan as JSON too.")
    ] = None,
    png_file: Annotated[Path | None, typer.Option("--png", metavar="FILE", help="Draw the plan too.")] = None,
) -> None:
    """Say what a job needs of a GPU's memory and how long a step takes, without one."""
    valid = load_job(job, overrides or (), context="job", ranks=ranks)
    from rollplex.planner.command import Options, plan_command

    spec = valid.spec
    # as rollplex train counts: on CPU one rank unless told otherwise
    default = 1 if (gpu or spec.hardware.profile) == "cpu" else spec.nodes * spec.hardware.ranks_per_node
    options = Options(ranks or default, gpu, hardware, prompt_tokens, response_tokens, sweep, json_file, png_file)
    typer.echo(plan_command(valid, options))


@app.command()
def calibrate(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the figures go.")] = Path("measured.json"),
) -> None:
    """Measure this machine's rates for rollplex plan --hardware."""
    from rollplex.calibrate import calibrate as run

    run(out, typer.echo)


@app.command()
def bench(
    job: Job,
    overrides: Overrides = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Interleaved rounds; medians are given.")] = 3,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON too.")
    ] = None,
    random_weights: Annotated[
        str | None, typer.Option(metavar="SHAPE", help="Make the model from a shape's config, without its folder.")
    ] = None,
    response_tokens: Annotated[
        str | None, typer.Option(metavar="SPEC", help="Fix each response's length: 200, or lognormal:MEDIAN:SIGMA.")
    ] = None,
) -> None:
    """Run one batch through every schedule and compare."""
    valid = load_job(job, overrides or (), context="train", ranks=1)
    from rollplex.bench import bench as run

    run(valid, repeat, json_file, random_weights, response_tokens)


@app.command()
def show(
    run: Annotated[str, typer.Argument(help="A run's folder, or its name below runs.")],
    step: Annotated[int | None, typer.Option("--step", min=1, help="The newest saved one by default.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="By default show-step-N.html in the run's folder.")
    ] = None,
    prompts: Annotated[int, typer.Option("--prompts", min=1, help="Prompts of the step that are shown at most.")] = 64,
) -> None:
    """Write a page of a step: prompts with their frames, responses, rewards, advantages."""
    from rollplex.show import show as write

    typer.echo(write(run, step, out, prompts))


@app.command()
def export(
    run: Annotated[str, typer.Argument(help="A run's folder, or its name below runs.")],
    out: Out,
    step: Annotated[int | None, typer.Option("--step", min=1, help="Of the checkpoint; the newest by default.")] = None,
) -> None:
    """Write a run's weights as a Hugging Face folder, for transformers and vLLM."""
    from rollplex.export import export as write

    write(run, out, step, typer.echo)


@data_app.command()
def shapes(
    out: Out,
    videos: Annotated[int, typer.Option("--videos", help="Videos in all; every fifth is held out.")] = 100,
    kinds: Kinds = "colour",
    seed: Seed = 1,
    side: Annotated[int, typer.Option("--side", help="Pixels of a frame's side, a multiple of 28.")] = 84,
) -> None:
    """Render short videos of moving coloured shapes, with questions about them."""
    from rollplex.data.shapes import render

    with _writing(out), _bad_parameter():
        render(out, videos, _words(kinds), seed, side)


@data_app.command()
def model(
    out: Out,
    kinds: Kinds = "colour",
    seed: Seed = 1,
    family: Annotated[str, typer.Option("--family", help="qwen2.5-vl or qwen3-vl.")] = "qwen2.5-vl",
) -> None:
    """Make a tiny Qwen2.5-VL or Qwen3-VL with tokenizer and processor, warmed up on the form of an answer."""
    from rollplex.data.tiny_model import make

    with _writing(out), _bad_parameter():
        make(out, seed, _words(kinds), family)


@contextmanager
def _bad_parameter() -> Iterator[None]:
    """A value that a library function refuses is a bad command line."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """A folder that takes no more is named, however little the error says of it."""
    try:
        yield
    except OSError as error:
        raise JobError.at("--out", f"{out} cannot be written: {reason(error, out)}; choose another folder") from None


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _summary(job: RollplexJob) -> str:
    """What a valid job will do, and what of it still has to wait, in one line."""
    spec = job.spec
    line = (
        f"{job.metadata.name} is valid: {spec.algorithm.name}, {spec.training.steps} steps of "
        f"{spec.training.prompts_per_step} prompts x {spec.algorithm.group_size}, {spec.schedule.mode}"
    )
    later = [fault.path for fault in not_yet(job)]
    return f"{line}; not yet in rollplex train: {', '.join(later)}" if later else line


def main() -> None:
    """The console script ``rollplex``."""
    set_defaults()  # first: torch reads some of them when it is imported
    app()
