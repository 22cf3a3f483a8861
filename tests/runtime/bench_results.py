"""Builders of rounds and results of the bench, with figures that a test can work out by hand."""

from firsttoken_runtime.bench import experiment, machine, result, summary, workload


def record(
    ttft_s: float, *, group: str = "", output_tokens: int = 11, tpot_s: float = 0.1, **changes: object
):
    given = {
        "group": group,
        "prompt_tokens": 7,
        "output_tokens": output_tokens,
        "start_s": 0.0,
        "end_s": ttft_s + tpot_s * (output_tokens - 1),
        "ttft_s": ttft_s,
        "tpot_s": tpot_s,
        "longest_gap_s": 2 * tpot_s,
    } | changes
    return summary.Record(**given)


def failed(error: str = "HTTP 500: no", group: str = "") -> summary.Record:
    return summary.Record(group, 7, 0, 0.0, 1.0, error=error)


def round_(variant: str, ttfts_s: list[float], repeat: int = 0, duration_s: float = 10.0, **changes: object):
    given = {"records": tuple(record(ttft_s) for ttft_s in ttfts_s)} | changes
    return summary.Round(variant=variant, repeat=repeat, duration_s=duration_s, **given)


def small_experiment(name: str = "small") -> experiment.Experiment:
    return experiment.Experiment(
        name=name,
        title="Small | but whole",
        variants=(experiment.Variant("baseline", ()), experiment.Variant("paged", ("paged-kv",))),
        lanes=(workload.closed([workload.Request((1, 2, 3), 11)], 2),),
        server=experiment.ServerNeeds(max_model_len=64, kv_tokens=8 * 64),
        bars=(
            experiment.Bar("P99 falls", "ttft_p99_s", "paged", "baseline", at_most=0.5),
            experiment.Bar("use", "kv_use", "paged", at_least=0.9),
        ),
        notes=("a note",),
    )


def context() -> result.Context:
    return result.Context(
        machine=machine.Machine("A CPU", 2, ("avx2",), 8 * 2**30, "Linux", "3.11", {"torch": "2.15"}),
        command=["firsttoken", "bench", "table"],
        started_at="2026-01-01T00:00:00+00:00",
        load_before=(0.1, 0.2, 0.3),
        load_after=(1.1, 0.2, 0.3),
        model="tiny.gguf",
        model_sha256="abc",
        device="cpu",
        dtype="float32",
        server_command=["python", "serve"],
        seed=1,
        repeats=2,
    )


def finished(rounds: list[summary.Round], name: str = "small") -> result.Result:
    return result.Result(small_experiment(name), tuple(rounds), context())
