"""The MLP of a mixture of experts: a router sends each token through the best few of many MLPs.

Tokens are grouped by expert, in row order within a group, so that each expert runs once a step; what
it gives is put back in its token's place and summed there in the order of the router's choice. So a
row's result depends on other rows only through the number of rows of a linear, which `Linear` handles.
"""

import torch

from firsttoken_kernels import rows
from firsttoken_runtime.model import architecture, layers
from firsttoken_runtime.model.mlp import Mlp, Take


class MixtureMlp:
    """Router, experts, and the shared expert of families that have one."""

    def __init__(self, config: architecture.ModelConfig, take: Take, *, numerics: layers.Numerics) -> None:
        assert config.experts is not None
        self.config = config.experts

        def mlp(prefix: str) -> Mlp:
            return Mlp(
                lambda name: take(f"{prefix}.{name}"),
                activation=config.activation,
                has_bias=config.mlp_bias,
                numerics=numerics,
            )

        self.router = layers.Linear(take("gate.weight"), numerics=numerics)
        self.experts = [mlp(f"experts.{index}") for index in range(self.config.count)]
        self.shared = None
        if self.config.shared_intermediate_size is not None:
            self.shared = mlp("shared_expert")
            self.shared_gate = layers.Linear(take("shared_expert_gate.weight"), numerics=numerics)

    def __call__(self, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        """x: [T, H] -> [T, H]; `added` [T, H] is added to it."""
        weights, chosen = self._route(x)
        given = self._run(x, chosen)
        out = given[:, 0] * weights[:, 0, None]
        for rank in range(1, self.config.per_token):
            out = out + given[:, rank] * weights[:, rank, None]
        if self.shared is not None:
            out = out + rows.alike(torch.sigmoid, self.shared_gate(x)) * self.shared(x)
        return out if added is None else added + out

    def _route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights in the type of `x` and experts, both [T, experts a token], best first."""
        scores = self.router(x).float().softmax(-1)  # [T, experts]
        weights, chosen = scores.topk(self.config.per_token, dim=-1)
        if self.config.normalized:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights.to(x.dtype), chosen

    def _run(self, x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """What each chosen expert makes of each token.  -> [T, experts a token, H]."""
        per_token = self.config.per_token
        experts = chosen.reshape(-1)  # [T x experts a token]
        order = experts.argsort(stable=True)
        counts = experts.bincount(minlength=self.config.count).tolist()
        given = x.new_empty(len(experts), x.shape[1])
        first = 0
        for mlp, count in zip(self.experts, counts, strict=True):
            if count:
                places = order[first : first + count]
                given[places] = mlp(x[places // per_token])
            first += count
        return given.view(len(x), per_token, x.shape[1])
