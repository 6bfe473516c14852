#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hvd-doctor on this machine's GPUs: its facts compared with nvidia-smi's, every check of the group reaches a result, a
# captured machine gives the same results, and settings that hide GPUs are found. make test-gpu calls it. Skipped if the
# driver has no GPU.
# timeout: 300
# shellcheck disable=SC2317  # functions that check calls
# shellcheck source=tests/e2e/common.sh
. "$(dirname "$0")/../e2e/common.sh"
trap 'rm -rf "$TMP"' EXIT
DOCTOR=$BUILD/hvd-doctor
FIELDS=index,name,uuid,pci.bus_id,memory.total,compute_cap,temperature.gpu,driver_version
unset CUDA_VISIBLE_DEVICES

rc=0
"$DOCTOR" gather "$TMP/machine" --profile gpu --local-ranks 1 >"$TMP/gathered" 2>&1 || rc=$?
NVML=$TMP/machine/answers/nvml
gpus=$(sed -n 's/^count //p' "$NVML")
[ "${gpus:-0}" -gt 0 ] || skip_all GPU "$(sed -n 's/^error //p' "$NVML" | grep . || echo 'the driver has no GPU')"

# fact KEY: the driver's answer to the doctor
fact() {
    sed -n "s/^$1 //p" "$NVML"
}

same() { # WHAT DOCTOR'S NVIDIA-SMI'S
    echo "$1: doctor \"$2\", nvidia-smi \"$3\""
    [ "$2" = "$3" ]
}

as_nvidia_smi_says() {
    local index name uuid bus memory sm celsius driver seen=0
    while IFS=, read -r index name uuid bus memory sm celsius driver; do
        same driver "$(fact driver)" "$driver" || return 1
        same name "$(fact "gpu.$index.name")" "$name" || return 1
        same uuid "$(fact "gpu.$index.uuid")" "$uuid" || return 1
        same bus "$(fact "gpu.$index.pci")" "$bus" || return 1
        same MiB "$(($(fact "gpu.$index.memory") >> 20))" "$memory" || return 1
        same sm "$(fact "gpu.$index.sm")" "${sm/./}" || return 1
        # the temperature may have changed meanwhile
        echo "Celsius: doctor $(fact "gpu.$index.celsius"), nvidia-smi $celsius"
        local apart=$(($(fact "gpu.$index.celsius") - celsius))
        [ "${apart#-}" -le 25 ] || return 1
        seen=$((seen + 1))
    done < <(nvidia-smi --query-gpu="$FIELDS" --format=csv,noheader,nounits | sed 's/, /,/g')
    [ "$seen" -eq "$gpus" ]
}

# statuses: a line for each check of a report, without checks that load the machine or change from one second to the
# next
statuses() {
    "$DOCTOR" --json --profile gpu --local-ranks 1 --only gpu,nccl --skip gpu-throttle,gpu-temp,gpu-foreign-procs "$@" |
        /usr/bin/python3 -c '
import json, sys
for check in json.load(sys.stdin)["checks"]:
    print(check["id"], check["status"], check["summary"], sep="\t")'
}

every_check_answers() {
    statuses >"$TMP/live"
    cat "$TMP/live"
    [ "$(wc -l <"$TMP/live")" -ge 20 ] && ! cut -f 2 "$TMP/live" | grep -qx error &&
        grep -q "^nvml-load.pass.driver $(fact driver), $gpus GPU" "$TMP/live" &&
        grep -q '^cuinit.pass.*CUDA' "$TMP/live"
}

captured_says_the_same() {
    statuses --root "$TMP/machine" >"$TMP/captured"
    diff <(cut -f 1,2 "$TMP/live") <(cut -f 1,2 "$TMP/captured")
}

# hidden VALUE: a value of CUDA_VISIBLE_DEVICES with which a rank would not find its GPU
hidden() {
    local rc=0
    CUDA_VISIBLE_DEVICES=$1 "$DOCTOR" --profile gpu --only cuda-visible-devices >"$TMP/hidden" 2>&1 || rc=$?
    cat "$TMP/hidden"
    [ "$rc" -eq 1 ] && grep -q '^FAIL    cuda-visible-devices: CUDA_VISIBLE_DEVICES=' "$TMP/hidden"
}

check "gathering the machine ends with a verdict" [ "$rc" -le 1 ]
if command -v nvidia-smi >/dev/null; then
    check "the same as nvidia-smi says" as_nvidia_smi_says
else
    skip_part nvidia-smi nvidia-smi "it is not installed"
fi
check "every check of GPUs and NCCL answers" every_check_answers
check "so does the captured machine" captured_says_the_same
check "no GPU is visible" hidden ''
check "a GPU that is not there" hidden "0,$((gpus + 90))"
exit $failed
