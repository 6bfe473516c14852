#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The Python package: tests/python/rank_*.py on 1 and 2 ranks that are started by hand and on 4 ranks under hvdrun, some of
# them on 3 ranks and under torchrun, and a rank's errors in a bad environment.
# timeout: 1800
# takes: 130 s
# shellcheck disable=SC2317  # functions that check calls
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
PY=${PY:-/usr/bin/python3}
HVD_LIBRARY=$(realpath "$BUILD")/libhvd.so
PYTHONPATH=$PWD/core/python:$PWD/tests/python
export HVD_LIBRARY PYTHONPATH OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1

if ! "$PY" -c 'import torch, numpy' 2>/dev/null; then
    echo "SKIP: e2e/test_python: python3-torch: $PY cannot import it"
    exit 77
fi

failed=0
check() { # NAME COMMAND...: prints its output only when it fails
    local name=$1 output
    shift
    if output=$("$@" 2>&1); then
        echo "ok $name"
    else
        echo "FAILED $name (exit code $?)"
        printf '%s\n' "$output" | tail -40
        failed=1
    fi
}

by_hand() { # RANKS NAME...
    timeout -k 5 420 "$PY" tests/python/ranks.py -t 400 "$1" "$PY" tests/python/rank.py "${@:2}"
}

refused() { # WORDS COMMAND...: fails, and one line of it has these words
    local words=$1 output
    shift
    output=$(timeout 200 "$@" 2>&1) && return 1
    grep -q -- "$words" <<<"$output" || { printf '%s\n' "$output" && return 1; }
}

parts=(life ops autograd optimizer horovod flight broadcast dataloader elastic)
for n in 1 2; do
    check "$n ranks by hand" by_hand $n "${parts[@]}"
done
check "ops, join and sets, 3 ranks by hand" by_hand 3 ops join sets

if [ -x "$BUILD/hvdrun" ]; then
    check "4 ranks under hvdrun" timeout -k 5 400 "$BUILD/hvdrun" -np 4 \
        "$PY" tests/python/rank.py "${parts[@]}" join sets
else
    echo "SKIP: e2e/test_python/hvdrun: hvdrun: it is not built"
fi

free_port() { # below the ephemeral ports
    PYTHONPATH=tests/python "$PY" -c 'import ranks; print(ranks.free_port())'
}

# Debian 12's torch under Python 3.11 fails with its own defaults of --redirects and --tee. Debian 13's torch has no
# libuv, and its torchrun works without only if it creates no store of its own.
export USE_LIBUV=0

torchrun() { # static|file RANKS NAME...: torchrun or rank 0 owns the store at MASTER_PORT
    local dir result options=(--master_port "$(free_port)")
    dir=$(mktemp -d) || return
    [ "$1" = file ] && export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 &&
        options=(--rdzv_backend c10d --rdzv_conf store_type=file --rdzv_endpoint "$dir/store")
    # The host's name need not resolve, if torchrun accepts an address instead.
    "$PY" -m torch.distributed.run --help | grep -q local.addr && options+=(--local_addr 127.0.0.1)
    timeout -k 5 400 "$PY" -m torch.distributed.run --nproc_per_node "$2" "${options[@]}" \
        --redirects 1 --tee 1 --log_dir "$dir/log" tests/python/rank.py "${@:3}"
    result=$?
    unset TORCH_DISABLE_SHARE_RDZV_TCP_STORE
    rm -rf "$dir"
    return "$result"
}

has_libuv() { # whether this torch has it, which torchrun's own store needs
    "$PY" -c 'import sys, torch.distributed as d
try:
    d.TCPStore("127.0.0.1", 0, 1, True)
except RuntimeError as error:
    sys.exit("libuv" in str(error))'
}

torch_variables() { # two ranks with only torch.distributed's variables
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT
    MASTER_PORT=$(free_port)
    RANK=1 timeout -k 5 300 "$PY" tests/python/rank.py beside &
    RANK=0 timeout -k 5 300 "$PY" tests/python/rank.py beside && wait $!
}

lost() { # END CODE: the last of three ranks ends this way; both others must notice
    local output result
    output=$(HVD_TEST_END=$1 timeout -k 5 300 "$PY" tests/python/ranks.py -k -t 280 3 \
        "$PY" tests/python/rank.py lost 2>&1)
    result=$?
    [ "$result" -eq "$2" ] && [ "$(grep -c 'heard of it' <<<"$output")" -eq 2 ] && return
    printf '%s\n' "$output"
    return 1
}

no_library() {
    HVD_LIBRARY=/nowhere/libhvd.so refused 'libhvd.so was not found' "$PY" -c 'import hvd; hvd.init()'
}

no_store() {
    RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 HVD_START_TIMEOUT=2 \
        refused 'HvdError: rank 1 found no entry of rank 0' "$PY" -c 'import hvd; hvd.init()'
}

if has_libuv; then
    check "2 ranks under torchrun" torchrun static 2 ops life beside
else
    echo "SKIP: e2e/test_python/torchrun-static: libuv: this torch's torchrun needs it for a static rendezvous"
fi
check "2 ranks under torchrun that meets through a file" torchrun file 2 ops life beside
check "beside torch.distributed, its variables by hand" torch_variables
check "a killed rank" lost kill 137
check "a rank with an exception" lost exception 1
check "no library" no_library
check "no store" no_store
exit $failed
