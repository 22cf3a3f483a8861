"""Why a model cannot be loaded.

ModelError            reason: a word of `firsttoken_api.reasons`, message: what to do
|- ModelNotFound      no such file or folder, or a file of it is missing
|- ModelUnreadable    the file is there but is not what its name says
`- Unsupported        a model we have no code for
"""

from firsttoken_api.reasons import Reason


class ModelError(Exception):
    """Base: carries the machine-readable reason beside the sentence for people."""

    reason: Reason = Reason.MODEL_UNREADABLE


class ModelNotFound(ModelError):  # noqa: N818
    reason = Reason.MODEL_NOT_FOUND


class ModelUnreadable(ModelError):  # noqa: N818
    reason = Reason.MODEL_UNREADABLE


class Unsupported(ModelError):  # noqa: N818
    reason = Reason.UNSUPPORTED_ARCHITECTURE
