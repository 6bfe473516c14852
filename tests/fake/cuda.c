/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda: a fake libcuda.so.1: for tests of hvd-probe with scripted values (script.h, FAKE_CUDA), and
 * for tests of the back ends with a driver's semantics (cuda/fake.h, cuda/control.h). It has two
 * H100 unless the script says otherwise. This file: the driver and its devices.
 */
#include "tests/fake/cuda/fake.h"

static int number(const char *key, int device, long long def)
{
    return (int)script_number(SCRIPT, key, device, def);
}

unsigned cuInit(unsigned flags)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    unsigned code = fake_enter(__func__, FAKE_NOTHING);
    return code || !visible || (*visible && strcmp(visible, "-1") != 0) ? code : CUDA_NO_DEVICE;
}

unsigned cuDriverGetVersion(int *ret)
{
    *ret = number("version", 0, 13000);
    return fake_enter(__func__, FAKE_NOTHING);
}

unsigned cuDeviceGetCount(int *ret)
{
    *ret = number("count", 0, 2);
    return fake_enter(__func__, FAKE_INIT);
}

unsigned cuDeviceGet(int *ret, int ordinal)
{
    *ret = ordinal;
    if (ordinal < 0 || ordinal >= number("count", 0, 2))
        return CUDA_INVALID_DEVICE;
    return fake_enter(__func__, FAKE_INIT);
}

unsigned cuDeviceGetName(char *ret, int size, int device)
{
    snprintf(ret, (size_t)size, "NVIDIA H100 80GB HBM3");
    return fake_enter(__func__, FAKE_INIT);
}

unsigned cuDeviceGetAttribute(int *ret, unsigned attribute, int device)
{
    int sm = number("sm", device, 90);
    *ret = attribute == CUDA_ATTR_MAJOR             ? sm / 10
           : attribute == CUDA_ATTR_MINOR           ? sm % 10
           : attribute == CUDA_ATTR_MULTIPROCESSORS ? 132
                                                    : 0;
    return fake_enter(__func__, FAKE_INIT);
}

unsigned cuDeviceGetPCIBusId(char *ret, int size, int device)
{
    snprintf(ret, (size_t)size, "0000:%02x:00.0", number("bus", device, 7 + device));
    return fake_enter(__func__, FAKE_INIT);
}

static unsigned uuid(struct CUuuid_st *ret, int device)
{
    memset(ret, number("uuid", device, 0x40 + device), CUDA_UUID_SIZE);
    return CUDA_OK;
}

unsigned cuDeviceGetUuid(struct CUuuid_st *ret, int device)
{
    unsigned code = fake_enter(__func__, FAKE_INIT);
    return code ? code : uuid(ret, device);
}

unsigned cuDeviceGetUuid_v2(struct CUuuid_st *ret, int device)
{
    unsigned code = fake_enter(__func__, FAKE_INIT);
    return code ? code : uuid(ret, device);
}

unsigned cuDeviceCanAccessPeer(int *ret, int a, int b)
{
    *ret = number("peer", a, 1);
    return fake_enter(__func__, FAKE_INIT);
}

#define NAME(name, code, errnum, sticks) {code, "CUDA_ERROR_" #name},

static const struct {
    unsigned code;
    const char *name;
} names[] = {CUDA_ERRORS(NAME)};

/* Like the real function it gives no name for an unknown number. */
unsigned cuGetErrorName(unsigned code, const char **ret)
{
    *ret = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].code == code)
            *ret = names[i].name;
    return *ret ? CUDA_OK : CUDA_INVALID_VALUE;
}

unsigned cuGetErrorString(unsigned code, const char **ret)
{
    unsigned known = cuGetErrorName(code, ret);
    if (known == CUDA_OK)
        *ret = "said by the fake library";
    return known;
}
