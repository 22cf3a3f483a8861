"""What the API server lets the operator's user do is exactly the chart's list."""

import itertools
import json

from chart import permissions
from e2e.support.audit import OPERATOR_USER
from e2e.support.kube import OPERATOR_NAMESPACE, Kubectl

# Granted to every user by Kubernetes itself.
_EVERYBODY = {"selfsubjectreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"}


def _granted(namespace: str) -> permissions.Granted:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    answer = Kubectl().run("create", "--as", OPERATOR_USER, "-o", "json", "-f", "-", stdin=json.dumps(review))
    granted: permissions.Granted = {}
    for rule in json.loads(answer)["status"]["resourceRules"]:
        for group, resource in itertools.product(rule["apiGroups"], rule["resources"]):
            if resource not in _EVERYBODY:
                granted.setdefault((group, resource), set()).update(rule["verbs"])
    return granted


def test_exactly_the_list_where_it_watches() -> None:
    assert _granted("default") == permissions.WATCHED | permissions.CLUSTER_ONLY


def test_its_lease_in_its_own_namespace_besides() -> None:
    expected = permissions.WATCHED | permissions.CLUSTER_ONLY | permissions.ELECTION
    assert _granted(OPERATOR_NAMESPACE) == expected


def test_nothing_that_reads_a_secret_or_widens_itself() -> None:
    resources = {resource for _, resource in _granted(OPERATOR_NAMESPACE)}
    assert resources.isdisjoint(permissions.FORBIDDEN)
