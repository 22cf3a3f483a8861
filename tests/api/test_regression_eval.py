import pytest
from pydantic import ValidationError

from api import manifests
from firsttoken_api import crd, regression_eval


def test_the_types_read_a_full_object() -> None:
    judged = regression_eval.RegressionEval.model_validate(
        manifests.EVALUATION
        | {"status": {"phase": "Succeeded", "verdicts": [{"flag": "kv-int8", "verdict": "Pass"}], "new": 1}}
    )
    assert judged.spec.attempts == 2
    assert judged.status.verdicts[0].verdict is regression_eval.Verdict.PASS


def test_an_eval_of_nothing_is_refused() -> None:
    spec = manifests.EVALUATION["spec"] | {"flags": []}
    with pytest.raises(ValidationError):
        regression_eval.RegressionEval.model_validate(manifests.EVALUATION | {"spec": spec})


def test_creation_is_refused_with_a_sentence_and_the_spec_is_immutable() -> None:
    schema = crd.regression_evals()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    (rule,) = schema["x-kubernetes-validations"]
    assert rule["rule"] == "false"
    assert "not part of this version" in rule["message"]
    (frozen,) = schema["properties"]["spec"]["x-kubernetes-validations"]
    assert frozen["rule"] == "self == oldSelf"
