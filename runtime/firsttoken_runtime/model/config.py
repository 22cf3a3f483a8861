"""What a model is made of, read from `config.json` or from .gguf metadata. No torch.

Whatever the decoder could not honour is refused with the reason: a setting that is silently ignored
would only show as worse answers.
"""

from firsttoken_runtime.model import checkpoint
from firsttoken_runtime.model.architecture import Experts, Layer, ModelConfig
from firsttoken_runtime.model.config_gguf import from_gguf
from firsttoken_runtime.model.config_json import from_document, from_folder

__all__ = ["Experts", "Layer", "ModelConfig", "from_document", "from_folder", "from_gguf", "read"]


def read(source: checkpoint.Checkpoint) -> ModelConfig:
    """Raises `errors.ModelError`."""
    return from_gguf(source.gguf) if source.gguf else from_folder(source.path)
