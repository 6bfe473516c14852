#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""kube_api.py [CERT KEY]: a small API server that misbehaves on command.

Objects in memory, list with pages, watch, bookmarks, streamed lists, compare-and-swap writes. Started by
tests (tests/harness/kube_server.h): it prints "port N", takes commands on standard input, one a line, and
answers each with a line "ok ..." on standard output. It ends when standard input does.

make N PAD          N pods in namespace default, each with PAD extra bytes
touch|delete|remake NAME   a pod; touch changes its phase; remake deletes it and creates another one
                    of that name
clear               deletes all objects and the history, and ends all watches
bookmark            sends a bookmark to every watch
end                 ends every watch, as a real server does
forget MODE [remake NAME] [delete NAME]
                    makes these changes, forgets the history and ends all watches before they see the
                    changes; a watch from an older version gets 410: MODE http: as the response's status,
                    event: as an ERROR event
cut N [TIMES]       the connections of the next TIMES watches (1) are each cut after N bytes of events
split N             bodies are sent N bytes at a time; 0: whole
expire              the next list request with a continue token is answered with 410
fail CODE N AFTER   the next N requests get CODE, with Retry-After unless AFTER is -1
drop N              the next N requests are read, then the connection is closed
hang N              the next N requests (after those that are dropped) are never answered
token T             requests need this bearer token; "-": none
stream MODE         on; off: refused (422); mute: never sends the bookmark that ends a streamed list
count               answers with counters: lists=.. streams=.. watches=.. requests=.. connections=.. gzip=..
"""
import gzip
import json
import socket
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

PODS = "/api/v1/namespaces/default/pods"
lock = threading.Condition()


class World:
    """The stored objects, and the requested faults. Used under lock."""

    def __init__(self):
        self.version = 100
        self.objects = {}  # collection path -> name -> object
        self.history = []  # (version, type, collection, object)
        self.oldest = 0
        self.gone = "http"
        self.generation = 0  # of watches: watches of an older generation end
        self.cut = self.cuts = self.split = 0
        self.expire = False
        self.fail = []  # (code, retry after)
        self.drop = self.hang = 0
        self.token = None
        self.stream = "on"
        self.uid = 0
        self.counts = {k: 0 for k in ("lists", "streams", "watches", "requests", "connections", "gzip")}

    def record(self, kind, collection, obj):
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.version, kind, collection, obj))
        lock.notify_all()

    def put(self, collection, obj):
        name = obj["metadata"]["name"]
        items = self.objects.setdefault(collection, {})
        old = items.get(name)
        if old:
            obj["metadata"]["uid"] = old["metadata"]["uid"]
        else:
            self.uid += 1
            obj["metadata"]["uid"] = f"uid-{self.uid:06d}"
        items[name] = obj
        self.record("MODIFIED" if old else "ADDED", collection, obj)

    def delete(self, collection, name):
        obj = json.loads(json.dumps(self.objects[collection].pop(name)))
        self.record("DELETED", collection, obj)

    def make_pod(self, name, pad):
        self.put(PODS, {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default",
                         "annotations": {"pad": "x" * pad, "text": "{[\"\\\u00e9\n]}"}},
            "spec": {"nodeName": "node-" + name}, "status": {"phase": "Pending"}})


world = World()


def command(words):
    w, verb = world, words[0]
    if verb == "make":
        for i in range(int(words[1])):
            w.make_pod(f"pod-{i:05d}", int(words[2]))
    elif verb == "touch":
        pod = json.loads(json.dumps(w.objects[PODS][words[1]]))
        pod["status"]["phase"] = "Running" if pod["status"]["phase"] == "Pending" else "Pending"
        w.put(PODS, pod)
    elif verb == "delete":
        w.delete(PODS, words[1])
    elif verb == "remake":
        if words[1] in w.objects[PODS]:
            w.delete(PODS, words[1])
        w.make_pod(words[1], 10)
    elif verb == "clear":
        w.objects, w.history, w.oldest = {}, [], w.version
        w.generation += 1
        lock.notify_all()
    elif verb == "bookmark":
        w.history.append((w.version, "BOOKMARK", None, None))
        lock.notify_all()
    elif verb in ("end", "forget"):
        w.generation += 1
        if verb == "forget":
            for i in range(2, len(words), 2):
                command(words[i:i + 2])
            w.gone, w.oldest = words[1], w.version + 1
            w.version += 1
            w.history = []
        lock.notify_all()
    elif verb == "cut":
        w.cut, w.cuts = int(words[1]), int(words[2]) if len(words) > 2 else 1
    elif verb in ("split", "drop", "hang"):
        setattr(w, verb, int(words[1]))
    elif verb == "expire":
        w.expire = True
    elif verb == "fail":
        w.fail = [(int(words[1]), int(words[3]))] * int(words[2])
    elif verb == "token":
        w.token = None if words[1] == "-" else words[1]
    elif verb == "stream":
        w.stream = words[1]
    elif verb == "count":
        return " ".join(f"{k}={v}" for k, v in w.counts.items())
    else:
        raise ValueError(verb)
    return ""


def status(code, reason, message="", **more):
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
            "message": message or reason, **more}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 120

    def setup(self):
        super().setup()
        with lock:
            world.counts["connections"] += 1
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, *_):
        pass

    # ---- answers ----
    def send_bytes(self, data):
        step = world.split or len(data) or 1
        for i in range(0, len(data), step):
            self.wfile.write(data[i:i + step])
            self.wfile.flush()

    def answer(self, code, obj, headers=()):
        body = json.dumps(obj).encode()
        packed = len(body) > 2000 and "gzip" in self.headers.get("Accept-Encoding", "")
        if packed:
            body = gzip.compress(body)
            with lock:
                world.counts["gzip"] += 1
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if packed:
            self.send_header("Content-Encoding", "gzip")
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.send_bytes(body)

    def misbehaves(self):
        """True if a requested fault was the answer."""
        with lock:
            world.counts["requests"] += 1
            fail = world.fail.pop() if world.fail else None
            drop = world.drop > 0
            hang = not drop and world.hang > 0
            world.drop -= drop
            world.hang -= hang
            want = world.token
        if hang:
            time.sleep(3600)
        if drop:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return True
        if want and self.headers.get("Authorization") != "Bearer " + want:
            self.answer(401, status(401, "Unauthorized"))
            return True
        if fail:
            code, after = fail
            self.answer(code, status(code, "Injected"), [("Retry-After", str(after))] if after >= 0 else ())
            return True
        return False

    # ---- verbs ----
    def handle_request(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if self.misbehaves():
            return
        url = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(url.query).items()}
        if url.path.startswith("/echo"):
            self.answer(200, {"method": self.command, "path": self.path, "body": body.decode(),
                              "headers": {k.lower(): v for k, v in self.headers.items()}})
            return
        parts = unquote(url.path).split("/")
        named = len(parts) > (7 if parts[1] == "apis" else 6)
        collection, name = (("/".join(parts[:-1]), parts[-1]) if named else (unquote(url.path), None))
        if self.command == "GET" and "watch" in query:
            self.watch(collection, query)
        elif self.command == "GET" and name is None:
            self.list(collection, query)
        else:
            self.answer(*self.one(collection, name, body))

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = handle_request

    def one(self, collection, name, body):
        with lock:
            items = world.objects.get(collection, {})
            if self.command == "POST":
                obj = json.loads(body)
                if obj["metadata"]["name"] in items:
                    return 409, status(409, "AlreadyExists")
                world.put(collection, obj)
                return 201, obj
            if name not in items:
                if self.command == "PATCH" and "apply" in self.headers.get("Content-Type", ""):
                    world.put(collection, json.loads(body))
                    return 201, world.objects[collection][name]
                return 404, status(404, "NotFound", f"{name} not found")
            old = items[name]
            if self.command == "GET":
                return 200, old
            if self.command == "DELETE":
                world.delete(collection, name)
                return 200, old
            new = json.loads(body)
            if self.command == "PATCH":
                new = merge(json.loads(json.dumps(old)), new)
            want = new["metadata"].get("resourceVersion")
            if want and want != old["metadata"]["resourceVersion"]:
                return 409, status(409, "Conflict", "the object has been modified")
            world.put(collection, new)
            return 200, new

    def list(self, collection, query):
        with lock:
            world.counts["lists"] += "continue" not in query
            if "continue" in query and world.expire:
                world.expire = False
                gone = status(410, "Expired", "too old", metadata={"continue": "other"})
                version = None
            else:
                version = world.version
                names = sorted(world.objects.get(collection, {}))
                version, after = json.loads(query["continue"]) if "continue" in query else (version, "")
                rest = [n for n in names if n > after]
                limit = int(query.get("limit") or len(rest))
                items = [world.objects[collection][n] for n in rest[:limit]]
                meta = {"resourceVersion": str(version)}
                if len(rest) > limit:
                    meta["continue"] = json.dumps([version, rest[limit - 1]])
        if version is None:
            self.answer(410, gone)
        else:
            self.answer(200, {"kind": "PodList", "apiVersion": "v1", "items": items, "metadata": meta})

    def chunk(self, data):
        self.send_bytes(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, kind, obj):
        """Sends an event. False: the connection is cut."""
        data = json.dumps({"type": kind, "object": obj}).encode() + b"\n"
        if self.budget is not None:
            data, self.budget = data[:self.budget], self.budget - len(data)
            if self.budget <= 0:
                if data:
                    self.chunk(data)
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return False
        self.chunk(data)
        return True

    def initial(self, collection):
        """Sends a streamed list: the objects, then the bookmark that ends it."""
        with lock:
            version, items = world.version, list(world.objects.get(collection, {}).values())
            mute = world.stream == "mute"
        for obj in items:
            if not self.event("ADDED", obj):
                return None
        mark = {"kind": "Pod", "apiVersion": "v1", "metadata": {
            "resourceVersion": str(version), "annotations": {"k8s.io/initial-events-end": "true"}}}
        return version if mute or self.event("BOOKMARK", mark) else None

    def watch(self, collection, query):
        stream = query.get("sendInitialEvents") == "true"
        with lock:
            world.counts["streams" if stream else "watches"] += 1
            since = 0 if stream else int(query["resourceVersion"])
            gone = world.gone if since < world.oldest and not stream else None
            generation = world.generation
            self.budget = world.cut if world.cut and world.cuts > 0 else None
            world.cuts -= 1
        if stream and world.stream == "off":
            self.answer(422, status(422, "Invalid", "sendInitialEvents is forbidden"))
            return
        if gone == "http":
            self.answer(410, status(410, "Expired", "too old resource version"))
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        if gone == "event":
            self.event("ERROR", status(410, "Expired", "too old resource version"))
            self.chunk(b"")
            return
        if stream:
            since = self.initial(collection)
        if since is not None:
            self.follow(collection, since, generation)

    def follow(self, collection, since, generation):
        at = 0
        with lock:
            first = len(world.history)
        while True:
            with lock:
                while len(world.history) <= at and world.generation == generation:
                    if not lock.wait(1):
                        break
                if world.generation != generation:
                    break
                new, at = world.history[at:], len(world.history)
                start = at - len(new)
            for i, (version, kind, where, obj) in enumerate(new):
                if kind == "BOOKMARK" and start + i >= first:
                    mark = {"kind": "Pod", "apiVersion": "v1",
                            "metadata": {"resourceVersion": str(version)}}
                    if not self.event("BOOKMARK", mark):
                        return
                elif kind != "BOOKMARK" and where == collection and version > since:
                    if not self.event(kind, obj):
                        return
        self.chunk(b"")


def merge(old, patch):
    for key, value in patch.items():
        if value is None:
            old.pop(key, None)
        elif isinstance(value, dict) and isinstance(old.get(key), dict):
            merge(old[key], value)
        else:
            old[key] = value
    return old


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_):
        pass  # the client has closed the connection, which tests do


def main():
    server = Server(("127.0.0.1", 0), Handler)
    if len(sys.argv) > 2:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[1], sys.argv[2])
        context.set_alpn_protocols(["http/1.1"])
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("port", server.server_address[1], flush=True)
    for line in sys.stdin:
        with lock:
            said = command(line.split())
        print("ok", said, flush=True)


main()
