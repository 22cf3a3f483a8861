"""Every family against transformers' eager model, tiny and random, in fp32."""

import random
from pathlib import Path

import pytest
import torch

from runtime import families

LENGTH = 512


@pytest.mark.parametrize("case", families.CASES, ids=lambda case: case.name)
def test_parity(case: families.Case, tmp_path: Path) -> None:
    """In one piece, and in chunks with decodes between; longer than every window."""
    torch.set_num_threads(1)
    theirs = families.transformers_model(case)
    ours = families.load(families.save(theirs, tmp_path))
    ids = random.Random(5).choices(range(families.VOCABULARY), k=LENGTH)
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids])).logits[0]
    largest = expected.abs().max()
    for cuts in ([LENGTH], [100, 199, 200, 201, LENGTH]):
        difference = (families.logits(ours, ids, cuts) - expected).abs().max()
        print(f"{case.name} {cuts}: largest {largest:.2f}, difference {difference / largest:.1e} of it")
        assert difference <= 2e-5 * largest, (cuts, float(difference / largest))
