"""A stranger at ports of this host: stranger.py SECONDS PORT...

It uses the standard library alone, since its user has no other packages. It prints a JSON object:
the words of each port to a silent caller.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from contextlib import suppress

HELD = 300
TALKERS = 40
JSON_REQUEST = b'{"what": "join", "answer": "' + b"0" * 64 + b'"}\n'
WORDS = (
    b"0123456789abcdef!!!!",
    b"0123456789abcdef" * 4096,
    JSON_REQUEST,
    b"{" * 65_536 + b"\n",
    b"GET / HTTP/1.1\r\nHost: n1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 64,
    b"\0" * 65_536,
    b"\xff" * 65_536,
)


def connected(port: int) -> socket.socket:
    end = socket.create_connection(("127.0.0.1", port), timeout=2)
    end.settimeout(0.5)
    return end


def greeting(port: int) -> str:
    """The first words of the port, or the way in which it ends without words."""
    try:
        with connected(port) as end:
            said = end.recv(200).strip().decode("ascii", "replace")
            return (said if said.isprintable() else "(binary)") or "(closes)"
    except socket.timeout:
        return "(silent)"
    except OSError as error:
        return f"({error.strerror})"


def talk(port: int) -> None:
    for _ in range(TALKERS):
        for words in (*WORDS, os.urandom(65_536)):
            with suppress(OSError), connected(port) as end:
                end.sendall(words)


def flood(port: int, until: float) -> None:
    while time.monotonic() < until:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()


def hold(port: int, held: list[socket.socket]) -> None:
    for _ in range(HELD):
        with suppress(OSError):
            held.append(connected(port))


def main(seconds: float, ports: list[int]) -> None:
    greetings = {port: greeting(port) for port in ports}
    held: list[socket.socket] = []
    until = time.monotonic() + seconds
    deeds = [threading.Thread(target=hold, args=(port, held)) for port in ports]
    deeds += [threading.Thread(target=talk, args=(port,)) for port in ports]
    deeds += [threading.Thread(target=flood, args=(port, until)) for port in ports]
    for deed in deeds:
        deed.start()
    for deed in deeds:
        deed.join()
    time.sleep(max(0.0, until - time.monotonic()))
    print(json.dumps({"greetings": greetings, "held": len(held)}))


if __name__ == "__main__":
    main(float(sys.argv[1]), [int(port) for port in sys.argv[2:]])
