#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# examples/transformer_torch.py, a model split over ranks by data, tensor and pipeline sets: on 8 ranks (2 x 2 x 2) the losses
# of one process to 1e-5 in each of 200 steps, on 4 ranks in two other splits in 20 steps, and splits that do not fit.
# timeout: 300
# takes: 60 s
# shellcheck disable=SC2317  # functions that check calls
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=tests/e2e/hvdrun.sh
. "$(dirname "$0")/hvdrun.sh"
PY=${PY:-/usr/bin/python3}
EXAMPLE=$ROOT/examples/transformer_torch.py
HVD_LIBRARY=$BUILD/libhvd.so
PYTHONPATH=$ROOT/core/python
export HVD_LIBRARY PYTHONPATH OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 HVD_DOCTOR=off HVD_LOG_LEVEL=warn

"$PY" -c 'import torch' 2>/dev/null || skip_all python3-torch "$PY cannot import it"

alone() {
    timeout -k 5 100 "$PY" "$EXAMPLE" --exact >"$TMP/alone" || return
    awk '{ loss[NR] = $4 } END { print "loss " loss[1] " to " loss[NR]; exit !(NR == 200 && loss[NR] < loss[1] / 2) }' "$TMP/alone"
}

# split RANKS STEPS OPTION...: these ranks have the losses of one process in the first STEPS steps
split() {
    timeout -k 5 120 "$RUN" --no-prefix -np "$1" "$PY" "$EXAMPLE" --exact --steps "$2" "${@:3}" >"$TMP/split" || return
    awk -v steps="$2" '
        NR == FNR { alone[$2] = $4; next }
        {
            seen++
            d = $4 - alone[$2]
            d = d < 0 ? -d : d
            if (d > most) most = d
            if (!($2 in alone) || !(d <= 1e-5)) { print "step " $2 ": loss " $4 ", alone " alone[$2]; bad = 1 }
        }
        END {
            print seen " of " steps " steps, largest difference " most
            exit bad || seen != steps
        }' "$TMP/alone" "$TMP/split"
}

unfit() { # WORDS RANKS OPTION...
    refused "error: $1" "$RUN" --no-prefix -np "$2" "$PY" "$EXAMPLE" "${@:3}"
}

check alone alone
check 2x2x2 split 8 200
sed 's/^/    /' "$TMP/out"
check parts-and-copies split 4 20 --tensor 2
check stages-alone split 4 20 --pipeline 4 --microbatches 8
check ranks-that-do-not-fit unfit '3 ranks cannot be shared by 2 parts x 2 stages: start a multiple of 4' 3
check heads-that-do-not-fit unfit '--tensor 3 does not divide the 4 heads' 3 --tensor 3
check rows-that-do-not-fit unfit 'the 32 rows of a step cannot be shared' 2 --pipeline 2 --microbatches 5
exit $failed
