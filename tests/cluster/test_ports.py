import os
import socket

from cluster import ports

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1234 1 0 100 0
   1: 0100007F:1F91 0100007F:D2A4 01 00000000:00000000 00:00000000 00000000     0        0 5678 1 0 100 0
"""


def test_parse_takes_listening_sockets_only() -> None:
    assert ports.parse(TABLE) == {8080: "1234"}


def test_owner_names_the_listening_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert port in ports.listening()
        assert ports.owner(port).startswith(f"process {os.getpid()} (")
    assert ports.owner(port) == "an unknown process"
