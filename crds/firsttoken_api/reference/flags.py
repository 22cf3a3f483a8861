"""The page of flags and parameters, and the README's short table."""

from firsttoken_api import flags
from firsttoken_api.flags import Flag, Parameter
from firsttoken_api.reference.markdown import code, table


def _default(flag: Flag) -> str:
    return "enabled" if flag.on_by_default else "disabled"


def _built(is_built: bool) -> str:
    return "yes" if is_built else "not yet"


def short_table() -> str:
    """Every flag, one line each; the README has it too."""
    return table(
        ("flag", "class", "default", "in this version", "what it does"),
        ((code(f.name), f.flag_class, _default(f), _built(f.built), f.help) for f in flags.FLAGS),
    )


def _relations(flag: Flag) -> str:
    needs = [f"needs {code(name)}" for name in flag.needs]
    return ", ".join(needs + [f"excludes {code(name)}" for name in flag.excludes])


def _range(parameter: Parameter) -> str:
    return parameter.values.span if parameter.values else ""


def page() -> str:
    """docs/reference/flags.md."""
    parameters = table(
        ("flag", "parameter", "default", "range", "changes", "in this version", "what it is"),
        (
            (
                code(flag.name),
                code(parameter.name),
                code(parameter.default),
                _range(parameter),
                "cold" if parameter.cold else "hot",
                _built(flag.built and parameter.built),
                parameter.help,
            )
            for flag in flags.FLAGS
            for parameter in flag.parameters
        ),
    )
    relations = table(
        ("flag", "needs and excludes"),
        ((code(flag.name), _relations(flag)) for flag in flags.FLAGS if flag.needs or flag.excludes),
    )
    built = ", ".join(code(name) for name in flags.BUILT)
    return f"""# Flags

What each flag is for and how to switch it is in [../flags.md](../flags.md). In risk order, safest first.

*exact*: the same tokens. *close*: numerics move within a tight margin. *lossy*: output may differ.

{short_table()}
In this version {built} can be listed in `spec.optimizations`; the API server refuses the other names.

## Parameters

Values are text: `params: {{chunkTokens: "256"}}`. A hot parameter changes in running replicas; a cold one
makes a new revision. Parameters that are not in this version are refused.

{parameters}
## Needs and excludes

{relations}"""
