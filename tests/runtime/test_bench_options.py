import os

import pytest
import typer
from typer.testing import CliRunner

from firsttoken_api import cli
from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import options


def run(*arguments: str):
    return CliRunner().invoke(cli.app(arguments), list(arguments))


def test_a_core_is_left_for_the_client(tmp_path):
    wish = options.TimedRounds(str(tmp_path), time_limit=0.5).wish()
    assert wish.threads == str(max(1, len(os.sched_getaffinity(0)) - 1))
    assert wish.time_limit_s == 30.0
    assert options.TimedRounds(str(tmp_path), threads="3").wish().threads == "3"


def test_token_ids():
    assert options.token_ids("5:9") == range(5, 9)
    for wrong in ("5", "9:5", "a:b", "5:5", ":"):
        with pytest.raises(UserError, match="--token-ids"):
            options.token_ids(wrong)


def test_every_experiment_is_a_command():
    result = run("bench", "--help")
    assert result.exit_code == 0
    scheduling = ("table", "priority", "chunked", "length", "tpot", "peers", "stages")
    for name in (*scheduling, "prefix", "affinity", "kv", "switch", "tiers", "pairs", "timing"):
        assert f" {name} " in result.output


def test_a_command_has_its_own_options_and_the_shared_ones_with_its_defaults():
    app = typer.Typer()
    seen = []

    @options.register(app, repeats=7)
    def measure(shared: options.TimedRounds, requests: options.Requests = 9) -> None:
        """Measures."""
        seen.append((shared, requests))

    runner = CliRunner()
    assert runner.invoke(app, ["model", "--requests", "4", "--time-limit", "2"]).exit_code == 0
    assert runner.invoke(app, ["model", "--repeats", "1", "--seed", "5"]).exit_code == 0
    assert seen == [
        (options.TimedRounds("model", repeats=7, time_limit=2.0), 4),
        (options.TimedRounds("model", repeats=1, seed=5), 9),
    ]
    assert "Measures." in runner.invoke(app, ["--help"]).output
    assert runner.invoke(app, []).exit_code == 2


def test_a_default_for_an_option_that_is_not_there_is_our_mistake():
    with pytest.raises(AssertionError):
        options.register(typer.Typer(), imaginary=1)(of_a_server)


def of_a_server(shared: options.Rounds) -> None:
    """Nothing."""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("table", "/no/such/model"), "SOURCE: /no/such/model"),
        (("peers", "/no/such/model"), "SOURCE: /no/such/model"),
        (("table", "/", "--profile", "gpu"), "--profile: 'gpu' is not one of cpu, cpu-uniform"),
        (("table", "/", "--rate", "1", "--trace", "x.csv"), "--rate"),
        (("table", "/", "--trace", "/no/x.csv"), "--trace: /no/x.csv"),
        (("peers", "/", "--dtypes", "bfloat16,int3"), "--dtypes: 'int3'"),
        (("peers", "/", "--server-core", "4095"), "core 4095"),
        (("stages", "/no/such/model"), "SOURCE: /no/such/model"),
        (("prefix", "/no/such/model"), "SOURCE: /no/such/model"),
        (("tiers", "/no/such/model"), "SOURCE: /no/such/model"),
        (("tiers", "/bin"), "SOURCE: /bin"),
        (("affinity", "/", "--token-ids", "9"), "--token-ids: '9'"),
        (("stages", "/", "--client-core", "4095"), "core 4095"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(arguments, said):
    result = run("bench", *arguments)
    assert (result.exit_code, said in result.output) == (2, True), result.output
    assert len(result.output.splitlines()) == 1
