import re

from firsttoken_api import names
from firsttoken_api.inference_service import LONGEST_NAME


def test_children_of_the_longest_name_still_have_legal_names() -> None:
    longest = "a" * LONGEST_NAME
    for child in (
        names.revision_name(longest, "0123456789"),
        names.flags_config_map(longest, "0123456789"),
        names.peers_service(longest),
        names.resolver_job(longest, "0123456789"),
    ):
        assert len(child) <= 63, child
        assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", child)


def test_labels_and_annotations_carry_our_group() -> None:
    for key, value in vars(names).items():
        if key.startswith(("LABEL_", "ANNOTATION_")):
            assert value.startswith(f"{names.GROUP}/"), key


def test_ports_differ() -> None:
    ports = [names.HTTP_PORT, names.OPS_PORT, names.ENGINE_HTTP_PORT, names.ENGINE_OPS_PORT]
    assert len(set(ports)) == len(ports)
