/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda-old: the libcuda.so.1 of a driver before CUDA 11, which lacks functions.
 */
unsigned cuInit(unsigned flags);
unsigned cuDriverGetVersion(int *ret);

unsigned cuInit(unsigned flags)
{
    return 0;
}

unsigned cuDriverGetVersion(int *ret)
{
    *ret = 10020;
    return 0;
}
