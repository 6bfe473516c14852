#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Compares our declarations of NCCL (core/backend/nccl_abi.h) with the real header of the pinned wheel.
# timeout: 600
# takes: 10 s, waiting
# shellcheck source=tests/e2e/common.sh
source "$(dirname "$0")/common.sh"
CC=${CC:-gcc}
WHEELS=$BUILD/wheels

tests/wheels.sh "$WHEELS" >"$TMP/wheels"
case $? in
0) ;;
77) skip_all pip "$(head -c 200 "$TMP/wheels")" ;;
*) exit 1 ;;
esac

"$CC" -std=gnu11 -Wall -Wextra -Werror -I. -Itests/e2e/nccl_abi -isystem "$WHEELS/nvidia/nccl/include" \
    -o "$TMP/nccl_abi" tests/e2e/nccl_abi.c || exit 1
"$TMP/nccl_abi"
