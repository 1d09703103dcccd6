#!/usr/bin/env python3
"""A run through the API of a node, with the standard library alone: run.py AGENT OCCURRENCE.

Replace work() by what must not happen twice. SOCKET is the node's socket.
"""

import http.client
import json
import os
import secrets
import socket
import sys
import threading
import time

SOCKET = os.environ.get("SOCKET", os.path.expanduser("~/.local/state/syncnode/node.sock"))


def work(run, stop):
    """The effect: hand run["run_id"] on as the idempotency key and run["epoch"] as the fencing token. Look at stop."""
    print("working on", run["run_id"], "at epoch", run["epoch"])
    return "42 sent"


class Node(http.client.HTTPConnection):
    def __init__(self):
        super().__init__("node", timeout=30)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(SOCKET)


def ask(path, body):
    """The status and the answer. An OSError is no answer: the same request may be sent again."""
    node = Node()
    try:
        node.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = node.getresponse()
        return answer.status, json.load(answer)
    except http.client.HTTPException as e:
        raise OSError(e) from e
    finally:
        node.close()


def insist(path, body, seconds):
    """Sends the very same request until it is answered."""
    until = time.monotonic() + seconds
    while True:
        try:
            status, answer = ask(path, body)
            if status not in (429, 503):
                return status, answer
        except OSError:
            if time.monotonic() > until:
                raise
        if time.monotonic() > until:
            return status, answer
        time.sleep(0.5)


def heartbeats(run, stop, sent):
    """Says that we are there, and sets stop when we have to: the node says so, or is not heard of in time."""
    until = sent + run["stop_after_ms"] / 1000
    while not stop.wait(min(run["heartbeat_ms"] / 1000, max(0, until - time.monotonic()))):
        sent = time.monotonic()
        try:
            status, answer = ask("/v1/runs/%s/heartbeat" % run["run_id"], {"attempt": run["attempt"]})
            if status == 412 or answer.get("stop"):
                stop.set()
            elif status == 200:
                until = sent + answer["stop_after_ms"] / 1000
        except OSError:
            pass
        if time.monotonic() >= until:
            stop.set()


def main(agent, occurrence):
    claim = {"agent": agent, "occurrence": occurrence, "request": secrets.token_hex(16)}
    status, claimed = insist("/v1/runs", claim, 10)
    if status == 200:
        print("done before:", claimed.get("result", ""))
        return 0
    if status != 201:
        print(claimed["type"], claimed["detail"], "executed:", claimed["executed"], file=sys.stderr)
        return 75 if claimed["executed"] == "no" else 1

    sent = time.monotonic()
    fence = {"claim": claimed["claim"], "request": secrets.token_hex(16)}
    status, run = insist("/v1/runs/%s/fence" % claimed["run_id"], fence, 10)
    if status != 200:  # only 200 permits to act
        print(run["type"], run["detail"], file=sys.stderr)
        return 75

    stop = threading.Event()
    beats = threading.Thread(target=heartbeats, args=(run, stop, sent), daemon=True)
    beats.start()
    end = {"attempt": run["attempt"], "agent": agent}
    try:
        end["result"] = work(run, stop)
        verb = "commit"
    except Exception as e:  # its end was seen, and it was not success
        end["result"] = str(e)[:1000]
        verb = "fail"
    status, answer = insist("/v1/runs/%s/%s" % (run["run_id"], verb), end, 60)
    stop.set()
    if status != 200:
        print(answer["type"], answer["detail"], file=sys.stderr)
    return 0 if verb == "commit" and status == 200 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
