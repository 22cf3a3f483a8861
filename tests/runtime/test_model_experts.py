"""The mixture of experts: grouping tokens changes nothing, for a row or for its neighbours."""

import torch
from torch.nn import functional

from firsttoken_runtime.model import config as model_config
from firsttoken_runtime.model import experts, layers, shapes
from runtime import tiny_model


def mixture(
    numerics: layers.Numerics = layers.Numerics(),  # noqa: B008 - frozen
    **changes: object,
) -> tuple[experts.MixtureMlp, dict[str, torch.Tensor]]:
    document = tiny_model.document(
        model_type="qwen2_moe",
        num_experts=7,
        num_experts_per_tok=3,
        moe_intermediate_size=28,
        shared_expert_intermediate_size=44,
        **changes,
    )
    config = model_config.from_document(document, "config.json")
    generator = torch.Generator().manual_seed(2)
    prefix = "layers.0.mlp."
    tensors = {
        name.removeprefix(prefix): torch.randn(shape, generator=generator) / shape[-1] ** 0.5
        for name, shape in shapes.expected(config).items()
        if name.startswith(prefix)
    }
    return experts.MixtureMlp(config, dict(tensors).pop, numerics=numerics), tensors


def gated(x: torch.Tensor, tensors: dict[str, torch.Tensor], prefix: str) -> torch.Tensor:
    gate, up, down = (tensors[f"{prefix}.{name}_proj.weight"].double() for name in ("gate", "up", "down"))
    return (functional.silu(x @ gate.T) * (x @ up.T)) @ down.T


def one_row(row: torch.Tensor, tensors: dict[str, torch.Tensor], *, normalized: bool) -> torch.Tensor:
    """The definition, one token and one expert at a time, in fp64."""
    x = row.double()
    scores = (tensors["gate.weight"].double() @ x).softmax(-1)
    best = sorted(range(len(scores)), key=lambda index: -float(scores[index]))[:3]
    total = sum(float(scores[index]) for index in best) if normalized else 1.0
    out = torch.sigmoid(tensors["shared_expert_gate.weight"].double() @ x) * gated(
        x, tensors, "shared_expert"
    )
    for index in best:
        out = out + float(scores[index]) / total * gated(x, tensors, f"experts.{index}")
    return out


def check(*, normalized: bool) -> None:
    mlp, tensors = mixture(norm_topk_prob=normalized)
    x = torch.randn(23, 48, generator=torch.Generator().manual_seed(4))
    with torch.inference_mode():
        actual = mlp(x)
    for row, out in zip(x, actual, strict=True):
        expected = one_row(row, tensors, normalized=normalized).float()
        torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


def test_every_row_is_what_its_experts_make_of_it() -> None:
    check(normalized=True)
    check(normalized=False)


def test_no_rows() -> None:
    with torch.inference_mode():
        assert mixture()[0](torch.ones(0, 48)).shape == (0, 48)


def test_a_row_does_not_depend_on_its_neighbours_when_linears_do_not() -> None:
    """With all rows of a linear padded alike, a row alone, in any batch and in any order is the same."""
    torch.set_num_threads(1)
    mlp, _ = mixture(layers.Numerics(batch_invariant=True, least_rows=16))
    x = torch.randn(13, 48, generator=torch.Generator().manual_seed(4))
    order = torch.randperm(13, generator=torch.Generator().manual_seed(5))
    with torch.inference_mode():
        together = mlp(x)
        assert torch.equal(mlp(x[order]), together[order])
        assert torch.equal(torch.cat([mlp(x[:5]), mlp(x[5:])]), together)
        assert torch.equal(torch.cat([mlp(row[None]) for row in x]), together)
