import ssl
from pathlib import Path

import pytest

from cluster import execute, pki


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "pki"
    pki.make(folder)
    return folder


@pytest.mark.parametrize("certificate", pki.ALL, ids=lambda certificate: certificate.file)
def test_every_certificate_fits_its_key_and_authority(
    certificates: Path, certificate: pki.Certificate
) -> None:
    purpose = "sslserver" if certificate.names else "sslclient"
    leaf = certificates / f"{certificate.file}.crt"
    verify = ["openssl", "verify", "-purpose", purpose, "-CAfile", str(certificates / "ca.crt"), str(leaf)]
    assert execute.run(verify, timeout_s=10).endswith(": OK\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(str(leaf), str(certificates / f"{certificate.file}.key"))


def test_names_of_the_api_server(certificates: Path) -> None:
    show = ["openssl", "x509", "-noout", "-ext", "subjectAltName", "-in", str(certificates / "apiserver.crt")]
    names = execute.run(show, timeout_s=10)
    for name in ("DNS:kubernetes.default.svc,", "IP Address:10.96.0.1,", "IP Address:127.0.0.1,"):
        assert name in names


def test_the_folder_is_private(certificates: Path) -> None:
    assert certificates.stat().st_mode & 0o077 == 0
