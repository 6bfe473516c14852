#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# horovodrun: hvdrun for programs that import horovod, which they get from hvd. Takes hvdrun's options.
exec "$(dirname "$(readlink -f "$0")")/hvdrun" --horovod "$@"
