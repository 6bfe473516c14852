/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor: the references to hvd-doctor's checks in the back ends' errors: "(doctor: <id>, <code>)"
 * behind the sentence. `hvd-doctor explain <id>` explains them. Ids and codes are those of the
 * doctor (tests/unit/diagnostics/test_backend_codes.c compares them).
 */
#ifndef HVD_BACKEND_DOCTOR_H
#define HVD_BACKEND_DOCTOR_H

#define DOCTOR(check) "(doctor: " check ")"

#define CHECK_NVML_LOAD       "nvml-load, HVD5001"
#define CHECK_GPU_COUNT       "gpu-count, HVD5004"
#define CHECK_VISIBLE_DEVICES "cuda-visible-devices, HVD5005"
#define CHECK_CUINIT          "cuinit, HVD5021"
#define CHECK_DRIVER_VERSION  "cuda-driver-version, HVD5022"
#define CHECK_GPU_ARCH        "gpu-arch-support, HVD5026"
#define CHECK_NCCL_LOAD       "nccl-load, HVD6001"
#define CHECK_NCCL_MULTIPLE   "nccl-multiple, HVD6002"
#define CHECK_NCCL_KNOWN_BAD  "nccl-known-bad, HVD6003"
#define CHECK_VERSION_SKEW    "xw-version-skew, HVD9601"

#endif
