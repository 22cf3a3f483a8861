"""A model that cannot be served is explained on the service, makes no crash loop and harms nobody else."""

import shutil
from collections.abc import Iterator

import pytest

from e2e.support import clients, services
from e2e.support.kube import STATE_FOLDER, Kubectl, Object, condition, wait_for

FOLDER = STATE_FOLDER / "models"


@pytest.fixture(scope="module")
def odd_models() -> Iterator[None]:
    """Beside the good model: a folder of an architecture that nobody serves, and a file that is no model."""
    strange = FOLDER / "strange"
    strange.mkdir(exist_ok=True)
    (strange / "config.json").write_text('{"architectures": ["StrangeForCausalLM"], "model_type": "strange"}')
    (strange / "model.safetensors").write_bytes(b"\x02\x00\x00\x00\x00\x00\x00\x00{}")
    (FOLDER / "broken.gguf").write_bytes(b"GGUF, but not really")
    yield
    shutil.rmtree(strange)
    (FOLDER / "broken.gguf").unlink()


CASES: dict[str, tuple[Object, Object, str, str]] = {
    "missing": ({"source": "pvc://models/nothing.gguf"}, {}, "ModelNotFound", "nothing.gguf"),
    "no-claim": ({"source": "pvc://absent/smollm2.gguf"}, {}, "ClaimNotFound", "absent"),
    "checksum": (
        {"source": "pvc://models/smollm2.gguf", "revision": "sha256:" + "0" * 64},
        {},
        "ChecksumMismatch",
        "b179c952",
    ),
    "memory": (
        {"source": "pvc://models/smollm2.gguf"},
        {"resources": {"gpus": 0, "cpu": "100m", "memory": "512Mi"}},
        "NotEnoughMemory",
        "spec.resources.memory",
    ),
    "strange": ({"source": "pvc://models/strange"}, {}, "UnsupportedArchitecture", "strange"),
    "broken": ({"source": "pvc://models/broken.gguf"}, {}, "ModelUnreadable", "broken.gguf"),
}


def test_each_bad_model_has_its_reason_and_no_pod(odd_models: None, sandbox: Kubectl, chat: Object) -> None:
    for name, (model, spec, _, _) in CASES.items():
        sandbox.apply(services.service(f"bad-{name}", **{**spec, "model": model}))
    for name, (_, _, reason, word) in CASES.items():

        def explained(name: str = name, reason: str = reason) -> Object | None:
            found = condition(sandbox.get("infsvc", f"bad-{name}"), "ModelResolved")
            return found if found.get("status") == "False" and found["reason"] == reason else None

        found = wait_for(f"bad-{name} explained as {reason}", explained, timeout_s=120)
        print(f"{name}: {found['reason']}: {found['message']}")
        assert word in found["message"], found
        assert condition(sandbox.get("infsvc", f"bad-{name}"), "Ready")["status"] == "False"
        assert services.serving_pods(sandbox, f"bad-{name}") == []
    answer = clients.client().completions.create(model=clients.MODEL, prompt="One, two,", max_tokens=2)
    assert answer.usage is not None
    for name in CASES:
        sandbox.run("delete", "infsvc", f"bad-{name}", "--wait=false")
