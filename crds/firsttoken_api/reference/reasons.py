"""The page of conditions and reasons."""

from firsttoken_api.reasons import CONDITIONS, REASONS
from firsttoken_api.reference.markdown import code, table


def page() -> str:
    """docs/reference/reasons.md."""
    conditions = table(("condition", "True means"), ((code(t), text) for t, text in CONDITIONS.items()))
    reasons = table(
        ("reason", "meaning", "what to do"),
        ((code(reason), each.meaning, each.remedy) for reason, each in REASONS.items()),
    )
    return f"""# Conditions and reasons

`kubectl describe infsvc NAME` shows the conditions with a message that names fields and amounts.

{conditions}
## Reasons

Reasons of conditions and of `status.optimizations`.

{reasons}"""
