"""Serve the study's database behind Optuna's storage proxy: a small ordinary job beside the pool.

Only this process touches the database. It is a file of SQLite on the node's own disk or in the
study's directory. So the workers need no lock on a shared file system.
"""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

from optuna.storages import get_storage, run_grpc_proxy_server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", type=Path, default=Path("study"), help="directory of the study")
    parser.add_argument("--database", type=Path, help="its file (default: in the study)")
    parser.add_argument("--host", default=socket.gethostname(), help="address for the workers")
    options = parser.parse_args()
    options.place.mkdir(parents=True, exist_ok=True)
    database = (options.database or options.place / "study.db").absolute()
    storage = get_storage(f"sqlite:///{database}")
    port = free_port(options.host)
    draft = options.place / "proxy.address.draft"
    draft.write_text(f"{options.host}:{port}\n")
    draft.replace(options.place / "proxy.address")
    run_grpc_proxy_server(storage, host=options.host, port=port)


def free_port(host: str) -> int:
    with socket.create_server((host, 0)) as server:
        return int(server.getsockname()[1])


if __name__ == "__main__":
    main()
