"""Which kind of failure a step's exception is."""

ALLOCATION = (MemoryError, RuntimeError)
"""torch reports a failed allocation as either; as RuntimeError much else too."""


def code(error: Exception) -> str:
    """One of `core.FAILURE_CODES`."""
    text = str(error).lower()
    is_memory = isinstance(error, MemoryError) or "not enough memory" in text or "out of memory" in text
    return "out_of_memory" if is_memory else "step_failed"
