import os

import pytest
from typer.testing import CliRunner

from firsttoken_api import cli
from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import options


def run(*arguments: str):
    return CliRunner().invoke(cli.app(arguments), list(arguments))


def test_a_core_is_left_for_the_client(tmp_path):
    wish = options.wish(str(tmp_path), None, 2, 1, 0.5, options.SPARE_CORE, "auto", "cpu")
    assert wish.threads == str(max(1, len(os.sched_getaffinity(0)) - 1))
    assert wish.time_limit_s == 30.0
    assert options.wish(str(tmp_path), None, 2, 1, 1, "3", "auto", "cpu").threads == "3"


def test_token_ids():
    assert options.token_ids("5:9") == range(5, 9)
    for wrong in ("5", "9:5", "a:b", "5:5", ":"):
        with pytest.raises(UserError, match="--token-ids"):
            options.token_ids(wrong)


def test_every_experiment_is_a_command():
    result = run("bench", "--help")
    assert result.exit_code == 0
    for name in ("table", "priority", "chunked", "length", "tpot", "peers", "stages"):
        assert name in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("table", "/no/such/model"), "SOURCE: /no/such/model"),
        (("peers", "/no/such/model"), "SOURCE: /no/such/model"),
        (("table", "/", "--profile", "gpu"), "--profile: 'gpu' is not one of cpu, reference, long-tail"),
        (("table", "/", "--rate", "1", "--trace", "x.csv"), "--rate"),
        (("table", "/", "--trace", "/no/x.csv"), "--trace: /no/x.csv"),
        (("peers", "/", "--dtypes", "bfloat16,int3"), "--dtypes: 'int3'"),
        (("peers", "/", "--server-core", "4095"), "core 4095"),
        (("stages", "/no/such/model"), "SOURCE: /no/such/model"),
        (("stages", "/", "--client-core", "4095"), "core 4095"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(arguments, said):
    result = run("bench", *arguments)
    assert (result.exit_code, said in result.output) == (2, True), result.output
    assert len(result.output.splitlines()) == 1
