#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# images.sh BUILD: checks that the images bundle and operator of the build for aarch64 declare that architecture. Called
# by test_arm64.sh.
set -u
export LC_ALL=C
build=$1
failed=0

version=$(sed -n 's/^#define HVD_VERSION "\(.*\)"/\1/p' core/include/hvd.h)
said=$(PLATFORM=linux/arm64 images/images.sh "$build" "$version" bundle operator 2>&1) || failed=1
echo "$said"
case $said in
*SKIP:*) exit 77 ;;
esac
for image in bundle operator; do
    # The archive's configuration is the only text blob that names an architecture.
    if ! tar -xOf "$build/images/hvd-$image.tar" --wildcards 'blobs/sha256/*' 2>/dev/null |
        grep -aq '"architecture":"arm64"'; then
        echo "FAILED: hvd-$image.tar does not say that it is for arm64"
        failed=1
    fi
done
exit $failed
