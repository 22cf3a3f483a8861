"""Whose cached KV a request may find."""

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from firsttoken_api.errors import BadRequestError
from firsttoken_runtime.server import tenant

HEADER = "X-Firsttoken-Tenant"


def _request(*tenants: str, remote: str = "127.0.0.1"):
    headers = CIMultiDict((HEADER, one) for one in tenants)
    return make_mocked_request("POST", "/v1/completions", headers).clone(remote=remote)


def test_without_both_there_is_no_salt():
    assert tenant.salt(tenant.NOBODY, None) == ""


words = st.text(max_size=8)
pairs = st.tuples(words, st.none() | words.filter(bool))


@given(pairs, pairs)
def test_different_pairs_never_share(one, other):
    assert (tenant.salt(*one) == tenant.salt(*other)) == (one == other)


def test_a_salt_does_not_show_what_it_is_made_of():
    made = tenant.salt("acme", "secret")
    assert len(made) == 64
    assert "acme" not in made
    assert tenant.salt("ab", "c") != tenant.salt("a", "bc")
    assert tenant.salt("", '","') != tenant.salt('","', None)


@pytest.mark.parametrize("remote", ["127.0.0.1", "127.9.9.9", "::1"])
def test_a_sidecar_on_this_machine_is_believed(remote):
    tenants = tenant.Tenants(is_believed=True)
    assert tenants.of(_request("acme", remote=remote)) == "acme"
    assert tenants.client(_request("acme", remote=remote)) == "acme"
    assert tenants.of(_request(remote=remote)) == tenant.NOBODY


@pytest.mark.parametrize(
    ("is_believed", "remote"), [(False, "127.0.0.1"), (True, "10.0.0.9"), (True, "fe80::1%eth0"), (True, "")]
)
def test_anybody_else_is_not_and_the_log_says_so_once(is_believed, remote, caplog):
    tenants = tenant.Tenants(is_believed=is_believed)
    for _ in range(2):
        assert tenants.of(_request("acme", remote=remote)) == tenant.NOBODY
    assert len(caplog.records) == 1
    assert "acme" not in caplog.text
    assert tenants.client(_request("acme", remote=remote)) == f"address {remote}"


@pytest.mark.parametrize("given_names", [("a", "b"), ("",), ("a b",), ("é",), ("x" * 129,)])
def test_a_name_that_is_none_is_refused(given_names):
    with pytest.raises(BadRequestError) as caught:
        tenant.Tenants(is_believed=True).of(_request(*given_names))
    assert caught.value.param == HEADER
