import re

import typer
from typer.testing import CliRunner, Result

from firsttoken_sidecar import commands, keys

app = typer.Typer()
app.command()(commands.keygen)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def key_and_entry(output: str) -> tuple[str, keys.Entry]:
    (key,) = re.findall(r"^ftk-\S+$", output, re.MULTILINE)
    (entry,) = keys.parse(output[output.index("- name") :].encode())
    return key, entry


def test_the_entry_is_that_of_the_key_and_does_not_hold_it() -> None:
    key, entry = key_and_entry(run("mobile-app").output)
    assert entry == keys.Entry("mobile-app", keys.hashed(key), "mobile-app")
    assert len(key) >= 40
    assert run("mobile-app").output.count("ftk-") == 1


def test_every_key_is_another_one_and_a_name_is_made_up() -> None:
    first, second = (key_and_entry(run().output) for _ in range(2))
    assert first[0] != second[0]
    assert first[1].name != second[1].name


def test_options_become_fields() -> None:
    _, entry = key_and_entry(
        run(
            "a", "--tenant=it's:#one", "--max-class=batch", "--weight=3",
            "--requests-per-minute=60", "--tokens-per-minute=1000",
        ).output
    )  # fmt: skip
    assert entry.tenant == "it's:#one"
    assert (entry.max_class, entry.weight) == ("batch", 3)
    assert (entry.requests_per_minute, entry.tokens_per_minute) == (60, 1000)


def test_what_keys_yaml_would_refuse_is_a_persons_mistake() -> None:
    result = run("two words")
    assert result.exit_code == 1
    assert "name must be" in str(result.exception)
    assert "ftk-" not in result.output
