/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda: a libcuda.so.1 of ours on scripted values (script.h, FAKE_CUDA), for tests of hvd-probe.
 * Two H100 unless the script says otherwise.
 */
#include "tests/fake/script.h"

#define SCRIPT "FAKE_CUDA"

int cuInit(unsigned flags);
int cuDriverGetVersion(int *ret);
int cuDeviceGetCount(int *ret);
int cuDeviceGet(int *ret, int index);
int cuDeviceGetName(char *dst, int len, int device);
int cuDeviceGetAttribute(int *ret, int attribute, int device);
int cuDeviceCanAccessPeer(int *ret, int a, int b);
int cuGetErrorName(int error, const char **ret);
int cuGetErrorString(int error, const char **ret);

int cuInit(unsigned flags)
{
    return script_enter(SCRIPT, __func__, 0);
}

int cuDriverGetVersion(int *ret)
{
    *ret = (int)script_number(SCRIPT, "version", 0, 13000);
    return script_enter(SCRIPT, __func__, 0);
}

int cuDeviceGetCount(int *ret)
{
    *ret = (int)script_number(SCRIPT, "count", 0, 2);
    return script_enter(SCRIPT, __func__, 0);
}

int cuDeviceGet(int *ret, int index)
{
    *ret = index;
    return script_enter(SCRIPT, __func__, index);
}

int cuDeviceGetName(char *dst, int len, int device)
{
    snprintf(dst, (size_t)len, "NVIDIA H100 80GB HBM3");
    return script_enter(SCRIPT, __func__, device);
}

int cuDeviceGetAttribute(int *ret, int attribute, int device)
{
    long long sm = script_number(SCRIPT, "sm", device, 90);
    *ret = attribute == 75 ? (int)sm / 10 : attribute == 76 ? (int)sm % 10 : 0;
    return script_enter(SCRIPT, __func__, device);
}

int cuDeviceCanAccessPeer(int *ret, int a, int b)
{
    *ret = (int)script_number(SCRIPT, "peer", a, 1);
    return script_enter(SCRIPT, __func__, a);
}

int cuGetErrorName(int error, const char **ret)
{
    *ret = error == 802   ? "CUDA_ERROR_SYSTEM_NOT_READY"
           : error == 804 ? "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"
                          : "CUDA_ERROR_UNKNOWN";
    return 0;
}

int cuGetErrorString(int error, const char **ret)
{
    *ret = "said by the fake library";
    return 0;
}
