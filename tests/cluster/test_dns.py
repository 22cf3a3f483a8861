from cluster import addresses, dns


def test_question_is_a_query_packet() -> None:
    packet = dns.question(0x1234, "a.bc")
    assert packet[:4] == b"\x12\x34\x01\x00"
    assert packet[12:] == b"\x01a\x02bc\x00" + b"\x00\x01" + b"\x00\x01"


def test_service_has_the_address_pods_are_told_and_no_selector() -> None:
    service = dns.objects()["/api/v1/namespaces/kube-system/services/kube-dns"]
    assert service["spec"]["clusterIP"] == addresses.DNS_SERVICE_IP
    assert "selector" not in service["spec"]


def test_objects_are_applied_to_the_paths_of_their_names() -> None:
    for path, document in dns.objects().items():
        assert path.endswith(f"/{document['metadata']['name']}")
        assert f"/{document['apiVersion']}/" in path
