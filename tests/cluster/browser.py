# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium, driven by its DevTools protocol over two pipes: opens pages, reads them, takes screenshots. It can
reach only this machine's loopback."""
import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

from binaries import Missing

PATIENCE = 120


def find():
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if not path:
        raise Missing("chromium", "no Chromium here (make deps)")
    return path


def check():
    """Raises Missing if no Chromium starts here: not every container has what it needs."""
    find()
    try:
        with Browser() as browser:
            browser.ask("Browser.getVersion")
    except (OSError, TimeoutError, EOFError) as error:
        raise Missing("chromium-runs", f"Chromium does not run here: {error}") from None


class Browser:
    """One process with a profile of its own, and one page in it."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="hvd-browser-")
        self.process, self.reading, self.writing = None, -1, -1
        self.number, self.session, self.rest = 0, None, b""
        self.errors = []      # messages of the console at level error
        self.requests = []    # each URL that was requested

    def __enter__(self):
        theirs_in, self.writing = os.pipe()
        self.reading, theirs_out = os.pipe()
        options = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.folder}", "--no-first-run",
                   "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
                   "--disable-component-update", "--disable-sync", "--disable-extensions", "--no-default-browser-check",
                   "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
                   *(["--no-sandbox"] if os.geteuid() == 0 else []), "about:blank"]
        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash",
                 find(), *options], pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, env={**os.environ, "HOME": self.folder})
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            target = self.ask("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.ask(f"{domain}.enable")
            self.size(1280, 900)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for fd in (self.reading, self.writing):
            if fd >= 0:
                os.close(fd)
        self.reading = self.writing = -1
        if self.process:
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                pass
            try:
                os.killpg(self.process.pid, signal.SIGKILL)   # its helpers too
            except ProcessLookupError:
                pass
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- the protocol: JSON messages, each ended by a NUL ---------------------------------------------------

    def receive(self, deadline):
        while b"\0" not in self.rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.reading], [], [], left)[0]:
                raise TimeoutError("Chromium does not answer")
            data = os.read(self.reading, 1 << 20)
            if not data:
                raise EOFError("Chromium has ended: " + self.log())
            self.rest += data
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def log(self):
        with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as f:
            return f.read()[-1000:]

    def ask(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.number:
                break
            self.note(answer)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def note(self, event):
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.errors.append(str([a.get("value") for a in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    # ---- a page ---------------------------------------------------------------------------------------------

    def open(self, url):
        answer = self.ask("Page.navigate", url=url)
        assert "errorText" not in answer, f"{url}: {answer['errorText']}"

    def value(self, script):
        """The value of a JavaScript expression."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{script}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def wait(self, what, script, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.value(script)
            if value:
                return value
            time.sleep(0.1)
        raise TimeoutError(f"no {what} within {seconds} s; the page says:\n{self.text('body')[:3000]}\n{self.errors}")

    def text(self, selector):
        """The visible text of an element; "" if there is none."""
        return self.value(f"(document.querySelector({json.dumps(selector)}) || {{innerText: ''}}).innerText")

    def rows(self, body):
        """The cells of a table, as texts."""
        return self.value(f"[...document.querySelectorAll({json.dumps(body + ' tr')})]"
                          ".map(tr => [...tr.children].map(td => td.innerText))")

    def size(self, width, height):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name):
        """Sets the preferred color scheme: light or dark."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def draw(self, path):
        """Writes the whole page to path as PNG."""
        data = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))
