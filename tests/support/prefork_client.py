"""Stands for a Python that prefork.py forks: ``python -I -S prefork_client.py SOCKET ARGUMENTS…``.

Hands over its words, its surroundings and its streams, passes on the signals that it gets, and ends as the fork does.
"""

import json
import os
import resource
import signal
import socket
import sys

#: Signals that end a process and can be handled.
PASSED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def main(place: str, *arguments: str) -> int:
    """Returns the exit code of the fork, or ends by the signal that ended it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED)  # until there is someone to pass them to
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        asked = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
        text = json.dumps(asked).encode() + b"\0"
        sent = socket.send_fds(connection, [text[:1000]], [0, 1, 2])
        connection.sendall(text[sent:])
        with connection.makefile("r") as answers:
            child = int(answers.readline())
            for number in PASSED:
                signal.signal(
                    number, lambda number, frame: os.killpg(child, number)
                )  # who started this means its group
            signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED)
            code = int(answers.readline())
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the fork has left its own
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
