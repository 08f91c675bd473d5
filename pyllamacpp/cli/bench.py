"""`bench`: how fast a model is here, and how close to what the machine can do."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ParameterError
from ..params import DEFAULT_KV_TYPE, LoadParams
from .guard import INTERRUPTED, guarded
from .options import (
    LOADING,
    CacheTypeK,
    CacheTypeV,
    Json,
    ModelOption,
    OptionalModelArgument,
    Verbose,
    one_model,
)

if TYPE_CHECKING:
    from ..bench import Bench, Row


def _list(name: str, flag: str, help: str, panel: str | None = None) -> Any:
    return typer.Option(name, flag, metavar="N,…", help=help, rich_help_panel=panel)


@guarded
def bench(
    model: OptionalModelArgument = None,
    model_m: ModelOption = None,
    n_prompt: Annotated[str, _list("--n-prompt", "-p", "Tokens of a prefill; 0: none.")] = "512",
    n_gen: Annotated[str, _list("--n-gen", "-n", "Tokens to decode; 0: none.")] = "64",
    n_depth: Annotated[str, _list("--n-depth", "-d", "Tokens in the context before.")] = "0",
    repetitions: Annotated[int, typer.Option("--repetitions", "-r", metavar="N", help="Runs of a test.")] = 5,
    profile: Annotated[bool, typer.Option("--profile", help="Show what the time goes into.")] = False,
    n_threads: Annotated[str, _list("--threads", "-t", "Threads; 0: chosen.", LOADING)] = "0",
    type_k: CacheTypeK = DEFAULT_KV_TYPE,
    type_v: CacheTypeV = DEFAULT_KV_TYPE,
    isa: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="Instruction-set level.",
            show_default="the best",
            rich_help_panel=LOADING,
        ),
    ] = "",
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Measure speed, beside the machine's limits.

    Tests are llama-bench's: random tokens, forward pass only. Each is shown with its share of the limit: what
    reading its bytes, or computing its products, takes at the least here, as measured in between.
    """
    from ..bench import Bench, BenchParams
    from ..hub import resolve

    kv = LoadParams(type_k=type_k, type_v=type_v)
    params = BenchParams(
        n_prompt=_numbers("-p", n_prompt),
        n_gen=_numbers("-n", n_gen),
        depths=_numbers("-d", n_depth),
        repeats=repetitions,
        type_k=kv.type_k,
        type_v=kv.type_v,
    )
    threads = [LoadParams(n_threads=n).n_threads or 0 for n in _numbers("-t", n_threads)]
    path = str(resolve(one_model(model, model_m)))
    for n in threads:
        one = Bench(path, params, n_threads=n, isa=isa, profile=profile)
        interrupted = _measure(one)
        print(json.dumps(one.as_dict()) if as_json else _report(one))
        if interrupted:
            raise typer.Exit(INTERRUPTED)
        del one  # its weights: the next ones need the room


def _measure(one: Bench) -> bool:
    """Returns: whether Ctrl-C ended it; what was measured until then stands."""
    try:
        for _ in one.steps():
            if sys.stderr.isatty():
                done = sum(len(row.rates) for row in one.rows)
                print(f"\r{done} of {len(one.rows) * one.params.repeats} runs ", end="", file=sys.stderr)
    except KeyboardInterrupt:
        return True
    finally:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
    return False


def _numbers(flag: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ParameterError(
            f"{flag} must be a number, or several with commas between them, not {text!r}"
        ) from None


def _report(one: Bench) -> str:
    model = one.runner.model
    head = (
        f"{one.name}  {one.runner.n_bytes / 2**30:.2f} GiB  {_count(one.runner.n_params)}  "
        f"{model.n_threads} threads  {model.isa}"
    )
    measured = [row for row in one.rows if row.rates]
    parts = [head, _table(_HEADINGS, [_cells(one, row) for row in measured]), *_limit_lines(one)]
    if one.runner.profile:
        parts += ["", _profile(one.runner.profile)]
    return "\n".join(parts)


_HEADINGS = ("test", "t/s", "±", "of limit", "which is")


def _cells(one: Bench, row: Row) -> tuple[str, ...]:
    from statistics import median

    limits = one.meter.limits(row.cost.pass_bytes)
    share, which = row.share(limits)
    if which == "read":
        what = f"{row.cost.n_bytes / row.test.n / 1e6:.0f} MB a token at {limits['read'] / 1e9:.1f} GB/s"
    else:
        macs = (row.cost.int8_macs + row.cost.float_macs) / row.test.n
        kind = "int8" if row.cost.int8_macs else "f32"
        what = f"{macs / 1e6:.0f} M products a token at {limits[kind] / 1e9:.0f} GMAC/s"
    return (row.test.name, f"{median(row.rates):.2f}", _spread(row.rates), f"{100 * share:.1f} %", what)


def _spread(rates: list[float]) -> str:
    return f"{(max(rates) - min(rates)) / 2:.2f}"


def _limit_lines(one: Bench) -> list[str]:
    limits, runner = one.meter.as_dict(), one.runner
    lines = ["", f"load {runner.load_s:.2f} s, first token {runner.first_token_s:.2f} s, "
             f"peak memory {one.peak_rss / 2**20:.0f} MiB"]  # fmt: skip
    if read := limits["read_gb_s"]:
        peaks = ", ".join(
            f"{kind} {limits[f'{kind}_gmac_s']['median']:.0f}"
            for kind in ("int8", "bf16", "f32")
            if f"{kind}_gmac_s" in limits
        )
        lines.append(
            f"this machine meanwhile: reads {read['median']:.1f} GB/s (best {read['best']:.1f}, "
            f"{limits['read_mib']} MiB in {limits['read_pattern']}); multiplies {peaks} GMAC/s"
        )
    return lines


def _profile(profile: dict[str, dict[str, float]]) -> str:
    ops = list(next(iter(profile.values())))
    totals = {name: sum(seconds.values()) for name, seconds in profile.items()}
    rows = [
        (op, *(f"{100 * seconds[op] / totals[name]:.1f} %" for name, seconds in profile.items()))
        for op in ops
    ]
    return _table(("time in", *profile), rows)


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """The first column and the last of five to the left, figures to the right."""
    lines: list[Any] = [headings, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headings))]
    text = []
    for line in lines:
        cells = [
            cell.ljust(width) if i == 0 or headings[i] == "which is" else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text.append("  ".join(cells).rstrip())
    return "\n".join(text)


def _count(n: int) -> str:
    return f"{n / 1e9:.2f} B" if n >= 1e9 else f"{n / 1e6:.1f} M"
