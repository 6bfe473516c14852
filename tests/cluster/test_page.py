#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 70 s, waiting
# needs: kubernetes
"""The operator's web page in Chromium, with a real operator, control plane, agents and ranks: what it shows while a job
trains, grows, loses a worker and waits; untrusted texts; access and limits.
HVD_PAGE_SHOTS=folder keeps pictures. timeout: 1800"""
import http.client
import json
import os
import re
import signal
import socket
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import agents  # noqa: E402
import browser as browsers  # noqa: E402
import case  # noqa: E402
from api import wait_until  # noqa: E402
from operators import ROOT, Job, Operator  # noqa: E402

SHOTS = os.environ.get("HVD_PAGE_SHOTS")
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script> & \"'`${1}"


class Case(agents.Case):
    def setUp(self):
        super().setUp()
        self.browser = browsers.Browser().__enter__()
        self.addCleanup(self.browser.__exit__)
        self.url = f"http://127.0.0.1:{self.operator.port}/"
        self.operator.wait_ready()

    def tearDown(self):
        """After each test: no error on the console, no request to another origin, no injected script ran."""
        self.assertEqual([e for e in self.browser.errors if "favicon" not in e], [])
        self.assertEqual({u for u in self.browser.requests if not u.startswith(("about:", self.url))}, set())
        self.assertNotIn("owned", self.browser.value("document.title"))

    def shot(self, name):
        if not SHOTS:
            return
        for scheme in ("light", "dark"):
            self.browser.scheme(scheme)
            self.browser.draw(os.path.join(SHOTS, f"{name}-{scheme}.png"))

    def open(self, job=None):
        self.browser.open(self.url + (f"#/{job.namespace}/{job.name}" if job else ""))
        self.browser.wait("answer", "document.querySelector('#live')?.innerText.startsWith('as of')")

    def wait_text(self, what, selector, word, seconds=60):
        self.browser.wait(what, f"(document.querySelector({json.dumps(selector)}) || {{innerText: ''}}).innerText"
                                f".includes({json.dumps(word)})", seconds)


class Page(Case):
    nodes = 4

    def test_follows_a_job(self):
        job, kubelet = self.start_job("mnist", 2, 100000, 20, minWorkers=1, maxWorkers=4)
        page = self.browser
        self.open()
        self.wait_text("row", "#jobrows", "default/mnist")
        self.wait("a world of two", 60, job, kubelet, lambda: 2 in self.worlds(kubelet))
        self.wait("it to run", 60, job, kubelet, lambda: job.status().get("phase") == "Running")
        page.wait("its epoch", "document.querySelector('#jobrows tr')?.children[4].innerText === '1'")
        (row,) = page.rows("#jobrows")
        self.assertEqual(row[:5], ["default/mnist", "Running", "2 / 2", "1 to 4", "1"])

        page.value("document.querySelector('#jobrows a').click()")
        self.wait_text("its page", "#where", "default / mnist")
        page.wait("two that train", "document.querySelector('#members').innerText.match(/trains/g)?.length === 2")
        members = page.rows("#members")
        self.assertEqual([m[0:2] + m[3:4] for m in members], [["0", "trains", "mnist-0-0"], ["1", "trains", "mnist-1-0"]])
        self.assertEqual(sorted(m[2] for m in members), ["0", "1"])   # ranks are given in the order of joins
        self.assertTrue(all(m[4].startswith("kwok-") for m in members), members)
        page.wait("throughput", "parseFloat(document.querySelector('#rate').innerText) > 0")
        (first,) = page.rows("#epochs")
        self.assertEqual([first[0], first[2], first[3]], ["1", "first", "2"])

        # it grows: the page refreshes itself
        self.cluster.kubectl("scale", "hvdjob/mnist", "--replicas=3")
        self.wait("a world of three", 60, job, kubelet, lambda: 3 in self.worlds(kubelet))
        page.wait("another epoch", "document.querySelector('#epochs').innerText.includes('planned')")
        newest = page.rows("#epochs")[0]
        self.assertEqual([newest[2], newest[3]], ["planned", "3"])

        # and loses one
        name = sorted(job.running())[1]
        os.killpg(kubelet.of(name).pid, signal.SIGKILL)
        self.wait("its replacement", 90, job, kubelet,
                  lambda: len(job.running()) == 3 and job.status().get("restarts") == 1)
        self.wait("the loss, and three that train", 60, job, kubelet, lambda: page.value(
            "document.querySelectorAll('#members td.ok').length === 3 &&"
            "[...document.querySelectorAll('#epochs tr')].some(tr => tr.children[2].innerText === 'loss')"))
        losses = [e for e in page.rows("#epochs") if e[2] == "loss"]
        self.assertEqual(len(losses), 1, page.rows("#epochs"))
        self.assertRegex(losses[0][4], r"^[\d.]+ m?s$")
        self.assertIn(name, losses[0][5], page.rows("#epochs"))
        types = {c[0]: c[1] for c in page.rows("#conditions")}
        self.assertEqual((types["Ready"], types["Valid"]), ("true", "true"))
        self.shot("job")
        self.check_metrics(losses[0][4])

    def check_metrics(self, took):
        """The metric has the same recovery time as the page."""
        _, text = self.operator.page("/metrics")
        (line,) = [line for line in text.splitlines() if line.startswith('hvd_recovery_seconds_count{cause="lost"}')]
        self.assertEqual(line.split()[-1], "1")
        (line,) = [line for line in text.splitlines() if line.startswith('hvd_recovery_seconds_sum{cause="lost"}')]
        ms = float(took.split()[0]) * (1 if took.endswith(" ms") else 1000)
        self.assertAlmostEqual(float(line.split()[-1]) * 1000, ms, delta=max(0.6, ms / 10))
        self.assertGreaterEqual(self.operator.metric("hvd_recovery_seconds_count"), 2)   # including a planned change
        # all metrics of the dashboard exist
        with open(os.path.join(ROOT, "k8s", "monitoring", "dashboard.json"), encoding="utf-8") as f:
            names = set(re.findall(r"\bhvd_[a-z_]+", f.read()))
        exported = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}
        self.assertGreater(len(names), 20)
        self.assertEqual(names - exported, set())

    def test_says_why_it_waits(self):
        fits, queued = Job(self.cluster, "fits", 1), Job(self.cluster, "too-big", 2, cpu="1000")
        suspended = Job(self.cluster, "later", 1, run={"suspend": True})
        for job in (fits, queued, suspended):
            self.addCleanup(job.wait_gone)
            self.addCleanup(job.delete)
        self.open()
        self.wait_text("why it waits", "#jobrows", "cpu")
        self.wait_text("the suspended one", "#jobrows", "Suspended")
        page = self.browser
        page.wait("all three", "document.querySelectorAll('#jobrows tr').length === 3")

        def row():
            return next(r for r in page.rows("#jobrows") if r[0] == "default/too-big")
        self.assertEqual(row()[1], "Queued")
        # the page may be some seconds behind the status
        wait_until("the words of its status", 30, lambda: queued.status()["message"] in row()[7])
        self.shot("jobs")
        # the filter, and a phase
        page.value("document.querySelector('#filter').value = 'BIG';"
                   "document.querySelector('#filter').dispatchEvent(new Event('input'))")
        self.assertEqual([r[0] for r in page.rows("#jobrows")], ["default/too-big"])
        page.value("document.querySelector('#filter').value = '';"
                   "document.querySelector('#phases [data-phase=Suspended]').click()")
        self.assertEqual([r[0] for r in page.rows("#jobrows")], ["default/later"])
        self.open(queued)
        self.wait_text("the reason", "#message", "cpu")
        self.assertIn("Queued", self.browser.text("#phase"))

    def test_findings(self):
        """The doctor's finding in a pod with its fix; after the pod's end from the job's status."""
        job, kubelet = self.start_job("sick", 1, 20, 100, doctor={"policy": "fail", "level": 1}, run={"backoffLimit": 0})
        wait_until("the operator to know it", 30, job.status)
        kubelet.through = ("prlimit", "--nofile=512", "--")
        self.open(job)
        self.wait("a finding", 90, job, kubelet, lambda: "nofile-low" in self.browser.text("#findings"))
        self.wait("its end", 90, job, kubelet, lambda: job.status().get("phase") == "Failed")
        self.browser.wait("that", "document.querySelector('#phase').innerText.startsWith('Failed')")
        found = next(f for f in job.status()["findings"] if f["id"] == "nofile-low")
        text = self.browser.text("#findings")
        for word in (found["id"], found["code"], found["summary"], found["fix"], "sick-0-0"):
            self.assertIn(word, text)
        self.assertIn("failure", self.browser.text("#findingcount"))
        self.shot("findings")

    def test_strangers_words(self):
        """Texts of pods and programs are shown as text, never as HTML."""
        job = Job(self.cluster, "words", 2, minWorkers=1, maxWorkers=2, run={"backoffLimit": 5})
        self.addCleanup(job.wait_gone)
        self.addCleanup(job.delete)
        job.wait_running(2)
        name = sorted(job.running())[0]
        state = {"terminated": {"exitCode": 3, "reason": "Error", "message": EVIL, "finishedAt": "2026-01-01T00:00:00Z"}}
        self.cluster.api.call("PATCH", f"{job.all_pods}/{name}/status", {"status": {
            "phase": "Failed", "containerStatuses": [{"name": "main", "image": "none", "imageID": "", "ready": False,
                                                      "restartCount": 0, "state": state}]}},
                              kind="application/merge-patch+json")
        self.open(job)
        self.wait_text("the failure", "#first", "exit code 3")
        self.assertIn(EVIL, self.browser.text("#first"))
        self.assertEqual(self.browser.value("document.querySelectorAll('img, body script').length"), 0)
        # an invalid name
        self.browser.open(self.url + "#/default/" + "%3Cimg%20src=x%20onerror=alert(1)%3E")
        self.wait_text("that there is none", "#alarm", "<img src=x onerror=alert(1)>")
        self.assertEqual(self.browser.value("document.querySelectorAll('img').length"), 0)
        self.open(job)
        self.browser.errors.clear()   # the console logs the 404
        self.shot("words")

    def test_operator_goes(self):
        """The operator is down: the page says so, and recovers by itself."""
        self.open()
        self.operator.kill()
        self.wait_text("an alarm", "#alarm", "The operator does not answer since", 30)
        self.shot("away")
        self.operator.start()
        self.browser.wait("it to be there again", "document.querySelector('#alarm').hidden", 60)
        self.browser.errors.clear()   # the console logs refused connections


class Access(agents.Case):
    """Access to the page, and its limits."""
    nodes = 1

    def get(self, path, source="127.0.0.1", host=None, method="GET", port=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.operator.port, timeout=20,
                                                source_address=(source, 0))
        connection.putrequest(method, path, skip_host=host is not None)
        for name, value in {**({"Host": host} if host else {}), **(headers or {})}.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, dict(answer.getheaders()), text

    def setUp(self):
        super().setUp()
        self.operator.wait_ready()

    def test_who(self):
        for path in ("/", "/page.js", "/page.css", "/v1/jobs"):
            status, headers, _ = self.get(path)
            self.assertEqual(status, 200, path)
            self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
            self.assertNotIn("unsafe", headers["Content-Security-Policy"])
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            # not through kubectl port-forward; and with a foreign host name (DNS rebinding)
            self.assertEqual(self.get(path, source="127.0.0.2")[0], 403, path)
            self.assertEqual(self.get(path, host="evil.example")[0], 403, path)
            self.assertEqual(self.get(path, host="localhost.evil.example:80")[0], 403, path)
            self.assertEqual(self.get(path, method="POST")[0], 405, path)
        self.assertEqual(self.get("/metrics", source="127.0.0.2", host="prometheus")[0], 200)
        for path in ("/v1/jobs/", "/v1/jobs/default", "/v1/jobs/default/none", "/v1/jobs/a/b/c", "/../etc/passwd",
                     "/%2e%2e/page.js", "/v1/jobs/%00/x", "/favicon.ico", "/v1/jobs/default/" + "a" * 4000):
            self.assertEqual(self.get(path)[0], 404, path)

    def test_unchanged_is_not_sent_again(self):
        _, headers, text = self.get("/v1/jobs")
        self.assertEqual(json.loads(text)["total"], 0)
        status, _, text = self.get("/v1/jobs", headers={"If-None-Match": headers["ETag"]})
        self.assertEqual((status, text), (304, ""))
        self.assertEqual(self.get("/v1/jobs", headers={"If-None-Match": '"0"'})[0], 200)

    def test_all_and_nobody(self):
        for word, codes in (("all", (200, 200)), ("off", (404, 404))):
            with Operator(self.cluster, "--no-leader-election", "--page", word, name="page-" + word) as operator:
                operator.wait_ready()
                there = (self.get("/", port=operator.port)[0],
                         self.get("/v1/jobs", source="127.0.0.2", host="page.example", port=operator.port)[0])
                self.assertEqual(there, codes, word)
                self.assertEqual(self.get("/metrics", port=operator.port)[0], 200)

    def test_probes_get_in(self):
        """A kubelet's probe is answered even if a client holds many connections open."""
        held = [socket.create_connection(("127.0.0.1", self.operator.port), 10) for _ in range(200)]
        try:
            for one in held:
                one.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n")   # an incomplete request
            self.assertEqual(self.get("/healthz", source="127.0.0.2")[0], 200)
        finally:
            for one in held:
                one.close()
        wait_until("those to be gone", 40, lambda: self.operator.page("/healthz")[0] == 200)


def needs():
    agents.needs()
    browsers.check()


if __name__ == "__main__":
    case.main("test_page", needs)
