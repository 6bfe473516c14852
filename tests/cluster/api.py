# SPDX-License-Identifier: Apache-2.0
"""A JSON client of the API server with one kept-alive connection. For tests and the supervisor; one thread."""
import http.client
import json
import ssl
import time
from urllib.parse import urlsplit


class Refused(Exception):
    """A response with HTTP status 400 or more, which is `code`."""

    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")
        self.code = code


class Api:
    def __init__(self, server, ca_file, token=None, timeout=30):
        self.server, self.token, self.timeout = urlsplit(server), token, timeout
        self.context = ssl.create_default_context(cafile=ca_file)
        self.connection = None

    @classmethod
    def from_kubeconfig(cls, path, ca_file, timeout=30):
        """From a kubeconfig that pki.py wrote."""
        with open(path, encoding="ascii") as f:
            config = json.load(f)
        return cls(config["clusters"][0]["cluster"]["server"], ca_file, config["users"][0]["user"]["token"], timeout)

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def send(self, method, path, body, kind):
        if not self.connection:
            self.connection = http.client.HTTPSConnection(self.server.hostname, self.server.port,
                                                          timeout=self.timeout, context=self.context)
        headers = {"Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            headers["Content-Type"] = kind
        self.connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read().decode()

    def call(self, method, path, body=None, kind="application/json"):
        """The response's JSON, or its text if it is not JSON. Raises Refused, OSError."""
        kept = self.connection is not None
        try:
            status, text = self.send(method, path, body, kind)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if kept and method == "GET":    # the server may have closed it meanwhile
                return self.call(method, path, body, kind)
            raise error if isinstance(error, OSError) else OSError(str(error)) from error
        if status >= 400:
            raise Refused(status, text[:4000])
        try:
            return json.loads(text)
        except ValueError:
            return text

    def get(self, path):
        return self.call("GET", path)

    def create(self, path, body):
        return self.call("POST", path, body)

    def delete(self, path):
        return self.call("DELETE", path)


def wait_until(what, seconds, question, pause=0.05):
    """Polls question() and returns its first true result. Raises TimeoutError with the description."""
    end = time.monotonic() + seconds
    while True:
        answer = question()
        if answer:
            return answer
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(pause)


def condition(thing, kind):
    """The status of a node's or pod's condition: "True", "False", "Unknown"; None if it has no such condition."""
    for entry in thing.get("status", {}).get("conditions", []):
        if entry["type"] == kind:
            return entry["status"]
    return None


