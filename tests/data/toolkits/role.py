"""A process of TensorFlow without TensorFlow: it listens where the others look for it, and a server never ends."""

import json
import os
import socket
import sys
import time

config = json.loads(os.environ["TF_CONFIG"])
kind, index, cluster = config["task"]["type"], config["task"]["index"], config["cluster"]
host, port = cluster[kind][index].split(":")
server = socket.create_server(("0.0.0.0", int(port)))
hosts = [os.environ["AZ_BATCHAI_PS_HOSTS"], os.environ["AZ_BATCHAI_WORKER_HOSTS"]]
print(kind, os.environ["AZ_BATCHAI_TASK_INDEX"], *(len([name for name in text.split(",") if name]) for text in hosts), *sys.argv[1:], flush=True)
if kind == "ps":
    time.sleep(20_000)
deadline = time.monotonic() + 60
for name in cluster.get("ps", []):
    while True:
        try:
            socket.create_connection(tuple(name.split(":"))).close()
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
if "die" in sys.argv and kind == "worker":
    sys.exit(7)
if "wait" in sys.argv:
    time.sleep(20_000)
