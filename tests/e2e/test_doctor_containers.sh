#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 900
# takes: 30 s, waiting
#
# hvd-doctor in real containers: for each fault of a container it reports exactly that fault. The programs and their
# libraries are the whole image, so nothing is downloaded. What it reports in a container without a fault (the machine's
# own faults) is subtracted.
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/container.sh
. "$(dirname "$0")/container.sh"
PY=${PY:-/usr/bin/python3}

IMAGE=$TMP/image
mkdir -p "$IMAGE"/{proc,sys,dev,tmp,etc,bin,run}
chmod 1777 "$IMAGE/tmp"
echo 'root:x:0:0:root:/:/bin/false' >"$IMAGE/etc/passwd"
for program in hvd-doctor hvd-probe; do
    cp "$BUILD/$program" "$IMAGE/bin/"
    ldd "$BUILD/$program" | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$IMAGE/$(dirname "$library")"
        cp -nL "$library" "$IMAGE/$library"
    done
done

# doctor NAME PODMAN-OPTION... -- DOCTOR-OPTION...: the report goes to $TMP/NAME.json
doctor() {
    local name=$1 options=()
    shift
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    timeout 60 podman run --rm --name "$container" --cgroup-parent="/$HVD_CONTAINER_GROUP" \
        "${options[@]}" --rootfs "$IMAGE" /bin/hvd-doctor check --json --timeout 30 "$@" \
        >"$TMP/$name.json" 2>"$TMP/$name.err"
    local rc=$?
    cat "$TMP/$name.err"
    [ $rc -le 1 ] && [ ! -s "$TMP/$name.err" ]
}

cat >"$TMP/compare.py" <<'EOT'
import json, sys

def found(name):
    report = json.load(open(name))
    return report, {c["status"] + ":" + c["id"] for c in report["checks"] if c["status"] in ("warn", "fail", "error")}

base, new, want = sys.argv[1], sys.argv[2], set(sys.argv[3:])
before, now = found(base)[1], found(new)[1]
report = found(new)[0]
for check in report["checks"]:
    if check["status"] == "error" or "crashed" in check["summary"]:
        sys.exit("%(id)s: %(status)s: %(summary)s" % check)
extra = now - before - want
missing = want - now
gone = {f for f in before - now if f.split(":")[1] not in {w.split(":")[1] for w in want}}
for check in report["checks"]:
    if check["status"] + ":" + check["id"] in extra:
        print("not wanted: %(status)s %(id)s: %(summary)s" % check)
for f in sorted(missing):
    check = [c for c in report["checks"] if c["id"] == f.split(":")[1]]
    print("missing: " + f + (": it is %(status)s: %(summary)s" % check[0] if check else ": no such check ran"))
for f in sorted(gone):
    print("no longer: " + f)
sys.exit(1 if extra or missing or gone else 0)
EOT

# found BASE NAME STATUS:ID...: NAME has the warnings and failures of BASE and those listed, and no others
# shellcheck disable=SC2317  # called by check
found() {
    "$PY" "$TMP/compare.py" "$TMP/$1.json" "$TMP/$2.json" "${@:3}"
}

# says NAME ID WORDS: the summary of that check has the words
# shellcheck disable=SC2317
says() {
    "$PY" - "$TMP/$1.json" "$2" "$3" <<'EOT'
import json, sys
summary = [c["summary"] for c in json.load(open(sys.argv[1]))["checks"] if c["id"] == sys.argv[2]]
print(sys.argv[2], summary)
sys.exit(0 if summary and sys.argv[3] in summary[0] else 1)
EOT
}

# one NAME BASE "STATUS:ID ..." PODMAN-OPTION... -- DOCTOR-OPTION...
one() {
    local name=$1 base=$2 wanted=$3
    shift 3
    check "$name runs" doctor "$name" "$@"
    # shellcheck disable=SC2086  # words
    check "$name finds: ${wanted:-nothing}" found "$base" "$name" $wanted
}

# A network of the test's own: on the machine's network other tests make and remove interfaces meanwhile, with other MTUs.
# shellcheck disable=SC2317  # called at the end
end_network() {
    kill -KILL "$network"
    wait "$network" 2>/dev/null
}
can_netns || skip_all netns 'network namespaces cannot be made here'
unshare --net sh -ec 'ip link set lo up
    ip link add eth0 type veth peer name far
    ip link set eth0 up
    ip link set far up
    ip addr add 10.213.7.1/24 dev eth0
    echo up
    exec sleep 3600' >"$TMP/network" &
network=$!
at_end+=(end_network)
wait_until 10 [ -s "$TMP/network" ]
own_network=--network=ns:/proc/$network/ns/net

# If podman cannot start this container, it cannot start the others either.
roomy=("$own_network" --shm-size=2g)
job=(--ranks 2 --local-ranks 2 --profile cpu)
if ! doctor first "${roomy[@]}" -- "${job[@]}" >"$TMP/out"; then
    cat "$TMP/out"
    if grep -qi 'runc\|oci\|cgroup\|permission denied' "$TMP/first.err"; then
        skip_all podman 'containers cannot be started here'
    fi
    failed=1
fi
# shellcheck disable=SC2317
no_failure() {
    "$PY" -c 'import json, sys
bad = [c for c in json.load(open(sys.argv[1]))["checks"] if c["status"] in ("fail", "error")]
for c in bad: print("%(status)s %(id)s: %(summary)s" % c)
sys.exit(1 if bad else 0)' "$TMP/first.json"
}
check 'a roomy container has no failure' no_failure

one shm-64m first 'warn:shm-size' "$own_network" -- "${job[@]}"
check 'shm-64m says how much' says shm-64m shm-size '62.5 MiB'
one shm-1g first '' "$own_network" --shm-size=1g -- "${job[@]}"
one no-sys first 'warn:sys-mounted' "${roomy[@]}" --security-opt=mask=/sys -- "${job[@]}"
one pids first 'warn:cgroup-pids' "${roomy[@]}" --pids-limit=100 -- "${job[@]}"
one cpus first 'warn:cgroup-cpu-quota' "${roomy[@]}" --cpus=0.5 -- "${job[@]}"
check 'cpus says how many' says cpus cgroup-cpu-quota '0.5'
one memory first 'warn:shm-vs-cgroup' "${roomy[@]}" --memory=1g -- "${job[@]}"
one memory-64m first 'fail:cgroup-mem-limit warn:shm-vs-cgroup' "${roomy[@]}" --memory=64m -- "${job[@]}"
one user first '' "${roomy[@]}" --user=1000 -- "${job[@]}"
one read-only first '' "${roomy[@]}" --read-only -- "${job[@]}"
one no-capabilities first '' "${roomy[@]}" --cap-drop=all -- "${job[@]}"

# Without a network: enough for the ranks of one machine, not for several.
one no-network first '' --network=none --shm-size=2g -- "${job[@]}"
one no-network-2 no-network 'fail:nic-up warn:hostname-resolves' --network=none --shm-size=2g -- \
    --ranks 4 --local-ranks 2 --profile cpu

# NCCL's needs are checked with --profile gpu, whether or not the machine has GPUs. A container with --ulimit needs its other
# limits too.
limits=(--ulimit=nofile=20000:20000 --ulimit=nproc=4000:4000)
gpu=(--ranks 2 --local-ranks 2 --profile gpu)
check 'gpu runs' doctor gpu "${roomy[@]}" -- "${gpu[@]}"
one gpu-shm gpu 'fail:shm-size' "$own_network" -- "${gpu[@]}"
one gpu-shm-1g gpu '' "$own_network" --shm-size=1g -- "${gpu[@]}"
one gpu-memlock gpu 'warn:memlock-limit' "${roomy[@]}" "${limits[@]}" --ulimit=memlock=65536:65536 -- "${gpu[@]}"
check 'gpu-memlock says how much' says gpu-memlock memlock-limit 'memlock 64 KiB'

# A pod whose name service and API do not answer.
mkdir -p "$TMP/account"
echo not-a-token >"$TMP/account/token"
echo not-a-certificate >"$TMP/account/ca.crt"
printf 'search train.svc.cluster.local\nnameserver 127.0.0.1\noptions ndots:5 attempts:1\n' >"$TMP/resolv.conf"
one pod no-network 'fail:k8s-dns warn:k8s-api-reachable fail:k8s-worker-dns' --network=none --shm-size=2g \
    --env=KUBERNETES_SERVICE_HOST=127.0.0.1 --env=KUBERNETES_SERVICE_PORT=6443 --env=MASTER_ADDR=w-0.train \
    --volume="$TMP/account:/var/run/secrets/kubernetes.io/serviceaccount:ro" \
    --volume="$TMP/resolv.conf:/etc/resolv.conf:ro" -- --ranks 2 --local-ranks 2 --profile cpu,k8s --timeout 4

# A pod whose API answers: a real HTTPS server with a certificate of the pod's CA.
cat >"$TMP/api.py" <<'EOT'
import http.server, json, ssl, sys

class Api(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def answer(self, status, body):
        if self.headers["Authorization"] != "Bearer " + "t" * 1200:
            status, body = 401, {}
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def do_GET(self):
        known = {"/version": {"gitVersion": "v1.36.3"}, "/apis/hvd.dev": {"versions": [{"version": "v1alpha1"}]}}
        self.answer(200 if self.path in known else 404, known.get(self.path, {}))
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["spec"]["resourceAttributes"]
        self.answer(201, {"status": {"allowed": asked["resource"] == "pods" and asked["namespace"] == "train"}})

server = http.server.HTTPServer(("127.0.0.1", 0), Api)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(sys.argv[1] + "/cert.pem", sys.argv[1] + "/key.pem")
server.socket = tls.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
EOT
# shellcheck disable=SC2317  # called at the end
end_api() {
    kill -KILL "$api"
    wait "$api" 2>/dev/null
}
if command -v openssl >/dev/null; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=kube-apiserver \
        -addext subjectAltName=IP:127.0.0.1 -keyout "$TMP/key.pem" -out "$TMP/cert.pem" 2>"$TMP/openssl"
    "$PY" "$TMP/api.py" "$TMP" >"$TMP/port" &
    api=$!
    at_end+=(end_api)
    wait_until 10 [ -s "$TMP/port" ]
    printf 't%.0s' {1..1200} >"$TMP/account/token"
    printf train >"$TMP/account/namespace"
    cp "$TMP/cert.pem" "$TMP/account/ca.crt"
    check 'api runs' doctor api --network=host --shm-size=2g --env=KUBERNETES_SERVICE_HOST=127.0.0.1 \
        --env=KUBERNETES_SERVICE_PORT="$(cat "$TMP/port")" \
        --volume="$TMP/account:/var/run/secrets/kubernetes.io/serviceaccount:ro" \
        -- --only 'k8s-*' --profile k8s,launcher
    check 'api is reached' says api k8s-api-reachable 'Kubernetes v1.36.3 at https://127.0.0.1:'
    check 'api: rights' says api k8s-rbac '9 of 14 rights missing in namespace train: list hvdjobs'
    check 'api: version' says api k8s-crd-version 'the cluster serves v1alpha1'
else
    skip_part api openssl 'it is not installed'
fi
exit $failed
