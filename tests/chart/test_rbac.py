"""The Roles grant exactly the list of `permissions` in every scope, and nothing that widens itself."""

import itertools

import pytest

from chart import helm, permissions


def _granted(role: helm.Object) -> permissions.Granted:
    granted: permissions.Granted = {}
    for rule in role["rules"]:
        for group, resource in itertools.product(rule["apiGroups"], rule["resources"]):
            granted.setdefault((group, resource), set()).update(rule["verbs"])
    return granted


def _roles(objects: list[helm.Object]) -> dict[tuple[str, str], helm.Object]:
    """Roles by (namespace, name)."""
    return {
        (role["metadata"]["namespace"], role["metadata"]["name"]): role
        for role in helm.of_kind(objects, "Role")
    }


def test_default_is_the_releases_namespace_only() -> None:
    objects = helm.render(namespace="firsttoken-system")
    assert helm.of_kind(objects, "ClusterRole") == []
    assert helm.of_kind(objects, "ClusterRoleBinding") == []
    roles = _roles(objects)
    assert set(roles) == {
        ("firsttoken-system", "firsttoken-operator"),
        ("firsttoken-system", "firsttoken-operator-election"),
    }
    assert _granted(roles["firsttoken-system", "firsttoken-operator"]) == permissions.WATCHED
    assert _granted(roles["firsttoken-system", "firsttoken-operator-election"]) == permissions.ELECTION


def test_a_role_in_each_watched_namespace() -> None:
    objects = helm.render('watch.namespaces=["chat","batch"]', namespace="firsttoken-system")
    roles = _roles(objects)
    assert set(roles) == {
        ("batch", "firsttoken-operator"),
        ("chat", "firsttoken-operator"),
        ("firsttoken-system", "firsttoken-operator-election"),
    }
    assert _granted(roles["chat", "firsttoken-operator"]) == permissions.WATCHED
    assert _granted(roles["batch", "firsttoken-operator"]) == permissions.WATCHED


def test_cluster_scope() -> None:
    objects = helm.render('watch.scope="cluster"')
    assert _granted(helm.one(objects, "ClusterRole")) == permissions.WATCHED | permissions.CLUSTER_ONLY
    assert [role["metadata"]["name"] for role in helm.of_kind(objects, "Role")] == [
        "firsttoken-operator-election"
    ]


def test_lease_is_read_and_updated_by_name_only() -> None:
    role = _roles(helm.render())["firsttoken-system", "firsttoken-operator-election"]
    for rule in role["rules"]:
        if rule["verbs"] != ["create"]:
            assert rule["resourceNames"] == ["firsttoken-operator"]


@pytest.mark.parametrize("settings", [(), ('watch.scope="cluster"',), ('watch.namespaces=["a","b"]',)])
def test_nothing_that_reads_secrets_or_widens_itself(settings: tuple[str, ...]) -> None:
    objects = helm.render(*settings)
    for role in helm.of_kind(objects, "Role") + helm.of_kind(objects, "ClusterRole"):
        for (group, resource), verbs in _granted(role).items():
            assert resource not in permissions.FORBIDDEN
            assert group != "*"
            assert group != "rbac.authorization.k8s.io"
            assert verbs.isdisjoint({"*", "escalate", "bind", "impersonate", "deletecollection"})


@pytest.mark.parametrize("settings", [(), ('watch.scope="cluster"',), ('watch.namespaces=["a","b"]',)])
def test_every_binding_is_of_a_rendered_role_and_of_the_operator(settings: tuple[str, ...]) -> None:
    objects = helm.render(*settings, 'serviceAccount.name="custom"')
    bindings = helm.of_kind(objects, "RoleBinding") + helm.of_kind(objects, "ClusterRoleBinding")
    roles = helm.of_kind(objects, "Role") + helm.of_kind(objects, "ClusterRole")
    assert len(bindings) == len(roles)
    for binding in bindings:
        (role,) = (
            role
            for role in roles
            if role["kind"] == binding["roleRef"]["kind"]
            and role["metadata"]["name"] == binding["roleRef"]["name"]
            and role["metadata"].get("namespace") == binding["metadata"].get("namespace")
        )
        assert role
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "custom", "namespace": "firsttoken-system"}
        ]


def test_rbac_can_be_left_to_others() -> None:
    objects = helm.render("rbac.create=false")
    kinds = {candidate["kind"] for candidate in objects}
    assert kinds.isdisjoint({"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"})
