"""What a sidecar says of single requests: by hand, and of a real one beside a fake engine."""

import math
import time

from firsttoken_runtime.bench import beside, experiment, exposition, server, sidecar_meter, workload
from firsttoken_runtime.bench import client as bench_client
from runtime.fake_engine import Script
from runtime.serving import serving

REQUEST = workload.Request(tuple(range(40, 60)), 4)


def counted(ttft_s: float, requests: int, **stages_s: tuple[int, float]) -> sidecar_meter.Counted:
    """Stage -> (requests, seconds)."""
    return sidecar_meter.Counted(
        requests,
        {name: count for name, (count, _) in stages_s.items()},
        ttft_s,
        {name: seconds for name, (_, seconds) in stages_s.items()},
    )


def test_one_request_is_what_the_sums_have_grown_by():
    before = counted(1.0, 3, forward=(3, 0.25), queue=(3, 0.75))
    after = counted(1.5, 4, forward=(4, 0.375), queue=(4, 1.125))
    said = sidecar_meter.timing(before, after)
    assert said is not None
    assert said.ttft_ms == 500.0
    assert said.stages_ms == {"forward": 125.0, "queue": 375.0}


def test_the_first_request_of_all_has_nothing_before_it():
    said = sidecar_meter.timing(counted(0.0, 0), counted(0.5, 1, forward=(1, 0.5)))
    assert said is not None
    assert said.stages_ms == {"forward": 500.0}


def test_what_is_not_one_request_explained_is_not_told():
    before = counted(1.0, 3, forward=(3, 1.0))
    for after in (
        before,
        counted(1.5, 4, forward=(3, 1.0)),
        counted(1.5, 4),
        counted(2.0, 5, forward=(5, 2.0)),
    ):
        assert sidecar_meter.timing(before, after) is None


def test_classes_and_tenants_are_summed_and_stages_are_not():
    text = "\n".join(
        [
            'firsttoken_ttft_seconds_count{class="a",tenant="",streamed="true"} 2.0',
            'firsttoken_ttft_seconds_count{class="b",tenant="",streamed="true"} 1.0',
            'firsttoken_ttft_seconds_sum{class="a",tenant="",streamed="true"} 0.5',
            'firsttoken_ttft_seconds_sum{class="b",tenant="",streamed="true"} 0.25',
            'firsttoken_ttft_stage_seconds_sum{stage="queue",class="a"} 0.5',
            'firsttoken_ttft_stage_seconds_sum{stage="queue",class="b"} 0.125',
            'firsttoken_ttft_stage_seconds_sum{stage="forward",class="b"} 0.125',
            'firsttoken_ttft_stage_seconds_count{stage="queue",class="a"} 2.0',
            'firsttoken_ttft_stage_seconds_count{stage="queue",class="b"} 1.0',
            'firsttoken_ttft_stage_seconds_count{stage="forward",class="b"} 1.0',
        ]
    )
    assert sidecar_meter.counted(exposition.values(text)) == counted(
        0.75, 3, queue=(3, 0.625), forward=(1, 0.125)
    )


async def test_every_request_through_a_real_sidecar_is_timed_by_it(tmp_path, monkeypatch):
    script = Script(token_s=0.01, max_model_len=300, kv_blocks=200)
    async with (
        serving(script, is_settled=False, is_behind_sidecar=True) as served,
        bench_client.session() as http,
    ):
        target = server.Target(served.url, served.ops_url)
        state = await server.Ops(http, served.ops_url).state()
        document = beside.settings(beside.enabled_flags(state), experiment.NEVER_S)
        async with beside.running(target, document, tmp_path / "sidecar.log", http) as running:
            asking = await sidecar_meter.Client.of(http, running, "fake")
            records, asked_s = [], []
            for _ in range(3):
                began_s = time.perf_counter()
                records.append(await asking.ask(REQUEST))
                asked_s.append(time.perf_counter() - began_s)
            # Somebody else asks: nothing can be said of this one, and all of the next.
            other = bench_client.Client(http, running.url, "fake")
            assert not (await other.ask(REQUEST)).error
            with monkeypatch.context() as hurried:
                hurried.setattr(sidecar_meter, "LOOK_LIMIT_S", 0.0)
                spoilt = await asking.ask(REQUEST)
            records.append(await asking.ask(REQUEST))
    # Another clock than the sidecar's; until it has counted a request, nobody is told of it.
    for record, whole_s in zip(records, asked_s, strict=False):
        assert 0 < record.server_timing.ttft_ms < whole_s * 1e3
    assert spoilt.error == "the sidecar did not count this request by itself"
    assert spoilt.server_timing is None
    for record in records:
        assert not record.error
        said = record.server_timing
        assert said is not None
        assert math.isclose(math.fsum(said.stages_ms.values()), said.ttft_ms, abs_tol=1e-6)
        assert {"sidecar_queue", "forward", "prefill", "sidecar_write"} <= said.stages_ms.keys()
