#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Service account tokens that expire within seconds (the API server issues none below ten minutes). They are signed with
the key of the test's cluster, and otherwise like its own.

    tokens.py CLUSTER-FOLDER UID SECONDS [SLOW] [RUNS]

is a credential plugin: prints an ExecCredential after SLOW seconds, and appends a line to the file RUNS."""
import base64
import json
import os
import subprocess
import sys
import time

SYSTEM, ACCOUNT = "hvd-system", "hvd-operator"
LEEWAY_S = 60    # the API server accepts a token so long after it expired
ISSUER = "https://kubernetes.default.svc"


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign(folder, uid, seconds):
    """A token of the operator's service account with this uid, which is accepted for so long."""
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": [ISSUER], "iat": now - 2 * LEEWAY_S, "nbf": now - 2 * LEEWAY_S,
              "exp": now + seconds - LEEWAY_S,
              "sub": f"system:serviceaccount:{SYSTEM}:{ACCOUNT}",
              "kubernetes.io": {"namespace": SYSTEM, "serviceaccount": {"name": ACCOUNT, "uid": uid}}}
    text = ".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT"}, claims))
    key = os.path.join(folder, "keys", "accounts.key")
    done = subprocess.run(["openssl", "dgst", "-sha256", "-sign", key], input=text.encode(), capture_output=True,
                          timeout=30, check=True)
    return f"{text}.{encoded(done.stdout)}"


def main():
    folder, uid, seconds, slow, runs = (sys.argv[1:] + ["0", os.devnull])[:5]
    with open(runs, "a", encoding="ascii") as f:
        f.write("run\n")
    time.sleep(float(slow))
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + int(seconds)))
    print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                      "status": {"token": sign(folder, uid, int(seconds)), "expirationTimestamp": ends}}))


if __name__ == "__main__":
    main()
