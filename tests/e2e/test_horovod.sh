#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Programs written for Horovod, unedited: tests/programs/horovod_digits.py under horovodrun and mpirun, on 1, 2 and 4 ranks,
# with each of its options; an elastic program; horovod.run(); horovodrun's own options.
# timeout: 900
# takes: 60 s
# shellcheck disable=SC2154,SC2317  # what common.sh sets; called by check
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
PY=${PY:-/usr/bin/python3}
DIGITS=$ROOT/tests/programs/horovod_digits.py
export HVD_LIBRARY=$BUILD/libhvd.so PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
unset PYTHONPATH
"$PY" -c 'import torch, sklearn' 2>/dev/null || skip_all python3-torch "$PY cannot import torch and sklearn"
[ -x "$BUILD/horovodrun" ] || skip_all hvdrun "it is not built"

# train RANKS OPTION...: prints the losses and accuracies
train() {
    timeout -k 5 200 "$BUILD/horovodrun" -np "$1" --doctor=off "$PY" "$DIGITS" "${@:2}" >"$TMP/said" || return
    sed -n 's/^\[0\]<stdout>:\(epoch.*\) size .*/\1/p' "$TMP/said" | tee "$TMP/lines"
    [ "$(wc -l <"$TMP/lines")" -ge 2 ]
}
# Without dropout the result does not depend on the number of ranks, except for rounding: losses and accuracies may differ by
# 0.002.
alone() {
    train 1 --dropout 0 >"$TMP/alone"
}
same() {
    train "$1" --dropout 0 | paste -d ' ' "$TMP/alone" - | awk '
        function far(a, b) { return a - b > 2e-3 || b - a > 2e-3 }
        { n++; if ($2 != $8 || far($4, $10) || far($6, $12)) bad = 1; print }
        END { exit bad || n != 4 }'
}
learns() {
    train 2 "$@" | awk '{ print; accuracy = $6 } END { exit !(accuracy > 0.8) }'
}
saves() {
    train 2 --epochs 2 --checkpoint "$TMP" && "$PY" -c '
import sys, torch
state = torch.load(sys.argv[1])
assert state["model"]["fc2.bias"].shape == (10,) and len(state["optimizer"]["state"]) == 6' "$TMP/checkpoint-1.pt"
}
under_mpirun() {
    PYTHONPATH=$(PYTHONPATH=core/python "$PY" -c 'import hvd.horovod_alias as a; print(a.FOLDER)') \
        timeout -k 5 200 mpirun -np 2 --oversubscribe --allow-run-as-root -x PYTHONPATH -x HVD_LIBRARY \
        "$PY" "$DIGITS" --dropout 0 | grep -q 'epoch 3 .* size 2'
}
# A rank dies in the middle of an epoch, and another one comes: all begin the function anew.
survives() {
    timeout -k 5 200 "$BUILD/horovodrun" -np 3 --min-np 2 --max-np 3 --doctor=off --blacklist-cooldown-range 1 1 \
        "$PY" tests/programs/horovod_elastic.py "$TMP/mark" >"$TMP/said" 2>&1 || { cat "$TMP/said" && return 1; }
    cat "$TMP/said"
    [ -e "$TMP/mark" ] && grep -q 'epoch 3 loss' "$TMP/said" && [ "$(grep -c 'done on' "$TMP/said")" -ge 2 ]
}
functions() {
    cat >"$TMP/functions.py" <<'END'
import horovod
def train(scale):
    import torch
    import horovod.torch as hvd
    hvd.init()
    return float(hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum)) * scale
END
    cat >"$TMP/main.py" <<'END'
import horovod, functions
print(horovod.run(functions.train, args=(2,), np=2))
END
    [ "$(PYTHONPATH=$ROOT/core/python/hvd/names timeout 100 "$PY" "$TMP/main.py")" = '[6.0, 6.0]' ]
}
# Nothing of Horovod's command line is refused.
takes_options() {
    printf 'params:\n  cycle_time_ms: 2\nautotune:\n  enabled: true\n' >"$TMP/config.yaml"
    timeout 60 "$BUILD/horovodrun" --gloo --disable-cache --num-proc 1 --config-file "$TMP/config.yaml" --log-level DEBUG \
        --no-hierarchical-allreduce --thread-affinity 1 --prefix-output-with-timestamp \
        printenv HVD_CYCLE_TIME >"$TMP/said" 2>"$TMP/noted" &&
        grep -qE '^[A-Z][a-z]{2} [A-Z][a-z]{2} [0-9 ]{2} [0-9:]{8} 20[0-9]{2}\[0\]<stdout>:2$' "$TMP/said" &&
        grep -q -- '--autotune changes nothing' "$TMP/noted"
}
says_what_there_is() {
    "$BUILD/horovodrun" -cb >"$TMP/said" && grep -q '^Horovod v0.28' "$TMP/said" &&
        grep -q '\[X\] Gloo' "$TMP/said" && grep -q '\[ \] MXNet' "$TMP/said" && "$BUILD/horovodrun" -v | grep -q 'horovod 0.28'
}

check 'one rank' alone
check 'two ranks compute the same' same 2
check 'four ranks compute the same' same 4
for options in '' --fp16-allreduce '--use-adasum --lr 0.02' '--batches-per-allreduce 2' '--gradient-predivide-factor 2' '--clip 1'; do
    # shellcheck disable=SC2086  # several words
    check "with ${options:-dropout}" learns $options
done
check 'a checkpoint' saves
if command -v mpirun >/dev/null; then
    check 'under mpirun' under_mpirun
else
    skip_part mpirun openmpi-bin "there is no mpirun"
fi
check 'an elastic program' survives
check 'horovod.run()' functions
check "horovodrun's options" takes_options
check 'check-build' says_what_there_is
exit $failed
