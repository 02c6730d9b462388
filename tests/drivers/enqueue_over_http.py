"""Enqueues jobs over HTTP, and notes each that was acknowledged.

Usage: enqueue_over_http.py HOST:PORT TOKEN CLIENT JOBS LOG

The log has 16 bytes for each acknowledged job. A client that is started again goes on after the last of them, and
repeats what was under way with the same Idempotency-Key. A request without an answer is repeated, too.
"""

import http.client
import json
import os
import sys
import time


def send(connection, token, key, number):
    body = json.dumps({"class": "ship", "arguments": number})
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Idempotency-Key": key}
    connection.request("POST", "/v1/jobs", body, headers)
    response = connection.getresponse()
    text = response.read()
    if response.status in (200, 202):
        return True
    if response.status == 503:
        return False
    sys.exit(f"{response.status}: {text}")


def main():
    address, token, client, jobs, log = sys.argv[1:]
    client, jobs = int(client), int(jobs)
    connection = None
    with open(log, "ab", buffering=0) as notes:
        # A note that was cut off is written anew.
        done = os.path.getsize(log) // 16
        os.truncate(log, done * 16)
        while done < jobs:
            try:
                if connection is None:
                    connection = http.client.HTTPConnection(address, timeout=30)
                number = client * jobs + done
                is_done = send(connection, token, f"ship/{number}", number)
            except (OSError, http.client.HTTPException):
                is_done = False
            if is_done:
                notes.write(b"%15d\n" % number)
                done += 1
            else:
                connection = None
                time.sleep(0.02)


main()
