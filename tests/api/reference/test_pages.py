from firsttoken_api import built, flags, metrics
from firsttoken_api.reasons import ConditionType, Reason
from firsttoken_api.reference import crd as crd_page
from firsttoken_api.reference import flags as flags_page
from firsttoken_api.reference import metrics as metrics_page
from firsttoken_api.reference import reasons as reasons_page


def test_every_flag_and_parameter_is_on_its_page() -> None:
    page = flags_page.page()
    for flag in flags.FLAGS:
        assert f"| `{flag.name}` | {flag.flag_class} |" in page
        for parameter in flag.parameters:
            assert f"| `{flag.name}` | `{parameter.name}` |" in page


def test_every_metric_is_on_its_page_under_the_name_of_queries() -> None:
    page = metrics_page.page()
    for metric in metrics.METRICS:
        assert f"| `{metric.exposed_name}` | {metric.kind} |" in page


def test_every_condition_and_reason_is_on_its_page() -> None:
    page = reasons_page.page()
    for word in [*ConditionType, *Reason]:
        assert f"| `{word}` |" in page


def test_every_field_is_on_the_page_of_the_api_with_what_is_not_built() -> None:
    page = crd_page.page()
    for entry in built.NOT_BUILT_FIELDS:
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `spec.{entry.path}` |")]
        assert "**This version**" in row
    for path in ("spec.podTemplate.affinity", "spec.scaling.replicas", "status.replicas.total"):
        assert f"| `{path}` |" in page
    assert "$ref" not in page
