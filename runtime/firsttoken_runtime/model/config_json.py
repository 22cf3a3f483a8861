"""A model's configuration as transformers writes it: `config.json`. No torch."""

from pathlib import Path
from typing import Any

from firsttoken_runtime.model import architecture, checkpoint, errors, families, layer_windows, rope_config
from firsttoken_runtime.model import config_values as values

_BIASES = ("attention_bias", "qkv_bias", "mlp_bias")
_LAYER_TYPES = ("full_attention", "sliding_attention")


def from_folder(folder: Path) -> architecture.ModelConfig:
    """Raises `errors.ModelError`."""
    file = folder / "config.json"
    if not file.is_file():
        raise errors.ModelNotFound(f"{folder} holds no config.json")
    return from_document(checkpoint.read_json(file), str(file))


def from_document(document: dict[str, Any], where: str) -> architecture.ModelConfig:
    """`document` is the content of a config.json; `where` names it in errors."""
    model_type = str(document.get("model_type", ""))
    if document.get("quantization_config"):
        raise errors.Unsupported(f"{where}: pre-quantized checkpoints are not built; use 16-bit or .gguf")
    is_text_part = model_type in families.TEXT_PART
    if is_text_part:
        part = document.get("text_config")
        if not isinstance(part, dict):
            raise errors.ModelUnreadable(f"{where}: text_config is not an object")
        model_type = families.TEXT_PART[model_type]
        document = part
    family = families.by_model_type(model_type)
    if family is None:
        raise values.unsupported_architecture(model_type)
    return _Reader(where, family, dict(family.defaults) | document).read(is_text_part)


class _Reader:
    """One document, whose left-out keys have their family's values."""

    def __init__(self, where: str, family: families.Family, document: dict[str, Any]) -> None:
        self.where = where
        self.family = family
        self.document = document

    def size(self, key: str, default: Any = None) -> int:
        found = self.document.get(key)
        return values.size(self.where, key, default if found is None else found)

    def read(self, is_text_part: bool) -> architecture.ModelConfig:
        family, document = self.family, self.document
        num_heads, hidden_size = self.size("num_attention_heads"), self.size("hidden_size")
        head_dim = self.size("head_dim", hidden_size // num_heads)
        self._refuse()
        experts = self._experts()
        reach = max(rope.reach for rope in self._ropes())
        trained_length = max(self.size("max_position_embeddings"), reach)
        layers = self._layers(experts, trained_length)
        qkv_bias, output_bias, mlp_bias = self._biases()
        scalar = document.get("query_pre_attn_scalar") if family.scaled_embeddings else None
        activation = document.get("hidden_activation") or document.get("hidden_act") or family.activation
        return architecture.checked(
            self.where,
            architecture.ModelConfig(
                family=family,
                vocabulary_size=self.size("vocab_size"),
                hidden_size=hidden_size,
                intermediate_size=self.size("intermediate_size"),
                num_heads=num_heads,
                num_kv_heads=self.size("num_key_value_heads", num_heads),
                head_dim=head_dim,
                rms_norm_eps=values.number(self.where, "rms_norm_eps", document.get("rms_norm_eps")),
                trained_length=trained_length,
                tied_embeddings=bool(document.get("tie_word_embeddings", False)),
                layers=layers,
                attention_scale=values.positive(
                    self.where, "query_pre_attn_scalar", head_dim if scalar is None else scalar
                )
                ** -0.5,
                activation=values.activation(self.where, activation),
                experts=experts if any(layer.has_experts for layer in layers) else None,
                qkv_bias=qkv_bias,
                output_bias=output_bias,
                mlp_bias=mlp_bias,
                attention_softcap=self._softcap(families.ATTENTION_SOFTCAP),
                final_softcap=self._softcap(families.FINAL_SOFTCAP),
                is_text_part=is_text_part,
            ),
        )

    def _refuse(self) -> None:
        if self.document.get("use_bidirectional_attention"):
            raise errors.Unsupported(f"{self.where}: attention to later tokens is not built")
        if self.document.get("quantization_config"):
            raise errors.Unsupported(f"{self.where}: pre-quantized checkpoints are not built")

    def _biases(self) -> tuple[bool, bool, bool]:
        """Of queries, keys and values; of the attention output; of the MLP."""
        given = {key for key in _BIASES if self.document.get(key)}
        if self.family.qkv_bias:
            given -= {"attention_bias", "qkv_bias"}  # these checkpoints say what is always so
        if refused := sorted(given - set(self.family.bias_keys)):
            raise errors.Unsupported(
                f"{self.where}: {refused[0]} in {self.family.model_type} checkpoints is not built"
            )
        attention = "attention_bias" in given
        return self.family.qkv_bias or attention or "qkv_bias" in given, attention, "mlp_bias" in given

    def _softcap(self, key: str) -> float | None:
        found = self.document.get(key)
        if not found:
            return None
        if key not in self.family.softcap_keys:
            raise errors.Unsupported(
                f"{self.where}: {key} in {self.family.model_type} checkpoints is not built"
            )
        return values.positive(self.where, key, found)

    def _experts(self) -> architecture.Experts | None:
        keys = self.family.experts
        if keys is None:
            return None
        count = next((key for key in keys.count if self.document.get(key) is not None), keys.count[0])
        if self.document.get(count) == 0:
            return None
        normalized = keys.normalized
        shared = keys.shared_intermediate_size
        return architecture.Experts(
            count=self.size(count),
            per_token=self.size("num_experts_per_tok"),
            intermediate_size=self.size(keys.intermediate_size),
            normalized=bool(self.document.get("norm_topk_prob")) if normalized is None else normalized,
            shared_intermediate_size=self.size(shared) if shared else None,
        )

    def _layers(
        self, experts: architecture.Experts | None, trained_length: int
    ) -> tuple[architecture.Layer, ...]:
        num_layers = self.size("num_hidden_layers")
        rotates = self._rotates(num_layers)
        window = self._window(trained_length)
        windowed = self._windowed(num_layers, rotates)
        full, local = self._ropes()
        dense = self._list("mlp_only_layers") or []
        step = self.size("decoder_sparse_step", 1)
        return tuple(
            architecture.Layer(
                window=window if windowed[index] else None,
                rope=(local if windowed[index] else full) if rotates[index] else None,
                has_experts=experts is not None and index not in dense and (index + 1) % step == 0,
            )
            for index in range(num_layers)
        )

    def _ropes(self) -> tuple[rope_config.Rope, rope_config.Rope]:
        """Of layers without and with a window; the same but in families with two."""
        scaling, parameters = self._part("rope_scaling"), self._part("rope_parameters")
        theta = self.document.get("rope_theta") or self.family.rope_theta
        if self.family.local_rope_theta is None:
            for key in scaling.keys() & parameters.keys():
                if scaling[key] != parameters[key]:
                    raise errors.ModelUnreadable(
                        f"{self.where}: rope_scaling and rope_parameters differ in {key!r}"
                    )
            rope = rope_config.from_parameters(self.where, parameters | scaling, theta, self.document)
            return rope, rope
        local_theta = self.document.get("rope_local_base_freq") or self.family.local_rope_theta
        if others := sorted(parameters.keys() - set(_LAYER_TYPES)):
            raise errors.Unsupported(f"{self.where}: {others[0]!r} in rope_parameters is not built")
        full, local = (self._part(kind, parameters) for kind in _LAYER_TYPES)
        return (
            rope_config.from_parameters(self.where, full | scaling, theta, self.document),
            rope_config.from_parameters(self.where, local, local_theta, self.document),
        )

    def _part(self, key: str, of: dict[str, Any] | None = None) -> dict[str, Any]:
        part = (self.document if of is None else of).get(key) or {}
        if not isinstance(part, dict):
            raise errors.ModelUnreadable(f"{self.where}: {key} is not an object")
        return part

    def _list(self, key: str) -> list[Any] | None:
        found = self.document.get(key)
        if found is not None and not isinstance(found, list):
            raise errors.ModelUnreadable(f"{self.where}: {key} is not a list")
        return found

    def _rotates(self, num_layers: int) -> list[bool]:
        listed = self._list("no_rope_layers")
        if not self.family.nope_interval:
            if listed and not all(listed):
                raise errors.Unsupported(f"{self.where}: layers without RoPE are not built in this family")
            return [True] * num_layers
        if listed is None:
            interval = self.size("no_rope_layer_interval", self.family.nope_interval)
            return [(layer + 1) % interval != 0 for layer in range(num_layers)]
        if len(listed) < num_layers:
            raise errors.ModelUnreadable(f"{self.where}: no_rope_layers does not name {num_layers} layers")
        return [bool(entry) for entry in listed[:num_layers]]

    def _window(self, trained_length: int) -> int | None:
        """None also where the window never bites."""
        found = self.document.get("sliding_window")
        is_on = not self.family.has_window_switch or self.document.get("use_sliding_window")
        if not found or not is_on:
            return None
        window = self.size("sliding_window")
        if window >= trained_length:
            return None
        if self.family.windows is families.Windows.NONE:
            raise errors.Unsupported(
                f"{self.where}: a sliding window of {window} tokens in {self.family.model_type} checkpoints "
                "is not built"
            )
        return window

    def _windowed(self, num_layers: int, rotates: list[bool]) -> list[bool]:
        by_rule = layer_windows.by_rule(
            self.family,
            num_layers,
            period=self.size("sliding_window_pattern", self.family.window_period or 1),
            from_layer=int(
                values.number(self.where, "max_window_layers", self.document.get("max_window_layers", 0))
            ),
            rotates=rotates,
        )
        types = self.document.get("layer_types")
        if types is None:
            return by_rule
        listed = layer_windows.by_types(self.where, types, num_layers)
        has_window = bool(self.document.get("sliding_window"))
        if not self.family.has_layer_types and listed != [has_window and is_on for is_on in by_rule]:
            raise errors.Unsupported(
                f"{self.where}: layer_types in {self.family.model_type} checkpoints is not built"
            )
        return listed
